package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	hostages      = 2100 // AlertEvents, more than the scenario's limit
	hostageTakers = 8
	hostageTime   = 8 * time.Second // how long they are kept

	hostageFoldTime = 2 * healTime // for so many of a few keys
)

// takeHostages has somebody who may edit a namespace of his own create AlertEvents with a finalizer there, so
// that they stay for ever, and finds fault with every alert of the others that is refused meanwhile.
func takeHostages(ctx context.Context, r *run) error {
	bad, err := r.newTenant(ctx)
	if err != nil {
		return fmt.Errorf("making the tenant that takes hostages: %w", err)
	}
	defer r.freeHostages(bad)
	err = testenv.SideBySide(hostageTakers, hostages, func(n int) error { return r.admin.Create(ctx, hostage(bad.namespace, n)) })
	if err != nil {
		return fmt.Errorf("taking a hostage: %w", err)
	}
	if err := r.waitTerminating(ctx, bad); err != nil {
		return err
	}
	from := time.Now()
	pause(ctx, hostageTime)
	rate := float64(r.traffic.acknowledgedBetween(from, time.Now())) / time.Since(from).Seconds()
	r.note("%.0f requests/s beside %d AlertEvents that finalizers keep", rate, hostages)
	if rate < leastRate {
		r.found.Add("E: only %.0f requests/s are accepted beside another namespace's %d AlertEvents", rate, hostages)
	}
	return nil
}

// waitTerminating waits until the hostages are folded and deleted, so that only the finalizers keep them: until
// then they are an ordinary backlog.
func (r *run) waitTerminating(ctx context.Context, bad tenant) error {
	err := testenv.Await(ctx, hostageFoldTime, func(ctx context.Context) error {
		var list v1alpha1.AlertEventList
		err := r.admin.List(ctx, &list, client.InNamespace(bad.namespace))
		if slices.ContainsFunc(list.Items, func(event v1alpha1.AlertEvent) bool { return event.DeletionTimestamp == nil }) {
			err = errors.New("the hostages are not folded")
			pause(ctx, 500*time.Millisecond) // such lists are work for the API server, too
		}
		return err
	})
	pause(ctx, time.Second) // for the watches to show them
	return err
}

func hostage(namespace string, n int) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("hostage-%d", n), Finalizers: []string{"example.com/hostage"},
		},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: integrationName, Alerts: v1alpha1.AlertsText(fmt.Sprintf(`[{"dedupKey":"key-%d","status":"firing"}]`, n%20)),
		},
	}
}

// freeHostages removes the finalizers and what they kept, so that it is not in the way of the next scenario.
func (r *run) freeHostages(bad tenant) {
	ctx, cancel := context.WithTimeout(context.Background(), healTime)
	defer cancel()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	_ = testenv.SideBySide(hostageTakers, hostages, func(n int) error {
		event := hostage(bad.namespace, n)
		_ = r.admin.Patch(ctx, event, patch)
		_ = r.admin.Delete(ctx, event)
		return nil
	})
}
