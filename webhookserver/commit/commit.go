// Package commit stores alerts as AlertEvents through group commit.
//
// A Submission, the alerts of one request, takes this path:
//
//  1. Committer.Commit puts it into the queue of its integration (committer.go). A writer that is free takes as many
//     submissions from the head of a queue as fit into one AlertEvent; package fair keeps an integration or a namespace in
//     a storm from occupying every writer and all the space in which to wait.
//  2. A writer makes one AlertEvent of the batch and carries it through its attempts (writer.go); outcome.go reads what
//     the API server says of it. A batch that is refused is halved, so that one alert does not fail its neighbours,
//     unless a policy refuses very many.
//  3. Client talks to the API server (client.go). Commit returns once it has acknowledged the write.
package commit

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
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

// Errors of Commit. After all but ErrOutcomeUnknown, nothing was stored.
var (
	// ErrOverloaded: the queues are full.
	ErrOverloaded = errors.New("too many alerts are waiting to be stored")

	// ErrUnavailable: the API server was not reached, did not accept writes, or did not process this one in time.
	ErrUnavailable = errors.New("the API server did not take the alert in time")

	// ErrOutcomeUnknown: a write was sent and its outcome did not come back in time.
	ErrOutcomeUnknown = errors.New("the API server did not confirm the write in time")
)

// Fits reports whether alerts can be stored in one AlertEvent.
func Fits(alerts []v1alpha1.Alert) bool {
	switch size := queue.EncodedSize(alerts); {
	case size <= MaxBytes:
		return true
	case size > maxGroupBytes:
		return false
	}
	event := v1alpha1.AlertEvent{Alerts: alerts}
	return queue.Encode(&event) == nil && len(event.Spec.Alerts) <= MaxBytes
}
