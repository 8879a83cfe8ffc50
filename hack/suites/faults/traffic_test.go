//go:build slow

package faults

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// tenant is a namespace with an integration. All tenants' integrations and keys have the same names, so
// whatever crosses a namespace finds something to spoil.
type tenant struct{ namespace, token string }

const integrationName = "app"

// autoResolveAfter is that of all integrations, the least that there may be: what a fault keeps away from the managers
// must not look like silence.
const autoResolveAfter = time.Minute

// newTenant makes a namespace and its integration, whose token every replica accepts then.
func (r *rig) newTenant() tenant {
	namespace := "tenant-" + strings.ToLower(rand.Text())
	token, err := r.Cluster.Integrate(r.Context, namespace, integrationName, v1alpha1.WebhookIntegrationSpec{
		AutoResolveAfter: &metav1.Duration{Duration: autoResolveAfter},
	})
	r.Must(err)
	return tenant{namespace, token}
}

// traffic is the load on the endpoints and the record of every request.
type traffic struct {
	rig     *rig
	tenants []tenant
	client  *http.Client
	senders sync.WaitGroup

	posts atomic.Int64
	unmet atomic.Int64 // connections that a replica did not take

	mu      sync.Mutex
	records []*oracle.Record
}

func newTraffic(r *rig, tenants []tenant) *traffic {
	return &traffic{
		rig:     r,
		tenants: tenants,
		client: &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{
			MaxIdleConnsPerHost: 128, DisableCompression: true,
		}},
	}
}

// Senders of one tenant, and how long each rests between two requests.
const (
	ownKeySenders = 4 // each with a key that nobody else uses
	sharedSenders = 3 // all on the same two keys
	keyedSenders  = 2 // with an idempotency key, trying again until acknowledged
	openRate      = 15
	senderRest    = 15 * time.Millisecond
)

// start starts all senders. They end when ctx does.
func (t *traffic) start(ctx context.Context) {
	for number := range t.tenants {
		send := func(key func(n int) string, keyed bool) {
			t.senders.Go(func() { t.sendSequence(ctx, number, key, keyed) })
		}
		for i := range ownKeySenders {
			send(func(int) string { return fmt.Sprintf("own-%d", i) }, false)
		}
		for range sharedSenders {
			send(func(n int) string { return fmt.Sprintf("shared-%d", n%2) }, false)
		}
		for i := range keyedSenders {
			send(func(int) string { return fmt.Sprintf("keyed-%d", i) }, true)
		}
		t.senders.Go(func() { t.sendOpenLoop(ctx, number) })
	}
}

// sendSequence posts alerts of a key one after the other, through all of its life cycle.
func (t *traffic) sendSequence(ctx context.Context, number int, key func(int) string, keyed bool) {
	rest := senderRest
	if keyed {
		rest = 20 * senderRest // each keeps an AlertEvent for ten minutes
	}
	statuses := []string{"firing", "firing", "acknowledged", "firing", "resolved", "firing", "resolved", "resolved", "firing"}
	for n := mathrand.IntN(3); ctx.Err() == nil; n++ {
		t.post(number, key(n), statuses[n%len(statuses)], keyed)
		pause(ctx, rest)
	}
}

// sendOpenLoop begins requests at a steady rate, whatever becomes of those before.
func (t *traffic) sendOpenLoop(ctx context.Context, number int) {
	for n := 0; pause(ctx, time.Second/openRate); n++ {
		t.senders.Go(func() { t.post(number, fmt.Sprintf("open-%d", n%10), "firing", false) })
	}
}

var severities = []string{"critical", "error", "warning", "info"}

