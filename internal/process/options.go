// Package process is what Tocsin's processes in a cluster have in common: flags, logs, signals, metrics and limits.
package process

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// Off is the address that disables a server.
const Off = "0"

// Options holds the values of the flags that the processes with a controller have.
type Options struct {
	ProbeAddress    string
	PprofAddress    string
	LeaderElect     bool
	LeaseNamespace  string
	WatchNamespaces []string
	MetricsAddress  string
	MetricsSecure   bool
	MetricsCertPath string
}

// Bind adds the flags. purpose is what needs the lease, such as "Fold".
func (o *Options) Bind(flags *flag.FlagSet, purpose string) {
	flags.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz; 0 disables them.")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443", "Address of /metrics; 0 disables it.")
	flags.BoolVar(&o.MetricsSecure, "metrics-secure", true,
		"Serve metrics over HTTPS, and only to clients that are authorized to get /metrics. "+
			"If false, serve them to everyone, over plain HTTP unless --metrics-cert-path is set.")
	flags.StringVar(&o.MetricsCertPath, "metrics-cert-path", "",
		"Directory with tls.crt and tls.key of the metrics endpoint, reloaded when they change. "+
			"If empty, the process generates a self-signed certificate.")
	flags.StringVar(&o.PprofAddress, "pprof-bind-address", Off, "Address of /debug/pprof; 0 disables it.")

	flags.BoolVar(&o.LeaderElect, "leader-elect", false,
		purpose+" only while holding a lease. Required with more than one replica.")
	flags.StringVar(&o.LeaseNamespace, "leader-election-namespace", "",
		"Namespace of the lease. Default: the namespace of the process.")
	flags.Func("watch-namespaces", "Comma-separated namespaces to serve. Default: all.", o.setNamespaces)
}

// Validate returns all errors of the options.
func (o *Options) Validate() error {
	lease := checkNamespace(cmp.Or(o.LeaseNamespace, "default"))
	if lease != nil {
		lease = fmt.Errorf("--leader-election-namespace: %w", lease)
	}
	return errors.Join(
		CheckAddress("health-probe-bind-address", o.ProbeAddress, true),
		CheckAddress("metrics-bind-address", o.MetricsAddress, true),
		CheckAddress("pprof-bind-address", o.PprofAddress, true), lease,
	)
}

// CheckAddress validates host:port; the host may be empty.
func CheckAddress(name, address string, mayBeOff bool) error {
	if mayBeOff && address == Off {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--%s: %q is not an address such as :8080 or 127.0.0.1:8080", name, address)
	}
	return nil
}

// CheckRange validates a number.
func CheckRange[T cmp.Ordered](name string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("--%s: %v is not between %v and %v", name, value, least, most)
	}
	return nil
}

func (o *Options) setNamespaces(value string) error {
	o.WatchNamespaces = nil
	if value == "" {
		return nil
	}
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if err := checkNamespace(name); err != nil {
			return err
		}
		o.WatchNamespaces = append(o.WatchNamespaces, name)
	}
	return nil
}

func checkNamespace(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%q is not a valid namespace name: %s", name, problems[0])
	}
	return nil
}

// CacheNamespaces returns the cache's configuration for each of these namespaces; nil, which means all of them, without names.
func CacheNamespaces(names []string) map[string]cache.Config {
	if len(names) == 0 {
		return nil
	}
	namespaces := map[string]cache.Config{}
	for _, name := range names {
		namespaces[name] = cache.Config{}
	}
	return namespaces
}
