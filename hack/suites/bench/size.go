package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// sizeRow is what the manager does in a cluster of a size: when it is ready after a start, how much memory it
// takes, and how fast it is.
type sizeRow struct {
	Incidents    int     `json:"openIncidents"`
	Integrations int     `json:"integrations"`
	Pending      int     `json:"pendingAtStart"`
	Ready        float64 `json:"readyAfter"` // seconds
	PeakRSS      int64   `json:"managerPeakRSS"`
	AcceptedRate float64 `json:"acceptedPerSecond"`
	LagP50       float64 `json:"lagP50"`
	LagP99       float64 `json:"lagP99"`
}

const (
	sizePending = 2000
	fillClients = 32 // that fill the cluster, and empty it
	sizeHotKeys = 1000
)

// measureSize fills the cluster in two steps and measures after each.
func (c *cluster) measureSize(ctx context.Context, duration time.Duration) ([]sizeRow, error) {
	const format = "%-14s %12s %8s %8s %9s %9s %8s %8s\n"
	fmt.Printf(format, "open incidents", "integrations", "pending", "ready s", "RSS MiB", "accept/s", "lag50 s", "lag99 s")
	t, err := c.newTenant(ctx)
	if err != nil {
		return nil, err
	}
	row := sizeRow{Pending: sizePending, Integrations: 1}
	var rows []sizeRow
	for _, step := range []struct{ incidents, integrations int }{{1000, 1000}, {10000, 10000}} {
		if err := c.fill(ctx, t, &row, step.incidents, step.integrations); err != nil {
			return nil, err
		}
		if err := c.measureSized(ctx, t, &row, duration); err != nil {
			return nil, err
		}
		fmt.Printf(format, fmt.Sprint(row.Incidents), fmt.Sprint(row.Integrations), fmt.Sprint(row.Pending),
			fmt.Sprintf("%.1f", row.Ready), fmt.Sprint(row.PeakRSS>>20), fmt.Sprintf("%.0f", row.AcceptedRate),
			fmt.Sprintf("%.3f", row.LagP50), fmt.Sprintf("%.3f", row.LagP99))
		rows = append(rows, row)
	}
	return rows, c.clear(ctx, t.namespace)
}

func sizeKey(n int) string { return "open-" + strconv.Itoa(n) }

// fill opens Incidents and creates integrations until there are so many, and leaves AlertEvents pending with
// the manager stopped.
func (c *cluster) fill(ctx context.Context, t tenant, row *sizeRow, incidents, integrations int) error {
	if err := c.startManager(ctx); err != nil {
		return err
	}
	first := row.Incidents
	account := loadgen.Run(ctx, loadgen.Load{
		URLs: []string{c.manager.WebhookURL + t.token}, Senders: 64, Requests: incidents - first,
		Key: func(n int) string { return sizeKey(first + n) },
	})
	if account.Acknowledged() != incidents-first {
		return fmt.Errorf("opening Incidents: %v", account.Codes)
	}
	if _, err := c.drained(ctx, t); err != nil {
		return err
	}
	c.manager.Kill()
	row.Incidents = incidents
	err := testenv.SideBySide(fillClients, integrations-row.Integrations, func(n int) error {
		return c.client.Create(ctx, &v1alpha1.WebhookIntegration{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, GenerateName: "size-"},
			Spec: v1alpha1.WebhookIntegrationSpec{
				Tokens: []v1alpha1.Token{{Name: "bench", SHA256: tokens.Hash(fmt.Sprint(t.token, integrations, n))}},
			},
		})
	})
	if err != nil {
		return fmt.Errorf("creating integrations: %w", err)
	}
	row.Integrations = integrations
	template, err := plainAlert()
	if err != nil {
		return err
	}
	return testenv.SideBySide(fillClients, row.Pending, func(n int) error {
		alert := template
		alert.DedupKey = sizeKey(n % incidents)
		alert.ID = fmt.Sprintf("pending-%d-%d", incidents, n)
		alert.IncidentName = v1alpha1.IncidentName(t.integration, alert.DedupKey)
		event := plainEvent(t.namespace, []v1alpha1.Alert{alert})
		event.Spec.IntegrationName = t.integration
		return c.client.Create(ctx, event)
	})
}

// measureSized starts the manager on what there is and measures.
func (c *cluster) measureSized(ctx context.Context, t tenant, row *sizeRow, duration time.Duration) error {
	start := time.Now()
	if err := c.startManager(ctx); err != nil {
		return err
	}
	defer c.manager.Kill()
	row.Ready = time.Since(start).Seconds()
	if _, err := c.drained(ctx, t); err != nil {
		return err
	}
	var err error
	if _, row.PeakRSS, err = testenv.Memory(c.manager.PID()); err != nil {
		return err
	}
	url := []string{c.manager.WebhookURL + t.token}
	closed := loadgen.Run(ctx, loadgen.Load{
		URLs: url, Senders: 64, Duration: duration, Key: func(n int) string { return sizeKey(n % sizeHotKeys) },
	})
	row.AcceptedRate = closed.Rate()
	if _, err := c.drained(ctx, t); err != nil {
		return err
	}
	before, err := scrape(ctx, c.manager)
	if err != nil {
		return err
	}
	loadgen.Run(ctx, loadgen.Load{
		URLs: url, Senders: 32, Rate: 200, Duration: 2 * duration, Key: func(n int) string { return sizeKey(n % 50) },
	})
	if _, err := c.drained(ctx, t); err != nil {
		return err
	}
	after, err := scrape(ctx, c.manager)
	if err != nil {
		return err
	}
	lag := after.foldLag().minus(before.foldLag())
	row.LagP50, row.LagP99 = lag.quantile(0.5), lag.quantile(0.99)
	return nil
}
