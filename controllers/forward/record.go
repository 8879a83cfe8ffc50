package forward

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

// record is what a poster knows of its Alertmanager in this term, and of each Incident there.
type record struct {
	mu        sync.Mutex
	began     time.Time
	succeeded time.Time // when a request was last accepted; zero: never
	failed    time.Time // when Alertmanager last accepted nothing; zero: never
	failing   time.Time // since when it accepts nothing; zero: it does
	failure   cause     // of that
	rejection cause     // of the newest rejected Incident
	incidents map[types.NamespacedName]*postedState
	rejected  int // how many Incidents are rejected: most often none

	formerBytes int // how much addFormer has kept
}

// postedState is what a poster knows of an Incident in its Alertmanager.
type postedState struct {
	history  alerts.History    // what it has posted
	severity v1alpha1.Severity // with which the Incident fires, by what Alertmanager has accepted; empty: it does not
	opened   time.Time         // when the episode opened that it has accepted
	rejected time.Time         // since when Alertmanager accepts requests, but not those with this Incident; zero: it does
	alone    bool              // nor one with this Incident alone
}

// cause is why an Alertmanager does not accept requests, in a few words for a condition. They change only when they have not
// been true for failingAfter, so that answers that alternate cause no writes.
type cause struct {
	text string
	seen time.Time
}

// set takes in a failure.
func (c *cause) set(err error, now time.Time) {
	text := alertmanager.Describe(err)
	if c.text == text || now.Sub(c.seen) >= failingAfter {
		*c = cause{text, now}
	}
}

// change changes the state of an Incident. An empty state takes no memory.
func (r *record) change(key types.NamespacedName, change func(*postedState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.incidents[key]
	if s == nil {
		s = &postedState{}
	} else if !s.rejected.IsZero() {
		r.rejected--
	}
	change(s)
	if !s.rejected.IsZero() {
		r.rejected++
	}
	if s.history.IsEmpty() && s.severity == "" && s.rejected.IsZero() {
		delete(r.incidents, key)
	} else {
		r.incidents[key] = s
	}
}

// extend adds to what Alertmanager is to know of an Incident what was posted before and must now end.
func (r *record) extend(
	key types.NamespacedName, wanted alerts.Wanted, target *alerts.Target, now time.Time,
) (extended alerts.Wanted) {
	r.change(key, func(s *postedState) { extended = s.history.Extend(wanted, target, now) })
	return extended
}

// addFormer adds an alert of an Incident in Alertmanager, which an earlier leader may have posted.
func (r *record) addFormer(
	key types.NamespacedName, labels map[string]string, wanted alerts.Wanted, target *alerts.Target, now time.Time,
) {
	r.change(key, func(s *postedState) {
		if r.formerBytes < maxFormerBytes {
			r.formerBytes += s.history.AddFormer(labels, wanted, target, now)
		}
	})
}

// withFormer returns the Incidents with such alerts that were not taken for posted by this leader.
func (r *record) withFormer() (keys []types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.incidents {
		if s.history.HasFormer() {
			keys = append(keys, key)
		}
	}
	return keys
}

// dropFormer drops what has expired of that.
func (r *record) dropFormer() {
	for _, key := range r.withFormer() {
		r.change(key, func(s *postedState) { s.history.DropFormer() })
	}
}

// setFiring notes with which severity an Incident fires in Alertmanager, empty if it does not, and when its episode opened. It
// reports whether it fires with another severity, or in another episode, than before.
func (r *record) setFiring(key types.NamespacedName, severity v1alpha1.Severity, opened time.Time) (isNew bool) {
	r.change(key, func(s *postedState) {
		isNew = severity != "" && (s.severity != severity || !s.opened.Equal(opened))
		s.severity, s.opened, s.rejected, s.alone = severity, opened, time.Time{}, false
	})
	return isNew
}

// reject notes that Alertmanager accepts requests, but not those with an Incident, alone or with others. It returns since when.
func (r *record) reject(key types.NamespacedName, err error, alone bool) (since time.Time, isFirst bool) {
	now := time.Now()
	r.change(key, func(s *postedState) {
		r.rejection.set(err, now)
		isFirst = s.rejected.IsZero()
		s.rejected, s.alone = cmp.Or(s.rejected, now), s.alone || alone
		since = s.rejected
	})
	return since, isFirst
}

// succeed notes that Alertmanager has accepted a request.
func (r *record) succeed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.succeeded, r.failing = time.Now(), time.Time{}
}

// fail notes that Alertmanager accepted nothing.
func (r *record) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = time.Now()
	r.failing = cmp.Or(r.failing, r.failed)
	r.failure.set(err, r.failed)
}

