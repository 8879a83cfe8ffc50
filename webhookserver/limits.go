package webhookserver

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// What the options are when they are zero.
const (
	// DefaultBindAddress is where the server listens.
	DefaultBindAddress = ":8080"

	// DefaultMaxBodyBytes is the most bytes of a body, both as sent and after decompression.
	DefaultMaxBodyBytes = 256 << 10

	// DefaultMaxPendingEvents is the number of AlertEvents in the cluster from which on requests are
	// refused; pending.go has the rules. Together with maxPendingBytes it keeps the queue from filling etcd:
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
	flushTimeout = storeTimeout
)

// Limits of one request.
const (
	// storeTimeout bounds a request from when its body has been read to its answer: waiting for a write
	// slot, the write and its retries.
	storeTimeout = 5 * time.Second

	// requestTimeout bounds storing as well, from the end of the headers: a body that took long to come
	// leaves less time, so that the answer is still sent within writeTimeout.
	requestTimeout = writeTimeout - 500*time.Millisecond

	// maxTokenLength is the most bytes of a token. It keeps hashing cheap and off the heap.
	maxTokenLength = 256

	// maxSubmissionBytes bounds the alerts of one request, which go into one AlertEvent, as the API server
	// stores them: etcd takes no more than 1.5 MiB.
	maxSubmissionBytes = 1 << 20

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

	// maxBatchAlerts and maxBatchBytes bound one AlertEvent that holds the alerts of several requests. Packed,
	// an alert more costs the API server next to nothing; but should it refuse to take so much at once, the
	// halves must be worth a try.
	maxBatchAlerts = v1alpha1.MaxAlertsPerEvent
	maxBatchBytes  = 512 << 10

	// maxLaneAlerts and maxLaneBytes bound what waits for a write slot in one integration's lane. At
	// several thousand alerts a second it is what can be written within storeTimeout.
	maxLaneAlerts = 5_000
	maxLaneBytes  = 8 << 20

	// slowWrite is how long a write may take before another one of its lane may begin.
	slowWrite = 250 * time.Millisecond

	// maxWaitingAlerts and maxWaitingBytes bound what waits in all lanes. One namespace has at most half of it.
	maxWaitingAlerts = 20_000
	maxWaitingBytes  = 32 << 20

	// calmParts is the part of that up to which a namespace may have something waiting when three quarters are taken. It is
	// room for one request of the largest size, and 8 namespaces fit into the last quarter.
	calmParts = 32

	// maxPendingBytes is the size of all AlertEvents in the cluster from which on requests are refused.
	// Every replica holds them in memory, and etcd keeps deleted ones until its next compaction.
	maxPendingBytes = 256 << 20

	// maxStuckFactor is how many times the limits may be used when AlertEvents that cannot drain count as
	// well. With the reserve of v1alpha1.Capacity that is three times the limits at the most: 768 MiB of
	// etcd's 2 GiB.
	maxStuckFactor = 2

	// reportedRatio is how much of its share a namespace has to use for its metrics to be reported, so that
	// their number does not grow with the number of namespaces.
	reportedRatio = 0.5
)

// Limits of a write to the API server.
const (
	// attemptTimeout bounds one attempt: half the time of the write, so that a connection that has died
	// unnoticed leaves room for a second attempt on a new one.
	attemptTimeout = storeTimeout / 2

	dialTimeout = 2 * time.Second

	// Between attempts: doubling from the first to the second, each with jitter.
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second

	// maxRefusedSplits is how often the halves of a batch that a policy refused are tried. It suffices to find two
	// alerts among 500, and keeps a policy that refuses everything from multiplying the writes by a thousand.
	maxRefusedSplits = 20

	// maxServerMessage is the most bytes of the API server's words that are passed on.
	maxServerMessage = 512
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
