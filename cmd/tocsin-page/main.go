// Command tocsin-page serves the page of Incidents to the users of a cluster.
//
// It has no credentials: each request to the API server bears the token of the user who caused it. So flags say where the API
// server is, not a kubeconfig or a service account.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/page"
	"github.com/tocsin-dev/tocsin/internal/process"
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	var c command
	flags := process.NewFlags("page")
	flags.StringVar(&c.address, "bind-address", ":8080", "Address of the page.")
	flags.StringVar(&c.clusterName, "cluster-name", "",
		"Name of the cluster, for the header of the page. Default: the host of the page.")
	flags.StringVar(&c.cluster.Host, "server", "https://kubernetes.default.svc", "URL of the API server.")
	flags.StringVar(&c.cluster.CAFile, "certificate-authority", "",
		"File with the certificate of the authority that signs the API server's. Default: the authorities of the system.")
	program := process.Program{
		Title: "tocsin-page",
		Usage: "Tocsin's page shows Incidents in the browser. It serves many users and has no credentials:\n" +
			"each request bears the token of its user.",
		Flags:    flags,
		Cluster:  &c.cluster,
		Validate: c.validate,
		Run:      c.run,
	}
	return program.Execute(args, stdout, stderr)
}

// command is what the flags say.
type command struct {
	cluster              rest.Config
	address, clusterName string
}

func (c *command) validate() error {
	return errors.Join(process.CheckAddress("bind-address", c.address, false), checkCluster(&c.cluster))
}

func (c *command) run(ctx context.Context, config *rest.Config, log logr.Logger) error {
	config = rest.CopyConfig(config)
	config.UserAgent = "tocsin-page/" + buildinfo.Read().Version
	server, err := page.ForUsers(ctx, page.NewConnector(config), c.address, c.clusterName)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	log.Info("Serving the page", "address", c.address, "version", buildinfo.Line("tocsin-page"))
	return server.Run(ctx, log)
}

// checkCluster validates how the API server is reached.
func checkCluster(config *rest.Config) error {
	if address, err := url.Parse(config.Host); err != nil || address.Host == "" || address.User != nil {
		return errors.New("--server: must be a URL such as https://10.0.0.1:6443")
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		return fmt.Errorf("--certificate-authority: %w", err)
	}
	return nil
}
