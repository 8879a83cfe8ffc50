package webhookserver

import (
	"cmp"
	"context"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// Options are the settings of the webhook server. Zero values stand for the defaults in limits.go.
type Options struct {
	// BindAddress is where to listen, as host:port.
	BindAddress string

	// Listen opens BindAddress. Default: that of net.ListenConfig.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)

	// TLSCertPath is a folder with tls.crt and tls.key, read again when they change. Empty: no TLS.
	TLSCertPath string

	// MaxBodyBytes is the most bytes of a body, as sent and after decompression.
	MaxBodyBytes int64

	// MaxPendingEvents is the maximum number of unfolded AlertEvents in the cluster; at the limit, requests are refused.
	MaxPendingEvents int

	// MaxIncidents is the maximum number of Incidents; at the limit, alerts that need new ones are refused.
	MaxIncidents int

	// NamespaceShare is the part of MaxPendingEvents and MaxIncidents that one namespace may use.
	NamespaceShare float64

	// MaxInFlightWrites is the number of writes to the API server at a time.
	MaxInFlightWrites int

	// EnableHTTP2 allows HTTP/2 over TLS.
	EnableHTTP2 bool

	// TracerProvider makes the spans of requests and writes. Optional.
	TracerProvider trace.TracerProvider

	// Refused is called for every request of an integration that is answered 5xx, so that its sender does not count as
	// silent. It must not block. Optional.
	Refused func(integration types.NamespacedName)

	// ClockLead returns how far the process's clock is ahead of the API server's. Alerts are received by the latter. It must
	// not block. Default: the clocks agree.
	ClockLead func() time.Duration

	// Now tells the time. Default: the real one.
	Now func() time.Time

	// Check returns why no alert may be accepted, nil when alerts may be. It must not block. Optional.
	Check func() error

	// Mappings remembers compiled mappings. Nil: the server has one of its own.
	Mappings *mapping.Cache

	// Metrics is the registry of the metrics of the capacity while the server runs. Optional.
	Metrics prometheus.Registerer

	// ShutdownDelay is how long to keep serving after the order to stop.
	ShutdownDelay time.Duration
}

func (o Options) check() error {
	if o.Check == nil {
		return nil
	}
	return o.Check()
}

func (o Options) withDefaults() Options {
	o.BindAddress = cmp.Or(o.BindAddress, DefaultBindAddress)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, DefaultMaxBodyBytes)
	o.MaxPendingEvents = cmp.Or(o.MaxPendingEvents, DefaultMaxPendingEvents)
	o.MaxIncidents = cmp.Or(o.MaxIncidents, DefaultMaxIncidents)
	o.NamespaceShare = cmp.Or(o.NamespaceShare, v1alpha1.DefaultNamespaceShare)
	o.MaxInFlightWrites = cmp.Or(o.MaxInFlightWrites, DefaultMaxInFlightWrites)
	o.ShutdownDelay = cmp.Or(o.ShutdownDelay, DefaultShutdownDelay)
	if o.Listen == nil {
		o.Listen = (&net.ListenConfig{}).Listen
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.ClockLead == nil {
		o.ClockLead = func() time.Duration { return 0 }
	}
	if o.Mappings == nil {
		o.Mappings = &mapping.Cache{}
	}
	return o
}
