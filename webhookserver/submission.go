package webhookserver

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Committer stores submissions. It returns nil only after the API server has acknowledged the write.
type Committer interface {
	// Commit stores a submission and returns where. The errors are ErrOverloaded, ErrUnavailable,
	// ErrOutcomeUnknown, ErrConflict, a *RejectedError and a *RefusedError; after all but ErrOutcomeUnknown nothing of the
	// submission is stored, nor will be. It returns when ctx ends at the latest.
	Commit(ctx context.Context, submission Submission) (Receipt, error)
}

// Submission is what one request wants stored: all of its alerts in one AlertEvent, or none.
type Submission struct {
	Namespace   string
	Integration string

	// Defaults are those of the integration; only submissions with the same ones share an AlertEvent.
	Defaults *v1alpha1.AlertDefaults

	// Received is when the request came.
	Received time.Time

	// EventName is the name of the AlertEvent for a request with an idempotency key, which gets one of its
	// own. Otherwise it is empty, and the committer makes a name.
	EventName string

	// Alerts are the alerts, ids and names included. 1 to v1alpha1.MaxAlertsPerEvent.
	Alerts []v1alpha1.Alert
}

// lane is the integration that the submission queues up behind.
func (s *Submission) lane() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Integration}
}

// Receipt says where a submission was stored.
type Receipt struct {
	// EventName is the name of the AlertEvent.
	EventName string

	// Alerts are the alerts as stored: for a repeated request with an idempotency key those of the first.
	Alerts []v1alpha1.Alert
}

// Errors of Commit.
var (
	// ErrOverloaded: too much is waiting already. Nothing was stored.
	ErrOverloaded = errors.New("too many alerts are waiting to be stored")

	// ErrUnavailable: the API server was not reached, did not want writes, or did not get to it in time.
	// Nothing was stored.
	ErrUnavailable = errors.New("the API server did not take the alert in time")

	// ErrOutcomeUnknown: a write was sent and its outcome did not come back in time.
	ErrOutcomeUnknown = errors.New("the API server did not confirm the write in time")

	// ErrConflict: the name of a keyed submission is taken by an AlertEvent with other alerts.
	ErrConflict = errors.New("another request was stored under the same idempotency key")
)

// RejectedError says that the schema of AlertEvents does not allow the submission. Nothing was stored, and trying
// again is of no use.
type RejectedError struct {
	// Message names the fields at fault, in one printable line without anything of the alert.
	Message string
}

func (e *RejectedError) Error() string { return "the API server rejected the alert: " + e.Message }
