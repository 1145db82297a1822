// An agent with version 1 of the Go SDK.
package main

import (
	"context"
	"crypto/x509"
	"net/url"

	"agent/plan"

	"golang.ngrok.com/ngrok"
	"golang.ngrok.com/ngrok/config"
)

func main() {
	plan.Run(carryOut)
}

func carryOut(wanted plan.Plan, authorities *x509.CertPool) plan.Online {
	ctx := context.Background()
	session, err := connect(ctx,
		ngrok.WithServer(wanted.Server),
		ngrok.WithAdditionalServers(wanted.AdditionalServers),
		ngrok.WithMultiLeg(len(wanted.AdditionalServers) > 0),
		ngrok.WithCA(authorities),
		ngrok.WithAuthtoken(wanted.Authtoken),
		ngrok.WithMetadata("of the session"),
	)
	plan.Check(err)
	var got plan.Online
	for _, each := range wanted.Endpoints {
		options := config.HTTPEndpoint(httpOptions(each)...)
		upstream := &url.URL{Scheme: "http", Host: wanted.Upstream}
		if each.Protocol == "tls" {
			options, upstream.Scheme = config.TLSEndpoint(tlsOptions(each)...), "tcp"
		}
		forwarder, err := session.ListenAndForward(ctx, upstream, options)
		plan.Check(err)
		got.URLs = append(got.URLs, forwarder.URL())
	}
	return got
}

// Connect can lose what the gateway has just answered, when the answer is faster than its next line (1.12.1). Such a session has
// no region, and panics when it forwards.
func connect(ctx context.Context, options ...ngrok.ConnectOption) (ngrok.Session, error) {
	for {
		session, err := ngrok.Connect(ctx, options...)
		if err != nil || session.(interface{ Region() string }).Region() != "" {
			return session, err
		}
		session.Close()
	}
}

func httpOptions(wanted plan.Endpoint) []config.HTTPEndpointOption {
	options := []config.HTTPEndpointOption{
		config.WithDomain(wanted.Domain),
		config.WithName(wanted.Name),
		config.WithDescription(wanted.Description),
		config.WithMetadata(wanted.Metadata),
	}
	if wanted.Policy != "" {
		options = append(options, config.WithTrafficPolicy(wanted.Policy))
	}
	if wanted.Binding != "" {
		options = append(options, config.WithBindings(wanted.Binding))
	}
	return options
}

func tlsOptions(wanted plan.Endpoint) []config.TLSEndpointOption {
	options := []config.TLSEndpointOption{config.WithDomain(wanted.Domain), config.WithMetadata(wanted.Metadata)}
	if wanted.Policy != "" {
		options = append(options, config.WithTrafficPolicy(wanted.Policy))
	}
	if wanted.EdgeTermination {
		options = append(options, config.WithTLSTermination())
	}
	return options
}