// unfinished returns the Incidents of which something was posted that may have to end, and those that are rejected.
func (r *record) unfinished() (posted, rejected []types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.incidents {
		if s.history.IsPosted() || s.history.HasFormer() {
			posted = append(posted, key)
		}
		if !s.rejected.IsZero() {
			rejected = append(rejected, key)
		}
	}
	return posted, rejected
}

// isRejected reports whether an Incident is rejected, and whether it is when it is posted alone.
func (r *record) isRejected(key types.NamespacedName) (rejected, alone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.incidents[key]
	return s != nil && !s.rejected.IsZero(), s != nil && s.alone
}

// rejects reports whether Alertmanager has rejected one of some Incidents for failingAfter.
func (r *record) rejects(selects func(types.NamespacedName) bool, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rejected == 0 {
		return false
	}
	for key, s := range r.incidents {
		if !s.rejected.IsZero() && now.Sub(s.rejected) >= failingAfter && selects(key) {
			return true
		}
	}
	return false
}

// outcome is what has come of the posts about an Incident to an Alertmanager.
type outcome struct {
	severity v1alpha1.Severity // with which it fires there; empty if it does not
	opened   time.Time         // when the episode opened that fires there
	failure  string            // why Alertmanager accepts nothing, or not this Incident; empty: it does, or has not failed for long
	rejected bool              // it has not accepted this Incident for failingAfter
}

// outcomeOf returns the outcome for an Incident.
func (r *record) outcomeOf(key types.NamespacedName, now time.Time) (o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rejected := time.Time{}
	if s := r.incidents[key]; s != nil {
		o.severity, o.opened, rejected = s.severity, s.opened, s.rejected
	}
	switch {
	case !rejected.IsZero() && now.Sub(rejected) >= unpostedAfter:
		o.failure = r.rejection.text
	case !r.failing.IsZero() && now.Sub(r.failing) >= unpostedAfter:
		o.failure = r.failure.text
	}
	o.rejected = !rejected.IsZero() && now.Sub(rejected) >= failingAfter
	return o
}

// causes returns why Alertmanager accepts nothing, and why it does not accept some Incidents.
func (r *record) causes() (failure, rejection string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	failure, rejection = r.failure.text, r.rejection.text
	if !r.failed.After(r.succeeded) {
		failure = rejection // it accepts empty requests
	}
	return failure, rejection
}

// health reports whether Alertmanager accepts alerts. It is not known until the first request has been accepted or requests have
// failed for failingAfter. One that accepts only empty requests fails as well, see poster.post.
func (r *record) health(now time.Time) (healthy, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := cmp.Or(r.succeeded, r.began)
	failing := r.failed.After(r.succeeded) && now.Sub(since) >= failingAfter ||
		r.rejected > 0 && now.Sub(since) >= failingAfter+alerts.MaxRoundInterval
	return !failing, failing || !r.succeeded.IsZero()
}

// untold are Incidents that people are not told of.
type untold struct{ namespace, reason string }

// reasonPending is the reason of an Incident without status.forwarding.
const reasonPending = "Pending"

// refolder has Incidents folded whose status does not say what is known about their forwarding.
type refolder struct {
	term   *term
	behind *incidentQueue // the Incidents whose status may be behind
	untold map[untold]int // what the metric says
}

func newRefolder(t *term) *refolder { return &refolder{term: t, behind: newIncidentQueue()} }

// add adds an Incident of which something is news.
func (r *refolder) add(key types.NamespacedName) { r.behind.add(key, time.Time{}) }

// run has Incidents folded until ctx ends. Namespaces take turns, at a rate that a storm does not raise.
func (r *refolder) run(ctx context.Context) {
	defer r.setUntold(nil)
	due := time.Now()
	for ctx.Err() == nil {
		if !time.Now().Before(due) {
			r.setUntold(r.compareAll())
			due = time.Now().Add(reportInterval)
		}
		key, _, ok := r.behind.next()
		if !ok {
			sleep(ctx, time.Until(due), r.behind.signal)
			continue
		}
		if incident, next := r.compare(key, time.Now()); statusIsBehind(incident, next) && r.term.forwarder.refold(key) {
			sleep(ctx, time.Second/reportRate, nil)
		}
	}
}

// compareAll finds the open Incidents whose status is behind, and returns those of severity critical that people are not told of.
func (r *refolder) compareAll() map[untold]int {
	found, now := map[untold]int{}, time.Now()
	for _, key := range r.term.incidents.open() {
		incident, next := r.compare(key, now)
		if statusIsBehind(incident, next) {
			r.add(key)
		}
		switch {
		case incident == nil || incident.Status.Alert.Severity != v1alpha1.SeverityCritical:
		case next == nil:
			found[untold{key.Namespace, reasonPending}]++
		case next.Reason != v1alpha1.ForwardingPosted:
			found[untold{key.Namespace, string(next.Reason)}]++
		}
	}
	return found
}

