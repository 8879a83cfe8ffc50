// Package loadgen posts alerts to a webhook endpoint and keeps account of every answer, so that what was
// acknowledged can be compared with what was folded.
package loadgen

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// requestTimeout is how long one request may take; the endpoint answers within five seconds.
const requestTimeout = 15 * time.Second

// Load describes the requests to make.
type Load struct {
	// URLs are the endpoints, tokens included; senders take them in turn.
	URLs []string
	// Senders is how many requests may be under way at once.
	Senders int
	// Rate is how many requests a second are begun, whatever the answers take (an open loop). Zero is a
	// closed loop: every sender begins its next request when it has the answer to the last one.
	Rate float64
	// Requests ends the load after so many requests; zero is no bound.
	Requests int
	// Duration ends the load after so long; zero is no bound.
	Duration time.Duration
	// Key gives the dedup key of the n-th request, n from 0.
	Key func(n int) string
	// Body gives the payload of the n-th request. Default: Payload.
	Body func(n int, key string) []byte
	// AcknowledgedCode is the status code that acknowledges a request. Default: 202.
	AcknowledgedCode int
}

// Payload is a firing alert of a usual size, about 600 bytes.
func Payload(n int, key string) []byte {
	return fmt.Appendf(nil, `{"title":"High CPU usage on web-%[1]d","description":"CPU usage was over 90 %% for 5 minutes on `+
		`web-%[1]d.example.com; the 5 minute load average is 17.25.","severity":"critical","status":"firing",`+
		`"dedup_key":%[2]q,"hostname":"web-%[1]d.example.com","region":"eu-west-1","type":"cpu",`+
		`"link":"https://monitoring.example.com/alerts/%[1]d","labels":{"env":"production","service":"api","team":"blue"},`+
		`"annotations":{"runbook":"https://runbooks.example.com/cpu","summary":"CPU"},`+
		`"values":{"cpu":93.5,"load5":17.25,"sequence":%[1]d}}`, n, key)
}

// KeyAccount is what was answered to the requests of one dedup key.
type KeyAccount struct {
	Acknowledged, Refused, Unknown int
	// AlertIDs are those of the acknowledged alerts.
	AlertIDs []string
}

func (k *KeyAccount) add(other *KeyAccount) {
	k.Acknowledged += other.Acknowledged
	k.Refused += other.Refused
	k.Unknown += other.Unknown
	k.AlertIDs = append(k.AlertIDs, other.AlertIDs...)
}

// Account is what was answered to a load.
type Account struct {
	// Keys has an entry a dedup key.
	Keys map[string]*KeyAccount
	// Codes counts the answers by status code, and "error" for none.
	Codes map[string]int
	// Error is why the last request without an answer had none.
	Error error
	// Latencies are those of the acknowledged requests, sorted.
	Latencies []time.Duration
	// Elapsed is the time from the first request's start to the last answer.
	Elapsed time.Duration

	mu sync.Mutex
}

// Snapshot returns how many alerts of each key were acknowledged, and all alerts by outcome, while the load goes on.
func (a *Account) Snapshot() (acknowledged map[string]int, all KeyAccount) {
	a.mu.Lock()
	defer a.mu.Unlock()
	acknowledged = map[string]int{}
	for key, k := range a.Keys {
		acknowledged[key] = k.Acknowledged
		all.add(k)
	}
	return acknowledged, all
}

// Acknowledged is the number of acknowledged requests.
func (a *Account) Acknowledged() int { return len(a.Latencies) }

// Rate is the number of acknowledged requests a second.
func (a *Account) Rate() float64 { return float64(a.Acknowledged()) / a.Elapsed.Seconds() }

// Quantile is the latency that the fraction q of the acknowledged requests did not exceed.
func (a *Account) Quantile(q float64) time.Duration { return Quantile(a.Latencies, q) }

// Quantile is the duration that the fraction q of the sorted ones does not exceed.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Add takes the account of another load of the same integration.
func (a *Account) Add(other *Account) {
	for key, theirs := range other.Keys {
		a.key(key).add(theirs)
	}
	for code, n := range other.Codes {
		a.Codes[code] += n
	}
	a.Error = cmp.Or(other.Error, a.Error)
	a.Latencies = append(a.Latencies, other.Latencies...)
	slices.Sort(a.Latencies)
	a.Elapsed += other.Elapsed
}

// NewAccount returns an empty account.
func NewAccount() *Account {
	return &Account{Keys: map[string]*KeyAccount{}, Codes: map[string]int{}}
}

func (a *Account) key(key string) *KeyAccount {
	k, ok := a.Keys[key]
	if !ok {
		k = &KeyAccount{}
		a.Keys[key] = k
	}
	return k
}

