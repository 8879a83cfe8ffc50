package simulation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// senderTimeout is how long senders wait for an answer.
const senderTimeout = 20 * time.Second

// alert is one alert of a post.
type alert struct {
	key          int
	status       string
	starts, ends time.Duration // startsAt and endsAt before now; 0: not told; atFirst: the beginning of the run
	severity     string
	forbidden    bool // a policy may deny what contains it
}

// atFirst stands for the beginning of the run.
const atFirst = time.Duration(-1)

// at is the time that is so long ago.
func (w *world) at(d time.Duration) string {
	at := time.Now().Add(-d)
	if d == atFirst {
		at = w.began
	}
	return at.UTC().Format(time.RFC3339Nano)
}

func keyName(key int) string { return fmt.Sprint("key-", key) }

// reportTime is how long a replica needs to report that it could not store an alert.
const reportTime = 3 * time.Second

// unavailableReport is the call by which a replica tells the others that it could not store an alert.
var unavailableReport = &apiserver.Call{
	Verb: "patch", Resource: "webhookintegrations." + v1alpha1.GroupVersion.Group, Subresource: "status",
}

// longTitles is how many alerts there are for one that has a long title.
const longTitles = 50

// forbiddenTitle is in the alerts that policies deny.
const forbiddenTitle = "forbidden"

// request is a post of a sender, with its record.
type request struct {
	body   []byte
	record *oracle.Record
}

// senders post alerts and remember the answers.
type senders struct {
	world *world
	busy  sync.WaitGroup

	mu      sync.Mutex
	next    int
	records []*oracle.Record
}

// request makes a post.
func (s *senders) request(namespace string, alerts []alert, key string) *request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &request{record: &oracle.Record{Namespace: namespace, Integration: integrationName, IdempotencyKey: key}}
	var payloads []map[string]any
	for _, a := range alerts {
		s.next++
		seq := fmt.Sprint(s.next)
		r.record.Alerts = append(r.record.Alerts, oracle.Sent{Seq: seq, Key: keyName(a.key), Status: a.status})
		payload := map[string]any{"dedup_key": keyName(a.key), "status": a.status, "labels": map[string]any{oracle.SeqLabel: seq}}
		if a.status == "firing" {
			payload["title"], payload["severity"] = "Alert "+seq, a.severity
			if s.next%longTitles == 0 { // twice as many bytes as characters, and more of these than a title may have
				payload["title"] = "Alert " + seq + strings.Repeat("ø", v1alpha1.MaxLineChars)
			}
		}
		if a.forbidden {
			payload["title"] = forbiddenTitle
		}
		if a.starts != 0 {
			payload["starts_at"] = s.world.at(a.starts)
		}
		if a.ends != 0 {
			payload["ends_at"] = s.world.at(a.ends)
		}
		payloads = append(payloads, payload)
	}
	body, err := json.Marshal(map[string]any{"alerts": payloads})
	if err != nil {
		panic(err)
	}
	r.body = body
	s.records = append(s.records, r.record)
	return r
}

// deliver posts a request to a replica, in the background.
func (s *senders) deliver(r *request, to int) {
	s.mu.Lock()
	r.record.Deliveries = append(r.record.Deliveries, oracle.Delivery{Outcome: oracle.Unknown, Began: time.Now()})
	index := len(r.record.Deliveries) - 1
	s.mu.Unlock()
	p := s.world.route(to)
	s.busy.Go(func() {
		d, elsewhere := s.try(p, r)
		ended := time.Now()
		s.mu.Lock()
		d.Began = r.record.Deliveries[index].Began
		r.record.Deliveries[index] = d
		s.mu.Unlock()
		s.world.note("answer to %s: %s", r.record.Alerts[0].Seq, d.Outcome)
		time.Sleep(reportTime)
		// Another replica may lead, and does not know what one cannot store that stands still, or that cannot report it.
		if !elsewhere && (p == nil || !p.wasFrozen(d.Began) && !p.isDead() && !p.disturbs(unavailableReport)) {
			s.mu.Lock()
			defer s.mu.Unlock()
			r.record.Deliveries[index].Ended = ended // else it was not Tocsin that kept the alert away, and the Incident may be quiet
		}
	})
}

// try posts a request, and returns what the answer says. elsewhere says that the fault is the sender's, or that of a load
// balancer which sends requests to a replica that is not ready.
func (s *senders) try(p *process, r *request) (d oracle.Delivery, elsewhere bool) {
	if p == nil {
		return oracle.Delivery{Outcome: oracle.Refused}, false
	}
	q, err := http.NewRequest(http.MethodPost, "http://replica/api/v1/events/webhook", bytes.NewReader(r.body))
	if err != nil {
		panic(err)
	}
	q.Header.Set("Authorization", "Bearer "+testenv.Token(r.record.Namespace, integrationName))
	if r.record.IdempotencyKey != "" {
		q.Header.Set("Idempotency-Key", r.record.IdempotencyKey)
	}
	response, err := p.client.Do(q)
	switch {
	case errors.Is(err, errNobodyListens):
		return oracle.Delivery{Outcome: oracle.Refused}, false
	case err != nil:
		return oracle.Delivery{Outcome: oracle.Unknown}, false
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return outcome(response.StatusCode, body, err), response.StatusCode/100 == 4 ||
		bytes.Contains(body, []byte(":not-ready")) && !p.isOutdated(0)
}

// outcome reads an answer.
func outcome(code int, body []byte, err error) oracle.Delivery {
	var answer struct {
		Type   string `json:"type"`
		Detail string `json:"detail"`
		Alerts []struct {
			ID string `json:"id"`
		} `json:"alerts"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if code == http.StatusAccepted {
		d := oracle.Delivery{Outcome: oracle.Acknowledged}
		for _, a := range answer.Alerts {
			d.IDs = append(d.IDs, a.ID)
		}
		return d
	}
	kind := answer.Type[strings.LastIndex(answer.Type, ":")+1:]
	var stored, refused int
	switch {
	case err != nil || kind == "outcome-unknown":
		return oracle.Delivery{Outcome: oracle.Unknown}
	case kind == "idempotency-conflict":
		return oracle.Delivery{Outcome: oracle.Conflict}
	case kind != "incident-limit":
		return oracle.Delivery{Outcome: oracle.Refused}
	}
	if n, _ := fmt.Sscanf(answer.Detail, "Of %d alerts, %d need", &stored, &refused); n == 2 {
		return oracle.Delivery{Outcome: oracle.Partial, NotStored: refused}
	}
	return oracle.Delivery{Outcome: oracle.Refused}
}
