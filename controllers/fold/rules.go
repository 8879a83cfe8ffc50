package fold

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// rule is what a feature adds to the life cycle, at certain moments of a fold. All that the feature decides lies in the file of
// its rule; what others must know of holds and flapping, in forwarding.go. A rule embeds noRule for the other moments.
type rule interface {
	begin(f *folding)                                  // before the first alert
	opens(f *folding)                                  // an episode is about to open; the status still has the last one, if any
	ends(f *folding)                                   // the episode has ended
	alert(f *folding, a receivedAlert, before earlier) // an alert has been folded
	finish(f *folding, before earlier)                 // all alerts have been folded, and the time may have ended the episode

	// takeReport folds a report that the life cycle does not know, and returns its result; empty for all other alerts.
	takeReport(f *folding, a receivedAlert) (result string)

	// quiet returns the earliest time from which the lack of alerts may end an Open Incident with the key, or that it never does.
	quiet(dedupKey string, p *Policy) (from time.Time, never bool)

	// due returns when the rule changes the Incident if no alert comes until then; zero if it does not. It is folded at that time,
	// even if it is Resolved. The rule must change it then: otherwise it is folded again and again.
	due(status *v1alpha1.IncidentStatus, p *Policy) time.Time

	// bare adapts a status whose content is left out.
	bare(status, stored *v1alpha1.IncidentStatus, p *Policy, now time.Time)
}

// rules are those of all features. The order matters where a rule reads what an earlier one has decided in the same fold.
var rules = [...]rule{
	heartbeatRule{},       // nothing ends for want of alerts while a heartbeat is missed
	acknowledgementRule{}, // acknowledgements expire
	silenceRule{},         // requests for silences, and which silence covers the Incident
	holdRule{},            // an episode is not forwarded yet
	flappingRule{},        // the end of an episode that was forwarded is not forwarded yet
	muteRule{},            // a maintenance window mutes the Incident
	forwardingRule{},      // whether people are told: not of what a silence covers, is held back or muted
	archiveRule{},         // ended episodes wait for the archive, in the version that the whole fold makes of them
	assignmentRule{},      // who works on the episode; when the next one opens, the archive has it
	clockRule{},           // times of the future become now, after the rules that look for them; of an acknowledgement, at once
}

// Due is when a rule changes an Incident if no alert comes until then; zero if none does.
func Due(incident *v1alpha1.Incident, p *Policy) (first time.Time) {
	for _, r := range rules {
		if at := r.due(&incident.Status, p); first.IsZero() || !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	return first
}

// earlier is what an Incident was before an alert, or before the time changed it.
type earlier struct {
	isOpen    bool
	forwarded v1alpha1.Severity // the severity with which it is forwarded, unless it is muted; empty while it is held back
}

func (f *folding) earlier() earlier {
	was := earlier{f.status.State == v1alpha1.IncidentOpen, ForwardedSeverity(f.status)}
	if was.isOpen && f.isHeld() {
		was.forwarded = ""
	}
	return was
}

// noRule adds nothing.
type noRule struct{}

func (noRule) begin(*folding)                                             {}
func (noRule) opens(*folding)                                             {}
func (noRule) ends(*folding)                                              {}
func (noRule) alert(*folding, receivedAlert, earlier)                     {}
func (noRule) finish(*folding, earlier)                                   {}
func (noRule) takeReport(*folding, receivedAlert) string                  { return "" }
func (noRule) quiet(string, *Policy) (from time.Time, never bool)         { return from, never }
func (noRule) due(*v1alpha1.IncidentStatus, *Policy) (never time.Time)    { return never }
func (noRule) bare(_, _ *v1alpha1.IncidentStatus, _ *Policy, _ time.Time) {}
