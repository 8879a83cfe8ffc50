package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/tocsin-dev/tocsin/webhookserver"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// yardstickTime is how long plain creates are measured.
const yardstickTime = 4 * time.Second

// plainCreates is what a bare client reaches.
type plainCreates struct {
	rate float64 // a second
	p50  time.Duration
	all  int // those before the measurement included
}

// yardstick creates AlertEvents of so many alerts each with a bare client, as many at once as there are
// senders, while no manager is at work, and deletes them again.
func (c *cluster) yardstick(ctx context.Context, senders, alerts int) (plainCreates, error) {
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
	first, err := createFor(ctx, bare, t.namespace, slices.Repeat([]v1alpha1.Alert{alert}, alerts), senders, time.Second)
	if err != nil {
		return plainCreates{}, err
	}
	account, err := createFor(ctx, bare, t.namespace, slices.Repeat([]v1alpha1.Alert{alert}, alerts), senders, yardstickTime)
	if err != nil {
		return plainCreates{}, err
	}
	return plainCreates{
		rate: account.Rate(), p50: account.Quantile(0.5), all: first.Acknowledged() + account.Acknowledged(),
	}, c.clear(ctx, t.namespace)
}

// createFor creates events until the time is over and returns the account of the creates.
func createFor(
	ctx context.Context, c client.Client, namespace string, alerts []v1alpha1.Alert, senders int, duration time.Duration,
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
				err = c.Create(ctx, plainEvent(namespace, alerts))
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
	alert, _ := payload.Normalise(object, time.Now())
	alert.ID = uuid.NewString()
	alert.IncidentName = v1alpha1.IncidentName("yardstick", alert.DedupKey)
	return alert, nil
}

func plainEvent(namespace string, alerts []v1alpha1.Alert) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uuid.Must(uuid.NewV7()).String()},
		Spec:       v1alpha1.AlertEventSpec{IntegrationName: "yardstick", ReceivedTime: v1alpha1.NewTimestamp(time.Now())},
		Alerts:     alerts,
	}
	if err := queue.Encode(event); err != nil {
		panic(err) // the alerts are ours
	}
	return event
}

// batchRow is a row of the table of plain creates of several alerts each: what group commit can gain at most.
type batchRow struct {
	Alerts       int     `json:"alertsPerEvent"`
	Clients      int     `json:"clients"`
	CreateRate   float64 `json:"createsPerSecond"`
	AlertRate    float64 `json:"alertsPerSecond"`
	P50          float64 `json:"p50"`
	APIServerCPU float64 `json:"apiServerCPUPer1000"` // of alerts
}

// batchClients is how many clients create at once: as many as the manager has writers.
const batchClients = webhookserver.DefaultMaxInFlightWrites

// measureBatches measures plain creates of more and more alerts each.
func (c *cluster) measureBatches(ctx context.Context) ([]batchRow, error) {
	pid, err := child("kube-apiserver")
	if err != nil {
		return nil, err
	}
	const format = "%-12s %9s %9s %8s %8s\n"
	fmt.Printf(format, "alerts/event", "create/s", "alerts/s", "p50 ms", "api cpu")
	var rows []batchRow
	for _, alerts := range []int{1, 4, 16, 32, 64, 100} {
		before, err := processUsage(pid)
		if err != nil {
			return nil, err
		}
		creates, err := c.yardstick(ctx, batchClients, alerts)
		if err != nil {
			return nil, err
		}
		after, err := processUsage(pid)
		if err != nil {
			return nil, err
		}
		row := batchRow{
			Alerts: alerts, Clients: batchClients,
			CreateRate: creates.rate, AlertRate: creates.rate * float64(alerts), P50: creates.p50.Seconds(),
			APIServerCPU: (after.cpuSeconds - before.cpuSeconds) / float64(creates.all*alerts) * 1000,
		}
		fmt.Printf(format, fmt.Sprint(alerts), fmt.Sprintf("%.0f", row.CreateRate), fmt.Sprintf("%.0f", row.AlertRate),
			fmt.Sprintf("%.1f", row.P50*1000), fmt.Sprintf("%.2f", row.APIServerCPU))
		rows = append(rows, row)
	}
	return rows, nil
}
