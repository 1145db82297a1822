// Package plan reads what an agent shall bind, and prints what it got.
package plan

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"os"
)

// Plan is a line of JSON on stdin.
type Plan struct {
	Server            string     `json:"server"`
	AdditionalServers []string   `json:"additional_servers"`
	CA                string     `json:"ca"`
	Authtoken         string     `json:"authtoken"`
	Upstream          string     `json:"upstream"`
	Endpoints         []Endpoint `json:"endpoints"`
}

// Endpoint is one that the agent binds.
type Endpoint struct {
	Protocol        string `json:"protocol"`
	Domain          string `json:"domain"`
	Policy          string `json:"policy"`
	Binding         string `json:"binding"`
	EdgeTermination bool   `json:"edge_termination"`
	Name            string `json:"name"`
	Description     string `json:"description"`
	Metadata        string `json:"metadata"`
}

// Online is what the SDK says of the session and its endpoints.
type Online struct {
	Session   string   `json:"session"`
	Region    string   `json:"region"`
	Diagnosed string   `json:"diagnosed"`
	URLs      []string `json:"urls"`
}

// Run carries out the plan, and returns when stdin ends.
func Run(carryOut func(Plan, *x509.CertPool) Online) {
	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadBytes('\n')
	Check(err)
	var plan Plan
	Check(json.Unmarshal(line, &plan))
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM([]byte(plan.CA))
	Check(json.NewEncoder(os.Stdout).Encode(carryOut(plan, authorities)))
	_, err = io.Copy(io.Discard, stdin)
	Check(err)
}

// Check ends the agent when something failed.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
