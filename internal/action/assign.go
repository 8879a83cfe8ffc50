package action

import (
	"fmt"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// CheckAssignee checks a name as the API server would, and that something is left of it in one printable line. Empty stands for
// the user.
func (a Action) CheckAssignee() error {
	if a.Assignee != "" && (utf8.RuneCountInString(a.Assignee) > maxNameChars || plaintext.ShortName(a.Assignee) == "") {
		return fmt.Errorf("the name of a person has 1 to %d printable characters", maxNameChars)
	}
	return nil
}

// unneededAssignment is Unneeded for an open Incident; empty for all other actions.
func (a Action) unneededAssignment(incident *v1alpha1.Incident) string {
	assignee := fold.AssigneeOf(&incident.Status)
	switch {
	case a.Status == v1alpha1.AlertAssigned && !a.tells() && assignee == plaintext.ShortName(a.Assignee):
		return "already assigned to " + assignee
	case a.Status == v1alpha1.AlertUnassigned && assignee == "":
		return "not assigned"
	}
	return ""
}
