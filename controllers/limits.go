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

	// maxNoticeRate and maxNoticeBurst bound the Kubernetes Events on Incidents, a second and at once. Each is a
	// write of its own; a storm that opens thousands of Incidents would make half as many more of them.
	maxNoticeRate  = 2
	maxNoticeBurst = 100

	// releaseConcurrency is how many AlertEvents are deleted at a time.
	releaseConcurrency = 8

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

	// listTimeout bounds one quorum list.
	listTimeout = 20 * time.Second

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

	// maxCachedContent bounds the memory of the content of AlertEvents in the cache, and cachedContentShare is the part of it that
	// one namespace may use: more than the 25,000 alerts take that 64 senders post in six seconds. Beyond it, folding them takes
	// twice as long.
	maxCachedContent   = 128 << 20
	cachedContentShare = 0.5

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
)
