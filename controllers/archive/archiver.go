package archive

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"gocloud.dev/blob"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// Messages of the condition Archived. They do not change while the reason applies.
const (
	messageArchiving   = "A record of every episode that ends is written to the operator's archive."
	messageUnavailable = "The operator cannot write to its archive. No Incident is deleted until it can. " +
		"The manager's log has the reason."
)

// Opener opens the bucket of the archive.
type Opener func(context.Context) (*blob.Bucket, error)

// Clock returns the time by the API server's clock. It is not ok while that time is unknown.
type Clock func() (now time.Time, ok bool)

// Archiver archives episodes while its replica leads. There is one for each process.
type Archiver struct {
	open  Opener
	clock Clock
	log   logr.Logger

	term atomic.Pointer[term] // the newest term of this replica
}

// New returns an Archiver.
func New(open Opener, clock Clock, log logr.Logger) *Archiver {
	return &Archiver{open: open, clock: clock, log: log}
}

// Lead adds the archiving to the manager of a leader's term. It ends with the term.
func (a *Archiver) Lead(mgr ctrl.Manager) error {
	t := newTerm(a, mgr.GetAPIReader())
	synced, err := informers.Feed(context.Background(), mgr.GetCache(), &v1alpha1.Incident{}, t.changed,
		func(*v1alpha1.Incident) {}) // it may be Resolved
	if err != nil {
		return fmt.Errorf("watching Incidents: %w", err)
	}
	t.synced = func() bool { return synced() && t.swept.Load() }
	if err := mgr.Add(t); err != nil {
		return fmt.Errorf("adding the archiving of episodes: %w", err)
	}
	a.term.Store(t)
	return nil
}

// Resolved implements controllers.Follower.
func (a *Archiver) Resolved(incident *v1alpha1.Incident) {
	if t := a.term.Load(); t != nil {
		t.changed(incident, !t.swept.Load())
	}
}

// Swept implements controllers.Follower.
func (a *Archiver) Swept() {
	if t := a.term.Load(); t != nil {
		t.swept.Store(true)
	}
}

// Deleted forgets an Incident that was deleted.
func (a *Archiver) Deleted(incident *v1alpha1.Incident) {
	if t := a.term.Load(); t != nil {
		t.book.forget(incident)
	}
}

// Archived reports whether an episode of an Incident is in the archive, in the version that the digest identifies, as far
// as this replica's newest term knows.
func (a *Archiver) Archived(incident types.UID, number int64, digest string) bool {
	t := a.term.Load()
	return t != nil && t.book.archived(incident, number, digest)
}

// Condition returns the condition Archived of an integration, without a transition time. It is not ok before the store has
// answered for the first time, and not for a short failure.
func (a *Archiver) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	condition = metav1.Condition{
		Type: v1alpha1.ConditionArchived, Status: metav1.ConditionTrue, ObservedGeneration: integration.Generation,
		Reason: v1alpha1.ReasonArchiving, Message: messageArchiving,
	}
	t := a.term.Load()
	if t == nil {
		return condition, false
	}
	failing, succeeded := t.health.failing(time.Now())
	if failing > failurePatience {
		condition.Status = metav1.ConditionFalse
		condition.Reason, condition.Message = v1alpha1.ReasonArchiveUnavailable, messageUnavailable
		return condition, true
	}
	return condition, succeeded && failing == 0
}
