package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// scaleKeys is how many keys the load has, and scaleRate how many alerts a second.
const (
	scaleKeys = 50
	scaleRate = 200

	// scalePending is how many AlertEvents wait when the replicas start.
	scalePending = 2000
)

// measureScale fills the cluster in steps, and measures what two replicas do after each.
func (c *cluster) measureScale(ctx context.Context) error {
	s, err := c.newScaleSite(ctx)
	if err != nil {
		return err
	}
	beginTable("Incidents", "Integrations", "Ready s", "Pending drained s", "p99 ms", "Lag p99 s", "Replicas' MiB",
		"API server KiB/Incident", "kubectl tocsin get -A s")
	for size := range strings.SplitSeq(c.incidents, ",") {
		incidents, err := strconv.Atoi(size)
		if err != nil {
			return fmt.Errorf("-incidents: %w", err)
		}
		if err := s.fill(ctx, incidents, min(incidents, 10000)); err != nil {
			return fmt.Errorf("filling the cluster: %w", err)
		}
		if err := s.measure(ctx); err != nil {
			return err
		}
		s.stopManagers()
	}
	return nil
}

// measure starts two replicas on what there is and measures.
func (s *scaleSite) measure(ctx context.Context) error {
	began := time.Now()
	if err := s.startManagers(ctx, 2); err != nil {
		return err
	}
	ready := time.Since(began)
	drain, err := s.drained(ctx, tenant{namespace: s.namespace})
	if err != nil {
		return err
	}
	account, lag, err := s.measureLoad(ctx)
	if err != nil {
		return err
	}
	began = time.Now()
	get := exec.CommandContext(ctx, s.plugin, "get", "-A", "--kubeconfig", s.Kubeconfig)
	if err := get.Run(); err != nil {
		return fmt.Errorf("running the plugin: %w", err)
	}
	got := time.Since(began)
	var peaks []int64
	for _, replica := range s.managers {
		_, peak, err := testenv.Memory(replica.PID())
		if err != nil {
			return err
		}
		peaks = append(peaks, peak>>20)
	}
	resident, _, err := testenv.Memory(s.APIServers[0].PID())
	printRow(s.incidents, s.integrations, ready, drain, milliseconds(account.Quantile(0.99)), lag.quantile(0.99), peaks,
		float64(resident-s.emptyRSS)/1024/float64(s.incidents), got)
	return err
}

// measureLoad measures a steady load of both replicas, and returns what they answered and the fold lags.
func (s *scaleSite) measureLoad(ctx context.Context) (*loadgen.Account, buckets, error) {
	load := loadgen.Load{
		URLs: s.urls(s.load), Senders: 32, Rate: scaleRate, Duration: s.duration / 2, Key: loadgen.RotatingKeys(scaleKeys),
	}
	loadgen.Run(ctx, load) // the first alerts open Incidents
	if _, err := s.drained(ctx, s.load); err != nil {
		return nil, nil, err
	}
	before, err := s.lag(ctx)
	if err != nil {
		return nil, nil, err
	}
	load.Duration = 2 * s.duration
	account := loadgen.Run(ctx, load)
	if _, err := s.drained(ctx, s.load); err != nil {
		return nil, nil, err
	}
	after, err := s.lag(ctx)
	return account, after.minus(before), err
}

// lag returns the fold lags that the replicas have observed.
func (s *scaleSite) lag(ctx context.Context) (buckets, error) {
	all := buckets{}
	for _, replica := range s.managers {
		metrics, err := scrape(ctx, replica)
		if err != nil {
			return nil, err
		}
		for bound, n := range metrics.foldLag() {
			all[bound] += n
		}
	}
	return all, nil
}
