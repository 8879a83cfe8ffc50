package alerts

import "time"

const (
	// MaxRoundInterval is how often everything is posted, unless a third of the expiry is shorter: two posts may fail.
	MaxRoundInterval = time.Minute

	// MinEndedWindow is how long ended alerts are posted again, unless the expiry is longer: an Alertmanager that missed
	// the end keeps the alert for an expiry.
	MinEndedWindow = 15 * time.Minute

	// clockMargin is how far in the past an alert ends at least. Alertmanager ignores an end that lies in its future, and
	// the API server's clock is known to the second only.
	clockMargin = time.Second

	// MaxLabelChars bounds the value of a label, and the other bounds those of annotations, in characters.
	MaxLabelChars       = 256
	maxDescriptionChars = 2048
	maxURLBytes         = 2048

	// FormerDelay is how long what an earlier leader has posted is not ended, though it differs from what is wanted: the watch of
	// the new one may be behind.
	FormerDelay = 30 * time.Second

	// maxEndedSets bounds the ended label sets that are remembered for one Incident and Alertmanager.
	maxEndedSets = 8

	// maxLabelChanges bounds how often the labels of an Incident change, apart from the severity, while ended alerts are posted.
	// Alertmanager keeps each set for half an hour, so a sender that changes the type with every alert would fill it.
	maxLabelChanges = 8
)