// Run makes the requests and returns the account when the last answer is in. It ends early when ctx does.
func Run(ctx context.Context, load Load) *Account {
	if load.Body == nil {
		load.Body = Payload
	}
	load.AcknowledgedCode = cmp.Or(load.AcknowledgedCode, http.StatusAccepted)
	if load.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, load.Duration)
		defer cancel()
	}
	account := NewAccount()
	begin := beginnings(ctx, load)
	start := time.Now()
	var senders sync.WaitGroup
	for range load.Senders {
		senders.Go(func() {
			var s sender
			defer s.close()
			for n := range begin {
				load.send(&s, n, account)
			}
		})
	}
	senders.Wait()
	account.Elapsed = time.Since(start)
	slices.Sort(account.Latencies)
	return account
}

// beginnings yields the number of each request when it is time to begin it. A closed loop's are always
// due; an open loop's come at its rate, and are kept for a sender to get free.
func beginnings(ctx context.Context, load Load) <-chan int {
	numbers := make(chan int)
	if load.Rate > 0 {
		numbers = make(chan int, 1<<16)
	}
	go func() {
		defer close(numbers)
		start := time.Now()
		for n := 0; load.Requests == 0 || n < load.Requests; n++ {
			if load.Rate > 0 {
				due := start.Add(time.Duration(float64(n) / load.Rate * float64(time.Second)))
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(due)):
				}
			}
			select {
			case <-ctx.Done():
				return
			case numbers <- n:
			}
		}
	}()
	return numbers
}

func (l Load) send(s *sender, n int, account *Account) {
	key := l.Key(n)
	request, err := http.NewRequest(http.MethodPost, l.URLs[n%len(l.URLs)], bytes.NewReader(l.Body(n, key)))
	if err != nil {
		panic(fmt.Sprintf("making a request: %v", err)) // a mistake in the caller's URL
	}
	request.Header.Set("Content-Type", "application/json")
	start := time.Now()
	status, body, err := s.do(request)
	latency := time.Since(start)
	if status == 0 {
		account.Record(key, ErrorOutcome(err), "error", latency, nil)
		account.mu.Lock()
		account.Error = err
		account.mu.Unlock()
		return
	}
	outcome, ids := Read(status, l.AcknowledgedCode, body, err)
	account.Record(key, outcome, strconv.Itoa(status), latency, ids)
}

// Read returns what an answer says about its request, and the ids of the alerts that it acknowledges. acknowledged is the
// status code that does so, err is why there is no more of the body.
func Read(status, acknowledged int, body []byte, err error) (oracle.Outcome, []string) {
	var answer struct {
		Type   string `json:"type"`
		Alerts []struct {
			ID string `json:"id"`
		} `json:"alerts"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	switch {
	case status == acknowledged: // with or without the rest of the answer
		var ids []string
		for _, alert := range answer.Alerts {
			ids = append(ids, alert.ID)
		}
		return oracle.Acknowledged, ids
	case err != nil, answer.Type == unknownOutcomeType:
		return oracle.Unknown, nil
	default:
		return oracle.Refused, nil
	}
}

// unknownOutcomeType is the problem type of an answer that leaves open whether the alert was stored.
const unknownOutcomeType = "tag:tocsin.dev,2026:outcome-unknown"

// ErrorOutcome tells a request that never reached the server from one that may have.
func ErrorOutcome(err error) oracle.Outcome {
	var operation *net.OpError
	if errors.Is(err, syscall.ECONNREFUSED) || (errors.As(err, &operation) && operation.Op == "dial") {
		return oracle.Refused
	}
	return oracle.Unknown
}

// Record enters the answer to an alert of a key.
func (a *Account) Record(key string, outcome oracle.Outcome, code string, latency time.Duration, ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Codes[code]++
	k := a.key(key)
	switch outcome {
	case oracle.Acknowledged:
		k.Acknowledged++
		k.AlertIDs = append(k.AlertIDs, ids...)
		a.Latencies = append(a.Latencies, latency)
	case oracle.Refused, oracle.Conflict:
		k.Refused++
	case oracle.Unknown, oracle.Partial:
		k.Unknown++
	}
}

// SharedKey is a key space of one key.
func SharedKey(int) string { return "shared" }

// RotatingKeys is a key space of so many keys, taken in turn.
func RotatingKeys(keys int) func(int) string {
	return func(n int) string { return "key-" + strconv.Itoa(n%keys) }
}

// UniqueKeys is a key space in which no key comes twice in this process.
func UniqueKeys() func(int) string {
	run := uniqueRuns.Add(1)
	return func(n int) string { return fmt.Sprintf("unique-%d-%d", run, n) }
}

var uniqueRuns atomic.Int64
