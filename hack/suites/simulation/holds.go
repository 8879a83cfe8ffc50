package simulation

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// heldFor is how long Incidents are held back in a story with HoldBack, by severity.
var heldFor = map[v1alpha1.Severity]time.Duration{
	v1alpha1.SeverityError: 20 * time.Second, v1alpha1.SeverityWarning: 90 * time.Second, v1alpha1.SeverityInfo: 5 * time.Minute,
}

func holdBack() *v1alpha1.ForwardAfter {
	length := func(of v1alpha1.Severity) *metav1.Duration { return &metav1.Duration{Duration: heldFor[of]} }
	return &v1alpha1.ForwardAfter{
		Default: length(v1alpha1.SeverityWarning), Critical: length(v1alpha1.SeverityCritical),
		Error: length(v1alpha1.SeverityError), Info: length(v1alpha1.SeverityInfo),
	}
}

// holds judges from when on episodes are forwarded, by their timelines alone, and that acknowledgements expire.
type holds struct {
	none  bool            // the clocks of the story are wrong, or nothing is held back
	pages bool            // something is forwarded: an end is then, and what fires on is not held back when it opens again
	other map[string]bool // namespaces whose integration was deleted: alerts that came meanwhile are not held back
	shown map[types.NamespacedName]shownAcknowledgement
	until map[types.NamespacedName]shownHold
}

// shownAcknowledgement is when an acknowledgement was given, and when a commit first showed it.
type shownAcknowledgement struct{ given, at time.Time }

// shownHold is until when an episode was held back by the last commit of its Incident, and whether that was over then.
type shownHold struct {
	opened, until time.Time
	isOver        bool
}

func newHolds(s *Story) holds {
	return holds{
		none: s.hasClocks() || !s.HoldBack, pages: s.KeepFiring,
		other: map[string]bool{}, shown: map[types.NamespacedName]shownAcknowledgement{}, until: map[types.NamespacedName]shownHold{},
	}
}

// holdError is how much later than the true time an alert may be received by the clock of a fold, which is known to the second.
const holdError = 3 * time.Second

// judges says whether it is known until when an episode is held back. One that was forwarded is held back no more.
func (h *holds) judges(namespace string, status *v1alpha1.IncidentStatus) bool {
	wasTold := status.Forwarding != nil && status.Forwarding.Severity != ""
	isUnknown := h.none || h.other[namespace] || status.Episode == nil || status.OpenedTime == nil
	isKept := h.pages && status.Flapping != nil
	return !isUnknown && !isKept && !wasTold
}

func (h *holds) judge(key types.NamespacedName, incident *v1alpha1.Incident, found *oracle.Findings) {
	status := &incident.Status
	if given := status.Acknowledgement; given != nil && !h.shown[key].given.Equal(given.Time.Time) {
		h.shown[key] = shownAcknowledgement{given.Time.Time, time.Now()}
	}
	if !h.judges(key.Namespace, status) {
		return
	}
	var got time.Time
	if status.Episode.ForwardTime != nil {
		got = status.Episode.ForwardTime.Time
	}
	if h.remainsOver(key, status, got) {
		return
	}
	want, begun := wantHeld(status)
	// An alert that was stored late counts from when one before it was received, which the timeline need not have.
	isHeld, last := begun && !want.IsZero() && !got.IsZero(), status.LastAlertTime
	if isHeld && last != nil && !latest(got, want).After(last.Time) {
		want = got
	}
	if begun && (got.IsZero() != want.IsZero() || got.Sub(want).Abs() > holdError) {
		found.Add("M: %s is held back until %s, and by its timeline until %s", key, got, want)
	}
}

// remainsOver reports whether a hold that was over is as it was, although a late alert may tell otherwise: an Alertmanager may
// have accepted the episode. Then its end is forwarded, too, and it has no hold any more.
func (h *holds) remainsOver(key types.NamespacedName, status *v1alpha1.IncidentStatus, until time.Time) bool {
	before, opened := h.until[key], status.OpenedTime.Time
	isOver := before.opened.Equal(opened) && (before.isOver || !before.until.IsZero() && before.until.Before(time.Now()))
	h.until[key] = shownHold{opened, until, isOver}
	return isOver && (until.Equal(before.until) || until.IsZero() && status.State == v1alpha1.IncidentResolved)
}

// judgeBeginning judges that an Incident, as it is stored, may begin to fire in an Alertmanager: a severity that it had in its
// episode has freed it.
func (h *holds) judgeBeginning(
	key types.NamespacedName, incident *v1alpha1.Incident, wasDeleted bool, now time.Time, found *oracle.Findings,
) {
	if incident == nil || h.none || h.other[key.Namespace] || incident.Status.Episode == nil || incident.Status.OpenedTime == nil ||
		incident.Status.Episode.ForwardTime == nil {
		return
	}
	if follows(incident, wasDeleted, now) {
		return
	}
	status := &incident.Status
	shortest, begun := 24*time.Hour, false
	for _, entry := range status.Timeline {
		switch entry.Type {
		case v1alpha1.TransitionOpened, v1alpha1.TransitionReopened:
			shortest, begun = heldFor[entry.Severity], true
		case v1alpha1.TransitionSeverityChanged:
			shortest = min(shortest, heldFor[entry.Severity])
		default:
		}
	}
	if free := status.OpenedTime.Add(shortest); begun && now.Add(holdError).Before(free) {
		found.Add("M: %s fires in Alertmanager, and is to be held back until %s", key, free)
	}
}

// follows reports whether the episode of an Incident opened a moment ago, after another one, or after a user deleted the Incident
// of that. A leader with an old cache may not know it yet.
func follows(incident *v1alpha1.Incident, wasDeleted bool, now time.Time) bool {
	isNew := func(t time.Time) bool { return now.Sub(t) < time.Minute }
	return incident.Status.Episode.Number > 1 && isNew(incident.Status.OpenedTime.Time) ||
		wasDeleted && isNew(incident.CreationTimestamp.Time)
}

// wantHeld returns until when an episode is held back by its timeline; zero if it is not. begun is false if the timeline lacks
// its beginning.
func wantHeld(status *v1alpha1.IncidentStatus) (want time.Time, begun bool) {
	var at time.Time // clocks of replicas differ: a change may be dated before the one that precedes it
	for _, entry := range status.Timeline {
		due := status.OpenedTime.Add(heldFor[entry.Severity])
		switch entry.Type {
		case v1alpha1.TransitionOpened, v1alpha1.TransitionReopened:
			begun, at, want = true, entry.Time.Time, time.Time{}
			if heldFor[entry.Severity] > 0 {
				want = due
			}
		case v1alpha1.TransitionSeverityChanged:
			if at = latest(at, entry.Time.Time); at.Before(want) {
				want = latest(due, at)
			}
		default:
		}
	}
	return want, begun
}

func latest(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

// longestExpiry is how long after its end, or after its fold if that is later, an acknowledgement may last: a new leader waits
// for a minute, and each fault began and ended before.
const longestExpiry = 3 * time.Minute

// check judges an open Incident at the end of a story.
func (h *holds) check(key types.NamespacedName, incident *v1alpha1.Incident, now time.Time, found *oracle.Findings) {
	given := incident.Status.Acknowledgement
	if given != nil && given.ExpirationTime != nil && now.Sub(given.ExpirationTime.Time) > longestExpiry &&
		now.Sub(h.shown[key].at) > longestExpiry {
		found.Add("M: the acknowledgement of %s is over since %s", key, given.ExpirationTime)
	}
}
