package heartbeat

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=heartbeats,verbs=create;delete

const (
	// linkSuffix follows the name of the integration if another heartbeat has that.
	linkSuffix = "-link"

	// linkPatience is after how long a heartbeat that the cache does not show is one of those beyond its limit.
	linkPatience = time.Minute

	maxName = 63 // of a Heartbeat
)

// links gives each federated integration the heartbeat of its link, unless it has one.
type links struct {
	*reconciler

	patience time.Duration
}

func addLinks(mgr ctrl.Manager, r *reconciler) error {
	l := &links{r, linkPatience}
	return requests.Complete("the heartbeats of links", ctrl.NewControllerManagedBy(mgr).
		Named("link").
		Watches(&v1alpha1.WebhookIntegration{}, requests.OfObject[*v1alpha1.WebhookIntegration]()).
		Watches(&v1alpha1.Heartbeat{}, watchHeartbeats()).
		WithOptions(requests.Options(mgr, "link", "integration", concurrency, requests.NameOf)), l)
}

// watchHeartbeats enqueues the integration of a heartbeat that comes, goes or is another. One of its own may be another leader's.
func watchHeartbeats() handler.EventHandler {
	return requests.OnChange(func(_ context.Context, before, after *v1alpha1.Heartbeat, _ bool, queue requests.Queue) {
		h := cmp.Or(after, before)
		switch {
		case before != nil && after != nil && before.Generation == after.Generation:
		case isOwn(h):
			requests.AddLater(queue, heartbeats.IntegrationOf(h))
		default:
			requests.Add(queue, heartbeats.IntegrationOf(h))
		}
	})
}

// Reconcile creates the heartbeat of an integration's link. It deletes it if the integration is not federated any more, or a user
// has written one.
func (l *links) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	integration := &v1alpha1.WebhookIntegration{}
	if err := l.cache.Get(ctx, request.NamespacedName, integration); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !integration.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	beats, err := heartbeats.List(ctx, l.cache, request.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	watched := slices.ContainsFunc(beats, func(h *v1alpha1.Heartbeat) bool { return !isOwn(h) && heartbeats.WatchesLink(h) })
	needed := integration.Spec.Federate && !watched
	for _, h := range beats {
		if isOwn(h) && !needed {
			if err := l.live.Delete(ctx, h, client.Preconditions{UID: &h.UID}); client.IgnoreNotFound(err) != nil {
				return ctrl.Result{}, fmt.Errorf("deleting the Heartbeat of a link: %w", err)
			}
		}
		watched = watched || heartbeats.WatchesLink(h)
	}
	if !needed || watched {
		return ctrl.Result{}, nil
	}
	if err := l.create(ctx, integration); err != nil {
		l.recorder.Eventf(integration, nil, corev1.EventTypeWarning, "LinkUnwatched", "CreateHeartbeat",
			"No Heartbeat watches the link, so nothing of the integration ends for want of alerts: %s",
			plaintext.ShortMessage(err.Error()))
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: l.patience}, nil
}

// isOwn reports whether a heartbeat is one that leaders have created.
func isOwn(h *v1alpha1.Heartbeat) bool {
	_, own := h.Labels[v1alpha1.LinkLabel]
	return own
}

// create creates the heartbeat of a link. It is deleted with its integration.
func (l *links) create(ctx context.Context, integration *v1alpha1.WebhookIntegration) error {
	for _, name := range linkNames(integration.Name) {
		h := &v1alpha1.Heartbeat{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: integration.Namespace, Name: name, Labels: map[string]string{v1alpha1.LinkLabel: ""},
			},
			Spec: v1alpha1.HeartbeatSpec{
				IntegrationName: integration.Name, Every: &metav1.Duration{Duration: heartbeats.LinkEvery}, Required: true,
				Match:    &v1alpha1.HeartbeatMatch{AnyRequest: true},
				Incident: &v1alpha1.HeartbeatIncident{Title: "The Tocsin of " + integration.Name + " does not report"},
			},
		}
		if err := controllerutil.SetOwnerReference(integration, h, l.live.Scheme()); err != nil {
			return fmt.Errorf("naming the owner of the Heartbeat of a link: %w", err)
		}
		err := l.live.Create(ctx, h, client.FieldOwner(v1alpha1.FieldManager))
		if err == nil {
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the Heartbeat of a link: %w", err)
		}
		there := &v1alpha1.Heartbeat{}
		err = l.live.Get(ctx, client.ObjectKeyFromObject(h), there)
		switch {
		case err != nil:
			return client.IgnoreNotFound(err)
		case there.Spec.IntegrationName != integration.Name || !heartbeats.WatchesLink(there): // the other name may be free
		case time.Since(there.CreationTimestamp.Time) > l.patience:
			return fmt.Errorf("the Heartbeat %s is not looked at: the namespace has too many Heartbeats", name)
		default: // the cache does not show it yet
			return nil
		}
	}
	return fmt.Errorf("creating the Heartbeat of a link: both of its names are taken: %q", linkNames(integration.Name))
}

// linkNames returns the names that the heartbeat of an integration's link may have.
func linkNames(integration string) []string {
	cut := integration[:min(len(integration), maxName-len(linkSuffix))]
	return []string{integration, strings.TrimRight(cut, "-.") + linkSuffix}
}
