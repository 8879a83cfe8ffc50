package fold

import "time"

// Limits of the fold.
const (
	// DefaultRetention is how long a Resolved Incident is kept when its integration does not say.
	DefaultRetention = 168 * time.Hour

	// defaultLateFiringWindow is how long after a resolve a firing may be a late duplicate, when neither the integration
	// nor its preset says: longer than the replicas of a sender wait for each other (Alertmanager: 15 s each), shorter
	// than any interval at which senders repeat.
	defaultLateFiringWindow = 30 * time.Second

	// MaxClockDifference is how far clocks may differ. A receivedTime that lies further ahead of the creation is not
	// believed; a leader whose clock differs more from the API server's lets nothing end for its age.
	MaxClockDifference = time.Minute

	// maxClockLead is how far ahead of its receipt a startTime may lie. A local time taken for UTC is up to 14 hours ahead.
	maxClockLead = 24 * time.Hour

	// EmptyPatience is how long an Incident without a status is kept: its creator may be about to write it.
	EmptyPatience = 10 * time.Minute

	// minLease and maxLease bound how long an Incident stays open without a repetition of an alert whose sender says until
	// when it is valid. Prometheus' default is four minutes.
	minLease = time.Minute
	maxLease = 24 * time.Hour

	// GeneratedAutoResolve is after how much silence an Incident with a generated dedup key resolves when its
	// integration does not say.
	GeneratedAutoResolve = 24 * time.Hour
)
