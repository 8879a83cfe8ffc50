package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// pollSilences keeps the silences of Tocsin in the Alertmanagers of an endpoint, and reads which silences cover Incidents,
// until ctx ends. Alertmanagers of one endpoint share their silences, so one that answers is enough.
func (e *endpoint) pollSilences(ctx context.Context) {
	synced := silencesSynced.WithLabelValues(e.name)
	synced.SetToCurrentTime()
	defer silencesSynced.DeleteLabelValues(e.name)
	failing := false
	sleep(ctx, silenceInterval, nil) // until there are senders
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := errNoClient
		for _, s := range e.senders.all() {
			now, ok := e.term.clock()
			t, client := s.configured()
			if !ok || client == nil || ctx.Err() != nil {
				continue
			}
			var answers bool
			if answers, err = e.reconcileSilences(ctx, t, client, now); answers {
				break
			}
		}
		if err == nil {
			synced.SetToCurrentTime()
		} else if !failing && ctx.Err() == nil {
			e.term.forwarder.log.Error(err, "Silences cannot be read or written", "alertmanager", e.name)
		}
		failing = err != nil
	}, silenceInterval)
}

// reconcileSilences does it once, by way of one Alertmanager. It reports whether that answers.
func (e *endpoint) reconcileSilences(
	ctx context.Context, t *target, client *httpClient, now time.Time,
) (answers bool, err error) {
	installation, err := e.term.forwarder.installation(ctx)
	if err != nil {
		return false, fmt.Errorf("reading the identity of this installation: %w", err)
	}
	plan := newSilencePlan(t, installation, now)
	conditioned, unread := e.want(ctx, plan)
	covers := &coverage{by: map[string][]incidentKey{}, longest: map[incidentKey]v1alpha1.Silence{}}
	uncovered := e.readSilenced(ctx, t, client, now, covers)
	if err := list(ctx, client, "silences", nil, func(s *silence) {
		plan.see(s)
		covers.see(s)
	}); isTocsins(err) {
		return true, unread
	} else if err != nil {
		return false, errors.Join(unread, uncovered, err)
	}
	if uncovered == nil {
		e.setCovered(covers.longest, plan.endedRequests(), conditioned)
	}
	// An alert that ended under a silence was not notified about: Alertmanager has to hear of its end again.
	unsilenced := func(key incidentKey) { e.term.notify(key, time.Time{}) }
	return true, errors.Join(unread, uncovered, carryOut(ctx, client, plan.finish(), unsilenced))
}

// isTocsins reports whether the answer to a request about silences is that of a Tocsin, which has none.
func isTocsins(err error) bool {
	var answer *answerError
	return errors.As(err, &answer) && answer.code == http.StatusNotFound && strings.Contains(answer.answer, "tag:tocsin.dev,")
}

// readSilenced reads which Incidents are silenced. Those that Tocsin does not have are none of its own.
func (e *endpoint) readSilenced(ctx context.Context, t *target, client *httpClient, now time.Time, covers *coverage) error {
	query := url.Values{"active": {"false"}, "inhibited": {"false"}, "unprocessed": {"false"}, "silenced": {"true"}}
	query.Add("filter", labelIncident+`!=""`)
	for name, value := range t.config.ExternalLabels {
		query.Add("filter", fmt.Sprintf("%s=%q", name, value))
	}
	return list(ctx, client, "alerts", query, func(a *silencedAlert) {
		key := incidentKey{a.Labels[labelNamespace], a.Labels[labelIncident]}
		if known, _, ok := e.term.index.get(key); ok && !known.isOver(now.Add(-t.config.endedWindow())) {
			covers.add(key, a.Status.SilencedBy)
		}
	})
}

// carryOut makes as many calls as a round may have. A call that fails does not keep the others from being made, unless nothing
// succeeds any more. It calls ended for each silence that it has ended, and returns the first error.
func carryOut(ctx context.Context, client *httpClient, calls []silenceCall, ended func(incidentKey)) (first error) {
	failures := 0
	for i := range calls[:min(len(calls), maxSilenceCalls)] {
		call := &calls[i]
		var err error
		if call.expire != "" {
			_, err = client.send(ctx, partTimeout, http.MethodDelete, "silence/"+url.PathEscape(call.expire), nil, nil, nil)
		} else {
			_, err = client.send(ctx, partTimeout, http.MethodPost, "silences", nil, call.set, nil)
		}
		if err == nil {
			if call.expire != "" {
				ended(call.key)
			}
			failures = 0
			continue
		}
		if first == nil {
			first = fmt.Errorf("a silence of the namespace %s: %w", call.key.namespace, err)
		}
		if failures++; failures >= maxSilenceFailures {
			break
		}
	}
	return first
}

// want adds the silences that Tocsin wants to a plan, and returns the Incidents that have one, as far as they know.
func (e *endpoint) want(ctx context.Context, plan *silencePlan) (conditioned []incidentKey, first error) {
	for _, key := range e.term.index.silenced() {
		incident, integration, err := e.term.incident(ctx, key)
		if err != nil {
			plan.unknown[key] = true
			first = cmp.Or(first, fmt.Errorf("reading the Incident %s/%s: %w", key.namespace, key.name, err))
		}
		if incident == nil {
			continue
		}
		plan.want(incident, integration)
		if hasSilence(&incident.Status) {
			conditioned = append(conditioned, key)
		}
	}
	return conditioned, first
}

// setCovered remembers which silences cover Incidents and which requests have ended, and announces each Incident of which that is
// news. The first time, everything is.
func (e *endpoint) setCovered(
	covered map[incidentKey]v1alpha1.Silence, ended map[incidentKey]time.Time, conditioned []incidentKey,
) {
	e.mu.Lock()
	before, endedBefore := e.covered, e.ended
	e.covered, e.ended = covered, ended
	e.mu.Unlock()
	changed := e.term.forwarder.changed.Load()
	if changed == nil {
		return
	}
	for key := range sets.KeySet(before).Union(sets.KeySet(covered)).Insert(conditioned...) {
		if before == nil || before[key] != covered[key] || !endedBefore[key].Equal(ended[key]) {
			(*changed)(types.NamespacedName{Namespace: key.namespace, Name: key.name})
		}
	}
}

// Silencing implements incident.Forwarder.
func (f *Forwarder) Silencing(incident types.NamespacedName) (silencing fold.Silencing) {
	t, key := f.term.Load(), incidentKey{incident.Namespace, incident.Name}
	if t == nil {
		return silencing
	}
	for _, e := range t.endpoints.all() {
		e.mu.Lock()
		silencing.Known = silencing.Known || e.covered != nil
		s, ok := e.covered[key]
		ended := e.ended[key]
		e.mu.Unlock()
		if ok && (silencing.Covering == nil || s.EndTime.After(silencing.Covering.EndTime.Time)) {
			silencing.Covering = &s
		}
		if ended.After(silencing.Ended) {
			silencing.Ended, silencing.EndedIn = ended, e.name
		}
	}
	return silencing
}

// Watch implements incident.Forwarder.
func (f *Forwarder) Watch(ctx context.Context, changed func(incident types.NamespacedName)) {
	f.changed.Store(&changed)
	<-ctx.Done()
	f.changed.CompareAndSwap(&changed, nil)
}
