package forward

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// pollSilences keeps the silences of Tocsin in the Alertmanagers of an endpoint, and reads which silences cover Incidents,
// until ctx ends. Alertmanagers of one endpoint share their silences, so one that answers is enough.
func (e *endpoint) pollSilences(ctx context.Context, changed func(incidentKey)) {
	failing := false
	for ctx.Err() == nil {
		sleep(ctx, silenceInterval, nil)
		now, ok := e.clock()
		t, senders := e.current()
		err := errNoClient
		for _, s := range senders {
			_, client := s.configured()
			if !ok || client == nil || ctx.Err() != nil {
				continue
			}
			if err = e.reconcileSilences(ctx, t, client, now, changed); err == nil {
				break
			}
		}
		if err != nil && !failing && ctx.Err() == nil {
			e.log.Error(err, "Silences cannot be read or written", "alertmanager", e.name)
		}
		failing = err != nil
	}
}

// reconcileSilences does it once, by way of one Alertmanager.
func (e *endpoint) reconcileSilences(
	ctx context.Context, t *target, client *httpClient, now time.Time, changed func(incidentKey),
) error {
	installation, err := e.store.installation(ctx)
	if err != nil {
		return fmt.Errorf("reading the identity of this installation: %w", err)
	}
	var silences []silence
	var alerts []silencedAlert
	query := url.Values{"active": {"false"}, "inhibited": {"false"}, "unprocessed": {"false"}, "silenced": {"true"}}
	query.Add("filter", labelIncident+`!=""`)
	for name, value := range t.config.ExternalLabels {
		query.Add("filter", fmt.Sprintf("%s=%q", name, value))
	}
	if err := client.call(ctx, http.MethodGet, "silences", nil, nil, &silences); err != nil {
		return err
	}
	if err := client.call(ctx, http.MethodGet, "alerts", query, nil, &alerts); err != nil {
		return err
	}
	wanted, conditioned, err := e.wantedSilences(ctx, t, installation, now)
	if err != nil {
		return err
	}
	e.setCovered(covering(alerts, silences), conditioned, changed)

	plan, calls := planSilences(silences, wanted, t, installation, now), 0
	for _, id := range plan.expire[:min(len(plan.expire), maxSilenceCalls)] {
		calls++
		if err := client.call(ctx, http.MethodDelete, "silence/"+url.PathEscape(id), nil, nil, nil); err != nil {
			return err
		}
	}
	for _, s := range plan.set[:min(len(plan.set), maxSilenceCalls-calls)] {
		if err := client.call(ctx, http.MethodPost, "silences", nil, s, nil); err != nil {
			return err
		}
	}
	return nil
}

// wantedSilences returns the silences that Tocsin wants, by marker, and the Incidents with a condition about silences.
func (e *endpoint) wantedSilences(
	ctx context.Context, t *target, installation string, now time.Time,
) (map[string]silence, []incidentKey, error) {
	wanted := map[string]silence{}
	var conditioned []incidentKey
	for _, key := range e.store.silenced() {
		incident, integration, err := e.store.incident(ctx, key, now)
		if err != nil {
			return nil, nil, err
		}
		if incident == nil {
			continue
		}
		maps.Copy(wanted, silencesOf(incident, integration, t, installation, now))
		if hasSilence(&incident.Status) {
			conditioned = append(conditioned, key)
		}
	}
	return wanted, conditioned, nil
}

// setCovered remembers which silences cover Incidents, and calls changed for each Incident of which that is news. The first
// time, everything is.
func (e *endpoint) setCovered(covered map[incidentKey]fold.Silence, conditioned []incidentKey, changed func(incidentKey)) {
	e.mu.Lock()
	before := e.covered
	e.covered = covered
	e.mu.Unlock()
	if before == nil {
		for _, key := range conditioned {
			changed(key)
		}
	}
	for key, s := range covered {
		if before[key] != s {
			changed(key)
		}
	}
	for key := range before {
		if _, still := covered[key]; !still {
			changed(key)
		}
	}
}

// Silence implements controllers.Silences.
func (f *Forwarder) Silence(incident types.NamespacedName) (covering *fold.Silence, known bool) {
	t := f.term.Load()
	if t == nil {
		return nil, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.endpoints {
		e.mu.Lock()
		known = known || e.covered != nil
		s, ok := e.covered[incidentKey{incident.Namespace, incident.Name}]
		if ok && (covering == nil || s.Until.After(covering.Until)) {
			covering = &s
		}
		e.mu.Unlock()
	}
	return covering, known
}

// WatchSilences implements controllers.Silences.
func (f *Forwarder) WatchSilences(ctx context.Context, changed func(incident types.NamespacedName)) {
	f.silenceChanged.Store(&changed)
	<-ctx.Done()
	f.silenceChanged.CompareAndSwap(&changed, nil)
}

// announceSilence tells the watcher about an Incident whose silence changed.
func (f *Forwarder) announceSilence(key incidentKey) {
	if changed := f.silenceChanged.Load(); changed != nil {
		(*changed)(types.NamespacedName{Namespace: key.namespace, Name: key.name})
	}
}
