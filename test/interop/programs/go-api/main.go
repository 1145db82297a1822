// Calls every operation that ngrok's Go API client and the gateway share; prints a line for each step. With the argument
// `operator`, makes the calls of ngrok's Kubernetes operator instead.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/ngrok/ngrok-api-go/v9"
	"github.com/ngrok/ngrok-api-go/v9/api_keys"
	"github.com/ngrok/ngrok-api-go/v9/application_sessions"
	"github.com/ngrok/ngrok-api-go/v9/application_users"
	"github.com/ngrok/ngrok-api-go/v9/backends/http_response"
	"github.com/ngrok/ngrok-api-go/v9/backends/tunnel_group"
	"github.com/ngrok/ngrok-api-go/v9/bot_users"
	"github.com/ngrok/ngrok-api-go/v9/certificate_authorities"
	"github.com/ngrok/ngrok-api-go/v9/credentials"
	"github.com/ngrok/ngrok-api-go/v9/edge_modules/tls_edge_backend"
	"github.com/ngrok/ngrok-api-go/v9/edge_modules/tls_edge_ip_restriction"
	"github.com/ngrok/ngrok-api-go/v9/edge_modules/tls_edge_mutual_tls"
	"github.com/ngrok/ngrok-api-go/v9/edge_modules/tls_edge_tls_termination"
	"github.com/ngrok/ngrok-api-go/v9/edge_modules/tls_edge_traffic_policy"
	"github.com/ngrok/ngrok-api-go/v9/edges/tls"
	"github.com/ngrok/ngrok-api-go/v9/endpoints"
	"github.com/ngrok/ngrok-api-go/v9/event_destinations"
	"github.com/ngrok/ngrok-api-go/v9/event_sources"
	"github.com/ngrok/ngrok-api-go/v9/event_subscriptions"
	"github.com/ngrok/ngrok-api-go/v9/ip_policies"
	"github.com/ngrok/ngrok-api-go/v9/ip_policy_rules"
	"github.com/ngrok/ngrok-api-go/v9/ip_restrictions"
	"github.com/ngrok/ngrok-api-go/v9/reserved_addrs"
	"github.com/ngrok/ngrok-api-go/v9/reserved_domains"
	"github.com/ngrok/ngrok-api-go/v9/secrets"
	"github.com/ngrok/ngrok-api-go/v9/service_users"
	"github.com/ngrok/ngrok-api-go/v9/tls_certificates"
	"github.com/ngrok/ngrok-api-go/v9/tunnel_sessions"
	"github.com/ngrok/ngrok-api-go/v9/tunnels"
	"github.com/ngrok/ngrok-api-go/v9/vaults"
)

// given is what the caller prepared.
type given struct {
	CA          string
	Certificate string
	Key         string
	Domain      string
}

// readable is a collection that can be read.
type readable[Item, Paging any] interface {
	Get(context.Context, string) (*Item, error)
	List(*Paging) ngrok.Iter[*Item]
}

// writable is a collection that can be changed.
type writable[Create, Update, Item, Paging any] interface {
	readable[Item, Paging]
	Create(context.Context, *Create) (*Item, error)
	Update(context.Context, *Update) (*Item, error)
	Delete(context.Context, string) error
}

// module is a module of an edge.
type module[Replace, Answer any] interface {
	Replace(context.Context, *Replace) (*Answer, error)
	Get(context.Context, string) (*Answer, error)
	Delete(context.Context, string) error
}

var (
	ctx = context.Background()
	// Values of the updates.
	description, metadata = ngrok.String("changed"), ngrok.String("")
)

// step runs one step and prints its outcome.
func step(name string, try func() error) {
	line := map[string]any{"name": name, "failure": nil}
	if err := try(); err != nil {
		line["failure"] = err.Error()
	}
	text, err := json.Marshal(line)
	check(err)
	fmt.Println(string(text))
}

