package main

import (
	"context"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// goroutineSlack is how many more goroutines an idle manager may have than before the load: the workers of
// one that has come to lead, of which the folds alone have 480, and idle connections. A goroutine left behind by each request
// would be thousands.
const goroutineSlack = 800

// goroutines are the numbers of goroutines of the replicas.
func (r *rig) goroutines() []float64 {
	var counts []float64
	for _, replica := range r.replicas {
		count, _ := replica.metric("go_goroutines")
		counts = append(counts, count)
	}
	return counts
}

// exits are how often the replicas ended on their own.
func (r *rig) exits() []int32 {
	var counts []int32
	for _, replica := range r.replicas {
		counts = append(counts, replica.exits.Load()-replica.kills.Load())
	}
	return counts
}

// leaks finds replicas that leak goroutines, and replicas that exited without being told to.
func (r *run) leaks(ctx context.Context, before []float64, exits []int32) oracle.Findings {
	var f oracle.Findings
	r.traffic.client.CloseIdleConnections()
	for i, now := range r.exits() {
		if ended := now - exits[i]; ended > 0 {
			f.Add("F: %s ended %d times on its own", r.replicas[i].name, ended)
		}
	}
	deadline := time.Now().Add(15 * time.Second)
	for i, replica := range r.replicas {
		for {
			now, ok := replica.metric("go_goroutines")
			if ok && now <= before[i]+goroutineSlack {
				break
			}
			if time.Now().After(deadline) || !pause(ctx, 500*time.Millisecond) {
				f.Add("F: %s has %.0f goroutines, %.0f before the load", replica.name, now, before[i])
				break
			}
		}
	}
	return f
}
