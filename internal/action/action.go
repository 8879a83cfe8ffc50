// Package action does to Incidents what a user asks for: it creates AlertEvents, which Tocsin folds. The commands of the plugin
// and the page use it.
package action

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/silences"
)

// FieldManager is the field manager of the objects that the plugin and the page create.
const FieldManager = client.FieldOwner("kubectl-tocsin")

// Poll is how often the effect of an action is looked for.
const Poll = 100 * time.Millisecond

const maxNameChars = 256 // of by and assignee in spec.report

// Action is what a user does to Incidents.
type Action struct {
	Status  v1alpha1.AlertStatus // AlertFiring reopens them
	Message string
	Length  time.Duration // of a silence, which 0 ends; or of an acknowledgement: 0 leaves it to the integration

	Assignee string // to whom AlertAssigned assigns them

	Silences *silences.Batch // to check and to await
}

// Unneeded describes why an Incident needs no action; empty if it needs one.
func (a Action) Unneeded(incident *v1alpha1.Incident) string {
	needsOpen := a.Status != v1alpha1.AlertNoted && (a.Status != v1alpha1.AlertSilenced || a.Length > 0)
	switch {
	case a.Status == v1alpha1.AlertFiring:
		return unneededReopen(incident)
	case a.Status == v1alpha1.AlertResolved && fold.EndIsKeptBack(&incident.Status, time.Now()):
		return "" // Alertmanager is told of the end then
	case needsOpen && incident.Status.State == v1alpha1.IncidentResolved:
		return "already resolved"
	case a.Status == v1alpha1.AlertAcknowledged && !a.tells() && staysAcknowledged(&incident.Status):
		return "already acknowledged"
	case a.Status == v1alpha1.AlertUnacknowledged && !live.HasAcknowledgement(incident):
		return "not acknowledged"
	case a.Status == v1alpha1.AlertSilenced && a.Length == 0:
		return silences.UnneededEnd(incident)
	default:
		return a.unneededAssignment(incident)
	}
}

// staysAcknowledged reports whether a further acknowledgement changes nothing. It sets the end of one that expires anew.
func staysAcknowledged(status *v1alpha1.IncidentStatus) bool {
	return fold.StaysAcknowledged(status) && status.Acknowledgement.ExpirationTime == nil
}

// tells reports whether an acknowledgement or an assignment adds something to an earlier one.
func (a Action) tells() bool { return a.Message != "" || a.Length > 0 }

func unneededReopen(incident *v1alpha1.Incident) string {
	if incident.Status.State == v1alpha1.IncidentResolved {
		return ""
	}
	return "already open"
}

// Event returns the AlertEvent that does the action to an Incident, in the name of a user.
func (a Action) Event(incident *v1alpha1.Incident, user string) *v1alpha1.AlertEvent {
	report := &v1alpha1.Report{Status: a.Status, IncidentName: incident.Name, By: user, Comment: a.Message}
	if a.Status == v1alpha1.AlertSilenced {
		report.SilenceFor = &metav1.Duration{Duration: a.Length}
	}
	if a.Status == v1alpha1.AlertAcknowledged && a.Length > 0 {
		report.AcknowledgeFor = &metav1.Duration{Duration: a.Length}
	}
	if a.Status == v1alpha1.AlertAssigned {
		report.Assignee = a.Assignee
	}
	if a.Status == v1alpha1.AlertFiring {
		report.DedupKey = incident.Spec.DedupKey
	}
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: incident.Namespace, GenerateName: "kubectl-"},
		Spec:       v1alpha1.AlertEventSpec{IntegrationName: incident.Spec.IntegrationName, Report: report},
	}
}

// User returns the user name that the API server authenticates, which differs from the one in the kubeconfig. It has at most as
// many characters as spec.report.by may have.
func User(ctx context.Context, c client.Client) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "", fmt.Errorf("reading your user name from the API server: %w", err)
	}
	name := []rune(review.Status.UserInfo.Username)
	return string(name[:min(len(name), maxNameChars)]), nil
}