// life takes two items through all operations of a collection, and deletes them.
func life[C, U, I, P any](family string, items writable[C, U, I, P], create func(number int) *C, update *U) {
	var made []*I
	step(family+".create", func() error {
		for number := range 2 {
			sent := create(number)
			item, err := items.Create(ctx, sent)
			if err != nil {
				return err
			}
			made = append(made, item)
			if err := compare(sent, item); err != nil {
				return err
			}
		}
		return nil
	})
	if len(made) < 2 {
		return
	}
	read(family, items, idOf(made[0]), idOf(made[1]))
	reflect.ValueOf(update).Elem().FieldByName("ID").SetString(idOf(made[0]))
	// The client empties the id that it has put into the path.
	id := idOf(made[0])
	step(family+".update", func() error {
		item, err := items.Update(ctx, update)
		if err != nil {
			return err
		}
		if err := compare(update, item); err != nil {
			return err
		}
		if item, err = items.Get(ctx, id); err != nil {
			return err
		}
		return compare(update, item)
	})
	step(family+".delete", func() error {
		for _, item := range made {
			if err := items.Delete(ctx, idOf(item)); err != nil {
				return err
			}
			if _, err := items.Get(ctx, idOf(item)); !ngrok.IsNotFound(err) {
				return fmt.Errorf("it is still there: %v", err)
			}
		}
		return nil
	})
}

// read gets these items, lists them page by page, and is refused a filter.
func read[I, P any](family string, items readable[I, P], ids ...string) {
	step(family+".get", func() error {
		for _, id := range ids {
			item, err := items.Get(ctx, id)
			if err != nil {
				return err
			}
			if idOf(item) != id {
				return fmt.Errorf("asked for %s, got %s", id, idOf(item))
			}
		}
		return nil
	})
	step(family+".list", func() error {
		listed, err := list(items, "Limit", "1")
		if err != nil {
			return err
		}
		for _, id := range ids {
			if !slices.Contains(listed, id) {
				return fmt.Errorf("%s is not in %v", id, listed)
			}
		}
		if pages := slices.Clone(listed); len(slices.Compact(slices.Sorted(slices.Values(pages)))) != len(listed) {
			return fmt.Errorf("an item is on two pages: %v", listed)
		}
		return nil
	})
	if !reflect.ValueOf(new(P)).Elem().FieldByName("Filter").IsValid() {
		return
	}
	step(family+".list: a filter is refused", func() error {
		if listed, err := list(items, "Filter", "true"); !ngrok.IsErrorCode(err, 231) {
			return fmt.Errorf("%v, %v", listed, err)
		}
		return nil
	})
}

// list lists ids, with an option.
func list[I, P any](items readable[I, P], option, value string) ([]string, error) {
	paging := new(P)
	reflect.ValueOf(paging).Elem().FieldByName(option).Set(reflect.ValueOf(&value))
	var ids []string
	iterator := items.List(paging)
	for iterator.Next(ctx) {
		ids = append(ids, idOf(iterator.Item()))
	}
	return ids, iterator.Err()
}

// use sets, reads and removes a module of an edge.
func use[R, A any](family string, of module[R, A], edge string, replacement *R) {
	sent := reflect.ValueOf(replacement).Elem().FieldByName("Module").Addr().Interface()
	reflect.ValueOf(replacement).Elem().FieldByName("ID").SetString(edge)
	step(family+".replace", func() error {
		answer, err := of.Replace(ctx, replacement)
		if err != nil {
			return err
		}
		return compare(sent, answer)
	})
	step(family+".get", func() error {
		answer, err := of.Get(ctx, edge)
		if err != nil {
			return err
		}
		return compare(sent, answer)
	})
	step(family+".delete", func() error {
		if err := of.Delete(ctx, edge); err != nil {
			return err
		}
		if _, err := of.Get(ctx, edge); !ngrok.IsNotFound(err) {
			return fmt.Errorf("it is still there: %v", err)
		}
		return nil
	})
}

