package app

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
	"github.com/tocsin-dev/tocsin/controllers/archive/bucket"
	"github.com/tocsin-dev/tocsin/webhookserver"
)

const (
	// off is the address that disables a server.
	off = "0"

	// maxShutdownDelay leaves time to drain within the Deployment's termination grace period.
	maxShutdownDelay = 15 * time.Second
)

// Options holds the values of the command line.
type Options struct {
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
	alertmanagers   string
	archive         string
	zap             zap.Options
	showVersion     bool
}

// namespaceList is a flag with comma-separated namespaces.
type namespaceList []string

// String implements flag.Value.
func (l *namespaceList) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *namespaceList) Set(value string) error {
	*l = nil
	if value == "" {
		return nil
	}
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("%q is not a valid namespace name: %s", name, problems[0])
		}
		*l = append(*l, name)
	}
	return nil
}

// newFlagSet returns a flag set that fills the options.
func newFlagSet(o *Options) *flag.FlagSet {
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // Execute prints errors

	w := &o.webhook
	flags.StringVar(&w.BindAddress, "webhook-bind-address", ":8080", "Address of the webhook endpoint.")
	flags.StringVar(&w.TLSCertPath, "webhook-tls-cert-path", "",
		"Directory with tls.crt and tls.key of the webhook endpoint, reloaded when they change. "+
			"If empty, the endpoint serves plain HTTP.")
	flags.Int64Var(&w.MaxBodyBytes, "max-body-bytes", webhookserver.DefaultMaxBodyBytes,
		"Maximum size of a request body in bytes, both as sent and after decompression. For presets whose tools send groups of "+
			"alerts it is eight times that, but at most 2 MiB.")
	flags.IntVar(&w.MaxPendingEvents, "max-pending-events", webhookserver.DefaultMaxPendingEvents,
		"Maximum number of unfolded AlertEvents in the cluster; at the limit, requests to the namespaces that have the most "+
			"get 503. AlertEvents that cannot be folded count for their own namespace only.")
	flags.IntVar(&w.MaxIncidents, "max-incidents", webhookserver.DefaultMaxIncidents,
		"Maximum number of Incidents that are not Resolved; at the limit, alerts that need a new one get 503 in the namespaces "+
			"that have the most. As many Resolved ones are kept; beyond that, the oldest ones are deleted.")
	flags.Float64Var(&w.NamespaceShare, "namespace-share", v1alpha1.DefaultNamespaceShare,
		"Fraction of --max-pending-events and --max-incidents that one namespace may use. "+
			"Default with a single namespace in --watch-namespaces: 1.")
	flags.IntVar(&w.MaxInFlightWrites, "max-in-flight-writes", webhookserver.DefaultMaxInFlightWrites,
		"Maximum number of concurrent writes of AlertEvents. An integration has one at a time, or more while one is slow.")
	flags.BoolVar(&w.EnableHTTP2, "enable-http2", false, "Serve HTTP/2 on the webhook and metrics endpoints.")
	flags.DurationVar(&w.ShutdownDelay, "shutdown-delay", webhookserver.DefaultShutdownDelay,
		"How long to accept alerts after SIGTERM, so that load balancers can remove the replica; at most "+
			maxShutdownDelay.String()+".")

	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz; 0 disables them.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "Address of /metrics; 0 disables it.")
	flags.BoolVar(&o.metricsSecure, "metrics-secure", true,
		"Serve metrics over HTTPS, and only to clients that are authorized to get /metrics. "+
			"If false, serve them to everyone, over plain HTTP unless --metrics-cert-path is set.")
	flags.StringVar(&o.metricsCertPath, "metrics-cert-path", "",
		"Directory with tls.crt and tls.key of the metrics endpoint, reloaded when they change. "+
			"If empty, the manager generates a self-signed certificate.")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", off, "Address of /debug/pprof; 0 disables it.")

	flags.StringVar(&o.alertmanagers, "alertmanager-config", "",
		"File with the Alertmanagers to forward Incidents to, reloaded when it changes. If empty, Incidents are not forwarded.")
	flags.StringVar(&o.archive, "archive", "",
		"URL of the bucket to write a record of every ended episode to: s3://, gs://, azblob:// or file:///. Incidents are deleted "+
			"only after that. Credentials come from the environment. If empty, episodes are not archived.")
	flags.BoolVar(&o.tracing, "tracing", false,
		"Export OpenTelemetry traces over OTLP. Configure the exporter by OpenTelemetry's environment variables.")

	flags.BoolVar(&o.leaderElect, "leader-elect", false,
		"Fold only while holding a lease. Required with more than one replica.")
	flags.StringVar(&o.leaseNamespace, "leader-election-namespace", "",
		"Namespace of the lease. Default: the manager's own namespace.")
	flags.Var(&o.watchNamespaces, "watch-namespaces",
		"Comma-separated namespaces to serve WebhookIntegrations of. Default: all.")
	flags.BoolVar(&o.showVersion, "version", false, "Print the version and exit.")
	o.zap.BindFlags(flags)
	for name, usage := range logUsage {
		flags.Lookup(name).Usage = usage
	}
	return flags
}

// logUsage replaces the help texts of controller-runtime's logging flags.
var logUsage = map[string]string{
	"zap-devel":            "Use development logging: text, debug messages, and stack traces from level warn.",
	"zap-encoder":          "Log format: json or console (text). Default: json; console with --zap-devel.",
	"zap-log-level":        "Minimum level to log: debug, info, error, panic or a number (higher is more verbose). Default: info.",
	"zap-stacktrace-level": "Minimum level to log with a stack trace: info, error or panic. Default: error.",
	"zap-time-encoding":    "Time format in logs: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano. Default: rfc3339.",
}

// ParseFlags parses and validates the command line. It returns flag.ErrHelp for --help.
func ParseFlags(args []string) (Options, error) {
	var o Options
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
	// Zero means the default in webhookserver.Options; on the command line it means no delay.
	o.webhook.ShutdownDelay = max(o.webhook.ShutdownDelay, time.Nanosecond)
	return o, err
}

// printUsage prints the help.
func printUsage(w io.Writer) {
	var o Options
	flags := newFlagSet(&o)
	flags.SetOutput(w)
	_, _ = fmt.Fprintf(w, "Tocsin turns alert webhooks into Incidents.\n\n"+
		"The cluster is the one that KUBECONFIG names, or else the one that the manager runs in.\n\nFlags:\n")
	flags.PrintDefaults()
}

// validate returns all errors of the options.
func (o *Options) validate() error {
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
		checkArchive(o.archive),
	)
}

// checkAddress validates host:port; the host may be empty.
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

func checkArchive(url string) error {
	if url == "" {
		return nil
	}
	if err := bucket.Check(url); err != nil {
		return fmt.Errorf("--archive: %w", err)
	}
	return nil
}

func checkNamespace(name, namespace string) error {
	if namespace == "" {
		return nil
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return fmt.Errorf("--%s: %q is not a valid namespace name: %s", name, namespace, problems[0])
	}
	return nil
}
