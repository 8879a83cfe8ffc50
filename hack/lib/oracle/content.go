package oracle

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// bags are the fields that merge key by key.
var bags = []string{"labels", "annotations", "values", "custom"}

// merge takes in the content of an alert.
func (m *modelIncident) merge(a told) {
	startTime, has := timeIn(a.alert, "startTime")
	if before, known := timeIn(m.content, "startTime"); has && (!known || startTime.Before(before)) {
		m.content["startTime"] = a.alert["startTime"]
	}
	if endTime, ended := a.alert["endTime"]; ended {
		m.content["endTime"] = endTime
	}
	if a.text("status") == firing && has && startTime.After(m.lastStart) && startTime.Sub(a.received) <= maxClockLead {
		m.lastStart = startTime
	}
	if !has {
		startTime = a.received
	}
	if m.started.IsZero() || startTime.Before(m.started) {
		m.started = startTime
	}
	if a.text("status") == resolved {
		m.mergeRecovery(a)
	} else {
		m.replace(a, "title", "description", "severity")
	}
	m.replace(a, "type", "link", "hostname", "region", "preset")
	for _, name := range bags {
		newer, _ := a.alert[name].(map[string]any)
		m.mergeBag(name, newer)
	}
	m.fill(a)
}

func (m *modelIncident) replace(a told, names ...string) {
	for _, name := range names {
		if value := a.text(name); value != "" {
			m.content[name] = value
		}
	}
}

// mergeRecovery keeps the texts of the problem, and puts those of a resolve beside them.
func (m *modelIncident) mergeRecovery(a told) {
	for _, name := range []string{"title", "description"} {
		if text := a.text(name); text != "" && m.content[name] != text {
			m.mergeBag("custom", map[string]any{"resolved_" + name: text})
		}
	}
}

func (m *modelIncident) mergeBag(name string, newer map[string]any) {
	if len(newer) == 0 {
		return
	}
	merged, _ := m.content[name].(map[string]any)
	if merged == nil {
		merged = map[string]any{}
	}
	maps.Copy(merged, newer)
	m.content[name] = merged
}

// fill sets what no alert has set.
func (m *modelIncident) fill(a told) {
	fallback := func(name string) string {
		text, _ := a.defaults[name].(string)
		return text
	}
	m.fillText("severity", cmp.Or(fallback("severity"), "warning"))
	m.fillText("type", cmp.Or(fallback("type"), "webhook"))
	description, _ := m.content["description"].(string)
	m.fillText("title", cmp.Or(firstLine(description), fallback("title"), "Alert from "+a.integration))
	labels, _ := a.defaults["labels"].(map[string]any)
	labels = maps.Clone(labels)
	present, _ := m.content["labels"].(map[string]any)
	maps.DeleteFunc(labels, func(name string, _ any) bool { _, ok := present[name]; return ok })
	m.mergeBag("labels", labels)
}

func (m *modelIncident) fillText(name, value string) {
	if text, _ := m.content[name].(string); text == "" {
		m.content[name] = value
	}
}

func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			return line
		}
	}
	return ""
}

// excuse takes over the content of a status that the operator wrote without its content, or with a part of it. The severity
// is written in any case.
func (m *modelIncident) excuse(s *storedStatus) {
	severity := m.content["severity"]
	m.content, m.excused = cloneContent(s.Alert), true
	if m.content == nil {
		m.content = map[string]any{}
	}
	m.content["severity"] = severity
}

func latest(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

// isSame compares times to the microsecond, as they are stored.
func isSame(a, b time.Time) bool {
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond))
}
