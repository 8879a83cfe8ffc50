package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"time"
)

// modelIncident is what an Incident should be, by a model that shares nothing with the operator but the
// documentation: it takes the alerts in the order in which etcd committed them.
type modelIncident struct {
	state        string // empty: there is none
	acknowledged bool
	episode      int64
	episodeCount int64
	count        int64
	content      map[string]any
	ids          []string
	resolved     time.Time // when the alert that ended the episode was received
	started      time.Time // the earliest beginning of its alerts
	silent       bool      // it ended for silence
}

// lateFiringWindow is the default, which all integrations have.
const lateFiringWindow = 30 * time.Second

// bags are the fields that merge key by key.
var bags = []string{"labels", "annotations", "values", "custom"}

// take takes in one alert, as stored.
func (m *modelIncident) take(alert map[string]any) {
	status, _ := alert["status"].(string)
	id, _ := alert["id"].(string)
	firing := status == "firing"
	received, _ := alert[receivedField].(time.Time)
	switch m.state {
	case "":
		if !firing {
			return
		}
		m.begin()
		m.merge(alert)
	case "Open":
		if status == "resolved" && m.isStale(alert) {
			break
		}
		m.merge(alert)
		m.acknowledged = (m.acknowledged || status == "acknowledged") && status != "unacknowledged"
		if status == "resolved" {
			m.state, m.resolved, m.silent = "Resolved", received, false
		}
	case "Resolved":
		if firing && !m.isLate(alert, received) {
			m.begin()
			m.merge(alert)
		}
	}
	m.count++
	m.episodeCount++
	m.ids = append(m.ids, id)
}

// fallSilent ends the episode for silence.
func (m *modelIncident) fallSilent() {
	if m.state == "Open" {
		m.state, m.silent = "Resolved", true
	}
}

// isLate says whether a firing repeats the episode that has ended.
func (m *modelIncident) isLate(alert map[string]any, received time.Time) bool {
	startsAt, told := timeIn(alert, "startsAt")
	if !told || m.silent || received.Sub(m.resolved) >= lateFiringWindow {
		return false
	}
	endsAt, ended := timeIn(m.content, "endsAt")
	return !startsAt.After(m.started) || ended && !startsAt.After(endsAt) && !startsAt.After(m.resolved)
}

// isStale says whether a resolve tells of an episode before the current one.
func (m *modelIncident) isStale(alert map[string]any) bool {
	startsAt, told := timeIn(m.content, "startsAt")
	about, ok := timeIn(alert, "endsAt")
	if !ok {
		about, ok = timeIn(alert, "startsAt")
	}
	return told && ok && about.Before(startsAt)
}

func timeIn(fields map[string]any, name string) (time.Time, bool) {
	text, _ := fields[name].(string)
	t, err := time.Parse(time.RFC3339Nano, text)
	return t, err == nil
}

func (m *modelIncident) begin() {
	m.state = "Open"
	m.acknowledged = false
	m.episode++
	m.episodeCount = 0
	m.content = map[string]any{}
	m.started = time.Time{}
}

func (m *modelIncident) merge(alert map[string]any) {
	startsAt, told := timeIn(alert, "startsAt")
	if before, known := timeIn(m.content, "startsAt"); told && (!known || startsAt.Before(before)) {
		m.content["startsAt"] = alert["startsAt"]
	}
	if endsAt, ended := alert["endsAt"]; ended {
		m.content["endsAt"] = endsAt
	}
	if !told {
		startsAt, _ = alert[receivedField].(time.Time)
	}
	if m.started.IsZero() || startsAt.Before(m.started) {
		m.started = startsAt
	}
	for _, name := range []string{"title", "description", "severity", "type", "link", "hostname", "region"} {
		if value, _ := alert[name].(string); value != "" {
			m.content[name] = value
		}
	}
	for _, name := range bags {
		newer, _ := alert[name].(map[string]any)
		if len(newer) == 0 {
			continue
		}
		merged, _ := m.content[name].(map[string]any)
		if merged == nil {
			merged = map[string]any{}
		}
		maps.Copy(merged, newer)
		m.content[name] = merged
	}
}

// storedIncident is the part of an Incident that the model speaks of.
type storedIncident struct {
	Spec struct {
		IntegrationName string `json:"integrationName"`
		DedupKey        string `json:"dedupKey"`
	} `json:"spec"`
	Status struct {
		State      string         `json:"state"`
		Alert      map[string]any `json:"alert"`
		AlertCount int64          `json:"alertCount"`
		Resolved   time.Time      `json:"resolvedTime"`
		Episode    struct {
			Number     int64 `json:"number"`
			AlertCount int64 `json:"alertCount"`
		} `json:"episode"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
			Reason string `json:"reason"`
		} `json:"conditions"`
		Ledger struct {
			Digest string `json:"digest"`
			Events []struct {
				UID string `json:"uid"`
			} `json:"events"`
		} `json:"ledger"`
	} `json:"status"`
}

func (s *storedIncident) condition(name string) bool {
	for _, condition := range s.Status.Conditions {
		if condition.Type == name {
			return condition.Status == "True"
		}
	}
	return false
}

// fellSilent says whether the Incident was resolved for silence.
func (s *storedIncident) fellSilent() bool {
	for _, condition := range s.Status.Conditions {
		if condition.Type == "Resolved" {
			return condition.Reason == "AutoResolved"
		}
	}
	return false
}

// compareState says how a stored Incident differs from the model in more than what was folded.
func (m *modelIncident) compareState(stored *storedIncident) []string {
	var wrong []string
	differ := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s is %s, the model says %s", what, asJSON(got), asJSON(want)))
		}
	}
	s := &stored.Status
	differ("the state", s.State, m.state)
	differ("Acknowledged", stored.condition("Acknowledged"), m.acknowledged)
	differ("Resolved", stored.condition("Resolved"), m.state == "Resolved")
	differ("the episode", s.Episode.Number, m.episode)
	differ("the episode's count", s.Episode.AlertCount, m.episodeCount)
	if s.State == "" {
		return wrong
	}
	want := maps.Clone(m.content)
	fallbacks := map[string]string{"type": "webhook", "severity": "warning", "title": "Alert from " + integrationName}
	for name, fallback := range fallbacks {
		value, _ := want[name].(string)
		want[name] = cmp.Or(value, fallback)
	}
	for name := range want {
		differ("alert."+name, s.Alert[name], want[name])
	}
	differ("the number of fields in the alert", len(s.Alert), len(want))
	return wrong
}

func asJSON(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(encoded)
}
