// Package maintenance has MaintenanceWindows mute Incidents (muting.go), and writes their status: whether they are valid, and
// when they open. What an open window does, package fold decides.
package maintenance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=maintenancewindows,verbs=get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=maintenancewindows/status,verbs=patch

const (
	// concurrency is how many windows the leader looks at at a time: they open on the hour.
	concurrency = 4

	// maxNames is how many names of integrations the status has.
	maxNames = 3

	// soon is the least time until the leader looks again. The API server's time is known to a second.
	soon = time.Second

	// maxPause is the longest. Otherwise the status could be wrong for hours: timers run by the monotonic clock, and do not notice
	// that the API server's clock is set forward or the machine sleeps. Each look evaluates the schedule, which may take
	// milliseconds.
	maxPause = 5 * time.Minute
)

// reconciler writes the status of windows.
type reconciler struct {
	cache    client.Reader
	live     client.StatusClient
	clock    replica.APIClock
	recorder events.EventRecorder
}

// Lead implements controllers.Feature.
func (m *Muting) Lead(mgr ctrl.Manager, live client.Client) error {
	r := &reconciler{mgr.GetCache(), live, m.clock, mgr.GetEventRecorder("tocsin")}
	return requests.Complete("the status of MaintenanceWindows", ctrl.NewControllerManagedBy(mgr).
		Named("maintenancewindow").
		Watches(&v1alpha1.MaintenanceWindow{}, requests.OfObject[*v1alpha1.MaintenanceWindow]()).
		Watches(&v1alpha1.WebhookIntegration{}, r.watchIntegrations()).
		WithOptions(requests.Options(mgr, "maintenance", "window", concurrency, requests.NameOf)), r)
}

// watchIntegrations enqueues the windows of a namespace when a WebhookIntegration comes or goes, or is selected by others.
func (r *reconciler) watchIntegrations() handler.EventHandler {
	return requests.OnChange(func(
		ctx context.Context, before, after *v1alpha1.WebhookIntegration, initial bool, queue requests.Queue,
	) {
		if initial || before != nil && after != nil && maps.Equal(before.Labels, after.Labels) {
			return
		}
		namespace, windows := cmp.Or(after, before).Namespace, v1alpha1.MaintenanceWindowList{}
		if r.cache.List(ctx, &windows, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) != nil {
			return // the term has ended
		}
		for i := range windows.Items {
			requests.Add(queue, client.ObjectKeyFromObject(&windows.Items[i]))
		}
	})
}

// Reconcile brings the status of one window up to date.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	read := &v1alpha1.MaintenanceWindow{}
	if err := r.cache.Get(ctx, request.NamespacedName, read); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var integrations v1alpha1.WebhookIntegrationList
	if err := r.cache.List(ctx, &integrations, client.InNamespace(read.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the WebhookIntegrations: %w", err)
	}
	now, updated := r.clock.APITime(), read.DeepCopy()
	change := describe(updated, integrations.Items, now)
	if err := requests.PatchStatus(ctx, r.live, read, updated); err != nil {
		return ctrl.Result{}, err
	}
	valid := meta.FindStatusCondition(updated.Status.Conditions, v1alpha1.ConditionWindowValid)
	if valid.Status == metav1.ConditionFalse && !meta.IsStatusConditionFalse(read.Status.Conditions, valid.Type) {
		r.recorder.Eventf(read, nil, corev1.EventTypeWarning, valid.Reason, "Check", "%s", valid.Message)
	}
	if change.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: min(max(change.Sub(now), soon), maxPause)}, nil
}

// describe has the status say what is so at a time. It returns when that changes by itself; zero for never.
func describe(window *v1alpha1.MaintenanceWindow, integrations []v1alpha1.WebhookIntegration, now time.Time) (change time.Time) {
	status := &window.Status
	status.ObservedGeneration, status.Integrations = window.Generation, ""
	set := func(kind string, is bool, reason, message string) {
		value := metav1.ConditionFalse
		if is {
			value = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: reason, Message: message, ObservedGeneration: window.Generation,
			LastTransitionTime: metav1.NewTime(now),
		})
	}
	compiled, err := maintenance.Compile(window)
	if err != nil {
		status.StartTime, status.EndTime = nil, nil
		message := plaintext.ShortMessage("It mutes nothing: " + err.Error() + ".")
		set(v1alpha1.ConditionWindowValid, false, v1alpha1.ReasonInvalidWindow, message)
		set(v1alpha1.ConditionWindowOpen, false, v1alpha1.ReasonInvalidWindow, message)
		return change
	}
	set(v1alpha1.ConditionWindowValid, true, v1alpha1.ReasonWindowValid, "It can be evaluated.")
	status.Integrations = covered(compiled, integrations)
	none := ""
	if status.Integrations == coversNone {
		none = " No WebhookIntegration of the namespace is selected."
	}
	from, until := compiled.Opening(now)
	if !from.IsZero() {
		status.StartTime, status.EndTime = new(v1alpha1.NewTimestamp(from)), new(v1alpha1.NewTimestamp(until))
		set(v1alpha1.ConditionWindowOpen, true, v1alpha1.ReasonWindowOpen, "It is open until "+rfc3339(until)+"."+none)
		return until
	}
	if from, until = compiled.Next(now); !from.IsZero() {
		status.StartTime, status.EndTime = new(v1alpha1.NewTimestamp(from)), new(v1alpha1.NewTimestamp(until))
		set(v1alpha1.ConditionWindowOpen, false, v1alpha1.ReasonScheduled, "It opens at "+rfc3339(from)+"."+none)
		return from
	}
	if once := window.Spec.Once; once != nil {
		status.StartTime, status.EndTime = new(once.StartTime), new(once.EndTime)
	}
	set(v1alpha1.ConditionWindowOpen, false, v1alpha1.ReasonOver, "It does not open again.")
	return change
}

// What the status says of the integrations instead of names.
const (
	coversAll  = "all"
	coversNone = "none"
)

// covered says for which integrations a window is.
func covered(window *maintenance.Window, integrations []v1alpha1.WebhookIntegration) string {
	if window.Spec.Integrations == nil {
		return coversAll
	}
	var names []string
	for i := range integrations {
		if window.Covers(&integrations[i]) {
			names = append(names, integrations[i].Name)
		}
	}
	return cmp.Or(plaintext.Few(names, maxNames), coversNone)
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
