package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// SeqLabel is the label of an alert by which it is found in the records of the senders.
const SeqLabel = "seq"

// Commit is one version of an object, as the API server stored it.
type Commit struct {
	Resource  string // alertevents, incidents or webhookintegrations; others are ignored
	Namespace string
	Name      string
	Created   bool      // the first version of the object
	Deleted   bool      // the object is gone; Object is not used
	Object    []byte    // JSON
	At        time.Time // by the API server's clock; zero if not known
	ByUser    bool      // written by anyone but the operator
	Restored  bool      // a creation by a backup tool: its alerts must not count
}

// Outcome is what an answer says about a request.
type Outcome int

// The outcomes of a request.
const (
	// Unknown: no answer, or one that leaves it open. Each alert may be stored, once.
	Unknown Outcome = iota
	// Acknowledged: every alert must be stored, once.
	Acknowledged
	// Refused: no alert may be stored.
	Refused
	// Partial: the answer is incident-limit. Some alerts are stored.
	Partial
	// Conflict: the answer is idempotency-conflict. Nothing is stored, and another body has the key.
	Conflict
)

func (o Outcome) String() string {
	return []string{"unknown", "acknowledged", "refused", "partial", "conflict"}[o]
}

// Sent is one alert of a request.
type Sent struct {
	Seq    string // unique among all records, and the value of SeqLabel
	Key    string // the dedup key; empty if it is generated
	Status string // as it is to be stored
}

// Delivery is one try of a request and its answer.
type Delivery struct {
	Outcome      Outcome
	IDs          []string // of the alerts in order, if the answer told them
	NotStored    int      // with Partial: how many alerts are not stored; 0 if the answer did not tell
	Began, Ended time.Time
}

// Record is one request of a sender. One with an idempotency key may have several deliveries; without a key, every try is a
// record of its own.
type Record struct {
	Namespace, Integration string
	IdempotencyKey         string
	Alerts                 []Sent
	Deliveries             []Delivery
}

// Outcome is the outcome of all deliveries together.
func (r *Record) Outcome() Outcome {
	for _, outcome := range []Outcome{Acknowledged, Partial, Unknown} {
		if r.got(outcome) {
			return outcome
		}
	}
	if len(r.Deliveries) == 0 {
		return Unknown
	}
	return Refused
}

// got says whether a delivery had the outcome.
func (r *Record) got(outcome Outcome) bool {
	return slices.ContainsFunc(r.Deliveries, func(d Delivery) bool { return d.Outcome == outcome })
}

// Options are what the facts do not tell, and what a scenario makes meaningless. The zero value leaves out nothing.
type Options struct {
	// AutoResolveAfter returns that of an integration. Default: that of its spec.
	AutoResolveAfter func(namespace, integration string) time.Duration
	// HealTime is how long after the end of the faults AlertEvents may wait.
	HealTime time.Duration
	// KeyedLinger is how long an AlertEvent with an idempotency key stays after it is settled. Default: not checked.
	KeyedLinger time.Duration
	// FoldTime is how long after its commit an AlertEvent is settled for all its Incidents at the latest, if Undisturbed says that
	// nothing was in the way of its namespace meanwhile. Default: not checked.
	FoldTime    time.Duration
	Undisturbed func(namespace string, from, to time.Time) bool

	// ReportTime is how long a replica may take to report to the others that it could not store an alert.
	ReportTime time.Duration

	// MayWait says whether AlertEvents may wait for an Incident of this name after the faults ended, if a condition shows it.
	// Default: for any.
	MayWait func(namespace, incident string) bool
	// MayStay says whether AlertEvents of a namespace may stay after the faults ended though their alerts are settled: the API
	// server does not let them be deleted or marked. Default: never.
	MayStay func(namespace string) bool

	// Remembers says whether a replica runs that has watched AlertEvents without a gap since that time: only such a one can tell
	// a second copy from a first one. Default: one always does.
	Remembers func(since time.Time) bool
	// RememberTime is how long replicas remember an AlertEvent that is gone. Default: for ever.
	RememberTime time.Duration

	// ClockError is how far the clocks of the replicas and of the API server differ. Default: not at all.
	ClockError time.Duration

	// LooseOrder says that replicas may see AlertEvents in another order than that of their commits.
	LooseOrder bool
	// LooseConditions says that a leader that has lost an AlertEvent may go on to write conditions over those of another one.
	LooseConditions bool
	// LostFrom and LostUntil are the time in which acknowledged alerts may be lost, because etcd was restored.
	LostFrom, LostUntil time.Time
	// DeletedNamespaces are namespaces that are deleted. Their alerts may be missing.
	DeletedNamespaces []string
}

// Moment is the time at which a history is checked.
type Moment struct {
	FaultsEnded time.Time
	Now         time.Time
}

// Findings are descriptions of what is wrong. Each begins with the letter of the guarantee that does not hold.
type Findings []string

// Add adds a finding.
func (f *Findings) Add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// incidentKey identifies all lives of an Incident.
type incidentKey struct{ namespace, name string }

func (k incidentKey) String() string { return k.namespace + "/" + k.name }

func compareKeys(a, b incidentKey) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}
