package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// closed is a namespace, and its integration, whose AlertEvents stay in the queue and whose quota lets no more in.
const closed = "closed"

// kept is how many AlertEvents stay: more than half of the share of a namespace under limits.
const kept = 300

// limits bring the namespaces near their shares: 500 AlertEvents and 30 Incidents.
var limits = []string{"--max-pending-events=2000", "--max-incidents=120"}

// createClosed makes the namespace, with what is in it.
func createClosed(ctx context.Context, k8s client.Client) error {
	if err := k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: closed}}); err != nil {
		return fmt.Errorf("making the namespace %s: %w", closed, err)
	}
	for n := range kept {
		event := &v1alpha1.AlertEvent{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: closed, Name: fmt.Sprintf("kept-%d", n), Finalizers: []string{"example.com/kept"},
			},
			Spec: v1alpha1.AlertEventSpec{
				IntegrationName: closed,
				Alerts:          []v1alpha1.Alert{{DedupKey: "kept", Status: v1alpha1.AlertFiring}},
			},
		}
		if err := k8s.Create(ctx, event); err != nil {
			return fmt.Errorf("making an AlertEvent that stays: %w", err)
		}
	}
	hard := corev1.ResourceList{"count/alertevents.tocsin.dev": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: closed, Name: closed},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	}
	if err := k8s.Create(ctx, quota); err != nil {
		return fmt.Errorf("making the quota: %w", err)
	}
	// There is no controller that would fill in the status, which is what counts.
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard}
	if err := k8s.Status().Update(ctx, quota); err != nil {
		return fmt.Errorf("writing the status of the quota: %w", err)
	}
	return nil
}