// compare returns an Incident, nil if it is not open, and what its status is to say about its forwarding.
func (r *refolder) compare(key types.NamespacedName, now time.Time) (*v1alpha1.Incident, *v1alpha1.Forwarding) {
	known, integration, _ := r.term.incidents.get(key)
	if known.unresolved == nil {
		return nil, nil
	}
	of := r.term.forwarding(known.unresolved, integration, now)
	return known.unresolved, fold.ForwardingOf(&known.unresolved.Status, of, r.term.forwarder.apiTime())
}

// statusIsBehind reports whether the status of an Incident does not say what it is to say.
func statusIsBehind(incident *v1alpha1.Incident, next *v1alpha1.Forwarding) bool {
	return next != nil && next != incident.Status.Forwarding
}

// setUntold sets the metric.
func (r *refolder) setUntold(now map[untold]int) {
	for of, n := range now {
		criticalUntold.WithLabelValues(of.namespace, of.reason).Set(float64(n))
	}
	for of := range r.untold {
		if now[of] == 0 {
			criticalUntold.DeleteLabelValues(of.namespace, of.reason)
		}
	}
	r.untold = now
}

// Forwarding implements incident.Forwarder. Nothing is known of an Incident that is not open.
func (f *Forwarder) Forwarding(incident types.NamespacedName) fold.KnownForwarding {
	t := f.term.Load()
	if t == nil {
		return fold.KnownForwarding{}
	}
	known, integration, _ := t.incidents.get(incident)
	if known.unresolved == nil {
		return fold.KnownForwarding{}
	}
	return t.forwarding(known.unresolved, integration, time.Now())
}

// forwarding returns what is known about the forwarding of an open Incident. The integration may be nil.
func (t *term) forwarding(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, now time.Time,
) fold.KnownForwarding {
	file := t.forwarder.file.Load()
	switch {
	case integration == nil:
		return fold.KnownForwarding{}
	case file.config.IsEmpty() && file.err != nil:
		return fold.KnownForwarding{Reason: v1alpha1.ForwardingFailing, Message: messageInvalidConfig + oneLine(file.err) + "."}
	}
	severity := fold.ForwardedSeverity(&incident.Status)
	muted := fold.MutedBy(&incident.Status)
	if muted != nil && (muted.Until.IsZero() || t.forwarder.apiTime().Before(muted.Until)) {
		severity = muted.Severity
	}
	if severity == "" { // muted since it opened: no Alertmanager has it
		return fold.KnownForwarding{}
	}
	r := t.results(incident, integration, severity, now)
	before := incident.Status.Forwarding
	switch {
	case r.accepted > 0:
		return fold.KnownForwarding{
			Reason: v1alpha1.ForwardingPosted, Severity: severity, Alertmanagers: r.accepted, Opened: incident.Status.OpenedTime.OrZero(),
		}
	case r.isPending:
		return fold.KnownForwarding{}
	case len(r.causes) == 0:
		return fold.KnownForwarding{Reason: r.exclusion.Status, Message: r.exclusion.Message}
	case before != nil && before.Severity == severity && !r.isRejected: // as posted by the last leader, whose requests are not known
		return fold.KnownForwarding{}
	}
	return fold.KnownForwarding{Reason: v1alpha1.ForwardingFailing, Message: messageAllFailing + listed(r.causes) + "."}
}

// results are what the Alertmanagers have done with an Incident.
type results struct {
	exclusion  alerts.Exclusion // why it is not posted to those to which it is not
	accepted   int64            // how many have accepted its current episode
	isPending  bool             // one has not answered yet
	isRejected bool             // one has not accepted it for failingAfter
	causes     sets.Set[string] // why the others do not accept it
}

// results returns the results of posting an Incident with a severity.
func (t *term) results(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, severity v1alpha1.Severity, now time.Time,
) results {
	r, key := results{causes: sets.New[string]()}, types.NamespacedName{Namespace: incident.Namespace, Name: incident.Name}
	for _, e := range t.endpoints.all() {
		if exclusion := e.target.Load().Excludes(incident, integration, severity); exclusion != nil {
			if r.exclusion.Status == "" || exclusion.Status == v1alpha1.ForwardingFiltered {
				r.exclusion = *exclusion
			}
			continue
		}
		accepted, isPending, cause := false, false, "" // by one of its addresses
		for _, p := range e.posters.all() {
			o := p.record.outcomeOf(key, now)
			// One that did not accept the end of the last episode still has that, and notifies nobody of the current one.
			accepted = accepted || o.severity == severity && o.opened.Equal(incident.Status.OpenedTime.OrZero())
			isPending = isPending || o.failure == ""
			r.isRejected = r.isRejected || o.rejected
			cause = o.failure
		}
		switch {
		case accepted:
			r.accepted++
		case isPending || cause == "":
			r.isPending = true
		default:
			r.causes.Insert(e.name + " (" + cause + ")")
		}
	}
	return r
}
