package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
)

// ledgerOfTruth is what etcd's history says of the tenants.
type ledgerOfTruth struct {
	alerts    map[incidentKey][]map[string]any // committed alerts in commit order, second copies left out
	ids       map[string]string                // seq of every committed id
	seqs      map[string]string                // id of every committed seq
	copies    int                              // alerts that were committed a second time
	incidents map[incidentKey]*storedIncident  // as they are now
	deleted   int                              // deletions of Incidents
	events    map[string]storedEvent           // AlertEvents that exist now, by namespace/name
	silences  map[incidentKey][]silence        // Incidents that were resolved for silence, in order
}

// receivedField is where an alert has the time.Time at which it counts as received; that of its AlertEvent.
const receivedField = "#received"

type incidentKey struct{ namespace, name string }

type storedEvent struct {
	Metadata struct {
		UID     string    `json:"uid"`
		Created time.Time `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		IntegrationName string           `json:"integrationName"`
		Received        time.Time        `json:"receivedTime"`
		Alerts          []map[string]any `json:"alerts"`
		PackedAlerts    []byte           `json:"packedAlerts"`
	} `json:"spec"`
}

// unpack puts packed alerts where the others are.
func (e *storedEvent) unpack() error {
	if len(e.Spec.PackedAlerts) == 0 {
		return nil
	}
	r, err := gzip.NewReader(bytes.NewReader(e.Spec.PackedAlerts))
	if err != nil {
		return fmt.Errorf("unpacking alerts: %w", err)
	}
	return json.NewDecoder(r).Decode(&e.Spec.Alerts)
}

// readTruth reads the history since the revision.
func (r *rig) readTruth(ctx context.Context, tenants []tenant, since int64) (*ledgerOfTruth, error) {
	history, err := r.history.since(ctx, since)
	if err != nil {
		return nil, fmt.Errorf("reading etcd's history: %w", err)
	}
	truth := &ledgerOfTruth{
		alerts:    map[incidentKey][]map[string]any{},
		ids:       map[string]string{},
		seqs:      map[string]string{},
		incidents: map[incidentKey]*storedIncident{},
		events:    map[string]storedEvent{},
		silences:  map[incidentKey][]silence{},
	}
	mine := map[string]bool{}
	for _, t := range tenants {
		mine[t.namespace] = true
	}
	for _, entry := range history {
		if !mine[entry.Namespace] {
			continue
		}
		if err := truth.enter(entry); err != nil {
			return nil, err
		}
	}
	return truth, nil
}

func (l *ledgerOfTruth) enter(entry committed) error {
	key := incidentKey{entry.Namespace, entry.Name}
	switch {
	case entry.Resource == "incidents" && entry.Deleted:
		l.deleted++
		delete(l.incidents, key)
	case entry.Resource == "incidents":
		stored := &storedIncident{}
		if err := json.Unmarshal(entry.Value, stored); err != nil {
			return err
		}
		if before := l.incidents[key]; stored.fellSilent() && (before == nil || !before.fellSilent()) {
			l.silences[key] = append(l.silences[key], silence{stored.Status.AlertCount, stored.Status.Resolved})
		}
		l.incidents[key] = stored
	case entry.Resource == "alertevents" && entry.Deleted:
		delete(l.events, entry.Namespace+"/"+entry.Name)
	case entry.Resource == "alertevents":
		var event storedEvent
		if err := json.Unmarshal(entry.Value, &event); err != nil {
			return err
		}
		if err := event.unpack(); err != nil {
			return err
		}
		l.events[entry.Namespace+"/"+entry.Name] = event
		if entry.Created {
			l.enterAlerts(entry.Namespace, event)
		}
	}
	return nil
}

func (l *ledgerOfTruth) enterAlerts(namespace string, event storedEvent) {
	for _, alert := range event.Spec.Alerts {
		id, _ := alert["id"].(string)
		if _, ok := l.ids[id]; ok {
			l.copies++
			continue
		}
		labels, _ := alert["labels"].(map[string]any)
		seq, _ := labels["seq"].(string)
		l.ids[id] = seq
		alert[receivedField] = event.received()
		dedupKey, _ := alert["dedupKey"].(string)
		key := incidentKey{namespace, v1alpha1.IncidentName(event.Spec.IntegrationName, dedupKey)}
		l.alerts[key] = append(l.alerts[key], alert)
	}
}

// findings are what a check found wrong, each beginning with the letter of the invariant.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// checkOptions leave out what a scenario makes meaningless.
type checkOptions struct {
	incidentsDeleted bool // Incidents were deleted: what was counted is gone with them
	looseOrder       bool // alerts may be seen in another order than they were committed in
	restored         bool // what was acknowledged while run.lost says so may be gone
	namespaceDeleted bool // the second tenant's namespace is gone
}

// check compares the records of the senders, etcd's history and the Incidents.
//
//	A  acknowledged ⊆ folded ⊆ acknowledged ∪ unknown, each once
//	B  state, episodes and content are those of the model
//	C  no AlertEvent is left
//	D  what was refused was not stored
//	F  nothing crossed a namespace
func check(truth *ledgerOfTruth, t *traffic, options checkOptions) findings {
	t.mu.Lock()
	defer t.mu.Unlock()
	var f findings
	truth.checkStored(t.records, &f)
	truth.checkAcknowledged(t.records, func(rec *record) bool {
		return options.restored && rec.ended.After(t.lostFrom) && rec.began.Before(t.lostUntil)
	}, &f)
	for key, alerts := range truth.alerts {
		if options.namespaceDeleted && key.namespace == t.tenants[1].namespace {
			continue
		}
		truth.checkIncident(key, alerts, options, &f)
	}
	for key, incident := range truth.incidents {
		if len(truth.alerts[key]) == 0 {
			f.add("F: %s/%s has %d alerts, and none were stored for it", key.namespace, key.name, incident.Status.AlertCount)
		}
	}
	truth.checkSilences(t, &f)
	truth.checkReleased(&f)
	slices.Sort(f)
	return f
}

// checkStored compares each stored alert with the request it came from.
func (l *ledgerOfTruth) checkStored(records map[string]*record, f *findings) {
	for key, alerts := range l.alerts {
		for _, alert := range alerts {
			id, _ := alert["id"].(string)
			seq := l.ids[id]
			rec := records[seq]
			if rec == nil {
				f.add("F: alert %s in %s was sent by nobody", id, key.namespace)
				continue
			}
			if first, ok := l.seqs[seq]; ok {
				f.add("A: request %s is stored twice, as %s and %s", seq, first, id)
			}
			l.seqs[seq] = id
			if rec.tenant.namespace != key.namespace {
				f.add("F: request %s of %s is stored in %s", seq, rec.tenant.namespace, key.namespace)
			}
			if alert["dedupKey"] != rec.key || alert["status"] != rec.status {
				f.add("A: request %s is stored as %v %v, was %s %s", seq, alert["status"], alert["dedupKey"], rec.status, rec.key)
			}
			if rec.outcome == loadgen.Refused {
				f.add("D: request %s was refused and is stored", seq)
			}
		}
	}
}

func (l *ledgerOfTruth) checkAcknowledged(records map[string]*record, forgiven func(*record) bool, f *findings) {
	for seq, rec := range records {
		if rec.outcome != loadgen.Acknowledged || forgiven(rec) {
			continue
		}
		if _, ok := l.seqs[seq]; !ok {
			f.add("A: request %s (%s %s) was acknowledged and is not stored", seq, rec.status, rec.key)
		}
		for _, id := range rec.ids {
			if l.ids[id] != seq {
				f.add("A: request %s was acknowledged with the id %s, which is %q", seq, id, l.ids[id])
			}
		}
	}
}

// checkIncident compares an Incident with the model. The digest says which alerts were folded, each once.
func (l *ledgerOfTruth) checkIncident(key incidentKey, alerts []map[string]any, options checkOptions, f *findings) {
	name := fmt.Sprintf("%s/%s (%v)", key.namespace, key.name, alerts[0]["dedupKey"])
	var model modelIncident
	silences := l.silences[key]
	for _, alert := range alerts {
		model.take(alert)
		for len(silences) > 0 && silences[0].alerts <= model.count {
			model.fallSilent()
			silences = silences[1:]
		}
	}
	stored := l.incidents[key]
	if stored == nil {
		stored = &storedIncident{}
	}
	if options.incidentsDeleted {
		if !isSuffix(stored.Status.Ledger.Digest, stored.Status.AlertCount, alerts) {
			f.add("A: %s: the %d alerts folded since it was deleted are not the last ones stored",
				name, stored.Status.AlertCount)
		}
		return
	}
	switch {
	case stored.Status.AlertCount != model.count:
		f.add("A: %s: %d alerts are folded, %d were stored", name, stored.Status.AlertCount, model.count)
	case model.count > 0 && stored.Status.Ledger.Digest != loadgen.Digest(model.ids):
		f.add("A: %s: the digest of the %d folded alerts is not that of those stored", name, model.count)
	}
	if options.looseOrder {
		return
	}
	if wrong := model.compareState(stored); len(wrong) > 0 {
		f.add("B: %s: %s", name, strings.Join(wrong, "; "))
	}
}

// isSuffix says whether the digest is that of so many alerts, the last ones, reports before the first firing
// left out.
func isSuffix(digest string, count int64, alerts []map[string]any) bool {
	if count == 0 {
		return true
	}
	for from := range alerts {
		var model modelIncident
		for _, alert := range alerts[from:] {
			model.take(alert)
		}
		if model.count == count && loadgen.Digest(model.ids) == digest {
			return true
		}
	}
	return false
}

// checkReleased looks at the AlertEvents that exist: none but those which stay for their idempotency keys,
// and of these each is in a ledger.
func (l *ledgerOfTruth) checkReleased(f *findings) {
	for name, event := range l.events {
		namespace, eventName, _ := strings.Cut(name, "/")
		if !v1alpha1.IsKeyedEventName(eventName) {
			f.add("C: AlertEvent %s is left", name)
			continue
		}
		for _, alert := range event.Spec.Alerts {
			dedupKey, _ := alert["dedupKey"].(string)
			incident := l.incidents[incidentKey{namespace, v1alpha1.IncidentName(event.Spec.IntegrationName, dedupKey)}]
			if incident == nil {
				continue // it matched none
			}
			settled := slices.ContainsFunc(incident.Status.Ledger.Events, func(entry struct {
				UID string `json:"uid"`
			}) bool {
				return entry.UID == event.Metadata.UID
			})
			if !settled && alert["status"] == "firing" {
				f.add("C: AlertEvent %s is in no ledger", name)
			}
		}
	}
}
