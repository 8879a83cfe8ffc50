package alerts

import (
	"maps"
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// History is what a leader has posted about one Incident to one Alertmanager. A set that fires there and differs from the one
// that the Incident has now is ended by it. The timeline has earlier severities, also for a new leader; only the history has
// other labels, Incidents that were deleted, and those that are no longer forwarded.
type History struct {
	sets    []set       // the one that fires, and those that have ended and that the timeline may lack, newest first
	labels  string      // of all sets
	changes []time.Time // when these changed lately

	// former are the label sets by which Alertmanager knows the Incident, without the severity. They stay: an end that Alertmanager
	// did not accept is posted again, and so is one that it did, for some time.
	former map[v1alpha1.Severity]map[string]string
}

// IsEmpty reports whether nothing is to be remembered.
func (h *History) IsEmpty() bool { return !h.IsPosted() && h.former == nil }

// IsPosted reports whether this leader has posted the Incident.
func (h *History) IsPosted() bool { return len(h.sets)+len(h.changes) > 0 }

// Extend returns what is wanted plus the sets posted earlier that must now end, and remembers what is going to be posted. The
// labels of a muted Incident stay as they are.
func (h *History) Extend(w Wanted, settings *Settings, now time.Time) Wanted {
	window := settings.EndedWindow()
	if h.NeedsFormer(w) {
		h.restore(w, settings)
	}
	h.keepLabels(w, window, now)
	sets, remembered := w.sets, []set(nil)
	if len(sets) > 0 && sets[0].fires() {
		remembered = append(remembered, sets[0])
	}
	for _, old := range h.sets {
		if old.fires() {
			old.to = now
		}
		if now.Sub(old.to) >= window {
			continue
		}
		switch at := slices.IndexFunc(sets, old.isSame); {
		case at < 0:
			sets, remembered = append(sets, old), append(remembered, old)
		case !sets[at].fires(): // Alertmanager may not accept its end before the Incident opens again, with other labels
			remembered = append(remembered, old)
		}
	}
	if h.sets = remembered[:min(len(remembered), 1+maxEndedSets)]; !h.IsPosted() {
		h.labels = ""
	}
	w.sets = sets
	return w
}

// keepLabels changes the wanted labels to those of before if the Incident is muted, or if they have changed maxLabelChanges times
// lately. Only the severity still changes: it has few values.
func (h *History) keepLabels(w Wanted, window time.Duration, now time.Time) {
	h.changes = slices.DeleteFunc(h.changes, func(at time.Time) bool { return now.Sub(at) >= window })
	switch {
	case len(w.sets) == 0 || w.sets[0].labels == h.labels:
	case h.labels == "", w.mute == nil && len(h.changes) < maxLabelChanges:
		h.labels, h.changes = w.sets[0].labels, append(h.changes, now)
	default:
		for i := range w.sets {
			w.sets[i].labels = h.labels
		}
	}
}

// NeedsFormer reports whether a former leader may have posted a muted Incident with other labels than it has now. They stay as
// they are, and the status does not have them.
func (h *History) NeedsFormer(w Wanted) bool {
	return !h.IsPosted() && w.mute != nil && w.mute.ForwardedSeverity != "" && len(w.sets) > 0
}

// AddFormer adds the labels of an alert of the Incident in Alertmanager.
func (h *History) AddFormer(labels map[string]string) {
	_, severity := IncidentOf(labels)
	if h.former == nil {
		h.former = map[v1alpha1.Severity]map[string]string{}
	}
	h.former[severity] = maps.Clone(labels)
	delete(h.former[severity], labelSeverity)
}

// changingLabels are the labels of Tocsin's own that change while an Incident is open.
var changingLabels = []string{labelAlertname, labelReminder, labelAssignee}

// restore sets the labels to those with which a muted Incident was posted, unless those differ from what they are now that change
// neither by senders nor with time: anyone can post to Alertmanager.
func (h *History) restore(w Wanted, settings *Settings) {
	now, before := decodeLabels(w.sets[0].labels), h.former[w.mute.ForwardedSeverity]
	for _, labels := range []map[string]string{now, before} {
		for name, value := range labels {
			mayChange := slices.Contains(changingLabels, name) || slices.Contains(settings.AlertLabels, name)
			if !mayChange && (now[name] != value || before[name] != value) {
				return
			}
		}
	}
	h.labels = encodeLabels(before)
}
