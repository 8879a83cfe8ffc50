package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// compare says how a stored status differs from the model in more than what was folded.
func (m *modelIncident) compare(s *storedStatus) []string {
	var wrong []string
	differ := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s is %s, the model says %s", what, asJSON(got), asJSON(want)))
		}
	}
	at := func(what string, got, want time.Time) {
		if !isSame(got, want) {
			differ(what, got, want)
		}
	}
	differ("the state", s.State, m.state)
	differ("Acknowledged", meta.IsStatusConditionTrue(s.Conditions, "Acknowledged"), m.acknowledged)
	differ("the assignee", s.Assignee.Name, m.assignee)
	differ("the expired acknowledgements", s.Episode.Expired, m.expired)
	if m.unsure {
		m.expires = s.Acknowledgement.Expires
	}
	at("the end of the acknowledgement", s.Acknowledgement.Expires, m.expires)
	differ("Resolved", meta.IsStatusConditionTrue(s.Conditions, "Resolved"), m.state == stateResolved)
	differ("the episode", s.Episode.Number, m.episode)
	differ("the episode's count", s.Episode.AlertCount, m.episodeCount)
	at("the episode's start", s.Episode.Start, m.started)
	at("the start of its newest firing", s.Episode.LastStart, m.lastStart)
	at("openedTime", s.Opened, m.opened)
	at("resolvedTime", s.Resolved, m.resolved)
	at("lastAlertTime", s.LastAlert, m.heard)
	if got := s.transitions(); !m.hasTimeline(got, len(s.Timeline)-len(got)) {
		differ("the timeline", got, m.timeline[max(0, len(m.timeline)-maxTimeline):])
	}
	differ("alert.severity", s.Alert["severity"], m.content["severity"])
	if m.excused {
		return wrong
	}
	for _, name := range slices.Sorted(maps.Keys(m.content)) {
		if name != "severity" {
			differ("alert."+name, s.Alert[name], m.content[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Alert)) {
		if _, ok := m.content[name]; !ok && name != "origins" { // which says nothing of the problem; an older version drops it
			differ("alert."+name, s.Alert[name], nil)
		}
	}
	return wrong
}

// hasTimeline says whether a timeline, which keeps the newest entries, may be that of the model. others is the number of its
// further entries.
func (m *modelIncident) hasTimeline(got []string, others int) bool {
	if len(got) > len(m.timeline) {
		return false
	}
	complete := len(got) == len(m.timeline) || m.adopted
	return slices.Equal(got, m.timeline[len(m.timeline)-len(got):]) && (complete || len(got)+others >= maxTimeline)
}

func asJSON(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(encoded)
}
