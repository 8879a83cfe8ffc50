package forward

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
	"github.com/tocsin-dev/tocsin/internal/leader"
)

// Options holds the flags of the forwarding, and what its process has.
type Options struct {
	// Mutings knows when Incidents are muted. Nil: never.
	Mutings Mutings

	// Dialer connects to Alertmanagers. Default: a *net.Dialer.
	Dialer alertmanager.Dialer

	path    string   // of the file with the Alertmanagers
	check   string   // the one that is to be checked
	pageURL *url.URL // for links to Incidents; nil if there is none
}

// Bind adds the flags.
func (o *Options) Bind(flags *flag.FlagSet) {
	flags.StringVar(&o.path, "alertmanager-config", "",
		"File with the Alertmanagers to forward Incidents to, reloaded when it changes. If empty, Incidents are not forwarded.")
	flags.Func("page-url",
		"`URL` of the page, such as https://incidents.example.com: forwarded alerts get the address of their Incident.",
		func(text string) (err error) {
			o.pageURL, err = parsePageURL(text)
			return err
		})
	flags.StringVar(&o.check, "check-alertmanager-config", "",
		"Check a file for --alertmanager-config and the files that it names, and exit: with 0 if it is valid, with 1 if it is not.")
}

// Check reads a configuration file as the manager would, if a flag asks for it, and returns what it has, or its errors, one in
// each line.
func (o *Options) Check() (report string, err error) {
	if o.check == "" {
		return "", nil
	}
	data, err := os.ReadFile(o.check)
	if err != nil {
		return "", err
	}
	checked, err := config.Parse(data, filepath.Dir(o.check), nil)
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(checked.Alertmanagers))
	for _, target := range checked.Alertmanagers {
		names = append(names, target.Name())
	}
	return o.check + " is valid. Alertmanagers: " + strings.Join(names, ", "), nil
}

func parsePageURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	address, err := url.Parse(text)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" ||
		address.User != nil || address.RawQuery != "" || address.Fragment != "" {
		return nil, errors.New("must be an http or https URL without user, query and fragment")
	}
	return address, nil
}

// Add adds a Forwarder to a replica's manager, and returns it; nil if Incidents are not forwarded.
func (o *Options) Add(mgr ctrl.Manager, clock Clock, lease *leader.Lease, namespaces []string) (*Forwarder, error) {
	if o.path == "" {
		return nil, nil
	}
	f := New(*o, clock, Identify(mgr, lease, namespaces), mgr.GetLogger().WithName("forward"))
	if err := mgr.Add(f); err != nil {
		return nil, fmt.Errorf("adding the configuration of Alertmanagers: %w", err)
	}
	return f, nil
}

// Identify returns what tells this Tocsin from others that share an Alertmanager: its Lease, which a leader may read, or without
// leader election the address of the API server and the watched namespaces.
func Identify(mgr ctrl.Manager, lease *leader.Lease, namespaces []string) Installation {
	if lease != nil {
		return lease
	}
	return fixedInstallation(uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "%s %q", mgr.GetConfig().Host, namespaces)).String())
}

type fixedInstallation string

func (i fixedInstallation) ID(context.Context) (string, error) { return string(i), nil }
