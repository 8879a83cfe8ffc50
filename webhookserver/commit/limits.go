package commit

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Limits of a submission.
const (
	// Timeout bounds a submission: its wait for a writer, the write and its retries.
	Timeout = 5 * time.Second

	// MaxBytes bounds the text of the alerts of one submission, which go into one AlertEvent: etcd takes no more than 1.5 MiB.
	// Their queue.EncodedSize may be up to maxGroupBytes, if the text is no longer than MaxBytes when it is compressed.
	MaxBytes      = 1 << 20
	maxGroupBytes = 3 << 20
)

// Limits of the submissions that wait in memory, and of their batches.
const (
	// maxBatchAlerts and maxBatchBytes bound one AlertEvent that holds the alerts of several submissions. An additional
	// alert costs the API server next to nothing; but should it refuse so large an object, the halves must be worth a try.
	maxBatchAlerts = v1alpha1.MaxAlertsPerEvent
	maxBatchBytes  = 512 << 10

	// maxWaiting bounds the submissions that wait in all queues, as fair.Space divides it: half of it for a namespace, a quarter
	// for an integration. An alert counts as at least minWeight bytes: at several thousand alerts a second, a queue can be
	// written within Timeout.
	maxWaiting = 32 << 20
	minWeight  = maxWaiting / 20_000

	slowWrite = 250 * time.Millisecond // how long a write may take before another one of its queue may begin

	// After a write of at least minLingering submissions, the next one waits for the senders of lingerPercent of them, but
	// no longer than the write took, and no longer than maxLinger. If not even half of them come, it is not tried again for
	// the next lingerSkips writes.
	minLingering  = 3
	lingerPercent = 90
	maxLinger     = 10 * time.Millisecond
	lingerSkips   = 8
)

// Limits of a write to the API server.
const (
	// attemptTimeout bounds one attempt: half the time of the write, so that a connection that has died
	// unnoticed leaves time for a second attempt on a new one.
	attemptTimeout = Timeout / 2

	// Between attempts: doubling from the first to the second, each with jitter.
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second

	// maxRefusedSplits is how many batches refused by a policy are split. It suffices to find two alerts among 500,
	// and keeps a policy that refuses everything from multiplying the writes by a thousand.
	maxRefusedSplits = 20

	maxServerMessage = 512 // bytes of the API server's message that are passed on
)
