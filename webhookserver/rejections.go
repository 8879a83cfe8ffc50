package webhookserver

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// rejectionReporter shows refusals where the owner of an integration looks: in its status and as a
// Kubernetes Event, each at most once a minute. Every replica reports what it refused itself; through the
// status in the cache they share the minute.
//
// The words come from the list of problems, and for a refusal by a policy from that policy. Nothing of a request is in
// the former, and the token in neither.
type rejectionReporter struct {
	client   client.Client
	recorder events.EventRecorder
	now      func() time.Time
	log      logr.Logger
	queue    chan rejection

	mu       sync.Mutex
	reported map[types.NamespacedName]time.Time
	failing  map[types.NamespacedName]*failing
}

// rejection is one refusal to report.
type rejection struct {
	integration *v1alpha1.WebhookIntegration // from the cache, never modified
	v1alpha1.Rejection
	failure *v1alpha1.MappingFailure // if not nil, this is to report instead
}

func newRejectionReporter(c client.Client, recorder events.EventRecorder, log logr.Logger) *rejectionReporter {
	return &rejectionReporter{
		client:   c,
		recorder: recorder,
		now:      time.Now,
		log:      log,
		queue:    make(chan rejection, maxRejectionQueue),
		reported: map[types.NamespacedName]time.Time{},
		failing:  map[types.NamespacedName]*failing{},
	}
}

// report implements reporter. When too many reports wait, it drops this one.
func (r *rejectionReporter) report(integration *v1alpha1.WebhookIntegration, reason, message string) {
	now := r.now()
	if !r.due(integration, now) {
		return
	}
	select {
	case r.queue <- rejection{
		integration: integration,
		Rejection:   v1alpha1.Rejection{Reason: reason, Message: message, Time: v1alpha1.NewTimestamp(now)},
	}:
	default:
	}
}

// due tells whether the last report of the integration, by any replica, is a minute ago, and counts one now.
func (r *rejectionReporter) due(integration *v1alpha1.WebhookIntegration, now time.Time) bool {
	if last := integration.Status.LastRejection; last != nil && now.Sub(last.Time.Time) < rejectionInterval {
		return false
	}
	key := types.NamespacedName{Namespace: integration.Namespace, Name: integration.Name}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.reported[key]; ok && now.Sub(last) < rejectionInterval {
		return false
	}
	if len(r.reported) >= maxRejectionMemory {
		for other, last := range r.reported {
			if now.Sub(last) >= rejectionInterval {
				delete(r.reported, other)
			}
		}
		if len(r.reported) >= maxRejectionMemory {
			return false
		}
	}
	r.reported[key] = now
	return true
}

// run writes reports until ctx ends.
func (r *rejectionReporter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case rejected := <-r.queue:
			if err := r.write(ctx, rejected); err != nil && ctx.Err() == nil {
				r.log.Error(err, "Could not report a refused request",
					"namespace", rejected.integration.Namespace, "integration", rejected.integration.Name)
			}
		}
	}
}

// write patches that one field of the status, and then makes the Kubernetes Event.
func (r *rejectionReporter) write(ctx context.Context, rejected rejection) error {
	ctx, cancel := context.WithTimeout(ctx, rejectionTimeout)
	defer cancel()
	status := map[string]any{"lastRejection": rejected.Rejection}
	if rejected.failure != nil {
		status = map[string]any{"lastMappingFailure": rejected.failure}
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	target := &v1alpha1.WebhookIntegration{}
	target.Namespace, target.Name = rejected.integration.Namespace, rejected.integration.Name
	err = r.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	if rejected.failure != nil {
		return nil // the leader makes the Kubernetes Event, when the condition changes
	}
	r.recorder.Eventf(rejected.integration, nil, corev1.EventTypeWarning, "Rejected", "Receive",
		"Refused a request (%s): %s", rejected.Reason, rejected.Message)
	return nil
}

// rejectionMessage says more about a problem, in words that hold nothing of the request but what a policy of the
// cluster quotes.
func rejectionMessage(p *problem) string {
	switch {
	case p.owner != "":
		return p.title + ": " + p.owner
	case p.hasOffset:
		return fmt.Sprintf("%s, at byte %d.", p.title, p.offset)
	case p.limit > 0:
		return fmt.Sprintf("%s, the limit is %d bytes.", p.title, p.limit)
	default:
		return p.title + "."
	}
}
