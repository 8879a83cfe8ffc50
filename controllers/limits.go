package controllers

import "time"

// Limits and delays of the controllers.
const (
	// foldConcurrency is how many Incidents are folded at a time. Nearly all of that time is spent
	// waiting for a quorum list, which takes up to 100 ms on a busy API server whatever its size; this many
	// folds share one.
	// One namespace has four of five of them.
	foldConcurrency = 160

	// writeConcurrency is how many of those folds write at a time. While requests wait to be stored, it is divided by
	// one more than they are: ingest has priority.
	writeConcurrency = 16

	// backlogPerPause is how many waiting requests make a fold's place pause for as long as the fold wrote. It pauses at
	// most maxPauseFactor times as long, and at most maxPause.
	backlogPerPause = 2
	maxPauseFactor  = 3
	maxPause        = time.Second

	// sweepInterval is how often all Resolved Incidents are visited, and sweepRetry when to try again. Before other visits,
	// there is a pause: what asks for them comes at once.
	sweepInterval = time.Hour
	sweepRetry    = 10 * time.Second
	sweepPause    = time.Second

	// archivePatience is how long a Resolved Incident may wait for the archive before the condition Archived tells so, and how often
	// all are visited from then on.
	archivePatience = 15 * time.Minute

	// pageAttempts is how often a page of Resolved Incidents is tried to be read, with sweepPause between.
	pageAttempts = 5

	// maxNoticeRate and maxNoticeBurst bound the Kubernetes Events on Incidents, a second and at once. Each is a
	// write of its own; a storm that opens thousands of Incidents would make half as many more of them.
	maxNoticeRate  = 2
	maxNoticeBurst = 100

	// releaseConcurrency is how many AlertEvents are deleted at a time.
	releaseConcurrency = 8

	// probeInterval is how often a replica asks the API server whether alerts could be stored, and probeTimeout how long
	// it waits for the answer. After maxProbeGap without one, the time before it does not count as listening any more;
	// ingest itself tries for 5 s to store an alert. The API server gives up after probeVerdict, for instance when an admission
	// webhook hangs, so that its answer, which tells the time, comes before probeTimeout.
	probeInterval = 5 * time.Second
	probeTimeout  = 5 * time.Second
	probeVerdict  = 3 * time.Second
	maxProbeGap   = 15 * time.Second

	// maxProbeAnswer is how many bytes of an answer to the probe are read, to use the connection again.
	maxProbeAnswer = 64 << 10

	// autoResolveGrace is added to autoResolveAfter when senders could not deliver: they wait between their attempts, and
	// many of them come at once.
	autoResolveGrace = time.Minute

	// maxRefusals bounds the integrations of a namespace whose newest refusal is remembered, and maxRefusingNamespaces the
	// namespaces.
	maxRefusals           = 1000
	maxRefusingNamespaces = 10_000

	// untrustedRetry is when to look again at an Incident with a deadline while nothing may end for its age.
	untrustedRetry = 30 * time.Second

	// writeInterval is the least time between two writes of an Incident that change no state.
	writeInterval = time.Second

	// cachePatience is how long a fold waits for the cache to show the last write of this process. Nothing
	// depends on it but the number of conflicts.
	cachePatience = 2 * time.Second

	// maxRememberedWrites bounds the last writes that are remembered: more than are made within cachePatience.
	maxRememberedWrites = 20_000

	// staleRetry is when to look again after something turned out to be older than it seemed.
	staleRetry = 50 * time.Millisecond

	// pausedRetry is when to look again at an Incident whose ledger is full; the deletion of an AlertEvent
	// brings it back sooner.
	pausedRetry = 5 * time.Second

	// expiryRetry is when to look again at an expired Incident that AlertEvents still hold on to.
	expiryRetry = time.Minute

	// minBlockedRetry and maxBlockedRetry bound the time until an Incident that cannot be written is tried again, and the
	// creation of one in a namespace where none can be created; there, one Incident tries for all of the namespace.
	minBlockedRetry = time.Second
	maxBlockedRetry = 30 * time.Second

	// namedIncidents is how many of the Incidents that cannot be written a condition names.
	namedIncidents = 3

	// blockedGrace is how long a new leader keeps the conditions of integrations in namespaces in which no Incident could
	// be created, until it has tried itself.
	blockedGrace = time.Minute

	// capacityCheck is how often the leader compares the conditions of all integrations with the capacity of
	// their namespaces.
	capacityCheck = 2 * time.Second

	// headroomPart is the part of a namespace's share of Resolved Incidents, one in so many, that an eviction frees. It deletes
	// evictionChunk at a time.
	headroomPart  = 20
	evictionChunk = 100

	// evictionRetry is the least time between two evictions in a namespace.
	evictionRetry = 10 * time.Second

	// maxOpenBytes is the limit of what the cache has of Incidents that are not Resolved. Beyond its share of it, the content of a
	// namespace's alerts is not kept.
	maxOpenBytes = 256 << 20

	// maxResolvedBytes is the limit of what the API server stores of Resolved Incidents.
	maxResolvedBytes = 512 << 20

	// defaultMaxIncidents is the limit of Incidents when Options do not say.
	defaultMaxIncidents = 50_000

	// foldTimeout bounds one reconciliation.
	foldTimeout = 30 * time.Second

	// listTimeout bounds one quorum list.
	listTimeout = 20 * time.Second

	// stuckAfter is how long a leader keeps the lease while the API server answers none of its calls of one kind, and
	// stuckCheck is how often that is looked at.
	stuckAfter = 30 * time.Second
	stuckCheck = time.Second

	// idleListInterval is the longest time between two quorum lists of all namespaces, and lagListInterval that while the watch
	// of AlertEvents has not shown one of them. After lagRestartAfter that watch begins again, after lagRelistAfter the cache
	// lists anew, and after lagLimit the term ends.
	idleListInterval = 10 * time.Second
	lagListInterval  = 5 * time.Second
	lagRestartAfter  = 15 * time.Second
	lagRelistAfter   = 20 * time.Second
	lagLimit         = 30 * time.Second

	// heavyList is how many bytes a quorum list may have that is not heavy. Of such lists lightLists are made at a time, and one
	// more of heavy ones.
	heavyList  = 8 << 20
	lightLists = 4

	// maxListPause bounds the pause between two quorum lists.
	maxListPause = time.Second

	// keyedLinger is how long an AlertEvent with an idempotency key stays after it was folded, so that
	// the API server knows the key.
	keyedLinger = 10 * time.Minute

	// maxLingering and maxLingeringBytes bound the AlertEvents of one integration that stay for their idempotency keys;
	// beyond them its oldest go early. So an integration with 100 keyed requests a minute has them all for ten
	// minutes.
	maxLingering      = 1000
	maxLingeringBytes = 16 << 20

	// maxAllLingering and maxAllLingeringBytes bound those of all integrations, for they are part of the queue, are
	// held by every replica's cache, and are in every quorum list. Beyond them the oldest go of the integration that
	// has the most.
	maxAllLingering      = 5000
	maxAllLingeringBytes = 64 << 20

	// replayWindow is how long the name of a deleted AlertEvent is remembered. A retry of our own whose first try got
	// through after all comes well before that.
	replayWindow = 2 * time.Minute

	// maxLoadedContent bounds what one fold reads of AlertEvents without content, loadingFolds how many folds do so at a time, and
	// keptLoads is how many of them are kept for the folds of their other Incidents.
	maxLoadedContent = 8 << 20
	loadingFolds     = 4
	keptLoads        = 4

	// maxDeletedNames bounds the remembered names, in each of two generations: more than are deleted in replayWindow.
	maxDeletedNames = 50_000

	// retryHold is how long a replica remembers names before it folds AlertEvents that may be second copies. Ingest tries
	// for 5 s to store an alert.
	retryHold = 30 * time.Second

	// lateStore is how long after its name was made an AlertEvent is stored late. An attempt ends after 2.5 s, and the time of
	// the storing is in whole seconds.
	lateStore = time.Second

	// markPatience is how long an AlertEvent is settled in part before it is marked though none of its other Incidents is
	// known to wait. In a storm, an Incident is written once a second.
	markPatience = 5 * time.Second

	// tidyInterval is how often the records of the release are looked through.
	tidyInterval = 10 * time.Second

	// minBackoff and maxBackoff bound the time until something that failed is tried again.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second

	// receivedInterval is the least time between two writes of an integration's lastReceivedTime.
	receivedInterval = time.Minute
)
