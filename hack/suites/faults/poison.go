package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
)

const (
	poisonedKey  = "poisoned"
	goodPoisoned = 10 // alerts of the key that can be folded
)

// poisoning has every status of an Incident refused that has one of some AlertEvents in its ledger.
type poisoning struct {
	incident string
	alerts   int       // how many AlertEvents
	copies   time.Time // before this, no quarantined copy is stored
	kill     func()    // at the first confirmation of one

	mu  sync.Mutex
	bad []string // their names, quoted
}

// poison has two alerts of a key refused, of which one has an idempotency key, so that its AlertEvent stays for ten
// minutes. Both are to be quarantined and shown, though no copy can be stored at first and the manager dies before it
// has confirmed one. The others of their key and their AlertEvents' alerts of other keys are to be folded, and
// in the end they are folded too: by another process, which knows nothing of it, and only once, by whichever comes
// after that.
func poison(ctx context.Context, r *run) error {
	r.traffic.post(0, poisonedKey, "firing", false)
	pause(ctx, 2*time.Second)
	p := &poisoning{
		incident: v1alpha1.IncidentName(integrationName, poisonedKey),
		alerts:   2,
		copies:   time.Now().Add(8 * time.Second),
		kill:     sync.OnceFunc(r.replicas[0].kill),
	}
	r.setRule(p.rule)
	r.traffic.post(0, poisonedKey, "firing", false)
	r.traffic.post(0, poisonedKey, "firing", true)
	for range goodPoisoned - 1 {
		r.traffic.post(0, poisonedKey, "firing", false)
		pause(ctx, 300*time.Millisecond)
	}
	r.expectQuarantined(ctx, 2)
	r.expectFolded(ctx, goodPoisoned)
	r.setRule(nil)
	for range 2 {
		r.replicas[0].kill()
		pause(ctx, 2*restartDelay)
		if err := r.waitReady(ctx); err != nil {
			return err
		}
		r.expectQuarantined(ctx, 0)
	}
	return nil
}

func (p *poisoning) rule(call proxy.Call) proxy.Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	isCopy := v1alpha1.IsQuarantineName(call.Name)
	switch {
	case call.Is("create", "alertevents") && isCopy && time.Now().Before(p.copies):
		return proxy.Fate{Refuse: http.StatusServiceUnavailable}
	case call.Is("create", "alertevents") && !isCopy && len(p.bad) < p.alerts && hasKey(call.Body, poisonedKey):
		if name := `"` + call.Name + `"`; !slices.Contains(p.bad, name) {
			p.bad = append(p.bad, name)
		}
	case call.Is("patch", "alertevents") && isCopy:
		return proxy.Fate{Before: p.kill}
	case call.Is("update", "incidents/status") && call.Name == p.incident:
		if slices.ContainsFunc(p.bad, func(name string) bool { return bytes.Contains(call.Body, []byte(name)) }) {
			return proxy.Fate{Refuse: http.StatusUnprocessableEntity}
		}
	}
	return proxy.Fate{}
}

// hasKey tells whether an AlertEvent, its alerts packed or not, has one of the dedup key.
func hasKey(body []byte, key string) bool {
	var event v1alpha1.AlertEvent
	if err := json.Unmarshal(body, &event); err != nil {
		return false
	}
	return slices.ContainsFunc(event.Spec.Alerts, func(a v1alpha1.Alert) bool { return a.DedupKey == key })
}

// expectQuarantined waits until so many AlertEvents are in quarantine, all of them confirmed, and shown as a metric.
func (r *run) expectQuarantined(ctx context.Context, n int) {
	err := testenv.Await(ctx, healTime, func(ctx context.Context) error {
		var list v1alpha1.AlertEventList
		err := r.admin.List(ctx, &list, client.InNamespace(r.tenants[0].namespace), client.HasLabels{v1alpha1.QuarantineLabel})
		if err != nil {
			return err
		}
		var labels []string
		for i := range list.Items {
			labels = append(labels, list.Items[i].Labels[v1alpha1.QuarantineLabel])
		}
		value, shown := r.replicas[0].metric("tocsin_alertevents_quarantined")
		if shown && len(labels) == n && value == float64(n) && !slices.Contains(labels, v1alpha1.QuarantineUnconfirmed) {
			return nil
		}
		return fmt.Errorf("%d quarantined AlertEvents (%s), the metric says %v, not %d",
			len(labels), strings.Join(labels, ", "), value, n)
	})
	if err != nil {
		r.found.Add("C: %v", err)
	}
}

// expectFolded waits until all alerts of the key are folded but those in quarantine.
func (r *run) expectFolded(ctx context.Context, alerts int64) {
	name := client.ObjectKey{Namespace: r.tenants[0].namespace, Name: v1alpha1.IncidentName(integrationName, poisonedKey)}
	var incident v1alpha1.Incident
	err := testenv.AwaitThat(ctx, healTime, "too few alerts are folded beside the poison", func(ctx context.Context) bool {
		return r.admin.Get(ctx, name, &incident) == nil && incident.Status.AlertCount >= alerts
	})
	r.note("%d of %d alerts of the key folded beside the poison", incident.Status.AlertCount, alerts+2)
	if err != nil {
		r.found.Add("C: %v", err)
	}
}
