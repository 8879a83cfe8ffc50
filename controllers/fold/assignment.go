package fold

import (
	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// assignmentRule records who works on an Incident, as people report it. An assignment is no acknowledgement: it covers no
// severity, silences nothing and does not expire. It stays with an episode that has ended, for its description and for the labels
// with which the end is forwarded, and the next episode begins without it.
type assignmentRule struct{ noRule }

func (assignmentRule) takeReport(f *folding, a receivedAlert) string {
	switch {
	case a.Status != v1alpha1.AlertAssigned && a.Status != v1alpha1.AlertUnassigned:
		return ""
	case f.status.State == v1alpha1.IncidentResolved:
		return ResultLate
	case a.Status == v1alpha1.AlertUnassigned:
		f.unassign(a)
		return ResultUnassigned
	}
	f.assign(a)
	return ResultAssigned
}

func (assignmentRule) opens(f *folding) { f.status.Assignee = nil }

// assign records an assignment to somebody else, or the comment of a repeated one. A name without a printable character is none.
func (f *folding) assign(a receivedAlert) {
	name, entry, before := plaintext.ShortName(a.Assignee), a.transition(v1alpha1.TransitionAssigned, "Assigned"), f.status.Assignee
	isSame := before != nil && before.Name == name
	if name == "" || isSame && entry.Comment == "" {
		return
	}
	// The name comes last: nobody can hide by a long one who has assigned the Incident.
	if entry.Message += " to " + name; entry.By == name {
		entry.Message = "Taken over by " + name
	}
	if !isSame {
		f.status.Assignee = &v1alpha1.Assignee{Name: name, Time: entry.Time, By: entry.By}
	}
	f.plan.AddEntry(entry)
	f.plan.Urgent = true
}

func (f *folding) unassign(a receivedAlert) {
	if f.status.Assignee == nil {
		return
	}
	f.status.Assignee = nil
	f.plan.AddEntry(a.transition(v1alpha1.TransitionUnassigned, "Unassigned"))
	f.plan.Urgent = true
}

// AssigneeOf returns who works on the current episode, or worked on it at its end; empty if nobody does.
func AssigneeOf(status *v1alpha1.IncidentStatus) string {
	if status.Assignee == nil {
		return ""
	}
	return status.Assignee.Name
}
