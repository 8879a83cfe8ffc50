package commit

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Submission holds the alerts of one request. All of them are stored in one AlertEvent, or none.
type Submission struct {
	Integration types.NamespacedName    // the WebhookIntegration that received the request
	Defaults    *v1alpha1.AlertDefaults // of the integration; only submissions with the same ones share an AlertEvent
	Received    time.Time               // when the request arrived
	Alerts      []v1alpha1.Alert        // with ids and names; 1 to v1alpha1.MaxAlertsPerEvent

	// EventName is the name of the AlertEvent for a request with an idempotency key, which gets one of its own. Empty: the
	// Committer generates a name.
	EventName string
}

// Receipt says where a Submission was stored.
type Receipt struct {
	EventName string           // of the AlertEvent
	Alerts    []v1alpha1.Alert // as stored; if the EventName existed already, those that it has: nothing was stored then
}

// Errors of Commit.
var (
	// ErrOverloaded: the queues are full. Nothing was stored.
	ErrOverloaded = errors.New("too many alerts are waiting to be stored")

	// ErrUnavailable: the API server was not reached, did not accept writes, or did not process this one in time.
	// Nothing was stored.
	ErrUnavailable = errors.New("the API server did not take the alert in time")

	// ErrOutcomeUnknown: a write was sent and its outcome did not come back in time.
	ErrOutcomeUnknown = errors.New("the API server did not confirm the write in time")
)
