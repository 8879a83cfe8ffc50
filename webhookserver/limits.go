package webhookserver

import (
	"time"

	"github.com/tocsin-dev/tocsin/internal/httpserver"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// Defaults of Options.
const (
	DefaultBindAddress       = ":8080"
	DefaultMaxBodyBytes      = 256 << 10
	DefaultMaxInFlightWrites = 8

	// DefaultShutdownDelay is how long load balancers and kube-proxies need to hear that the replica is not ready any more.
	DefaultShutdownDelay = 5 * time.Second
)

// Limits of the end of the HTTP server.
const (
	// drainTimeout bounds the wait for requests in flight at the end, and with it a client that does not read its answer,
	// and flushTimeout the wait for writes in flight after that. With ShutdownDelay, they leave the manager time to end
	// within the 45 s that the Deployment gives.
	drainTimeout = 15 * time.Second
	flushTimeout = commit.Timeout
)

// Limits of one request.
const (
	// requestTimeout bounds storing, beside commit.Timeout, from the end of the headers: a body that arrived slowly
	// leaves less time, so that the answer is still sent in time.
	requestTimeout = httpserver.WriteTimeout - 500*time.Millisecond

	// maxFallback is how much of what a request says beside a list of alerts is kept with each of them, and maxFallbacks with all.
	// What is more is kept with the first one alone, as in package mapping.
	maxFallback  = 8 << 10
	maxFallbacks = 512 << 10

	// largeFactor times the limit of bodies, but at most maxLargeBody, is that of presets whose tools send large
	// ones: 500 alerts of 4 KiB in a group, or a report.
	largeFactor  = 8
	maxLargeBody = 2 << 20

	maxTokenLength          = 256 // bytes; keeps hashing cheap
	quotedTokenPrefix       = 8   // bytes of a token that neither a message of the API server nor a user agent may quote
	maxIdempotencyKeyLength = 256 // bytes
	maxLoggedAgent          = 128 // characters and bytes of a user agent in the log
	maxWarnings             = 100 // in one answer
	maxInvalid              = 10  // parts of a request that an answer lists as not valid
)

// Limits of the memory that requests hold before their alerts wait to be stored.
const (
	// maxBodyMemory bounds the bodies of all requests that have passed authentication, by their
	// Content-Length, or by the body limit where it is unknown. Each counts as minBodyMemory at least, until its request is
	// answered: of all connections, an integration may keep a quarter waiting, for slow bodies or slow writes.
	maxBodyMemory = 64 << 20
	minBodyMemory = maxBodyMemory / httpserver.MaxConnections

	// firstRead is how much of a body of unknown length is read before there is memory for as much as it may have.
	firstRead = 16 << 10

	// queryMemory is what a request counts as that is answered from an Incident, or from the AlertEvent of an earlier copy: an
	// integration may read 64 at a time from the API server, all together 256.
	queryMemory = maxBodyMemory / 256

	// maxDecodedMemory bounds those bodies in decoded form, as payload.Footprint estimates it: a body of 256 KiB may decode
	// to 20 MiB. maxDecodeWait is how long a body waits for such memory. Decoding takes milliseconds.
	maxDecodedMemory = 32 << 20
	maxDecodeWait    = 2 * time.Second

	// maxPlaceWait is how long a request waits for its turn at a processor.
	maxPlaceWait = 2 * time.Second

	// maxEvaluation is how long the expressions of a mapping may take for one request, should the count of their cost miss
	// something or the machine be too busy. Waits for a processor between them do not count.
	maxEvaluation = time.Second
)

// Values of Retry-After, in seconds.
const (
	retryAfterUnsynced    = 2
	retryAfterUnavailable = 5
	retryAfterOverload    = 10
	retryAfterDenied      = 30 // until a policy or a limit is changed, or AlertEvents are folded
)

// Limits of the reports of rejections and failures.
const (
	// unauthorizedInterval is the least between two log lines about requests without a valid token: anybody can cause them.
	unauthorizedInterval = time.Minute

	// Writes to the status of integrations. One namespace has at most reportShare of the writers: some of them are free for the
	// others even if all its writes hang. What cannot be written is tried again after reportPause, which doubles up to
	// maxReportPause.
	reportWriters  = 8
	reportShare    = 2
	reportTimeout  = 5 * time.Second // of one write
	reportPause    = time.Second     // also between two looks at what is due
	maxReportPause = 16 * time.Second

	lossShown           = time.Hour   // for which a rejection with which alerts are lost is not replaced by a lesser one
	reportInterval      = time.Minute // the least between two reports of the same kind for one integration
	useInterval         = time.Hour   // the least between two reports of the use of one token
	maxReportMemory     = 10_000      // integrations whose last reports are remembered, for reportMemory
	reportMemory        = 24 * time.Hour
	maxFailedExpression = 256 // characters of an expression that a report quotes

	// unavailableInterval is the least between two reports of 5xx answers by a replica for one integration. It is shorter than
	// replica.Grace, which covers the answers between two reports.
	unavailableInterval = 20 * time.Second
)
