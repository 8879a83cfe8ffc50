package forward

import "time"

// Limits and delays of the forwarding.
const (
	// defaultExpiry is longer than an upgrade, a failover or a short outage of Tocsin takes.
	defaultExpiry = 15 * time.Minute
	minExpiry     = time.Minute
	maxExpiry     = 24 * time.Hour

	// maxRoundInterval is how often everything is posted, unless a third of the expiry is shorter: two posts may fail.
	maxRoundInterval = time.Minute

	// minEndedWindow is how long ended alerts are posted again, unless the expiry is longer: an Alertmanager that missed
	// the end keeps the alert for an expiry.
	minEndedWindow = 15 * time.Minute

	// clockMargin is how far in the past an alert ends at least. Alertmanager ignores an end that lies in its future, and
	// the API server's clock is known to the second only.
	clockMargin = time.Second

	// maxAlertmanagers, maxAddresses and maxLabels bound the configuration, and what DNS makes of it.
	maxAlertmanagers = 16
	maxAddresses     = 16
	maxLabels        = 32

	// maxLabelChars bounds the value of a label, and the other bounds those of annotations, in characters.
	maxLabelChars       = 256
	maxDescriptionChars = 2048
	maxURLBytes         = 2048

	// batchIncidents and batchBytes bound one request. Proxies commonly limit a body to 1 MiB.
	batchIncidents = 256
	batchBytes     = 512 << 10

	// changedIncidents and changedBytes bound the Incidents that changed in one request. The rest is for the round, so that
	// a storm of changes never lets other alerts expire.
	changedIncidents = batchIncidents * 3 / 4
	changedBytes     = batchBytes * 3 / 4

	// endedTime bounds how long the Incidents that are not open are prepared for one request. Most of them are read: readRate bounds
	// the reads in a second, of all senders, and readTimeout each of them.
	endedTime   = 250 * time.Millisecond
	readRate    = 100
	readTimeout = time.Second

	// maxEndedSets bounds the ended label sets that are remembered for one Incident and Alertmanager.
	maxEndedSets = 8

	// maxLabelChanges bounds how often the labels of an Incident change, apart from the severity, while ended alerts are posted.
	maxLabelChanges = 8

	// maxAlone bounds the Incidents in one turn that are posted alone because Alertmanager has not accepted their alerts,
	// isolationTime for how long new requests are made to find and to post such, and partTimeout each request to find them:
	// together they take much less than the shortest expiry.
	maxAlone      = 8
	isolationTime = 10 * time.Second
	partTimeout   = 2 * time.Second

	// logInterval is how often a failure is logged while it lasts.
	logInterval = 5 * time.Minute

	// requestTimeout bounds one request, and minBackoff and maxBackoff the time until a failed one is repeated.
	requestTimeout = 10 * time.Second
	minBackoff     = 500 * time.Millisecond
	maxBackoff     = 15 * time.Second

	// maxAnswerBytes is how much of an answer is read to describe a failure.
	maxAnswerBytes = 512

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
	resolveTimeout  = 5 * time.Second

	// silenceInterval is how often silences are read and compared, and maxSilenceCalls how many are written each time. That ends
	// early after maxSilenceFailures in a row.
	silenceInterval    = 10 * time.Second
	maxSilenceCalls    = 200
	maxSilenceFailures = 8

	// maxUnwanted bounds the silences to end that are remembered while a list is read.
	maxUnwanted = 10 * maxSilenceCalls

	// listTimeout, maxListBytes and maxElementBytes bound a list of silences or alerts, which is decoded element by element. The
	// silenced alerts of as many Incidents as there may be fit.
	listTimeout     = 30 * time.Second
	maxListBytes    = 1 << 30
	maxElementBytes = 1 << 20

	// Alertmanager keeps a silence for days after its end, and an ended one cannot begin again. maxNewSilences bounds how many
	// silences of an Incident begin within newSilencesWindow, and maxNamespaceSilences those of a namespace that Alertmanager keeps.
	// Beyond it the Incident is not silenced.
	maxNewSilences       = 6
	newSilencesWindow    = time.Hour
	maxNamespaceSilences = 20_000

	// maxSilencesOfAlert bounds the silences of one alert that are looked at, and maxSilenceID the IDs, which are UUIDs.
	maxSilencesOfAlert = 8
	maxSilenceID       = 64

	// acknowledgedSilence is how long the silence of an acknowledged Incident lasts; it is renewed when half of it has
	// passed.
	acknowledgedSilence = 10 * time.Minute

	// maxWholes bounds the Resolved Incidents that are kept to be posted again, without their bags, and wholeTime how long they
	// are. One that is not kept is read again.
	maxWholes = 4096
	wholeTime = minEndedWindow + maxRoundInterval
)
