package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
)

const (
	// killedWithin and stoppedWithin are how soon an alert is folded after the end of the leader, by kill -9 and SIGTERM.
	killedWithin  = 5 * time.Second
	stoppedWithin = time.Second
)

func killLeader(ctx context.Context, r *run) error {
	return r.endLeader(ctx, syscall.SIGKILL, killedWithin)
}
func stopLeader(ctx context.Context, r *run) error {
	return r.endLeader(ctx, syscall.SIGTERM, stoppedWithin)
}

// endLeader ends the leader, at any time between two renewals, and expects of its successor that it folds soon.
func (r *run) endLeader(ctx context.Context, signal syscall.Signal, within time.Duration) error {
	leader, follower, err := r.roles(ctx)
	if err != nil {
		return err
	}
	pause(ctx, time.Duration(rand.IntN(1500))*time.Millisecond)
	leader.held.Store(true) // else it may be its own successor
	defer leader.held.Store(false)
	ended := time.Now()
	leader.end(signal)
	if err := follower.waitLeads(ctx, true); err != nil {
		return err
	}
	leads := time.Since(ended)
	if err := r.waitFolds(ctx); err != nil {
		return err
	}
	r.note("another leader after %s, folded after %s", leads.Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
	if leads > within {
		return fmt.Errorf("another replica led only %s after the end of the leader", leads)
	}
	leader.held.Store(false)
	pause(ctx, time.Second)
	return r.waitReady(ctx)
}

func shuffleWatches(ctx context.Context, r *run) error {
	r.options.LooseOrder = true
	r.eachProxy(func(p *proxy.Proxy) { p.ShuffleWatches(1500 * time.Millisecond) })
	pause(ctx, 12*time.Second)
	r.eachProxy(func(p *proxy.Proxy) { p.ShuffleWatches(0) })
	return nil
}

// slowRetries loses the answers to creates, and holds the second try back until the first copy is folded
// and deleted: then it is stored again, under the same name.
func slowRetries(ctx context.Context, r *run) error {
	var mu sync.Mutex
	lost := map[string]bool{}
	r.setRule(func(call proxy.Call) proxy.Fate {
		if !call.Is("create", "alertevents") {
			return proxy.Fate{}
		}
		mu.Lock()
		defer mu.Unlock()
		if lost[call.Name] {
			return proxy.Fate{Before: func() { r.waitGone(ctx, call) }}
		}
		lost[call.Name] = rand.IntN(3) == 0
		return proxy.Fate{Lose: lost[call.Name]}
	})
	pause(ctx, 15*time.Second)
	return nil
}

// waitGone waits until an AlertEvent is folded and released, no longer than a manager goes on trying to store one.
func (r *run) waitGone(ctx context.Context, call proxy.Call) {
	name := client.ObjectKey{Namespace: call.Namespace, Name: call.Name}
	_ = testenv.AwaitThat(ctx, 4*time.Second, "the AlertEvent exists", func(ctx context.Context) bool {
		return apierrors.IsNotFound(r.admin.Get(ctx, name, &v1alpha1.AlertEvent{}))
	})
}

// blockRelease lets alerts be folded but not released, and then kills the manager: its successor finds
// them all again.
func blockRelease(ctx context.Context, r *run) error {
	return r.blockThenKill(ctx, releasing)
}

// blockFold lets nothing be folded, and then kills the manager: nothing may be released by then.
func blockFold(ctx context.Context, r *run) error {
	return r.blockThenKill(ctx, folding)
}

func (r *run) blockThenKill(ctx context.Context, point crashPoint) error {
	for range 3 {
		r.setRule(refusing(http.StatusTooManyRequests, point))
		pause(ctx, 4*time.Second)
		r.replicas[0].kill()
		pause(ctx, 2*restartDelay)
		r.setRule(nil)
		if err := r.waitReady(ctx); err != nil {
			return err
		}
		pause(ctx, 2*time.Second)
	}
	return nil
}

// loseReplies leaves everybody who writes an AlertEvent without an answer. Nobody may be told that the alert
// is not stored.
func loseReplies(ctx context.Context, r *run) error {
	r.setRule(func(call proxy.Call) proxy.Fate {
		return proxy.Fate{Lose: call.Is("create", "alertevents")}
	})
	pause(ctx, 8*time.Second)
	return nil
}

func staleEvents(ctx context.Context, r *run) error    { return r.staleTakeover(ctx, "alertevents") }
func staleIncidents(ctx context.Context, r *run) error { return r.staleTakeover(ctx, "incidents") }

// staleTakeover kills the leader while the other replica's cache of a resource stands still, and lets that
// one lead with what it has.
func (r *run) staleTakeover(ctx context.Context, resource string) error {
	leader, follower, err := r.roles(ctx)
	if err != nil {
		return err
	}
	follower.proxy.FreezeWatches(true, resource)
	pause(ctx, 3*time.Second)
	leader.held.Store(true)
	defer leader.held.Store(false)
	leader.kill()
	if err := follower.waitLeads(ctx, true); err != nil {
		return err
	}
	pause(ctx, 6*time.Second)
	follower.proxy.FreezeWatches(false, resource)
	leader.held.Store(false)
	pause(ctx, time.Second)
	return r.waitReady(ctx)
}

// deleteNamespace deletes the second tenant's namespace, and does what the namespace controller does.
// Alerts for it must be refused, and the other tenant must not notice.
func deleteNamespace(ctx context.Context, r *run) error {
	name := r.tenants[1].namespace
	r.options.DeletedNamespaces = []string{name}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := r.admin.Delete(ctx, namespace); err != nil {
		return err
	}
	for range 3 {
		pause(ctx, time.Second)
		for _, object := range []client.Object{&v1alpha1.AlertEvent{}, &v1alpha1.WebhookIntegration{}, &v1alpha1.Incident{}} {
			if err := r.admin.DeleteAllOf(ctx, object, client.InNamespace(name)); err != nil {
				return err
			}
		}
	}
	if err := r.admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); err != nil {
		return err
	}
	namespace.Spec.Finalizers = nil
	if err := r.admin.SubResource("finalize").Update(ctx, namespace); err != nil {
		return fmt.Errorf("finalizing the namespace: %w", err)
	}
	pause(ctx, 2*time.Second)
	r.traffic.mu.Lock()
	defer r.traffic.mu.Unlock()
	r.note("answers %v", r.traffic.codes)
	return nil
}