// post sends one alert to a replica at random. A keyed one is sent again, to any replica, until it is
// acknowledged.
func (t *traffic) post(number int, key, status string, keyed bool) {
	tenant, n := t.tenants[number], t.posts.Add(1)
	seq := fmt.Sprintf("%s-%d", tenant.namespace, n)
	record := &oracle.Record{
		Namespace: tenant.namespace, Integration: integrationName,
		Alerts: []oracle.Sent{{Seq: seq, Key: key, Status: status}},
	}
	if keyed {
		record.IdempotencyKey = seq
	}

	payload := map[string]any{
		"dedup_key": key, "status": status,
		"labels": map[string]any{oracle.SeqLabel: seq, "tenant": tenant.namespace},
		"values": map[string]any{"n": n, string(rune('a' + mathrand.IntN(6))): mathrand.IntN(1000)},
	}
	if status == "firing" {
		payload["title"] = "Alert " + seq
		payload["severity"] = severities[mathrand.IntN(len(severities))]
	}
	body, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	t.mu.Lock()
	t.records = append(t.records, record)
	t.mu.Unlock()
	for try := 1; t.deliver(record, tenant.token, body) != oracle.Acknowledged && keyed && try < 12; try++ {
		time.Sleep(500 * time.Millisecond)
	}
}

// deliver sends a request once, and enters that it is under way and what becomes of it.
func (t *traffic) deliver(record *oracle.Record, token string, body []byte) oracle.Outcome {
	delivery := oracle.Delivery{Outcome: oracle.Unknown, Began: time.Now()}
	t.mu.Lock()
	at := len(record.Deliveries)
	record.Deliveries = append(record.Deliveries, delivery)
	t.mu.Unlock()
	delivery.Outcome, delivery.IDs = t.try(token, body, record.IdempotencyKey)
	delivery.Ended = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	record.Deliveries[at] = delivery
	return delivery.Outcome
}

// try sends a request to a replica at random; when that one does not take the connection, to another, as a
// load balancer would.
func (t *traffic) try(token string, body []byte, idempotencyKey string) (oracle.Outcome, []string) {
	replicas := t.rig.replicas
	first := mathrand.IntN(len(replicas))
	for i := range replicas {
		url := replicas[(first+i)%len(replicas)].manager.WebhookURL + token
		request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		if idempotencyKey != "" {
			request.Header.Set("Idempotency-Key", idempotencyKey)
		}
		request.GetBody = nil // net/http must not try again on its own: the record would not know
		response, err := t.client.Do(request)
		switch {
		case err == nil:
			raw, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			return loadgen.Read(response.StatusCode, http.StatusAccepted, raw, err)
		case loadgen.ErrorOutcome(err) != oracle.Refused:
			return oracle.Unknown, nil
		}
		t.unmet.Add(1)
	}
	return oracle.Refused, nil
}

// judge has the oracle compare the history with the records.
func (t *traffic) judge(history *oracle.History, at oracle.Moment) oracle.Findings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return history.Check(t.records, at)
}

// tally counts the requests by outcome.
func (t *traffic) tally() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[oracle.Outcome]int{}
	for _, record := range t.records {
		counts[record.Outcome()]++
	}
	return fmt.Sprintf("%d acknowledged, %d refused, %d unknown",
		counts[oracle.Acknowledged], counts[oracle.Refused], counts[oracle.Unknown])
}

// answers returns the requests that were answered in that time.
func (t *traffic) answers(from, to time.Time) (list []oracle.Delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, record := range t.records {
		for _, delivery := range record.Deliveries {
			if delivery.Ended.After(from) && delivery.Ended.Before(to) {
				list = append(list, delivery)
			}
		}
	}
	return list
}

// acknowledgedBetween counts the requests that were acknowledged in that time.
func (t *traffic) acknowledgedBetween(from, to time.Time) (n int) {
	for _, delivery := range t.answers(from, to) {
		if delivery.Outcome == oracle.Acknowledged {
			n++
		}
	}
	return n
}

// pendingEvents counts the AlertEvents of the tenants, those apart that stay for their idempotency keys.
func (r *run) pendingEvents() (ordinary, keyed int, err error) {
	for _, t := range r.tenants {
		var list v1alpha1.AlertEventList
		if err := r.Client.List(r.Context, &list, client.InNamespace(t.namespace)); err != nil {
			return 0, 0, err
		}
		for i := range list.Items {
			if v1alpha1.IsKeyedEventName(list.Items[i].Name) {
				keyed++
			} else {
				ordinary++
			}
		}
	}
	return ordinary, keyed, nil
}
