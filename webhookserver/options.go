package webhookserver

import (
	"cmp"
	"context"
	"net"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// Options are the settings of the webhook server. Zero values stand for the defaults in limits.go. No function may block.
type Options struct {
	BindAddress string // where to listen, as host:port
	TLSCertPath string // a folder with tls.crt and tls.key, read again when they change; empty: no TLS
	EnableHTTP2 bool   // over TLS

	MaxBodyBytes      int64         // of a body, as sent and after decompression
	MaxInFlightWrites int           // writes to the API server at a time
	ShutdownDelay     time.Duration // how long to keep serving after the order to stop

	// Listen opens BindAddress. Default: that of net.ListenConfig.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)

	// Now tells the time. Default: the real one.
	Now func() time.Time

	// APITime returns the time by the API server's clock, which tells when an alert was received. Default: Now.
	APITime func() time.Time

	// Check returns why no alert may be accepted, nil when alerts may be. Optional.
	Check func() error

	// Refused is called for every request of an integration that is answered 5xx, so that its sender does not count as
	// quiet. Optional.
	Refused func(integration types.NamespacedName)

	// Capacity has what the namespaces may store. It follows the manager's cache. Default: counts of nothing.
	Capacity *capacity.Counts

	// Heartbeats knows the Heartbeats. Its maker has it follow the manager's cache. Nil: there are none.
	Heartbeats *heartbeats.Index

	// Mappings remembers compiled mappings. Default: a cache of the server's own.
	Mappings *mapping.Cache

	TracerProvider trace.TracerProvider // makes the spans of requests and writes; optional
}

func (o Options) withDefaults() Options {
	o.BindAddress = cmp.Or(o.BindAddress, DefaultBindAddress)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, DefaultMaxBodyBytes)
	o.MaxInFlightWrites = cmp.Or(o.MaxInFlightWrites, DefaultMaxInFlightWrites)
	o.ShutdownDelay = cmp.Or(o.ShutdownDelay, DefaultShutdownDelay)
	if o.Listen == nil {
		o.Listen = (&net.ListenConfig{}).Listen
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.APITime == nil {
		o.APITime = o.Now
	}
	if o.Check == nil {
		o.Check = func() error { return nil }
	}
	if o.Capacity == nil {
		o.Capacity = capacity.New(capacity.Limits{}, nil, o.Now)
	}
	if o.Mappings == nil {
		o.Mappings = mapping.NewCache()
	}
	return o
}