// inLedgers are the UIDs in the ledgers of the tenants' Incidents.
func (r *run) inLedgers(ctx context.Context) (map[string]bool, error) {
	uids := map[string]bool{}
	for _, t := range r.tenants {
		var list v1alpha1.IncidentList
		if err := r.admin.List(ctx, &list, client.InNamespace(t.namespace)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			for _, entry := range list.Items[i].Status.Ledger.Events {
				uids[entry.UID] = true
			}
		}
	}
	return uids, nil
}

// foldedEvents returns AlertEvents that are folded and still exist. Only those with an idempotency key stay long enough
// to be found.
func (r *run) foldedEvents(ctx context.Context) ([]v1alpha1.AlertEvent, error) {
	_, keyed, err := r.pendingEvents(ctx, r.tenants)
	if err != nil {
		return nil, err
	}
	folded, err := r.inLedgers(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(keyed, func(event v1alpha1.AlertEvent) bool { return !folded[string(event.UID)] }), nil
}

// rewriteMetadata gives AlertEvents that are folded annotations again and again, which moves their resourceVersions.
func rewriteMetadata(ctx context.Context, r *run) error {
	patch := client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, time.Now().UnixNano()))
	rewritten := 0
	for until := time.Now().Add(8 * time.Second); time.Now().Before(until); {
		folded, err := r.foldedEvents(ctx)
		if err != nil {
			return err
		}
		for i := range folded {
			err := r.admin.Patch(ctx, &folded[i], patch)
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			rewritten++
		}
		pause(ctx, 500*time.Millisecond)
	}
	r.note("%d rewritten", rewritten)
	return nil
}
