package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/queue"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// yardstickTime is how long plain creates are measured.
const yardstickTime = 4 * time.Second

// yardstick creates AlertEvents of one alert each with a bare client, as many at once as there are senders, while no
// manager is at work, deletes them again, and returns the account of the creates.
func (c *cluster) yardstick(ctx context.Context, senders int) (*loadgen.Account, error) {
	t, err := c.newTenant(ctx)
	if err != nil {
		return nil, err
	}
	alert, err := plainAlert()
	if err != nil {
		return nil, err
	}
	// The first creates are slower; they are not counted.
	if _, err := c.createFor(ctx, t.namespace, alert, senders, time.Second); err != nil {
		return nil, err
	}
	account, err := c.createFor(ctx, t.namespace, alert, senders, yardstickTime)
	if err != nil {
		return nil, err
	}
	return account, c.clear(ctx, t.namespace)
}

// createFor creates events until the time is over and returns the account of the creates.
func (c *cluster) createFor(
	ctx context.Context, namespace string, alert v1alpha1.Alert, senders int, duration time.Duration,
) (*loadgen.Account, error) {
	account, start := loadgen.NewAccount(), time.Now()
	err := testenv.SideBySide(senders, senders, func(int) error {
		for time.Since(start) < duration {
			began := time.Now()
			if err := c.Client.Create(ctx, plainEvent(namespace, alert)); err != nil {
				return err
			}
			account.Record(alert.DedupKey, oracle.Acknowledged, "created", time.Since(began), nil)
		}
		return nil
	})
	account.Elapsed = time.Since(start)
	slices.Sort(account.Latencies)
	return account, err
}

// plainAlert is the alert that a load's payload becomes.
func plainAlert() (v1alpha1.Alert, error) {
	value, _, err := payload.ParseAny(loadgen.Payload(0, "yardstick"))
	if err != nil {
		return v1alpha1.Alert{}, fmt.Errorf("reading the load's payload: %w", err)
	}
	object, _ := value.(map[string]any)
	alert, _, _ := payload.Read(object, time.Now())
	alert.ID = uuid.NewString()
	alert.IncidentName = v1alpha1.IncidentName("yardstick", alert.DedupKey)
	return alert, nil
}

func plainEvent(namespace string, alert v1alpha1.Alert) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uuid.Must(uuid.NewV7()).String()},
		Spec:       v1alpha1.AlertEventSpec{IntegrationName: "yardstick", ReceivedTime: v1alpha1.NewTimestamp(time.Now())},
		Alerts:     []v1alpha1.Alert{alert},
	}
	if err := queue.Encode(event); err != nil {
		panic(err) // the alert is ours
	}
	return event
}
