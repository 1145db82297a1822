// An agent with version 2 of the Go SDK.
package main

import (
	"context"
	"crypto/x509"

	"agent/plan"

	"golang.ngrok.com/ngrok/v2"
)

func main() {
	plan.Run(carryOut)
}

func carryOut(wanted plan.Plan, authorities *x509.CertPool) plan.Online {
	ctx := context.Background()
	agent, err := ngrok.NewAgent(
		ngrok.WithAgentConnectURL(wanted.Server),
		ngrok.WithAgentConnectCAs(authorities),
		ngrok.WithAuthtoken(wanted.Authtoken),
		ngrok.WithAgentMetadata("of the session"),
	)
	plan.Check(err)
	diagnosed, err := agent.(ngrok.Diagnoser).Diagnose(ctx, wanted.Server)
	plan.Check(err)
	got := plan.Online{Diagnosed: diagnosed.Region}
	for _, each := range wanted.Endpoints {
		options := []ngrok.EndpointOption{
			ngrok.WithURL(each.Protocol + "://" + each.Domain),
			// Updated below.
			ngrok.WithName("first"),
			ngrok.WithDescription(each.Description),
			ngrok.WithMetadata(each.Metadata),
		}
		if each.Policy != "" {
			options = append(options, ngrok.WithTrafficPolicy(each.Policy))
		}
		if each.Binding != "" {
			options = append(options, ngrok.WithBindings(each.Binding))
		}
		scheme := "http"
		if each.Protocol == "tls" {
			scheme = "tcp"
		}
		forwarder, err := agent.Forward(ctx, ngrok.WithUpstream(scheme+"://"+wanted.Upstream), options...)
		plan.Check(err)
		name := each.Name
		plan.Check(forwarder.(ngrok.UpdateableEndpointForwarder).Update(ctx, &name, nil, nil, nil, nil))
		got.URLs = append(got.URLs, forwarder.URL().String())
	}
	session, err := agent.Session()
	plan.Check(err)
	got.Session, got.Region = session.ID(), session.(ngrok.AgentSessionDetails).Region()
	return got
}
