package webhookserver

import (
	"time"

	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// Defaults of the options.
const (
	// DefaultBindAddress is where the server listens.
	DefaultBindAddress = ":8080"

	// DefaultMaxBodyBytes is the most bytes of a body, both as sent and after decompression.
	DefaultMaxBodyBytes = 256 << 10

	// DefaultMaxPendingEvents is the maximum number of unfolded AlertEvents in the cluster; commit.PendingEvents has the
	// rules. Together with the bound of their size it keeps them from filling etcd: an etcd that is out of space accepts no
	// writes, so they could not be drained either.
	DefaultMaxPendingEvents = 20_000

	// DefaultMaxIncidents is the maximum number of Incidents; at the limit, alerts that need new ones are refused.
	// Every replica holds them in memory, 7 KiB each, and 12 KiB if it is Open: its 1 GiB are used up near 85,000 Open ones.
	DefaultMaxIncidents = 50_000

	// DefaultMaxInFlightWrites is the number of writes to the API server at a time.
	DefaultMaxInFlightWrites = 8

	// DefaultShutdownDelay is how long requests are still served after the order to stop. Load balancers
	// and kube-proxies need that long to hear that the replica is not ready any more.
	DefaultShutdownDelay = 5 * time.Second
)

// Limits of the HTTP server.
const (
	headerTimeout  = 5 * time.Second  // from the first byte of a request to the end of its headers
	readTimeout    = 10 * time.Second // to the end of its body
	writeTimeout   = 15 * time.Second // from the end of the headers to the end of the answer
	idleTimeout    = 60 * time.Second // between two requests of a connection
	maxHeaderBytes = 16 << 10

	// maxConnections is the number of connections at a time. An idle one takes about 20 KiB, with TLS more.
	maxConnections = 4096

	// maxStreams is the number of requests at a time on one HTTP/2 connection.
	maxStreams = 100

	// drainTimeout bounds the wait for requests in flight at the end, and with it a client that does not
	// read its answer. ShutdownDelay, drainTimeout and flushTimeout together leave the manager
	// time to end within the 45 s that the Deployment gives.
	drainTimeout = 15 * time.Second

	// flushTimeout bounds the wait for writes in flight after the last request has ended.
	flushTimeout = commit.Timeout
)

// Limits of one request.
const (
	// requestTimeout bounds storing, beside commit.Timeout, from the end of the headers: a body that arrived slowly
	// leaves less time, so that the answer is still sent within writeTimeout.
	requestTimeout = writeTimeout - 500*time.Millisecond

	// groupFactor times the limit of bodies, but at most maxGroupBody, is that of presets whose tools send groups of
	// alerts: 500 alerts of 4 KiB.
	groupFactor  = 8
	maxGroupBody = 2 << 20

	// maxTokenLength is the most bytes of a token. It keeps hashing cheap and off the heap.
	maxTokenLength = 256

	// quotedTokenPrefix is the length of the part of a token that a message of the API server must not quote.
	quotedTokenPrefix = 8

	// maxWarnings is the most warnings in one answer.
	maxWarnings = 100

	// maxInvalid is the most parts of a request that an answer lists as not valid.
	maxInvalid = 10

	// maxSignatureAge is how far a signed time may be from the clock of the API server, in both directions. An id that was
	// stored is remembered for longer (see controllers), so that a copy of a request stores nothing.
	maxSignatureAge = 5 * time.Minute

	// maxSignatures is how many signatures of a request are tried, each with up to 4 keys, and maxSignatureHeader the most
	// bytes of the header that lists them.
	maxSignatures      = 4
	maxSignatureHeader = 4096

	// maxIdempotencyKeyLength is the most bytes of an idempotency key.
	maxIdempotencyKeyLength = 256
)

// Limits of the memory that requests hold before their alerts wait to be stored.
const (
	// maxBodyMemory bounds the bodies of all requests that have passed authentication, by their
	// Content-Length, or by the body limit where it is unknown.
	maxBodyMemory = 64 << 20

	// maxDecodedMemory bounds those bodies in decoded form, as payload.Footprint estimates it. A body of 256 KiB may
	// decode to 20 MiB, so this bound keeps a few requests from filling the memory.
	maxDecodedMemory = 32 << 20

	// maxDecodeWait is how long a body waits for memory to be decoded. Decoding takes milliseconds.
	maxDecodeWait = 2 * time.Second

	// maxEvaluation is how long the expressions of a mapping may take for one request, should the count of
	// their cost miss something or the machine be too busy.
	maxEvaluation = time.Second
)

// Values of Retry-After, in seconds.
const (
	retryAfterUnsynced    = 2
	retryAfterUnavailable = 5
	retryAfterOverload    = 10
	retryAfterRefused     = 30 // until a policy or a limit is changed, or AlertEvents are folded
)

// Limits of the reports of refusals and failures.
const (
	// reportInterval is the minimum time between two reports of the same kind for one integration.
	reportInterval = time.Minute

	// maxReportQueue is how many reports wait to be written; further ones are dropped.
	maxReportQueue = 128

	// maxReportMemory is how many integrations' last reports are remembered, for reportMemory.
	maxReportMemory = 10_000
	reportMemory    = 24 * time.Hour

	// maxFailedExpression is the most characters of an expression that a report quotes.
	maxFailedExpression = 256

	// reportTimeout bounds the write of one report.
	reportTimeout = 5 * time.Second
)
