package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
)

// writersRow is what many integrations in a storm at once get with so many writes at a time. Times are in seconds.
type writersRow struct {
	Writers        int     `json:"maxInFlightWrites"`
	Integrations   int     `json:"integrations"`
	Senders        int     `json:"senders"`
	AcceptedRate   float64 `json:"acceptedPerSecond"`
	P50            float64 `json:"p50"`
	P99            float64 `json:"p99"`
	AlertsPerEvent float64 `json:"alertsPerEvent"`
}

const (
	stormIntegrations = 16
	stormSenders      = 4 // of each
)

// measureWriters runs the manager with more and more writers.
func (c *cluster) measureWriters(ctx context.Context, duration time.Duration) ([]writersRow, error) {
	const format = "%-8s %12s %9s %8s %8s %7s\n"
	fmt.Printf(format, "writers", "integrations", "accept/s", "p50 ms", "p99 ms", "al/ev")
	usual := c.args
	defer func() { c.args = usual }()
	var rows []writersRow
	for _, writers := range []int{1, 2, 4, 8, 16, 32} {
		c.args = append(slices.Clone(usual), fmt.Sprintf("--max-in-flight-writes=%d", writers))
		row, err := c.measureStorms(ctx, duration)
		if err != nil {
			return nil, fmt.Errorf("%d writers: %w", writers, err)
		}
		row.Writers = writers
		fmt.Printf(format, fmt.Sprint(writers), fmt.Sprint(row.Integrations), fmt.Sprintf("%.0f", row.AcceptedRate),
			fmt.Sprintf("%.1f", row.P50*1000), fmt.Sprintf("%.1f", row.P99*1000), fmt.Sprintf("%.1f", row.AlertsPerEvent))
		rows = append(rows, *row)
	}
	return rows, nil
}

// measureStorms lets all integrations post at once, and checks that each of their alerts was folded once.
func (c *cluster) measureStorms(ctx context.Context, duration time.Duration) (*writersRow, error) {
	tenants, err := c.begin(ctx, stormIntegrations)
	if err != nil {
		return nil, err
	}
	defer c.manager.Kill()
	before, err := c.apiServerMetrics(ctx)
	if err != nil {
		return nil, err
	}
	accounts := make([]*loadgen.Account, len(tenants))
	var storms sync.WaitGroup
	for i, t := range tenants {
		storms.Go(func() {
			accounts[i] = loadgen.Run(ctx, loadgen.Load{
				URLs: []string{c.manager.WebhookURL + t.token}, Senders: stormSenders, Duration: duration, Key: loadgen.SharedKey,
			})
		})
	}
	storms.Wait()
	after, err := c.apiServerMetrics(ctx)
	if err != nil {
		return nil, err
	}
	row := &writersRow{Integrations: len(tenants), Senders: stormSenders * len(tenants)}
	var latencies loadgen.Account
	for i, t := range tenants {
		if _, err := c.drained(ctx, t); err != nil {
			return nil, err
		}
		if err := errors.Join(c.check(ctx, t, accounts[i]), c.clear(ctx, t.namespace)); err != nil {
			return nil, err
		}
		row.AcceptedRate += accounts[i].Rate()
		latencies.Latencies = append(latencies.Latencies, accounts[i].Latencies...)
	}
	slices.Sort(latencies.Latencies)
	row.P50, row.P99 = latencies.Quantile(0.5).Seconds(), latencies.Quantile(0.99).Seconds()
	row.AlertsPerEvent = float64(latencies.Acknowledged()) / max(eventsCreated(before, after), 1)
	return row, nil
}
