package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
)

const rejectedKey = "rejected"

// rejectIncident has every status of one Incident refused for a while, with or without content, and the manager killed
// meanwhile. The condition of the integration has to say so, and the Incidents that share AlertEvents with it go on. In the
// end it is folded in order, each alert once.
func rejectIncident(ctx context.Context, r *run) error {
	incident := v1alpha1.IncidentName(integrationName, rejectedKey)
	r.setRule(func(call proxy.Call) proxy.Fate {
		if call.Is("update", "incidents/status") && call.Name == incident {
			return proxy.Fate{Refuse: http.StatusUnprocessableEntity}
		}
		return proxy.Fate{}
	})
	for range 2 {
		for i := range 5 {
			r.traffic.post(0, rejectedKey, "firing", i%2 == 0)
			pause(ctx, 300*time.Millisecond)
		}
		r.traffic.post(0, rejectedKey, "resolved", false)
		r.expectFolded(ctx, metav1.ConditionFalse, v1alpha1.ReasonIncidentRejected)
		r.replicas[0].kill()
		pause(ctx, 2*restartDelay)
		if err := r.waitReady(ctx); err != nil {
			return err
		}
	}
	r.setRule(nil)
	r.expectFolded(ctx, metav1.ConditionTrue, v1alpha1.ReasonFolding)
	return nil
}

// expectFolded waits until the first tenant's integration has this condition AlertsFolded.
func (r *run) expectFolded(ctx context.Context, status metav1.ConditionStatus, reason string) {
	name := client.ObjectKey{Namespace: r.tenants[0].namespace, Name: integrationName}
	err := testenv.Await(ctx, healTime, func(ctx context.Context) error {
		var integration v1alpha1.WebhookIntegration
		if err := r.admin.Get(ctx, name, &integration); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionAlertsFolded)
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return fmt.Errorf("the condition AlertsFolded is %+v, and not %s for %s", condition, status, reason)
		}
		return nil
	})
	if err != nil {
		r.found.Add("C: %v", err)
	}
}
