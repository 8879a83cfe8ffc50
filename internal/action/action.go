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

// Poll is how often it is looked whether an action is folded.
const Poll = 100 * time.Millisecond

const maxNameChars = 256 // of by and assignee in spec.report

// Action is what a user does to Incidents.
type Action struct {
	Status  v1alpha1.AlertStatus // AlertFiring reopens them
	Message string
	Length  time.Duration // how long it lasts; 0 ends its effect, and leaves the length of an acknowledgement to the integration

	Assignee string // to whom AlertAssigned assigns them
}

// Effect is what an action changes beside the status of an Incident. It is checked before the requests, and awaited after them.
type Effect interface {
	CheckLength() error // as the API server would
	Check(ctx context.Context, c client.Reader, incident *v1alpha1.Incident) error
	Unneeded(incident *v1alpha1.Incident) (why string, known bool) // if it is known, why is that of Action
	AddTo(report *v1alpha1.Report)

	// AwaitOne waits for the effect of a request that is folded, until ctx ends, which it does after limit. It returns what to add
	// to Done, which is empty if the status of the action says what was done. Timeout is the limit unless the user sets one.
	AwaitOne(ctx context.Context, c client.Reader, before *v1alpha1.Incident, limit time.Duration) (but string, err error)
	Timeout() time.Duration
	Done() string

	// Await waits in a feed for the effect on all Incidents that were added, as they were before the requests, and says of each
	// what is wrong with it, until say returns false.
	Await(ctx context.Context, feed *live.Feed, say func(before *v1alpha1.Incident, problem error) (listens bool))
	Add(before *v1alpha1.Incident)
	IsEmpty() bool
}

// none is the effect of an action that has none.
type none struct{}

func (none) CheckLength() error                                                      { return nil }
func (none) Check(context.Context, client.Reader, *v1alpha1.Incident) error          { return nil }
func (none) Unneeded(*v1alpha1.Incident) (string, bool)                              { return "", false }
func (none) AddTo(*v1alpha1.Report)                                                  {}
func (none) Timeout() time.Duration                                                  { return 0 }
func (none) Done() string                                                            { return "" }
func (none) Await(context.Context, *live.Feed, func(*v1alpha1.Incident, error) bool) {}
func (none) Add(*v1alpha1.Incident)                                                  {}
func (none) IsEmpty() bool                                                           { return true }
func (none) AwaitOne(context.Context, client.Reader, *v1alpha1.Incident, time.Duration) (string, error) {
	return "", nil
}

// Effect returns a new effect of the action, without Incidents. Check, Add, IsEmpty and Await belong to one of them, and to one
// goroutine.
func (a Action) Effect() Effect {
	if a.Status == v1alpha1.AlertSilenced {
		return silences.NewBatch(a.Length)
	}
	return none{}
}

// Unneeded describes why an Incident needs no action; empty if it needs one.
func (a Action) Unneeded(incident *v1alpha1.Incident) string {
	if why, known := a.Effect().Unneeded(incident); known {
		return why
	}
	switch {
	case a.Status == v1alpha1.AlertFiring && incident.Status.State != v1alpha1.IncidentResolved:
		return "already open"
	case a.Status == v1alpha1.AlertFiring, a.Status == v1alpha1.AlertResolved && fold.EndIsKeptBack(&incident.Status, time.Now()):
		return "" // a Resolved one reopens; and of an end that was kept back, Alertmanager is told
	case a.Status != v1alpha1.AlertNoted && incident.Status.State == v1alpha1.IncidentResolved:
		return "already resolved"
	case a.Status == v1alpha1.AlertAcknowledged && !a.tells() && staysAcknowledged(&incident.Status):
		return "already acknowledged"
	case a.Status == v1alpha1.AlertUnacknowledged && !live.HasAcknowledgement(incident):
		return "not acknowledged"
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

// Event returns the AlertEvent that does the action to an Incident, in the name of a user.
func (a Action) Event(incident *v1alpha1.Incident, user string) *v1alpha1.AlertEvent {
	report := &v1alpha1.Report{Status: a.Status, IncidentName: incident.Name, By: user, Comment: a.Message}
	a.Effect().AddTo(report)
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
