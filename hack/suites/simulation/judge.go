package simulation

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// healTime is how long after the end of all faults everything is folded and released.
const healTime = 60 * time.Second

// shareTime is how much later than the first request of an AlertEvent the last one may come: all count as received with the
// first.
const shareTime = 5 * time.Second

// rememberTime is how long replicas remember an AlertEvent that is gone, as replayWindow in package replica, and a second less:
// their watches show it later.
const rememberTime = 2*time.Minute - time.Second

// judge tells the oracle what was committed.
type judge struct {
	mu      sync.Mutex
	history *oracle.History
	mutes   *mutes
	counts  *summaries
	pings   *pings
	pager   *pager // nil: no end is kept back
	story   *Story
	pace    pace
	panics  oracle.Findings // that a replica has recovered from
	network *network
	say     func(format string, args ...any)
}

func newJudge(story *Story, w *world) *judge {
	options := oracle.Options{
		HealTime: healTime, KeyedLinger: 10 * time.Minute, ClockError: shareTime, ReportTime: reportTime,
		MayWait: story.mayWait, MayStay: story.stays, Remembers: w.remembers, RememberTime: rememberTime,
		FoldTime: foldTime, Undisturbed: w.calm.isCalm,
	}
	options.LooseOrder = story.breaksWatches() // replicas see a lost AlertEvent when they list again, after newer ones
	// Without a lease, the others end the canaries of a replica whose watch has lost an AlertEvent, so it does not list again.
	options.LooseConditions = !story.Elect && story.breaksWatches()
	for _, o := range story.Operations {
		switch o := o.(type) {
		case deleteNamespace:
			options.DeletedNamespaces = append(options.DeletedNamespaces, tenantName(o.tenant))
		case setServerClock:
			options.ClockError = 2 * fold.MaxClockDifference
		}
	}
	mutes := &mutes{
		incidents: map[types.NamespacedName]*v1alpha1.Incident{}, integrations: map[types.NamespacedName]*v1alpha1.WebhookIntegration{},
		windows: map[types.NamespacedName]*v1alpha1.MaintenanceWindow{}, deleted: map[types.NamespacedName]bool{},
		holds: newHolds(story), losesWindows: story.losesWindows(),
	}
	counts := &summaries{
		told: map[string]*v1alpha1.IncidentSummary{}, changed: map[string]time.Time{}, notFolded: map[string]string{},
	}
	return &judge{
		history: oracle.NewHistory(options), mutes: mutes, counts: counts, pings: newPings(), pager: w.pager, story: story,
		pace: newPace(), network: w.network,
	}
}

// mayWait says whether alerts of an Incident may wait after all faults ended.
func (s *Story) mayWait(namespace, incident string) bool {
	return s.MaxIncidents > 0 || s.Forbidden && incident == v1alpha1.IncidentName(integrationName, keyName(0)) || s.stays(namespace)
}

// stays says whether a fault of a namespace stays to the end.
func (s *Story) stays(namespace string) bool {
	return slices.ContainsFunc(s.Operations, func(o operation) bool {
		switch o := o.(type) {
		case breakWebhook:
			return o.d == 0 && tenantName(o.tenant) == namespace
		case quota:
			return o.d == 0 && tenantName(o.tenant) == namespace
		default:
			return false
		}
	})
}

// commit is for apiserver.Server.OnCommit.
func (j *judge) commit(c apiserver.Commit) {
	resource, group, _ := strings.Cut(c.Resource, ".")
	if group != "tocsin.dev" {
		return
	}
	metadata, _ := c.Object["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	name, _ := metadata["name"].(string)
	fact := oracle.Commit{
		Resource: resource, Namespace: namespace, Name: name, At: time.Now(),
		Created: c.Type == watch.Added, Deleted: c.Type == watch.Deleted,
		ByUser:   !isReplica(c.Client) && !strings.HasPrefix(c.Client, archiverPrefix),
		Restored: c.Client == backupTool && c.Type == watch.Added && !seemsNew(c.JSON),
	}
	if !fact.Deleted {
		fact.Object = c.JSON
	}
	if resource == "alertevents" && fact.Created && bytes.Contains(c.JSON, []byte(`\"dedupKey\":\"heartbeat/`)) {
		fact.ByUser = true // no sender has sent it
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.say != nil {
		j.say("- %s by %s: %s", c.Type, c.Client, c.JSON)
	}
	j.history.Commit(fact)
	now := newChange(resource, types.NamespacedName{Namespace: namespace, Name: name}, c.Client, fact.Object)
	j.pings.commit(now, fact.Created)
	j.counts.commit(now, j.mutes.incidents[now.key])
	j.mutes.commit(now)
	if !j.story.Older { // a leader of the baseline writes over what one of the present writes, as fast as it can
		j.pace.commit(now)
	}
	if j.pager != nil {
		j.pager.commit(now)
	}
}

// change is a write, decoded once for all that judge it.
type change struct {
	resource    string
	key         types.NamespacedName
	client      string
	object      []byte                       // what is stored now; nil: it was deleted
	incident    *v1alpha1.Incident           // read-only: the same, if it is one
	integration *v1alpha1.WebhookIntegration // read-only: the same, if it is one
}

func newChange(resource string, key types.NamespacedName, client string, object []byte) *change {
	c := &change{resource: resource, key: key, client: client, object: object}
	switch resource {
	case "incidents":
		c.incident = decode[v1alpha1.Incident](object)
	case "webhookintegrations":
		c.integration = decode[v1alpha1.WebhookIntegration](object)
	}
	return c
}

// isReplica says whether a client is a replica.
func isReplica(client string) bool { return strings.HasPrefix(client, "replica-") }

// seemsNew says whether a restored AlertEvent cannot be told from a new one: it has no label of the backup tool, and a clock that
// was wrong gave it a time of receipt within the last minute.
func seemsNew(object []byte) bool {
	event := decode[v1alpha1.AlertEvent](object)
	return event.Labels[v1alpha1.RestoreLabel] == "" &&
		event.CreationTimestamp.Sub(event.Spec.ReceivedTime.Time) <= time.Minute
}

// panicked notes a panic from which a replica recovers: what it was about is not done.
func (j *judge) panicked(value any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.panics.Add("P: a replica panicked: %v", value)
}

// watchNoMore has no Watcher told of what follows.
func (j *judge) watchNoMore() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mutes.written, j.pings.missed = nil, nil
}

// findings are those of the commits.
func (j *judge) findings() oracle.Findings {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := slices.Concat(j.history.Findings(), j.panics, j.mutes.found, j.pings.found, j.network.findings(),
		j.pace.found, j.network.tracer.findings())
	if j.pager != nil {
		found = append(found, j.pager.findings()...)
	}
	return found
}

// check judges the whole run.
func (j *judge) check(records []*oracle.Record, faultsEnded time.Time) oracle.Findings {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := j.history.Check(records, oracle.Moment{FaultsEnded: faultsEnded, Now: time.Now()})
	// A summary is counted from a cache, which learns of a lost change with the next one. The baseline counts none.
	if !j.story.breaksWatches() && !j.story.endsOlder() {
		found = append(found, j.counts.check(j.mutes.recounts(), time.Now(), j.story.stays)...)
	}
	if j.pager != nil {
		found = append(found, j.pager.check(time.Now(), j.story.stays)...)
	}
	mayMiss := func(namespace string) bool { return j.story.MaxIncidents > 0 || j.story.stays(namespace) }
	return slices.Concat(found, j.panics, j.pace.found, j.network.tracer.findings(),
		j.mutes.check(time.Now(), j.story.stays), j.pings.check(time.Now(), mayMiss))
}
