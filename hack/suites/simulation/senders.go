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
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// senderTimeout is how long senders wait for an answer.
const senderTimeout = 20 * time.Second

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
	code, body, err := p.send(http.MethodPost, "", r.record.Namespace, r.record.IdempotencyKey, r.body)
	switch {
	case errors.Is(err, errNobodyListens):
		return oracle.Delivery{Outcome: oracle.Refused}, false
	case code == 0:
		return oracle.Delivery{Outcome: oracle.Unknown}, false
	}
	return outcome(code, body, err), code/100 == 4 || bytes.Contains(body, []byte(":not-ready")) && !p.isOutdated(0)
}

// send sends a request of a tenant to the webhook server, and returns the answer; a code of 0 if there is none.
func (p *process) send(method, path, namespace, idempotencyKey string, body []byte) (code int, answer []byte, err error) {
	q, err := http.NewRequest(method, "http://replica/api/v1/events/webhook"+path, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	q.Header.Set("Authorization", "Bearer "+testenv.Token(namespace, integrationName))
	if idempotencyKey != "" {
		q.Header.Set("Idempotency-Key", idempotencyKey)
	}
	response, err := p.client.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

func outcome(code int, body []byte, err error) (d oracle.Delivery) {
	if d.Outcome, d.IDs = loadgen.Read(code, http.StatusAccepted, body, err); d.Outcome != oracle.Refused {
		return d
	}
	var problem struct{ Type, Detail string }
	_ = json.Unmarshal(body, &problem) // loadgen could read it
	var stored int
	switch problem.Type[strings.LastIndex(problem.Type, ":")+1:] {
	case "idempotency-conflict":
		d.Outcome = oracle.Conflict
	case "incident-limit":
		if n, _ := fmt.Sscanf(problem.Detail, "Of %d alerts, %d need", &stored, &d.NotStored); n == 2 {
			d.Outcome = oracle.Partial
		}
	}
	return d
}
