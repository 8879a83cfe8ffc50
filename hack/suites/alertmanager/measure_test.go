//go:build slow

package alertmanager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
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

// latency opens and resolves Incidents at a rate, and measures the time from the 202 to the arrival at an Alertmanager.
func latency(r *rig) {
	type transition struct {
		key      string
		resolved bool
		accepted time.Time
	}
	r.useFake()
	var posted []transition
	start := time.Now()
	for n := range transitions {
		r.Pause(time.Until(start.Add(time.Duration(n) * time.Second / transitionRate)))
		// Every other transition resolves the Incident that was opened two seconds before.
		t, status := transition{key: fmt.Sprint("rate-", n)}, firing
		if n%2 == 1 && n > 2*transitionRate {
			t.key, t.resolved, status = fmt.Sprint("rate-", n-2*transitionRate-1), true, resolved
		}
		r.happens(t.key, "critical", status)
		t.accepted = time.Now()
		posted = append(posted, t)
	}
	took := time.Since(start)
	var late []time.Duration
	for _, t := range posted {
		r.AwaitThat(t.key+" never arrives", func(context.Context) bool {
			at, ok := r.fake.arrivalOf(name(t.key), t.resolved)
			if ok {
				late = append(late, max(0, at.Sub(t.accepted)))
			}
			return ok
		})
	}
	slices.Sort(late)
	p99 := late[len(late)*99/100]
	r.T.Logf("%.0f transitions/s: p50 %s, p99 %s, max %s from 202 to Alertmanager", float64(len(late))/took.Seconds(),
		late[len(late)/2].Round(time.Millisecond), p99.Round(time.Millisecond), late[len(late)-1].Round(time.Millisecond))
	if p99 > maxLatency {
		r.T.Fatalf("p99 is %s", p99)
	}
	r.told()
}

// useFake has alerts posted to the fake too, and waits until one arrives.
func (r *rig) useFake() {
	r.fake.behave(modeAccept, "")
	r.configure("- url: " + r.fake.URL + "\n")
	probe := fmt.Sprint("probe-", len(r.story)) // a new one each time
	r.happens(probe, "critical", firing)
	r.AwaitThat("nothing arrives at the fake", func(context.Context) bool {
		_, arrived := r.fake.arrivalOf(name(probe), false)
		return arrived
	})
}

// TestMemory compares the memory of a manager with 10,000 open Incidents with and without forwarding.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	r := startRig(t, 1)
	r.openMany()
	r.killManagers()
	with := r.memory("with", "--alertmanager-config="+r.forwarding)
	without := r.memory("without")
	t.Logf("%d open Incidents: %d MiB in use with forwarding, %d MiB without it, %+d MiB",
		openIncidents, with>>20, without>>20, (with-without)>>20)
	if with-without > maxGrowth {
		t.Error("forwarding takes more than 32 MiB")
	}
}

// openMany opens the Incidents, 500 in a request, and waits until they are folded.
func (r *rig) openMany() {
	const batch = 500
	for n := 0; n < openIncidents; n += batch {
		var alerts []string
		for i := range batch {
			alerts = append(alerts, fmt.Sprintf(`{"title":"Disk %d of db-%d is nearly full","dedup_key":"many-%d",`+
				`"severity":"warning","labels":{"device":"sda%d","team":"storage"}}`, i, n, n+i, i))
		}
		body := "[" + strings.Join(alerts, ",") + "]"
		r.Await(2*time.Minute, func(ctx context.Context) error {
			_, err := testenv.Call(ctx, http.MethodPost, r.managers[0].WebhookURL+r.token, body)
			return err
		})
	}
	r.Await(10*time.Minute, func(ctx context.Context) error {
		testenv.Pause(ctx, 2*time.Second)
		var incidents v1alpha1.IncidentList
		err := r.Client.List(ctx, &incidents, client.MatchingFields{"status.state": "Open"})
		if n := len(incidents.Items); err == nil && n < openIncidents {
			err = fmt.Errorf("%d Incidents are open", n)
		}
		return err
	})
}

// memory runs a manager and returns the memory that it has in use at most, for two sweeps after all is read and posted.
func (r *rig) memory(name string, args ...string) (most int64) {
	m := r.Manager("memory-"+name, testenv.ManagerOptions{
		Env: []string{"GOGC=50"}, Args: append(args, "--leader-elect=false"), // what is garbage counts for little
	})
	defer m.Kill()
	r.Pause(expiry) // three sweeps
	for range 60 {
		r.Pause(time.Second)
		inUse, series, err := testenv.Metric(r.Context, m.MetricsURL, "go_memstats_heap_inuse_bytes")
		if err == nil && series == 0 {
			err = errors.New("the manager has no metric of its heap")
		}
		r.Must(err)
		most = max(most, int64(inUse))
	}
	return most
}
