package webhookserver

import (
	"cmp"
	"context"
	"net"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// Options are the settings of the webhook server. Zero values stand for the defaults in limits.go. None of the
// interfaces may block.
type Options struct {
	BindAddress string // where to listen, as host:port
	TLSCertPath string // a folder with tls.crt and tls.key, read again when they change; empty: no TLS
	EnableHTTP2 bool   // over TLS

	MaxBodyBytes      int64         // of a body, as sent and after decompression
	MaxInFlightWrites int           // writes to the API server at a time
	ShutdownDelay     time.Duration // how long to keep serving after the order to stop

	// Namespaces are those that are served. Default: all.
	Namespaces []string

	// Listener opens BindAddress. Default: a *net.ListenConfig.
	Listener Listener

	// Clock tells the time. Default: the real one.
	Clock Clock

	// Health is told of the alerts that are not stored. Default: nobody is, and the API server's clock is Clock.
	Health Health

	// Schemas tells whether alerts can be stored completely. Default: they can.
	Schemas Schemas

	// Capacity has what the namespaces may store. It follows the manager's cache. Default: counts of nothing.
	Capacity *capacity.Counts

	// Features are optional. Their makers have them follow the manager's cache.
	Features []feature.Feature

	// Mappings remembers compiled mappings. Default: a cache of the server's own.
	Mappings *mapping.Cache

	TracerProvider trace.TracerProvider // makes the spans of requests and writes; optional
}

// Listener opens addresses as a *net.ListenConfig does.
type Listener interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
}

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Health is a *replica.IngestHealth outside of tests.
type Health interface {
	// APITime returns the time by the API server's clock, which tells when an alert was received.
	APITime() time.Time

	// Missed notes that a request of an integration was answered 5xx, so that its sender does not count as quiet.
	Missed(integration types.NamespacedName)

	// IsCutOff reports whether the API server has not answered for a while, so that tokens may exist which are not known here.
	IsCutOff() bool
}

// Schemas is a *schemacheck.Checker outside of tests.
type Schemas interface {
	// Verdict returns why no alert may be accepted; nil if they may.
	Verdict() error
}

// unobserved is the Health of a server on its own.
type unobserved struct{ Clock }

func (u unobserved) APITime() time.Time        { return u.Now() }
func (unobserved) Missed(types.NamespacedName) {}
func (unobserved) IsCutOff() bool              { return false }

// uncheckedSchemas have all fields.
type uncheckedSchemas struct{}

func (uncheckedSchemas) Verdict() error { return nil }

func (o Options) withDefaults() Options {
	o.BindAddress = cmp.Or(o.BindAddress, DefaultBindAddress)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, DefaultMaxBodyBytes)
	o.MaxInFlightWrites = cmp.Or(o.MaxInFlightWrites, DefaultMaxInFlightWrites)
	o.ShutdownDelay = cmp.Or(o.ShutdownDelay, DefaultShutdownDelay)
	o.Listener = cmp.Or[Listener](o.Listener, &net.ListenConfig{})
	o.Clock = cmp.Or[Clock](o.Clock, clock.RealClock{})
	o.Health = cmp.Or[Health](o.Health, unobserved{o.Clock})
	o.Schemas = cmp.Or[Schemas](o.Schemas, uncheckedSchemas{})
	o.Capacity = cmp.Or(o.Capacity, capacity.New(capacity.Limits{}, nil, o.Clock))
	o.Mappings = cmp.Or(o.Mappings, mapping.NewCache())
	return o
}
