package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
)

// fairnessRow is what an integration notices of another one in a storm. Times are in seconds.
type fairnessRow struct {
	StormRate float64 `json:"stormPerSecond"` // of the other one
	Rate      float64 `json:"ratePerSecond"`
	P50Alone  float64 `json:"p50Alone"`
	P99Alone  float64 `json:"p99Alone"`
	P50       float64 `json:"p50Beside"`
	P99       float64 `json:"p99Beside"`
}

// measureFairness lets one integration post as fast as 64 senders can, and beside it another one at a tenth of
// that rate.
func (c *cluster) measureFairness(ctx context.Context, duration time.Duration) (*fairnessRow, error) {
	tenants, err := c.begin(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer c.manager.Kill()
	storm := loadgen.Load{
		URLs: []string{c.manager.WebhookURL + tenants[0].token}, Senders: 64, Duration: duration, Key: loadgen.SharedKey,
	}
	row := &fairnessRow{StormRate: loadgen.Run(ctx, storm).Rate()}
	quiet := loadgen.Load{
		URLs: []string{c.manager.WebhookURL + tenants[1].token}, Senders: 64, Duration: duration, Key: loadgen.SharedKey,
		Rate: row.StormRate / 10,
	}
	row.Rate = quiet.Rate
	for _, t := range tenants {
		if _, err := c.drained(ctx, t); err != nil {
			return nil, err
		}
	}
	alone := loadgen.Run(ctx, quiet)
	row.P50Alone, row.P99Alone = alone.Quantile(0.5).Seconds(), alone.Quantile(0.99).Seconds()
	var both sync.WaitGroup
	both.Go(func() { loadgen.Run(ctx, storm) })
	beside := loadgen.Run(ctx, quiet)
	both.Wait()
	row.P50, row.P99 = beside.Quantile(0.5).Seconds(), beside.Quantile(0.99).Seconds()
	fmt.Printf("fairness: at %.0f/s alone p50 %.1f ms, p99 %.1f ms; beside a storm of %.0f/s p50 %.1f ms, p99 %.1f ms, %.1f times\n",
		row.Rate, row.P50Alone*1000, row.P99Alone*1000, row.StormRate, row.P50*1000, row.P99*1000, row.P99/row.P99Alone)
	for _, t := range tenants {
		if _, err := c.drained(ctx, t); err != nil {
			return nil, err
		}
		if err := c.clear(ctx, t.namespace); err != nil {
			return nil, err
		}
	}
	return row, nil
}
