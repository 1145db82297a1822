package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/ngrok/ngrok-api-go/v7"
	"github.com/ngrok/ngrok-api-go/v7/api_keys"
	"github.com/ngrok/ngrok-api-go/v7/endpoints"
	"github.com/ngrok/ngrok-api-go/v7/ip_policies"
	"github.com/ngrok/ngrok-api-go/v7/ip_policy_rules"
	"github.com/ngrok/ngrok-api-go/v7/kubernetes_operators"
	"github.com/ngrok/ngrok-api-go/v7/reserved_addrs"
	"github.com/ngrok/ngrok-api-go/v7/reserved_domains"
)

// Metadata as the Kubernetes operator sends it.
var owned = `{"owned-by":"ngrok-operator"}`

// operator makes the calls of the Kubernetes operator's controllers, and expects what they expect.
func operator(prepared given) {
	config := ngrok.NewClientConfig(os.Getenv("NGROK_API_KEY"), ngrok.WithBaseURL(os.Getenv("NGROK_API_BASE_URL")))
	step("the API key is tried", func() error {
		limit := "1"
		keys := api_keys.NewClient(config).List(&ngrok.Paging{Limit: &limit})
		keys.Next(ctx)
		return keys.Err()
	})
	step("KubernetesOperator: 404, after which the operator tries again later", func() error {
		client := kubernetes_operators.NewClient(config)
		if found, err := collect(client.List(&ngrok.Paging{})); err != nil || len(found) > 0 {
			return fmt.Errorf("%v, %v", found, err)
		}
		_, err := client.Create(ctx, &ngrok.KubernetesOperatorCreate{EnabledFeatures: []string{"ingress"}, Metadata: owned})
		return refused(err, ngrok.IsNotFound(err))
	})
	domainController(reserved_domains.NewClient(config), "shop."+prepared.Domain)
	ipPolicyController(config)
	cloudEndpointController(endpoints.NewClient(config), prepared.Domain)
	step("Service of type LoadBalancer: reserve an address, and find it again", func() error {
		client := reserved_addrs.NewClient(config)
		made, err := client.Create(ctx, &ngrok.ReservedAddrCreate{Description: "Reserved for default/db", Metadata: `{"namespace":"default","name":"db"}`})
		if err != nil {
			return err
		}
		all, err := collect(client.List(&ngrok.Paging{}))
		if !slices.ContainsFunc(all, func(one *ngrok.ReservedAddr) bool { return one.Addr == made.Addr }) {
			return fmt.Errorf("%s is not listed: %v", made.Addr, err)
		}
		return nil
	})
}

func domainController(client *reserved_domains.Client, name string) {
	var made *ngrok.ReservedDomain
	step("Domain: look it up, and create it", func() error {
		all, err := collect(client.List(&ngrok.Paging{}))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(one *ngrok.ReservedDomain) bool { return one.Domain == name }) {
			return fmt.Errorf("%s exists", name)
		}
		made, err = client.Create(ctx, &ngrok.ReservedDomainCreate{Domain: name, Description: "shop", Metadata: owned})
		return err
	})
	step("Domain: ready, and unchanged in the next round", func() error {
		got, err := client.Get(ctx, made.ID)
		if err != nil {
			return err
		}
		if got.CertificateManagementPolicy != nil && got.Certificate == nil {
			return fmt.Errorf("not ready: %v", got)
		}
		if got.Domain != name || got.Description != "shop" || got.Metadata != owned || got.ResolvesTo != nil {
			return fmt.Errorf("would be updated: %v", got)
		}
		return nil
	})
	step("Domain: update, delete", func() error {
		if _, err := client.Update(ctx, &ngrok.ReservedDomainUpdate{ID: made.ID, Description: ngrok.String(""), Metadata: &owned}); err != nil {
			return err
		}
		return remove(client.Delete, func(id string) error { _, err := client.Get(ctx, id); return err }, made.ID)
	})
}

