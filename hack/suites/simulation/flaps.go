package simulation

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// In a story with KeepFiring, an Incident flaps that opens more than once in flapPeriod, and its ends are kept back for keptFor.
const (
	flapPeriod = 10 * time.Minute
	keptFor    = time.Minute

	// tellTime is how long after its time an end is told at most: a round comes each minute, and a new leader needs some seconds.
	tellTime = 90 * time.Second
)

// firesOn reports whether the end of an episode of an Incident is, or was, kept back.
func firesOn(status *v1alpha1.IncidentStatus) bool {
	return status.Flapping != nil && status.Flapping.KeptFiring != nil
}

// flaps is what the commits tell of an Incident.
type flaps struct {
	uid      types.UID
	episode  int64
	opened   []time.Time // of the episodes in a row that are known
	isOpen   bool
	resolved time.Time
	due      time.Time // before which the end of the last episode is not told
	ended    bool      // a user may have said that it is over
}

// pager judges, in a story with KeepFiring, when an Alertmanager is told that an Incident has ended.
type pager struct {
	*fakeAlertmanager
	calm disturbances // by everything but the deaths of replicas

	mu    *sync.Mutex                     // the judge's, which holds it for commit and check
	none  bool                            // the clocks of the story are wrong
	other map[string]bool                 // see holds
	known map[types.NamespacedName]*flaps // by commits
	begun map[types.NamespacedName]int    // how often an Incident began to fire
	ended map[types.NamespacedName]int    // how often the Alertmanager was told that it ended
	found *oracle.Findings
}

// newPager has an Alertmanager judged.
func newPager(s *Story, a *fakeAlertmanager) *pager {
	p := &pager{
		fakeAlertmanager: a, none: s.hasClocks(), known: map[types.NamespacedName]*flaps{},
		begun: map[types.NamespacedName]int{}, ended: map[types.NamespacedName]int{},
	}
	a.changed = p.judgePost
	return p
}

// note notes an operation that begins now. Whoever leads, ends are told neither before their time nor not at all.
func (p *pager) note(o operation) {
	switch o.(type) {
	case kill, terminate, start:
	default:
		p.calm.note(o)
	}
}

// judgePost judges what a post has changed.
func (p *pager) judgePost(before, after map[types.NamespacedName]toldOf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range after {
		if before[key].firing == 0 {
			p.begun[key]++
		}
	}
	for key := range before {
		if after[key].firing == 0 {
			p.ended[key]++
			p.judgeEnd(key, time.Now())
		}
	}
}

// judgeEnd judges that the end of an Incident is told now.
func (p *pager) judgeEnd(key types.NamespacedName, now time.Time) {
	f := p.known[key]
	if f == nil || p.none || p.other[key.Namespace] || !p.calm.isCalm(key.Namespace, now.Add(-time.Second), now) {
		return
	}
	switch {
	case !f.isOpen && now.Add(holdError).Before(f.due):
		p.found.Add("K: Alertmanager is told of the end of %s, which is to be kept back until %s", key, f.due)
	case f.isOpen && f.opened[len(f.opened)-1].Add(holdError).Before(f.due):
		p.found.Add("K: Alertmanager is told of an end of %s, which is open and has fired on", key)
	}
}

func (p *pager) commit(c *change) {
	switch c.Resource {
	case "alertevents":
		if event := decode[v1alpha1.AlertEvent](c.Object); event != nil && event.Spec.Report != nil {
			if f := p.known[types.NamespacedName{Namespace: c.Namespace, Name: event.Spec.Report.IncidentName}]; f != nil {
				f.ended = f.ended || event.Spec.Report.Status == v1alpha1.AlertResolved
			}
		}
	case "incidents":
		p.follow(c.key, c.incident)
	}
}

func (p *pager) follow(key types.NamespacedName, incident *v1alpha1.Incident) {
	if incident == nil || incident.Status.Episode == nil || incident.Status.OpenedTime == nil {
		delete(p.known, key)
		return
	}
	f, status := p.known[key], &incident.Status
	if f == nil || f.uid != incident.UID {
		f = &flaps{uid: incident.UID}
		p.known[key] = f
	}
	isNew := status.Episode.Number != f.episode
	if isNew {
		if status.Episode.Number != f.episode+1 { // a fold of several episodes tells only the last one
			f.opened = nil
		}
		f.episode, f.opened = status.Episode.Number, append(f.opened, status.OpenedTime.Time)
	}
	wasOpen := f.isOpen || isNew
	f.isOpen = status.State == v1alpha1.IncidentOpen
	if !f.isOpen && wasOpen && status.ResolvedTime != nil {
		f.end(status)
	}
}

// end notes the end of an episode.
func (f *flaps) end(status *v1alpha1.IncidentStatus) {
	until, n := f.due, len(f.opened) // it flaps while its end is kept back, too
	if n > 1 {
		until = latest(until, f.opened[n-2].Add(flapPeriod))
	}
	f.resolved = status.ResolvedTime.Time
	byUser := status.Resolution != nil && status.Resolution.Reason == v1alpha1.ReasonResolvedByUser || f.ended
	f.due, f.ended = time.Time{}, false
	if f.resolved.Add(holdError).Before(until) && !byUser {
		f.due = f.resolved.Add(keptFor)
	}
}

// check judges the end of a story: what has ended is told. Where a fault stays, it may not be.
func (p *pager) check(told map[types.NamespacedName]toldOf, now time.Time, stays func(namespace string) bool) {
	for key, f := range p.known {
		due := latest(f.resolved, f.due)
		if !f.isOpen && now.Sub(due) > tellTime && !p.none && !p.other[key.Namespace] && !stays(key.Namespace) && told[key].firing > 0 {
			p.found.Add("K: %s ended at %s, and its end is due since %s, but it fires", key, f.resolved, due)
		}
	}
}

// flappingKeys draws keys that open and end again and again, while replicas die.
func (d *drawer) flappingKeys(t *rapid.T, s *Story) []operation {
	s.KeepFiring, s.Elect, s.MaxIncidents, s.Forbidden = true, true, 0, false
	operations := []operation{wait{40 * time.Second}}
	for range rapid.IntRange(8, 40).Draw(t, "posts") {
		alerts := []alert{{
			key: rapid.IntRange(0, 1).Draw(t, "key"), status: oneOf(t, "status", "firing", "resolved"),
			severity: oneOf(t, "severity", severities...),
		}}
		operations = append(operations,
			post{tenant: 0, to: d.replica(t), times: 1, alerts: alerts},
			wait{oneOf(t, "wait", 5*time.Second, time.Second, 20*time.Second, keptFor-2*time.Second, keptFor+5*time.Second)})
		if rapid.IntRange(0, 5).Draw(t, "death") == 0 {
			r := d.replica(t)
			operations = append(operations, kill{r}, wait{8 * time.Second}, start{r})
		}
	}
	return operations
}