// compare checks that the answer repeats what was sent, where both have a member of one type.
func compare(sent, answer any) error {
	given, got := reflect.ValueOf(sent).Elem(), reflect.ValueOf(answer).Elem()
	for index := range given.NumField() {
		name := given.Type().Field(index).Name
		want, have := reflect.Indirect(given.Field(index)), got.FieldByName(name)
		if name == "ID" || !have.IsValid() || !want.IsValid() {
			continue
		}
		have = reflect.Indirect(have)
		if isUnset := given.Field(index).IsZero(); isUnset {
			continue
		}
		if !have.IsValid() {
			return fmt.Errorf("%s is missing", name)
		}
		if want.Type() == have.Type() && !reflect.DeepEqual(want.Interface(), have.Interface()) {
			return fmt.Errorf("%s: sent %v, got %v", name, want, have)
		}
	}
	return nil
}

func idOf(item any) string {
	return reflect.ValueOf(item).Elem().FieldByName("ID").String()
}

func main() {
	var prepared given
	text, err := os.ReadFile(os.Args[len(os.Args)-1])
	check(err)
	check(json.Unmarshal(text, &prepared))
	if len(os.Args) > 2 {
		operator(prepared)
		return
	}
	config := ngrok.NewClientConfig(os.Getenv("NGROK_API_KEY"), ngrok.WithBaseURL(os.Getenv("NGROK_API_BASE_URL")))
	collections(config, prepared)
	edges(config, prepared)
	signedIn(config)
	online(config)
}

func collections(config *ngrok.ClientConfig, prepared given) {
	const about, more = "first", `{"a":1}`
	off := ngrok.Bool(false)
	life("apiKeys", api_keys.NewClient(config),
		func(int) *ngrok.APIKeyCreate { return &ngrok.APIKeyCreate{Description: about, Metadata: more} },
		&ngrok.APIKeyUpdate{Description: description, Metadata: metadata})
	life("botUsers", bot_users.NewClient(config),
		func(int) *ngrok.BotUserCreate { return &ngrok.BotUserCreate{Name: about} },
		&ngrok.BotUserUpdate{Name: description, Active: off})
	life("serviceUsers", service_users.NewClient(config),
		func(int) *ngrok.ServiceUserCreate { return &ngrok.ServiceUserCreate{Name: about, Active: off} },
		&ngrok.ServiceUserUpdate{Name: description, Active: ngrok.Bool(true)})
	life("credentials", credentials.NewClient(config),
		func(int) *ngrok.CredentialCreate {
			return &ngrok.CredentialCreate{Description: about, Metadata: more, ACL: []string{"bind:a.example.com"}}
		},
		&ngrok.CredentialUpdate{Description: description, Metadata: metadata, ACL: []string{"bind:b.example.com"}})
	life("certificateAuthorities", certificate_authorities.NewClient(config),
		func(int) *ngrok.CertificateAuthorityCreate {
			return &ngrok.CertificateAuthorityCreate{Description: about, Metadata: more, CAPEM: prepared.CA}
		},
		&ngrok.CertificateAuthorityUpdate{Description: description, Metadata: metadata})
	life("tlsCertificates", tls_certificates.NewClient(config),
		func(int) *ngrok.TLSCertificateCreate { return certificate(prepared) },
		&ngrok.TLSCertificateUpdate{Description: description, Metadata: metadata})
	life("ipPolicies", ip_policies.NewClient(config),
		func(int) *ngrok.IPPolicyCreate { return &ngrok.IPPolicyCreate{Description: about, Metadata: more} },
		&ngrok.IPPolicyUpdate{Description: description, Metadata: metadata})
	policy, err := ip_policies.NewClient(config).Create(ctx, nil)
	check(err)
	life("ipPolicyRules", ip_policy_rules.NewClient(config),
		func(number int) *ngrok.IPPolicyRuleCreate {
			cidr := fmt.Sprintf("192.0.2.%d/32", number)
			return &ngrok.IPPolicyRuleCreate{CIDR: cidr, IPPolicyID: policy.ID, Action: ngrok.String("deny")}
		},
		&ngrok.IPPolicyRuleUpdate{Description: description, CIDR: ngrok.String("2001:db8::/32")})
	life("tunnelGroupBackends", tunnel_group.NewClient(config),
		func(int) *ngrok.TunnelGroupBackendCreate {
			return &ngrok.TunnelGroupBackendCreate{Description: about, Labels: map[string]string{"a": "b"}}
		},
		&ngrok.TunnelGroupBackendUpdate{Description: description, Labels: map[string]string{"c": "d"}})
	gone, missing := int32(410), int32(404)
	life("httpResponseBackends", http_response.NewClient(config),
		func(int) *ngrok.HTTPResponseBackendCreate {
			headers := map[string]string{"x-a": "b"}
			return &ngrok.HTTPResponseBackendCreate{Body: about, Headers: headers, StatusCode: &gone}
		},
		&ngrok.HTTPResponseBackendUpdate{Body: description, StatusCode: &missing})
	life("ipRestrictions", ip_restrictions.NewClient(config),
		func(number int) *ngrok.IPRestrictionCreate {
			restricted := []string{"agent", "endpoints"}[number]
			return &ngrok.IPRestrictionCreate{Description: about, Type: restricted, IPPolicyIDs: []string{policy.ID}}
		},
		&ngrok.IPRestrictionUpdate{Description: description})
	life("reservedAddrs", reserved_addrs.NewClient(config),
		func(int) *ngrok.ReservedAddrCreate {
			return &ngrok.ReservedAddrCreate{Description: about, Metadata: more}
		},
		&ngrok.ReservedAddrUpdate{Description: description})
	domains(config, prepared)
	policies(config, prepared)
	events(config)
}