func ipPolicyController(config *ngrok.ClientConfig) {
	policies, rules := ip_policies.NewClient(config), ip_policy_rules.NewClient(config)
	var policy *ngrok.IPPolicy
	// The operator lists the rules of all policies, and compares them by range and action.
	remote := func() (map[string]*ngrok.IPPolicyRule, error) {
		all, err := collect(rules.List(&ngrok.Paging{}))
		found := map[string]*ngrok.IPPolicyRule{}
		for _, rule := range all {
			if rule.IPPolicy.ID == policy.ID {
				found[rule.CIDR+" "+rule.Action] = rule
			}
		}
		return found, err
	}
	add := func(cidr, action string) error {
		_, err := rules.Create(ctx, &ngrok.IPPolicyRuleCreate{IPPolicyID: policy.ID, CIDR: cidr, Action: &action, Metadata: owned})
		return err
	}
	step("IPPolicy: create, with rules", func() (err error) {
		if policy, err = policies.Create(ctx, &ngrok.IPPolicyCreate{Description: "office", Metadata: owned}); err != nil {
			return err
		}
		return cmp.Or(add("192.0.2.0/24", "deny"), add("2001:db8::/32", "allow"), add("203.0.113.7/32", "allow"))
	})
	step("IPPolicy: unchanged in the next round", func() error {
		got, err := policies.Get(ctx, policy.ID)
		if err != nil || got.Description != "office" || got.Metadata != owned {
			return fmt.Errorf("would be updated: %v, %v", got, err)
		}
		found, err := remote()
		for _, rule := range []string{"192.0.2.0/24 deny", "2001:db8::/32 allow", "203.0.113.7/32 allow"} {
			if found[rule] == nil || found[rule].Metadata != owned {
				return fmt.Errorf("%s would be created: %v, %v", rule, found, err)
			}
		}
		return nil
	})
	step("IPPolicy: an allowed range becomes a denied one", func() error {
		found, err := remote()
		if err != nil {
			return err
		}
		return cmp.Or(rules.Delete(ctx, found["2001:db8::/32 allow"].ID), add("2001:db8::/32", "deny"))
	})
	step("IPPolicy: an invalid range is named as such", func() error {
		err := add("10.0.0.0/33", "allow")
		return refused(err, ngrok.IsErrorCode(err, 1406))
	})
	step("IPPolicy: delete", func() error {
		return remove(policies.Delete, func(id string) error { _, err := policies.Get(ctx, id); return err }, policy.ID)
	})
}

func cloudEndpointController(client *endpoints.Client, domain string) {
	const policy = `{"on_http_request":[{"name":"Generated-Route","expressions":["req.url.path.startsWith('/a')"],"actions":[{"type":"forward-internal","config":{"url":"https://a-default-80.internal"}}]},{"actions":[{"type":"custom-response","config":{"status_code":404,"content":"No route was found for this ngrok Endpoint"}}]}]}`
	for kind, sent := range map[string]*ngrok.EndpointCreate{
		"public":   {URL: "https://shop." + domain, TrafficPolicy: policy, Bindings: []string{"public"}, PoolingEnabled: ngrok.Bool(false)},
		"http":     {URL: "http://plain." + domain, TrafficPolicy: policy, Bindings: []string{"public"}},
		"internal": {URL: "https://a-default-80.internal", TrafficPolicy: policy, Bindings: []string{"internal"}},
		"tls":      {URL: "tls://tls." + domain + ":443", TrafficPolicy: `{"on_tcp_connect":[{"actions":[{"type":"forward-internal","config":{"url":"tls://db-default-5432.internal:5432"}}]}]}`, Bindings: []string{"public"}},
	} {
		sent.Type, sent.Description, sent.Metadata = "cloud", ngrok.String("shop"), &owned
		var made *ngrok.Endpoint
		step("CloudEndpoint "+kind+": create", func() (err error) {
			made, err = client.Create(ctx, sent)
			return err
		})
		step("CloudEndpoint "+kind+": unchanged in the next round", func() error {
			got, err := client.Get(ctx, made.ID)
			if err == nil && (got.URL != sent.URL || got.TrafficPolicy != sent.TrafficPolicy || got.Metadata != owned || !slices.Equal(got.Bindings, sent.Bindings)) {
				return fmt.Errorf("would be updated: %v", got)
			}
			return err
		})
		step("CloudEndpoint "+kind+": update, delete", func() error {
			changed := &ngrok.EndpointUpdate{ID: made.ID, Url: &sent.URL, Description: ngrok.String("changed"), TrafficPolicy: &sent.TrafficPolicy, Bindings: sent.Bindings}
			if _, err := client.Update(ctx, changed); err != nil {
				return err
			}
			return remove(client.Delete, func(id string) error { _, err := client.Get(ctx, id); return err }, made.ID)
		})
	}
	step("CloudEndpoint: another one with pooling, which the operator tries again later", func() error {
		sent := &ngrok.EndpointCreate{Type: "cloud", URL: "https://pool." + domain, TrafficPolicy: policy}
		made, err := client.Create(ctx, sent)
		if err != nil {
			return err
		}
		sent.PoolingEnabled = ngrok.Bool(true)
		_, err = client.Create(ctx, sent)
		return cmp.Or(refused(err, ngrok.IsErrorCode(err, 18016, 18017)), client.Delete(ctx, made.ID))
	})
	step("CloudEndpoint: an invalid policy is named as such", func() error {
		_, err := client.Create(ctx, &ngrok.EndpointCreate{Type: "cloud", URL: "https://shop." + domain, TrafficPolicy: `{"on_http_request":[{"actions":[{"type":"no-such"}]}]}`})
		return refused(err, ngrok.IsErrorCode(err, 2201))
	})
}

// collect reads a list to its end.
func collect[T any](items ngrok.Iter[T]) (all []T, err error) {
	for items.Next(ctx) {
		all = append(all, items.Item())
	}
	return all, items.Err()
}

// remove deletes an item, which then is not found.
func remove(remove func(context.Context, string) error, get func(string) error, id string) error {
	if err := remove(ctx, id); err != nil {
		return err
	}
	err := get(id)
	return refused(err, ngrok.IsNotFound(err))
}

func refused(err error, as bool) error {
	if as {
		return nil
	}
	return fmt.Errorf("not refused as expected: %v", err)
}
