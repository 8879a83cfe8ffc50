package replica

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// copyWorkers is how many second copies are deleted at a time. Namespaces take turns.
	copyWorkers = 8

	// copyTimeout bounds an attempt to delete one: several fit into queue.CopyDoubt.
	copyTimeout = 5 * time.Second
)

// Follow has the memory follow the manager's cache, and second copies deleted.
func Follow(mgr ctrl.Manager, memory *queue.Memory) error {
	live, err := NewClient(mgr)
	if err != nil {
		return err
	}
	if err := addCopyController(mgr, live, memory); err != nil {
		return err
	}
	_, err = informers.Feed(mgr.GetCache(), &v1alpha1.AlertEvent{}, memory.NoteShown, memory.NoteDeleted)
	return err
}

// addCopyController adds the controller that deletes second copies, on every replica: the one that stored a copy was usually
// there when the first one was deleted, whoever leads now.
func addCopyController(mgr ctrl.Manager, live client.Writer, memory *queue.Memory) error {
	options := requests.Options(mgr, "copies", "alertevent", copyWorkers,
		func(ref queue.Ref) types.NamespacedName { return ref.NamespacedName })
	copies := options.NewQueue("copies", options.RateLimiter)
	memory.DeleteCopy = copies.Add
	options.NewQueue = func(string, workqueue.TypedRateLimiter[queue.Ref]) workqueue.TypedRateLimitingInterface[queue.Ref] {
		return copies
	}
	options.ReconciliationTimeout, options.NeedLeaderElection = copyTimeout, new(false)
	options.Reconciler = reconcile.TypedFunc[queue.Ref](func(ctx context.Context, ref queue.Ref) (ctrl.Result, error) {
		return ctrl.Result{}, DeleteCopy(ctx, live, memory, ref)
	})
	if _, err := controller.NewTyped("copies", mgr, options); err != nil {
		return fmt.Errorf("adding the deletion of second copies: %w", err)
	}
	return nil
}

// DeleteCopy deletes an AlertEvent that is a second copy.
func DeleteCopy(ctx context.Context, live client.Writer, memory *queue.Memory, ref queue.Ref) error {
	alerts, ok := memory.Alerts(ref.UID)
	if !ok {
		return nil
	}
	deleted, err := DeleteEvent(ctx, live, ref)
	if deleted {
		CountFolded(fold.ResultReplayed, alerts)
		log.FromContext(ctx).V(1).Info("Deleted second copy of an AlertEvent")
	}
	return err
}
