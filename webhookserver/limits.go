package webhookserver

import (
	"time"

	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// What the options are when they are zero.
const (
	// DefaultBindAddress is where the server listens.
	DefaultBindAddress = ":8080"

	// DefaultMaxBodyBytes is the most bytes of a body, both as sent and after decompression.
	DefaultMaxBodyBytes = 256 << 10

	// DefaultMaxPendingEvents is the number of AlertEvents in the cluster from which on requests are
	// refused; commit.PendingEvents has the rules. Together with the bound of their size it keeps the queue from filling etcd:
	// an etcd that is out of space takes no writes, so the queue could not be drained either.
	DefaultMaxPendingEvents = 20_000

	// DefaultMaxIncidents is the number of Incidents from which on alerts that need new ones are refused.
	// Every replica holds them in memory, about 12 KiB each: its 1 GiB are used up near 85,000.
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

	// victimSample is how many connections are looked at to find the one to close for a new one.
	victimSample = 128

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
	// requestTimeout bounds storing as well, from the end of the headers: a body that took long to come
	// leaves less time, so that the answer is still sent within writeTimeout.
	requestTimeout = writeTimeout - 500*time.Millisecond

	// maxTokenLength is the most bytes of a token. It keeps hashing cheap and off the heap.
	maxTokenLength = 256

	// quotedTokenPrefix is how much of a token makes words of the API server unfit to be repeated.
	quotedTokenPrefix = 8

	// maxWarnings is the most warnings in one answer.
	maxWarnings = 100

	// maxIdempotencyKeyLength is the most bytes of an idempotency key.
	maxIdempotencyKeyLength = 256
)

// Limits of what is held in memory before it is stored.
const (
	// maxBodyBudget bounds the bodies of all requests that have passed authentication, by their
	// Content-Length, or by the body limit where it is unknown. A namespace has half of it, an integration a
	// quarter, so that a sender with many slow connections leaves room for the others.
	maxBodyBudget = 64 << 20

	// maxDecodedBudget bounds what those bodies decode to, as payload.Footprint estimates it, from before they
	// are decoded until their alerts wait for the store; a namespace has half of it, an integration a quarter.
	// A body of 256 KiB may decode to 20 MiB, so it is this that keeps a few requests from filling the memory.
	maxDecodedBudget = 32 << 20

	// maxDecodeWait is how long a body waits for room to be decoded. Decoding takes milliseconds.
	maxDecodeWait = 2 * time.Second

	// maxEvaluation is how long the expressions of a mapping may take for one request, should the count of
	// their cost miss something or the machine be too busy.
	maxEvaluation = time.Second
)

// What Retry-After says, in seconds.
const (
	retryAfterUnsynced    = 2
	retryAfterUnavailable = 5
	retryAfterOverload    = 10
	retryAfterRefused     = 30 // somebody has to change a policy or a limit, or the queue has to drain
)

// Limits of the report of refusals.
const (
	// rejectionInterval is the least time between two reports of the same integration.
	rejectionInterval = time.Minute

	// maxRejectionQueue is how many reports wait to be written; further ones are dropped.
	maxRejectionQueue = 128

	// maxRejectionMemory is how many integrations' last reports are remembered.
	maxRejectionMemory = 10_000

	// maxFailedExpression is the most characters that a report quotes of an expression.
	maxFailedExpression = 256

	// rejectionTimeout bounds the write of one report.
	rejectionTimeout = 5 * time.Second
)

// bodyShares and decodedShares are how requests share memory.
var (
	bodyShares    = memoryShares{total: maxBodyBudget, namespace: maxBodyBudget / 2, integration: maxBodyBudget / 4}
	decodedShares = memoryShares{total: maxDecodedBudget, namespace: maxDecodedBudget / 2, integration: maxDecodedBudget / 4}
)