// policies has what policies need: vaults with secrets, and endpoints that only they serve.
func policies(config *ngrok.ClientConfig, prepared given) {
	const about, more = "first", `{"a":1}`
	stores := vaults.NewClient(config)
	life("vaults", stores,
		func(number int) *ngrok.VaultCreate {
			return &ngrok.VaultCreate{Name: fmt.Sprintf("go-%d", number), Description: about, Metadata: more}
		},
		&ngrok.VaultUpdate{Name: ngrok.String("renamed"), Description: description})
	vault, err := stores.Create(ctx, &ngrok.VaultCreate{Name: "kept"})
	check(err)
	values := secrets.NewClient(config)
	life("secrets", values,
		func(number int) *ngrok.SecretCreate {
			return &ngrok.SecretCreate{Name: fmt.Sprintf("go-%d", number), Value: "hidden", VaultID: vault.ID}
		},
		&ngrok.SecretUpdate{Value: ngrok.String("other"), Description: description})
	step("vaults.listSecrets", func() error {
		secret, err := values.Create(ctx, &ngrok.SecretCreate{Name: "listed", Value: "hidden", VaultID: vault.ID})
		if err != nil {
			return err
		}
		iterator := stores.GetSecretsByVault(vault.ID, nil)
		for iterator.Next(ctx) {
			if iterator.Item().ID == secret.ID {
				return nil
			}
		}
		return fmt.Errorf("%s is not listed: %v", secret.ID, iterator.Err())
	})
	answers := `{"on_http_request":[{"actions":[{"type":"deny"}]}]}`
	life("endpoints", endpoints.NewClient(config),
		func(number int) *ngrok.EndpointCreate {
			url := fmt.Sprintf("https://go%d.%s", number, prepared.Domain)
			return &ngrok.EndpointCreate{URL: url, Type: "cloud", TrafficPolicy: answers, Bindings: []string{"public"}}
		},
		&ngrok.EndpointUpdate{Description: description, TrafficPolicy: ngrok.String(answers + " ")})
}

