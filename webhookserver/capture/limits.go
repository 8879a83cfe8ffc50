package capture

import "time"

// MaxIntegrations bounds the integrations of which a replica captures requests, and so the RequestCaptures, of up to 1 MiB each
// in etcd. A namespace may have MaxOfNamespace.
const (
	MaxIntegrations = 256
	MaxOfNamespace  = 16
)

const (
	// maxWaiting bounds the requests that wait to be written, as they are in memory. A namespace may have a quarter of it. Bodies
	// have at most 2 MiB, and as stored all requests of an integration together half of that.
	maxWaiting   = 16 << 20
	waitingShare = 0.25

	// overhead is what a request takes in memory beside its texts.
	overhead = 1 << 10

	// Writes. An integration has one in writeInterval, and there is one in tickInterval in all, followed by a pause for its size:
	// etcd keeps each version until it is compacted, by default for five minutes, which are 75 MiB a replica.
	writeInterval = 10 * time.Second
	tickInterval  = 500 * time.Millisecond
	bytesPerTick  = 128 << 10
	writeTimeout  = 5 * time.Second
	maxPause      = 10 * time.Minute // after writes that failed

	// flushTimeout bounds the writes at the end. The other writes of the replica have twice as long, at the same time.
	flushTimeout = 3 * time.Second

	// sweepInterval is the time between two searches for RequestCaptures of integrations that capture nothing. The first one comes
	// that much after the start.
	sweepInterval = time.Hour
	firstSweep    = time.Minute

	// maxRequest bounds a request that is decoded.
	maxRequest = 64 << 20
)
