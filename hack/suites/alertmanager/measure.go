package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	transitionRate = 50 // a second
	transitions    = 1000
	maxLatency     = 2 * time.Second

	openIncidents = 10_000
	maxGrowth     = 32 << 20 // bytes
)

func name(key string) string { return v1alpha1.IncidentName(namespace, key) }

// latency opens and resolves Incidents at a rate, and measures the time from the 202 to the arrival at an Alertmanager.
func latency(ctx context.Context, r *rig) error {
	type transition struct {
		key      string
		resolved bool
		accepted time.Time
	}
	if err := r.useFake(ctx); err != nil {
		return err
	}
	var posted []transition
	start := time.Now()
	for n := range transitions {
		testenv.Pause(ctx, time.Until(start.Add(time.Duration(n)*time.Second/transitionRate)))
		// Every other transition resolves the Incident that was opened two seconds before.
		t, status := transition{key: fmt.Sprint("rate-", n)}, firing
		if n%2 == 1 && n > 2*transitionRate {
			t.key, t.resolved, status = fmt.Sprint("rate-", n-2*transitionRate-1), true, resolved
		}
		if err := r.happens(ctx, t.key, "critical", status); err != nil {
			return err
		}
		t.accepted = time.Now()
		posted = append(posted, t)
	}
	took := time.Since(start)
	var late []time.Duration
	for _, t := range posted {
		err := testenv.AwaitThat(ctx, waitTimeout, t.key+" never arrives", func(context.Context) bool {
			at, ok := r.fake.arrivalOf(name(t.key), t.resolved)
			if ok {
				late = append(late, max(0, at.Sub(t.accepted)))
			}
			return ok
		})
		if err != nil {
			return err
		}
	}
	slices.Sort(late)
	p99 := late[len(late)*99/100]
	fmt.Printf("    %.0f transitions/s: p50 %s, p99 %s, max %s from 202 to Alertmanager\n", float64(len(late))/took.Seconds(),
		late[len(late)/2].Round(time.Millisecond), p99.Round(time.Millisecond), late[len(late)-1].Round(time.Millisecond))
	if p99 > maxLatency {
		return fmt.Errorf("p99 is %s", p99)
	}
	return r.told(ctx)
}

// useFake has alerts posted to the fake too, and waits until one arrives.
func (r *rig) useFake(ctx context.Context) error {
	r.fake.behave(modeAccept, "")
	if err := r.configure("- url: " + r.fake.URL + "\n"); err != nil {
		return err
	}
	if err := r.happens(ctx, "probe", "critical", firing); err != nil {
		return err
	}
	return testenv.AwaitThat(ctx, waitTimeout, "nothing arrives at the fake", func(context.Context) bool {
		_, arrived := r.fake.arrivalOf(name("probe"), false)
		return arrived
	})
}

// measureMemory compares the memory of a manager with 10,000 open Incidents with and without forwarding.
func measureMemory(ctx context.Context, o options, folder string) (err error) {
	o.short = true
	r, err := startRig(ctx, o, folder)
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return err
	}
	if err := r.openMany(ctx); err != nil {
		return err
	}
	r.managers[0].Kill()
	with, err := r.memory(ctx, "--alertmanager-config="+r.configFile())
	if err != nil {
		return err
	}
	without, err := r.memory(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d open Incidents: %d MiB in use with forwarding, %d MiB without it, %+d MiB\n",
		openIncidents, with>>20, without>>20, (with-without)>>20)
	if with-without > maxGrowth {
		return errors.New("forwarding takes more than 32 MiB")
	}
	return nil
}

// openMany opens the Incidents, 500 in a request, and waits until they are folded.
func (r *rig) openMany(ctx context.Context) error {
	const batch = 500
	for n := 0; n < openIncidents; n += batch {
		var alerts []string
		for i := range batch {
			alerts = append(alerts, fmt.Sprintf(`{"title":"Disk %d of db-%d is nearly full","dedup_key":"many-%d",`+
				`"severity":"warning","labels":{"device":"sda%d","team":"storage"}}`, i, n, n+i, i))
		}
		body := "[" + strings.Join(alerts, ",") + "]"
		err := testenv.Await(ctx, 2*time.Minute, func(ctx context.Context) error {
			_, err := testenv.Call(ctx, http.MethodPost, r.managers[0].WebhookURL+r.token, body)
			return err
		})
		if err != nil {
			return err
		}
	}
	return testenv.Await(ctx, 10*time.Minute, func(ctx context.Context) error {
		testenv.Pause(ctx, 2*time.Second)
		var incidents v1alpha1.IncidentList
		if err := r.cluster.Client.List(ctx, &incidents, client.MatchingFields{"status.state": "Open"}); err != nil {
			return err
		}
		if len(incidents.Items) < openIncidents {
			return fmt.Errorf("%d Incidents are open", len(incidents.Items))
		}
		return nil
	})
}

// heap is the metric of the memory that is in use.
var heap = regexp.MustCompile(`(?m)^go_memstats_heap_inuse_bytes (\S+)$`)

// memory runs a manager and returns the memory that it has in use at most, for two sweeps after all is read and posted.
func (r *rig) memory(ctx context.Context, args ...string) (int64, error) {
	log, err := os.Create(filepath.Join(r.folder, fmt.Sprintf("memory-%d.log", len(args))))
	if err != nil {
		return 0, err
	}
	m, err := r.cluster.RunManager(ctx, testenv.ManagerOptions{
		Binary: r.options.manager, Log: log, Env: []string{"GOGC=50"}, // what is garbage counts for little
		Args: append([]string{"--leader-elect=false", "--shutdown-delay=0s"}, args...),
	})
	if err != nil {
		return 0, err
	}
	defer m.Kill()
	if !testenv.Pause(ctx, lease) { // three sweeps
		return 0, ctx.Err()
	}
	var most int64
	for range 60 {
		testenv.Pause(ctx, time.Second)
		text, err := testenv.Call(ctx, http.MethodGet, m.MetricsURL, "")
		if err != nil {
			return 0, err
		}
		match := heap.FindStringSubmatch(text)
		if match == nil {
			return 0, errors.New("the manager has no metric of its heap")
		}
		inUse, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			return 0, err
		}
		most = max(most, int64(inUse))
	}
	return most, nil
}
