package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver"
)

const (
	// off is the address that switches a server off.
	off = "0"

	// maxShutdownDelay leaves time to drain within the Deployment's termination grace.
	maxShutdownDelay = 15 * time.Second
)

// options are what the command line says.
type options struct {
	webhook         webhookserver.Options
	probeAddress    string
	metricsAddress  string
	metricsSecure   bool
	metricsCertPath string
	pprofAddress    string
	leaderElect     bool
	leaseNamespace  string
	watchNamespaces namespaceList
	tracing         bool
	zap             zap.Options
	showVersion     bool
}

// namespaceList is a flag that holds names of namespaces, separated by commas.
type namespaceList []string

// String is the flag's value as it is written.
func (l *namespaceList) String() string { return strings.Join(*l, ",") }

// Set reads the flag's value.
func (l *namespaceList) Set(value string) error {
	*l = nil
	if value == "" {
		return nil
	}
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("%q is not the name of a namespace: %s", name, problems[0])
		}
		*l = append(*l, name)
	}
	return nil
}

// newFlagSet binds the flags to the options.
func newFlagSet(o *options) *flag.FlagSet {
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // execute says what is wrong

	w := &o.webhook
	flags.StringVar(&w.BindAddress, "webhook-bind-address", ":8080", "The address that alerts are posted to.")
	flags.StringVar(&w.TLSCertPath, "webhook-tls-cert-path", "",
		"The folder of tls.crt and tls.key for the webhook endpoint; they are read again when they change. "+
			"Empty: the endpoint speaks plain HTTP.")
	flags.Int64Var(&w.MaxBodyBytes, "max-body-bytes", webhookserver.DefaultMaxBodyBytes,
		"The most bytes of a request's body, both as sent and after decompression.")
	flags.IntVar(&w.MaxPendingEvents, "max-pending-events", webhookserver.DefaultMaxPendingEvents,
		"Maximum number of AlertEvents in the cluster; beyond it, requests get 503 in the namespaces that have many of them. "+
			"AlertEvents that cannot be folded count for their own namespace only.")
	flags.IntVar(&w.MaxIncidents, "max-incidents", webhookserver.DefaultMaxIncidents,
		"Maximum number of Incidents; beyond it, a namespace that has many of them loses its oldest resolved ones, and "+
			"without any, alerts that need a new Incident get 503.")
	flags.Float64Var(&w.NamespaceShare, "namespace-share", v1alpha1.DefaultNamespaceShare,
		"The part of --max-pending-events and of --max-incidents that one namespace may use. "+
			"Default with a single namespace in --watch-namespaces: 1.")
	flags.IntVar(&w.MaxInFlightWrites, "max-in-flight-writes", webhookserver.DefaultMaxInFlightWrites,
		"How many AlertEvents are written at a time; an integration has one of them, more while one is slow.")
	flags.BoolVar(&w.EnableHTTP2, "enable-http2", false, "Serve HTTP/2 on the webhook and metrics endpoints.")
	flags.DurationVar(&w.ShutdownDelay, "shutdown-delay", webhookserver.DefaultShutdownDelay,
		"How long alerts are still taken after the order to stop, for load balancers to hear of it; at most "+
			maxShutdownDelay.String()+".")

	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "The address of /healthz and /readyz; 0 is off.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "The address of /metrics; 0 is off.")
	flags.BoolVar(&o.metricsSecure, "metrics-secure", true,
		"Serve metrics over HTTPS, and only to those who may get /metrics of the cluster. "+
			"When false: to everybody, over plain HTTP unless there is a --metrics-cert-path.")
	flags.StringVar(&o.metricsCertPath, "metrics-cert-path", "",
		"The folder of tls.crt and tls.key for the metrics endpoint; they are read again when they change. "+
			"Empty: the manager makes a certificate itself.")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", off, "The address of /debug/pprof; 0 is off.")

	flags.BoolVar(&o.tracing, "tracing", false,
		"Send OpenTelemetry traces over OTLP. OpenTelemetry's environment variables say where to and how many.")

	flags.BoolVar(&o.leaderElect, "leader-elect", false,
		"Let only the holder of a lease fold. Needed as soon as there is more than one replica.")
	flags.StringVar(&o.leaseNamespace, "leader-election-namespace", "",
		"The namespace of the lease. Default: the one that the manager runs in.")
	flags.Var(&o.watchNamespaces, "watch-namespaces",
		"The namespaces whose WebhookIntegrations are served, separated by commas. Default: all.")
	flags.BoolVar(&o.showVersion, "version", false, "Print the version and exit.")
	o.zap.BindFlags(flags)
	for name, usage := range logUsage {
		flags.Lookup(name).Usage = usage
	}
	return flags
}

