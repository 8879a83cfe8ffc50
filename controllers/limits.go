package controllers

import "time"

// Limits and delays of the controllers.
const (
	// defaultConcurrency is how many Incidents are folded at a time. Nearly all of that time is spent
	// waiting for a quorum list, which takes up to 100 ms on a busy API server whatever its size; this many
	// folds share one.
	defaultConcurrency = 128

	// writeConcurrency is how many of those folds write at a time. While requests wait to be stored, it is divided by
	// one more than they are: ingest goes first.
	writeConcurrency = 16

	// crowdPerRest is how many waiting requests make a fold's place rest for as long as the fold wrote. It rests
	// maxRests times as long, and maxRest, at the most.
	crowdPerRest = 4
	maxRests     = 3
	maxRest      = time.Second

	// maxYield is by how much folds that tell of no change of state let urgent ones go before them.
	maxYield = time.Second

	// maxNoticeRate and maxNoticeBurst bound the Kubernetes Events on Incidents, a second and at once. Each is a
	// write of its own; a storm that opens thousands of Incidents would make half as many more of them.
	maxNoticeRate  = 10
	maxNoticeBurst = 100

	// releaseConcurrency is how many AlertEvents are deleted at a time.
	releaseConcurrency = 8

	// defaultRetention is how long a Resolved Incident is kept when its integration does not say.
	defaultRetention = 168 * time.Hour

	// defaultLateFiringWindow is how long after a resolve a firing may be a late duplicate, when neither the integration
	// nor its preset says: longer than the replicas of a sender wait for each other (Alertmanager: 15 s each), shorter
	// than any interval at which senders repeat.
	defaultLateFiringWindow = 30 * time.Second

	// maxClockDifference is how far clocks may differ. A receivedTime that lies further ahead of the creation is not
	// believed; a leader whose clock differs more from the API server's lets nothing end for its age.
	maxClockDifference = time.Minute

	// maxClockLead is how far ahead of its receipt a startsAt may lie. A local time taken for UTC is up to 14 hours ahead.
	maxClockLead = 24 * time.Hour

	// probeInterval is how often a replica asks the API server whether alerts could be stored, and probeTimeout how long
	// it waits for the answer. After maxProbeGap without one, the time before it does not count as listening any more;
	// ingest itself tries for 5 s to store an alert.
	probeInterval = 5 * time.Second
	probeTimeout  = 5 * time.Second
	maxProbeGap   = 15 * time.Second

	// maxProbeAnswer is how many bytes of an answer to the probe are read, to use the connection again.
	maxProbeAnswer = 64 << 10

	// autoResolveGrace is what senders get, after they could not deliver, beside autoResolveAfter: they wait between
	// their tries, and many of them come at once.
	autoResolveGrace = time.Minute

	// maxRefusals is for how many integrations the newest refusal is remembered.
	maxRefusals = 10_000

	// untrustedRetry is when to look again at an Incident with a deadline while nothing may end for its age.
	untrustedRetry = 30 * time.Second

	// emptyPatience is how long an Incident without a status is kept: its creator may be about to write it.
	emptyPatience = 10 * time.Minute

	// writeInterval is the least time between two writes of an Incident that tell of no change of state.
	writeInterval = time.Second

	// cachePatience is how long a fold waits for the cache to show what this process wrote last. Nothing
	// depends on it but the number of conflicts.
	cachePatience = 2 * time.Second

	// staleRetry is when to look again after something turned out to be older than it seemed.
	staleRetry = 50 * time.Millisecond

	// pausedRetry is when to look again at an Incident whose ledger is full; the deletion of an AlertEvent
	// brings it back sooner.
	pausedRetry = 5 * time.Second

	// expiryRetry is when to look again at an expired Incident that AlertEvents still hold on to.
	expiryRetry = time.Minute

	// terminatingRetry is when to try again in a namespace that is being deleted.
	terminatingRetry = 30 * time.Second

	// foldTimeout bounds one reconciliation.
	foldTimeout = 30 * time.Second

	// listTimeout bounds one quorum list.
	listTimeout = 20 * time.Second

	// listPageSize is how many AlertEvents one page of a quorum list holds.
	listPageSize = 5000

	// maxListPause bounds the rest between two quorum lists.
	maxListPause = time.Second

	// orderPatience is how old an alert without an Incident may become while the cache lacks an older
	// AlertEvent that may be the one to create it.
	orderPatience = 15 * time.Second

	// keyedLinger is how long an AlertEvent with an idempotency key stays after it was folded, so that
	// the API server knows the key.
	keyedLinger = 10 * time.Minute

	// maxLingering is how many AlertEvents stay for their idempotency keys; beyond it the oldest go early.
	maxLingering = 1000

	// replayWindow is how long the name of a released AlertEvent is remembered. A retry of our own whose
	// first try got through after all comes well before that.
	replayWindow = 2 * time.Minute

	// maxReleased bounds the remembered names.
	maxReleased = 20_000

	// partialCheck is when to look whether an AlertEvent that is settled in part is still there.
	partialCheck = 10 * time.Minute

	// asideAfter is how many refusals in a row make an Incident's AlertEvents be folded by halves, to find the one
	// at fault.
	asideAfter = 3

	// asideTime is how long an AlertEvent stays set aside before it is tried again.
	asideTime = 10 * time.Minute

	// minBackoff and maxBackoff bound the time until something that failed is tried again.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second

	// receivedInterval is the least time between two writes of an integration's lastReceivedTime.
	receivedInterval = time.Minute
)
