package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/queue"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// yardstickTime is how long plain creates are measured.
const yardstickTime = 4 * time.Second

// plainCreates is what a bare client reaches.
type plainCreates struct {
	rate float64 // a second
	p50  time.Duration
}

// yardstick creates AlertEvents of one alert each with a bare client, as many at once as there are senders, while no
// manager is at work, and deletes them again.
func (c *cluster) yardstick(ctx context.Context, senders int) (plainCreates, error) {
	t, err := c.newTenant(ctx)
	if err != nil {
		return plainCreates{}, err
	}
	bare, err := client.New(rest.CopyConfig(c.config), client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		return plainCreates{}, err
	}
	alert, err := plainAlert()
	if err != nil {
		return plainCreates{}, err
	}
	// The first creates are slower; they are not counted.
	if _, err := createFor(ctx, bare, t.namespace, alert, senders, time.Second); err != nil {
		return plainCreates{}, err
	}
	account, err := createFor(ctx, bare, t.namespace, alert, senders, yardstickTime)
	if err != nil {
		return plainCreates{}, err
	}
	return plainCreates{rate: account.Rate(), p50: account.Quantile(0.5)}, c.clear(ctx, t.namespace)
}

// createFor creates events until the time is over and returns the account of the creates.
func createFor(
	ctx context.Context, c client.Client, namespace string, alert v1alpha1.Alert, senders int, duration time.Duration,
) (*loadgen.Account, error) {
	var (
		account = loadgen.NewAccount()
		mu      sync.Mutex
		failure error
		work    sync.WaitGroup
		start   = time.Now()
	)
	for range senders {
		work.Go(func() {
			var latencies []time.Duration
			var err error
			for err == nil && time.Since(start) < duration {
				begin := time.Now()
				err = c.Create(ctx, plainEvent(namespace, alert))
				latencies = append(latencies, time.Since(begin))
			}
			mu.Lock()
			defer mu.Unlock()
			failure = errors.Join(failure, err)
			account.Add(&loadgen.Account{Latencies: latencies})
		})
	}
	work.Wait()
	account.Elapsed = time.Since(start)
	return account, failure
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
