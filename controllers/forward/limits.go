package forward

import (
	"time"

	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

// Limits and delays of the forwarding.
const (
	// batchIncidents and batchBytes bound one request. Proxies commonly limit a body to 1 MiB.
	batchIncidents = 256
	batchBytes     = 512 << 10

	// changedIncidents and changedBytes bound the Incidents that changed in one request. The rest is for the round, so that
	// a storm of changes never lets other alerts expire.
	changedIncidents = batchIncidents * 3 / 4
	changedBytes     = batchBytes * 3 / 4

	// endedTime bounds how long the Incidents that are not open are prepared for one request. Most of them are read: readRate bounds
	// the reads in a second, of all posters, and readTimeout each of them.
	endedTime   = 250 * time.Millisecond
	readRate    = 100
	readTimeout = time.Second

	// maxAlone bounds the Incidents in one turn that are posted alone because Alertmanager has not accepted their alerts. For
	// isolationTime after a failure, new requests are made to find such Incidents; then they are posted for as long at most.
	// partTimeout bounds each of these requests, unless Alertmanager is slow. Together they take much less than the shortest
	// expiry, and maxAlone without an answer take less than isolationTime, so those of one namespace do not keep others back.
	maxAlone      = 4
	isolationTime = 10 * time.Second
	partTimeout   = 2 * time.Second

	// maxFormerBytes bounds what a poster keeps, in a term, of earlier leaders' alerts that differ from what is wanted.
	maxFormerBytes = 16 << 20

	// logInterval is how often a failure is logged while it lasts.
	logInterval = 5 * time.Minute

	// minBackoff and maxBackoff bound the time until a failed request is repeated. A rejected Incident is posted again after ever
	// longer delays until it has been rejected for retryWindow, and then in every round.
	minBackoff  = 500 * time.Millisecond
	maxBackoff  = 15 * time.Second
	retryWindow = alerts.MaxRoundInterval

	// failingAfter is how long an Alertmanager has to fail until the condition of the integrations says so: a short
	// outage causes no writes.
	failingAfter = time.Minute

	// unpostedAfter is how long an Alertmanager has to fail until the status of an Incident that none has accepted says so.
	// reportInterval is how often all Incidents are compared with what their status says, and reportRate how many are written in a
	// second because of it.
	unpostedAfter  = 5 * time.Second
	reportInterval = 5 * time.Second
	reportRate     = 50

	// reloadInterval is how often the configuration file is read, and resolveInterval how often names are resolved.
	reloadInterval  = time.Second
	resolveInterval = 15 * time.Second

	// silenceInterval is how often silences are read and compared. That ends early after maxSilenceFailures in a row.
	silenceInterval    = 10 * time.Second
	maxSilenceFailures = 8

	// maxResolved bounds the Resolved Incidents that are kept to be posted again, compact, and resolvedTime how long they are. One
	// that is not kept is read again. One that fires on is read for each round: no watch tells when somebody deletes it.
	maxResolved    = 4096
	resolvedTime   = alerts.MinEndedWindow + alerts.MaxRoundInterval
	keptFiringTime = alerts.MaxRoundInterval / 2

	// lostAfter is how long the cache has to show what a fold has written. Then the Incident is read that often, lostInterval after
	// another one: perhaps no watch tells when it changes. A pass over them ends early after maxLostFailures.
	lostAfter       = 30 * time.Second
	lostInterval    = 50 * time.Millisecond
	maxLostFailures = 8
)
