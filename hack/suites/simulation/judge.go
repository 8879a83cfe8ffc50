package simulation

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	network *network
	say     func(format string, args ...any)

	found oracle.Findings // by all of these but the history and the network
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
	var jump time.Duration // of the API server's clock: until a replica knows of it, pings have wrong times
	for _, o := range story.Operations {
		switch o := o.(type) {
		case deleteNamespace:
			options.DeletedNamespaces = append(options.DeletedNamespaces, tenantName(o.tenant))
		case setServerClock:
			options.ClockError = 2 * fold.MaxClockDifference
			jump = max(jump, o.ahead.Abs())
		}
	}
	j := &judge{history: oracle.NewHistory(options), pager: w.pager, story: story, network: w.network}
	j.mutes = &mutes{
		incidents: map[types.NamespacedName]*v1alpha1.Incident{}, integrations: map[types.NamespacedName]*v1alpha1.WebhookIntegration{},
		windows: map[types.NamespacedName]*v1alpha1.MaintenanceWindow{}, deleted: map[types.NamespacedName]bool{},
		holds: newHolds(story), losesWindows: story.loses("maintenancewindows"), found: &j.found,
	}
	j.counts = &summaries{
		told: map[string]*v1alpha1.IncidentSummary{}, changed: map[string]time.Time{}, notFolded: map[string]string{}, found: &j.found,
	}
	j.pings, j.pace = newPings(j, jump), newPace(&j.found)
	if w.pager != nil {
		w.pager.mu, w.pager.found, w.pager.other = &j.mu, &j.found, j.mutes.holds.other
	}
	return j
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
	now := newChange(c)
	if now == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.say != nil {
		j.say("- %s by %s: %s", c.Type, c.Client, c.JSON)
	}
	j.history.Commit(now.Commit)
	j.pings.commit(now)
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
	oracle.Commit
	key         types.NamespacedName
	client      string
	incident    *v1alpha1.Incident           // read-only: what is stored now, if it is one
	integration *v1alpha1.WebhookIntegration // read-only: the same, if it is one
}

// newChange returns nil for a write of what is none of Tocsin's.
func newChange(c apiserver.Commit) *change {
	resource, group, _ := strings.Cut(c.Resource, ".")
	if group != "tocsin.dev" {
		return nil
	}
	o := unstructured.Unstructured{Object: c.Object}
	now := &change{
		Commit: oracle.Commit{
			Resource: resource, Namespace: o.GetNamespace(), Name: o.GetName(), At: time.Now(),
			Created: c.Type == watch.Added, Deleted: c.Type == watch.Deleted,
			ByUser:   !isReplica(c.Client) && !strings.HasPrefix(c.Client, archiverPrefix),
			Restored: c.Client == backupTool && c.Type == watch.Added && !seemsNew(c.JSON),
		},
		key: client.ObjectKeyFromObject(&o), client: c.Client,
	}
	if !now.Deleted {
		now.Object = c.JSON
	}
	switch resource {
	case "alertevents": // no sender has sent that of a heartbeat
		now.ByUser = now.ByUser || now.Created && bytes.Contains(c.JSON, []byte(`\"dedupKey\":\"heartbeat/`))
	case "incidents":
		now.incident = decode[v1alpha1.Incident](now.Object)
	case "webhookintegrations":
		now.integration = decode[v1alpha1.WebhookIntegration](now.Object)
	}
	return now
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
	j.found.Add("P: a replica panicked: %v", value)
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
	return slices.Concat(j.history.Findings(), j.found, j.network.findings(), j.network.tracer.findings())
}

// check judges the whole run.
func (j *judge) check(records []*oracle.Record, faultsEnded time.Time) oracle.Findings {
	told := map[types.NamespacedName]toldOf{}
	if j.pager != nil {
		told = j.pager.told()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	found := j.history.Check(records, oracle.Moment{FaultsEnded: faultsEnded, Now: now})
	// A summary is counted from a cache, which learns of a lost change with the next one. The baseline counts none.
	if !j.story.breaksWatches() && !j.story.endsOlder() {
		j.counts.check(j.mutes, now, j.story.stays)
	}
	if j.pager != nil {
		j.pager.check(told, now, j.story.stays)
	}
	j.mutes.check(now, j.story.stays)
	j.pings.check(now, func(namespace string) bool { return j.story.MaxIncidents > 0 || j.story.stays(namespace) })
	return slices.Concat(found, j.found, j.network.tracer.findings())
}
