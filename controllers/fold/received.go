package fold

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// ReceivedTime is when an event was accepted. People may write any time into an AlertEvent of theirs, and a replica's
// clock may be wrong: one that lies further ahead of the creation than clocks may differ counts as the creation.
func ReceivedTime(event *v1alpha1.AlertEvent) time.Time {
	received, created := event.Spec.ReceivedTime.UTC(), event.CreationTimestamp.UTC()
	if received.IsZero() || !created.IsZero() && received.Sub(created) > MaxClockDifference {
		return created
	}
	return received
}

// heardTime is since when an Incident has been silent after an event. It is the time of receipt, but not much before the
// event was stored: the clock of a replica that lags behind must not make its alerts look like silence.
func heardTime(event *v1alpha1.AlertEvent) time.Time {
	received, created := ReceivedTime(event), event.CreationTimestamp.UTC()
	if earliest := created.Add(-MaxClockDifference); !created.IsZero() && received.Before(earliest) {
		return earliest
	}
	return received
}