// events subscribes to events. The client knows none of the gateway's destinations.
func events(config *ngrok.ClientConfig) {
	const added, first = "domain_deleted.v0", "domain_created.v0"
	step("eventDestinations.list", func() error {
		_, err := list(event_destinations.NewClient(config), "Limit", "1")
		return err
	})
	client := event_subscriptions.NewClient(config)
	of := []ngrok.EventSourceReplace{{Type: first}}
	life("eventSubscriptions", client,
		func(int) *ngrok.EventSubscriptionCreate {
			return &ngrok.EventSubscriptionCreate{Description: "first", Metadata: `{"a":1}`}
		},
		&ngrok.EventSubscriptionUpdate{Description: description, Metadata: metadata})
	kept, err := client.Create(ctx, &ngrok.EventSubscriptionCreate{Sources: of})
	check(err)
	sources := event_sources.NewClient(config)
	item := func() *ngrok.EventSourceItem { return &ngrok.EventSourceItem{SubscriptionID: kept.ID, Type: added} }
	step("eventSubscriptions.addSource", func() error {
		_, err := sources.Create(ctx, &ngrok.EventSourceCreate{SubscriptionID: kept.ID, Type: added})
		return err
	})
	step("eventSubscriptions.getSource", func() error {
		_, err := sources.Get(ctx, item())
		return err
	})
	step("eventSubscriptions.updateSource", func() error {
		_, err := sources.Update(ctx, &ngrok.EventSourceUpdate{SubscriptionID: kept.ID, Type: added})
		return err
	})
	step("eventSubscriptions.getSources", func() error {
		listed, err := sources.List(ctx, kept.ID)
		if err == nil && len(listed.Sources) != 2 {
			return fmt.Errorf("%v", listed)
		}
		return err
	})
	step("eventSubscriptions.removeSource", func() error { return sources.Delete(ctx, item()) })
}

func certificate(prepared given) *ngrok.TLSCertificateCreate {
	return &ngrok.TLSCertificateCreate{
		Description: "first", CertificatePEM: prepared.Certificate, PrivateKeyPEM: prepared.Key,
	}
}

func domains(config *ngrok.ClientConfig, prepared given) {
	client := reserved_domains.NewClient(config)
	policy := &ngrok.ReservedDomainCertPolicy{Authority: "letsencrypt", PrivateKeyType: "ecdsa"}
	life("reservedDomains", client,
		func(number int) *ngrok.ReservedDomainCreate {
			domain := fmt.Sprintf("go%d.example.com", number)
			return &ngrok.ReservedDomainCreate{Domain: domain, Description: "first", CertificateManagementPolicy: policy}
		},
		&ngrok.ReservedDomainUpdate{Description: description, Metadata: metadata})
	managed, err := client.Create(ctx, &ngrok.ReservedDomainCreate{Domain: "managed.example.com", CertificateManagementPolicy: policy})
	check(err)
	step("reservedDomains.detachCertificateManagementPolicy", func() error {
		if err := client.DeleteCertificateManagementPolicy(ctx, managed.ID); err != nil {
			return err
		}
		if managed, err = client.Get(ctx, managed.ID); err != nil || managed.CertificateManagementPolicy != nil {
			return fmt.Errorf("%v, %w", managed, err)
		}
		return nil
	})
	uploaded, err := tls_certificates.NewClient(config).Create(ctx, certificate(prepared))
	check(err)
	own, err := client.Create(ctx, &ngrok.ReservedDomainCreate{Domain: "uploaded.example.com", CertificateID: &uploaded.ID})
	check(err)
	step("reservedDomains.detachCertificate", func() error {
		if own.Certificate == nil || own.Certificate.ID != uploaded.ID {
			return fmt.Errorf("not attached: %v", own)
		}
		if err := client.DeleteCertificate(ctx, own.ID); err != nil {
			return err
		}
		if own, err = client.Get(ctx, own.ID); err != nil || own.Certificate != nil {
			return fmt.Errorf("%v, %w", own, err)
		}
		return nil
	})
}