// logUsage says of controller-runtime's flags what they do here, in the words of the others.
var logUsage = map[string]string{
	"zap-devel":            "Log for a person who develops: text, debug messages, and stacktraces from warnings on.",
	"zap-encoder":          "How log lines look: json or console (text). Default: json; console with --zap-devel.",
	"zap-log-level":        "The least level that is logged: debug, info, error, panic or a number (higher is more). Default: info.",
	"zap-stacktrace-level": "The least level that is logged with a stacktrace: info, error or panic. Default: error.",
	"zap-time-encoding":    "How times are logged: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano. Default: rfc3339.",
}

// parseFlags reads the command line. The error is flag.ErrHelp when help was asked for.
func parseFlags(args []string) (options, error) {
	var o options
	flags := newFlagSet(&o)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	shareGiven := false
	flags.Visit(func(f *flag.Flag) { shareGiven = shareGiven || f.Name == "namespace-share" })
	if len(o.watchNamespaces) == 1 && !shareGiven {
		o.webhook.NamespaceShare = 1
	}
	err := o.validate()
	// Zero stands for the default where the options go; who writes zero here means no delay.
	o.webhook.ShutdownDelay = max(o.webhook.ShutdownDelay, time.Nanosecond)
	return o, err
}

// printUsage lists the flags.
func printUsage(w io.Writer) {
	var o options
	flags := newFlagSet(&o)
	flags.SetOutput(w)
	_, _ = fmt.Fprintf(w, "Tocsin turns alert webhooks into Incidents.\n\n"+
		"The cluster is the one that KUBECONFIG names, or else the one that the manager runs in.\n\nFlags:\n")
	flags.PrintDefaults()
}

// validate finds everything that is wrong with the options.
func (o *options) validate() error {
	w := &o.webhook
	return errors.Join(
		checkAddress("webhook-bind-address", w.BindAddress, false),
		checkAddress("health-probe-bind-address", o.probeAddress, true),
		checkAddress("metrics-bind-address", o.metricsAddress, true),
		checkAddress("pprof-bind-address", o.pprofAddress, true),
		checkRange("max-body-bytes", w.MaxBodyBytes, 1, 64<<20),
		checkRange("max-pending-events", w.MaxPendingEvents, 1, 10_000_000),
		checkRange("max-incidents", w.MaxIncidents, 1, 10_000_000),
		checkRange("namespace-share", w.NamespaceShare, 0.001, 1),
		checkRange("max-in-flight-writes", w.MaxInFlightWrites, 1, 1024),
		checkRange("shutdown-delay", w.ShutdownDelay, 0, maxShutdownDelay),
		checkNamespace("leader-election-namespace", o.leaseNamespace),
	)
}

// checkAddress wants host:port, the host possibly empty.
func checkAddress(name, address string, mayBeOff bool) error {
	if mayBeOff && address == off {
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

func checkRange[T cmp.Ordered](name string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("--%s: %v is not between %v and %v", name, value, least, most)
	}
	return nil
}

func checkNamespace(name, namespace string) error {
	if namespace == "" {
		return nil
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return fmt.Errorf("--%s: %q is not the name of a namespace: %s", name, namespace, problems[0])
	}
	return nil
}
