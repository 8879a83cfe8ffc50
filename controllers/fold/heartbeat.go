package fold

import (
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Heartbeats is what the heartbeats of an integration mean for its Incidents.
type Heartbeats struct {
	Missed     bool      // one is missed, or none watches the integration's link: no Incident ends for want of alerts
	HeardSince time.Time // all are looked at since then, and none has been missed; zero without any
	Keys       []string  // their dedup keys: their own Incidents end when they are heard
}

// HeartbeatType is the type of the alerts about heartbeats. Package heartbeat resolves the Incident of one that was deleted only
// if it has this type.
const HeartbeatType = "heartbeat"

func heartbeatsOf(beats []*v1alpha1.Heartbeat) (h Heartbeats) {
	for _, beat := range beats {
		h.Missed = h.Missed || beat.Status.MissedTime != nil
		h.HeardSince = Latest(h.HeardSince, valueOf(beat.Status.MissedUntilTime).Time, valueOf(beat.Status.ObservedTime).Time)
		h.Keys = append(h.Keys, v1alpha1.HeartbeatKey(beat.Name))
	}
	return h
}

// heartbeatRule keeps Incidents open while a heartbeat is missed: the sender may be dead, or its job may have failed.
type heartbeatRule struct{ noRule }

func (heartbeatRule) quiet(dedupKey string, p *Policy) (from time.Time, never bool) {
	return p.Heartbeats.HeardSince, p.Heartbeats.Missed || slices.Contains(p.Heartbeats.Keys, dedupKey)
}
