package oracle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	ns          = "team-a"
	integration = "app"
)

var start = time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)

// script is an operator, an API server and senders, written down by hand: it folds as it is told, right or wrong.
type script struct {
	*History
	now       time.Time
	serial    int
	records   []*Record
	events    map[string]*scriptEvent // by a short name
	incidents map[string]*scriptIncident
}

type scriptEvent struct {
	uid, name string
	created   time.Time
	alerts    []map[string]any
	meta      map[string]any
}

type scriptIncident struct {
	uid    string
	status map[string]any
	meta   map[string]any
	model  *modelIncident // of what was folded, to be written
	ledger []map[string]string
}

func newScript(options Options) *script {
	return &script{
		History: NewHistory(options), now: start,
		events: map[string]*scriptEvent{}, incidents: map[string]*scriptIncident{},
	}
}

func (s *script) tick(d time.Duration) { s.now = s.now.Add(d) }

func (s *script) next(prefix string) string {
	s.serial++
	return fmt.Sprintf("%s%d", prefix, s.serial)
}

func encode(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// an returns an alert of a key, with more names and values.
func an(status, key string, more ...any) map[string]any {
	a := map[string]any{"status": status, "dedupKey": key}
	for i := 0; i < len(more); i += 2 {
		a[fmt.Sprint(more[i])] = more[i+1]
	}
	return a
}

// within returns the object of that name in a status.
func within(status map[string]any, name string) map[string]any {
	object, ok := status[name].(map[string]any)
	if !ok {
		panic(name + " is not an object")
	}
	return object
}

// sent stores an AlertEvent of a request that was acknowledged.
func (s *script) sent(name string, alerts ...map[string]any) *Record {
	record := &Record{Namespace: ns, Integration: integration}
	delivery := Delivery{Outcome: Acknowledged, Began: s.now, Ended: s.now.Add(time.Millisecond)}
	for _, a := range alerts {
		seq, id := s.next("seq-"), s.next("id-")
		a["id"] = id
		labels, _ := a["labels"].(map[string]any)
		if labels == nil {
			labels = map[string]any{}
		}
		labels[SeqLabel] = seq
		a["labels"] = labels
		key, _ := a["dedupKey"].(string)
		status, _ := a["status"].(string)
		record.Alerts = append(record.Alerts, Sent{seq, key, status})
		delivery.IDs = append(delivery.IDs, id)
	}
	record.Deliveries = append(record.Deliveries, delivery)
	s.records = append(s.records, record)
	s.store(name, Commit{}, alerts...)
	return record
}

// store commits an AlertEvent, with the name of the commit or else the short one.
// text is the text of alerts in an AlertEvent.
func text(alerts []map[string]any) string {
	encoded, _ := json.Marshal(alerts)
	return string(encoded)
}

func (s *script) store(short string, c Commit, alerts ...map[string]any) {
	s.events[short] = &scriptEvent{
		uid: s.next("uid-"), name: cmp.Or(c.Name, short), created: s.now, alerts: alerts, meta: map[string]any{},
	}
	c.Created = true
	s.commitEvent(short, c)
}

func (s *script) commitEvent(short string, c Commit) {
	e := s.events[short]
	meta := maps.Clone(e.meta)
	meta["uid"], meta["creationTimestamp"] = e.uid, stamp(e.created)
	c.Resource, c.Namespace, c.Name, c.At = "alertevents", ns, e.name, s.now
	spec := map[string]any{"integrationName": integration, "receivedTime": stamp(e.created)}
	if first := e.alerts[0]; first["by"] != nil || first["silenceFor"] != nil {
		spec["report"] = first
	} else {
		spec["alerts"] = text(e.alerts)
	}
	c.Object = encode(map[string]any{"metadata": meta, "spec": spec})
	s.Commit(c)
}

// mark has someone write the mark of an AlertEvent.
func (s *script) mark(short, value string) {
	s.events[short].meta["annotations"] = map[string]any{v1alpha1.SettledAnnotation: value}
	s.commitEvent(short, Commit{})
}

// release has the operator delete AlertEvents.
func (s *script) release(shorts ...string) {
	for _, short := range shorts {
		s.Commit(Commit{Resource: "alertevents", Namespace: ns, Name: s.events[short].name, Deleted: true, At: s.now})
	}
}

// lose has a user delete an AlertEvent.
func (s *script) lose(short string) {
	s.Commit(Commit{Resource: "alertevents", Namespace: ns, Name: s.events[short].name, Deleted: true, At: s.now, ByUser: true})
}

func incidentName(key string) string { return v1alpha1.IncidentName(integration, key) }

// incident returns the Incident of a key, created without a status if there is none.
func (s *script) incident(key string) *scriptIncident {
	if s.incidents[key] == nil {
		s.incidents[key] = &scriptIncident{uid: s.next("incident-"), meta: map[string]any{}, model: &modelIncident{}}
		s.commitIncident(key, Commit{Created: true})
	}
	return s.incidents[key]
}

func (s *script) commitIncident(key string, c Commit) {
	i := s.incidents[key]
	meta := maps.Clone(i.meta)
	meta["uid"], meta["creationTimestamp"] = i.uid, stamp(start)
	c.Resource, c.Namespace, c.Name, c.At = "incidents", ns, incidentName(key), s.now
	c.Object = encode(map[string]any{
		"metadata": meta, "spec": map[string]any{"integrationName": integration, "dedupKey": key}, "status": i.status,
	})
	s.Commit(c)
}

// fold has the operator fold AlertEvents into the Incident of a key, in this order, as the model does, and then change the
// status before it is written.
func (s *script) fold(key string, shorts []string, change ...func(status map[string]any)) {
	i := s.incident(key)
	name := incidentName(key)
	for _, short := range shorts {
		e := s.History.events[s.events[short].uid]
		for _, a := range e.alerts[name] {
			a.integration, a.window = integration, defaultLateFiringWindow
			i.model.take(a)
		}
		i.ledger = append(i.ledger, map[string]string{"uid": e.uid, "name": e.name})
	}
	i.status = i.model.status(i.ledger)
	for _, f := range change {
		f(i.status)
	}
	s.commitIncident(key, Commit{})
}

// prune has the operator drop AlertEvents from the ledger.
func (s *script) prune(key string, shorts ...string) {
	i := s.incidents[key]
	i.ledger = slices.DeleteFunc(i.ledger, func(entry map[string]string) bool {
		return slices.ContainsFunc(shorts, func(short string) bool { return entry["uid"] == s.events[short].uid })
	})
	i.status = i.model.status(i.ledger)
	s.commitIncident(key, Commit{})
}

// end deletes the Incident of the key "k".
func (s *script) end(byUser bool) {
	const key = "k"
	s.Commit(Commit{Resource: "incidents", Namespace: ns, Name: incidentName(key), Deleted: true, At: s.now, ByUser: byUser})
	delete(s.incidents, key)
}

// status is the model as it is stored.
func (m *modelIncident) status(ledger []map[string]string) map[string]any {
	state := func(yes bool) string {
		if yes {
			return "True"
		}
		return "False"
	}
	status := map[string]any{
		"state": m.state, "alert": cloneContent(m.content), "alertCount": m.count,
		"openedTime": stamp(m.opened), "lastAlertTime": stamp(m.heard),
		"episode": map[string]any{"number": m.episode, "startTime": stamp(m.started), "alertCount": m.episodeCount},
		"conditions": []map[string]any{
			{"type": "Resolved", "status": state(m.state == stateResolved)},
			{"type": "Acknowledged", "status": state(m.acknowledged)},
		},
		"ledger": map[string]any{"digest": m.digest.String(), "events": ledger},
	}
	if !m.lastStart.IsZero() {
		status["episode"].(map[string]any)["lastStartTime"] = stamp(m.lastStart)
	}
	if !m.resolved.IsZero() {
		status["resolvedTime"] = stamp(m.resolved)
	}
	var timeline []map[string]any
	for _, kind := range m.timeline[max(0, len(m.timeline)-maxTimeline):] {
		timeline = append(timeline, map[string]any{"type": kind})
	}
	status["timeline"] = timeline
	return status
}

// found returns what is wrong when the script is over.
func (s *script) found() Findings {
	return s.Check(s.records, Moment{FaultsEnded: start, Now: s.now.Add(s.options.HealTime)})
}