func edges(config *ngrok.ClientConfig, prepared given) {
	client := tls.NewClient(config)
	for number := range 2 {
		domain := fmt.Sprintf("edge%d.example.com", number)
		_, err := reserved_domains.NewClient(config).Create(ctx, &ngrok.ReservedDomainCreate{Domain: domain})
		check(err)
	}
	life("tlsEdges", client,
		func(number int) *ngrok.TLSEdgeCreate {
			return &ngrok.TLSEdgeCreate{Description: "first", Hostports: []string{fmt.Sprintf("edge%d.example.com:443", number)}}
		},
		&ngrok.TLSEdgeUpdate{Description: description, Metadata: metadata})
	edge, err := client.Create(ctx, nil)
	check(err)
	backend, err := http_response.NewClient(config).Create(ctx, nil)
	check(err)
	policy, err := ip_policies.NewClient(config).Create(ctx, nil)
	check(err)
	authority, err := certificate_authorities.NewClient(config).Create(ctx, &ngrok.CertificateAuthorityCreate{CAPEM: prepared.CA})
	check(err)
	on := ngrok.Bool(true)
	use("tlsEdgeBackend", tls_edge_backend.NewClient(config), edge.ID,
		&ngrok.EdgeBackendReplace{Module: ngrok.EndpointBackendMutate{Enabled: on, BackendID: backend.ID}})
	use("tlsEdgeIpRestriction", tls_edge_ip_restriction.NewClient(config), edge.ID,
		&ngrok.EdgeIPRestrictionReplace{Module: ngrok.EndpointIPPolicyMutate{Enabled: on, IPPolicyIDs: []string{policy.ID}}})
	use("tlsEdgeMutualTls", tls_edge_mutual_tls.NewClient(config), edge.ID,
		&ngrok.EdgeMutualTLSReplace{Module: ngrok.EndpointMutualTLSMutate{Enabled: on, CertificateAuthorityIDs: []string{authority.ID}}})
	use("tlsEdgeTlsTermination", tls_edge_tls_termination.NewClient(config), edge.ID,
		&ngrok.EdgeTLSTerminationReplace{Module: ngrok.EndpointTLSTermination{Enabled: on, TerminateAt: "edge", MinVersion: ngrok.String("1.3")}})
	use("tlsEdgeTrafficPolicy", tls_edge_traffic_policy.NewClient(config), edge.ID,
		&ngrok.EdgeTrafficPolicyReplace{Module: ngrok.EndpointTrafficPolicy{Enabled: on, Value: `{"on_tcp_connect":[]}`}})
}

// signedIn reads who has signed in, and ends a session and all sessions of a person.
func signedIn(config *ngrok.ClientConfig) {
	sessions := application_sessions.NewClient(config)
	users := application_users.NewClient(config)
	ids, err := list(sessions, "Limit", "100")
	check(err)
	read("applicationSessions", sessions, ids...)
	people, err := list(users, "Limit", "100")
	check(err)
	read("applicationUsers", users, people...)
	step("applicationSessions.delete", func() error { return sessions.Delete(ctx, ids[0]) })
	step("applicationUsers.delete", func() error {
		left, err := list(users, "Limit", "100")
		if err != nil || len(left) != len(people)-1 {
			return fmt.Errorf("%v, %v", left, err)
		}
		return users.Delete(ctx, left[0])
	})
}

// online reads what the connected agent has online, and sends the agent commands.
func online(config *ngrok.ClientConfig) {
	first := func(ids []string, err error) string {
		check(err)
		if len(ids) == 0 {
			panic("nothing is online")
		}
		return ids[0]
	}
	bound := endpoints.NewClient(config)
	read("endpoints", bound, first(list(bound, "Limit", "100")))
	opened := tunnels.NewClient(config)
	read("tunnels", opened, first(list(opened, "Limit", "100")))
	sessions := tunnel_sessions.NewClient(config)
	session := first(list(sessions, "Limit", "100"))
	read("tunnelSessions", sessions, session)
	step("tunnelSessions.update", func() error { return sessions.Update(ctx, session) })
	step("tunnelSessions.restart", func() error { return sessions.Restart(ctx, session) })
	step("tunnelSessions.stop", func() error {
		// The agent is restarting: its next session comes in a moment.
		for range 100 {
			ids, err := list(sessions, "Limit", "100")
			if err != nil {
				return err
			}
			if at := slices.IndexFunc(ids, func(id string) bool { return id != session }); at >= 0 {
				return sessions.Stop(ctx, ids[at])
			}
			time.Sleep(100 * time.Millisecond)
		}
		return fmt.Errorf("the agent has no other session than %s", session)
	})
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
