package app

import (
	"errors"
	"flag"
	"time"

	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/process"
	"github.com/tocsin-dev/tocsin/webhookserver"
)

// maxShutdownDelay leaves time to drain within the Deployment's termination grace period.
const maxShutdownDelay = 15 * time.Second

// Options holds the values of the command line.
type Options struct {
	process         process.Options
	webhook         webhookserver.Options
	capacity        capacity.Limits
	tracing         bool
	archiveRequired bool
	forwarding      forward.Options
}

func newFlagSet(o *Options) *flag.FlagSet {
	flags := process.NewFlags("manager")
	o.process.Bind(flags, "Fold")

	w, limits := &o.webhook, &o.capacity
	flags.StringVar(&w.BindAddress, "webhook-bind-address", ":8080", "Address of the webhook endpoint.")
	flags.StringVar(&w.TLSCertPath, "webhook-tls-cert-path", "",
		"Directory with tls.crt and tls.key of the webhook endpoint, reloaded when they change. "+
			"If empty, the endpoint serves plain HTTP.")
	flags.BoolVar(&w.EnableHTTP2, "enable-http2", false,
		"Serve HTTP/2 on the webhook endpoint, if it has a certificate. Then it has a sixteenth of the connections.")
	flags.Int64Var(&w.MaxBodyBytes, "max-body-bytes", webhookserver.DefaultMaxBodyBytes,
		"Maximum size of a request body in bytes, both as sent and after decompression. For presets whose tools send groups of "+
			"alerts it is eight times that, but at most 2 MiB.")
	flags.IntVar(&limits.Events, "max-pending-events", capacity.DefaultEvents,
		"Maximum number of unfolded AlertEvents in the cluster; at the limit, requests to the namespaces that have the most "+
			"get 503. AlertEvents that cannot be folded count for their own namespace, and with all others towards twice the limit.")
	flags.IntVar(&limits.Incidents, "max-incidents", capacity.DefaultIncidents,
		"Maximum number of Incidents that are not Resolved; at the limit, alerts that need a new one get 503 in the namespaces "+
			"that have the most. As many Resolved ones are kept; beyond that, the oldest ones are deleted.")
	flags.Float64Var(&limits.Share, "namespace-share", fair.DefaultShare,
		"Fraction of --max-pending-events and --max-incidents that one namespace may use. "+
			"Default with a single namespace in --watch-namespaces: 1.")
	flags.IntVar(&w.MaxInFlightWrites, "max-in-flight-writes", webhookserver.DefaultMaxInFlightWrites,
		"Maximum number of concurrent writes of AlertEvents. An integration has one at a time. A write that takes more than "+
			"250 ms no longer counts.")
	flags.DurationVar(&w.ShutdownDelay, "shutdown-delay", webhookserver.DefaultShutdownDelay,
		"How long to accept alerts after SIGTERM, so that load balancers can remove the replica; at most "+
			maxShutdownDelay.String()+".")

	o.forwarding.Bind(flags)
	flags.BoolVar(&o.archiveRequired, "archive-required", false,
		"Delete an Incident only after the archiver has noted in its status that the archive has its ended episodes.")
	flags.BoolVar(&o.tracing, "tracing", false,
		"Export OpenTelemetry traces over OTLP. Configure the exporter by OpenTelemetry's environment variables.")
	return flags
}

// ParseFlags parses and validates the command line. It returns flag.ErrHelp for --help.
func ParseFlags(args []string) (Options, error) {
	var o Options
	flags := newFlagSet(&o)
	if err := process.Parse(flags, args); err != nil {
		return o, err
	}
	return o, o.complete(flags)
}

// complete sets what depends on other flags, and returns all errors of the options.
func (o *Options) complete(flags *flag.FlagSet) error {
	shareGiven := false
	flags.Visit(func(f *flag.Flag) { shareGiven = shareGiven || f.Name == "namespace-share" })
	w := &o.webhook
	if len(o.process.WatchNamespaces) == 1 && !shareGiven {
		o.capacity.Share = 1
	}
	err := errors.Join(
		o.process.Validate(),
		process.CheckAddress("webhook-bind-address", w.BindAddress, false),
		process.CheckRange("max-body-bytes", w.MaxBodyBytes, 1, 64<<20),
		process.CheckRange("max-pending-events", o.capacity.Events, 1, 10_000_000),
		process.CheckRange("max-incidents", o.capacity.Incidents, 1, 10_000_000),
		process.CheckRange("namespace-share", o.capacity.Share, 0.001, 1),
		process.CheckRange("max-in-flight-writes", w.MaxInFlightWrites, 1, 1024),
		process.CheckRange("shutdown-delay", w.ShutdownDelay, 0, maxShutdownDelay),
	)
	// Zero means the default in webhookserver.Options; on the command line it means no delay.
	w.ShutdownDelay = max(w.ShutdownDelay, time.Nanosecond)
	return err
}
