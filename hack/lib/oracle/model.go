package oracle

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// States of an Incident, and statuses of an alert.
const (
	stateOpen     = "Open"
	stateResolved = "Resolved"

	firing         = "firing"
	resolved       = "resolved"
	acknowledged   = "acknowledged"
	unacknowledged = "unacknowledged"
	noted          = "noted"
	silenced       = "silenced"
	assigned       = "assigned"
	unassigned     = "unassigned"
)

const (
	defaultLateFiringWindow = 30 * time.Second
	maxClockLead            = 24 * time.Hour // a startTime further ahead of its receipt is not believed
	maxTimeline             = 20
	maxLedger               = 128
	maxIncidentBytes        = 256 << 10
)

// modelIncident is what one life of an Incident should be, by a model that shares nothing with the operator but the
// documentation.
type modelIncident struct {
	state        string // empty: no alert has opened it
	acknowledged bool
	episode      int64
	episodeCount int64
	count        int64
	digest       digest
	content      map[string]any
	excused      bool      // the content of this episode was rejected or replaced
	quiet        bool      // it ended because no alert came
	started      time.Time // the earliest beginning of the episode's alerts
	lastStart    time.Time // the latest startTime of its firing alerts
	opened       time.Time
	resolved     time.Time
	heard        time.Time // the last alert
	expires      time.Time // when the acknowledgement ends; zero if it does not
	unsure       bool      // the integration that tells when may have been unknown
	expired      int64     // acknowledgements of the episode
	assignee     string    // who works on the episode
	timeline     []string  // types of the transitions; requests for silences are left out
	adopted      bool      // the timeline's beginning is not known
	newest       int       // place in commit order of the newest AlertEvent that counted
}

func (m *modelIncident) clone() *modelIncident {
	c := *m
	c.content = cloneContent(m.content)
	c.timeline = slices.Clone(m.timeline)
	return &c
}

func cloneContent(content map[string]any) map[string]any {
	c := maps.Clone(content)
	for _, name := range bags {
		if bag, ok := c[name].(map[string]any); ok {
			c[name] = maps.Clone(bag)
		}
	}
	return c
}

// told is an alert with what its AlertEvent tells.
type told struct {
	alert
	id              string
	order           int // of the AlertEvent in commit order
	received, heard time.Time
	defaults        map[string]any
	integration     string // of the Incident
	window          time.Duration
	acknowledges    time.Duration // 0: until the acknowledgement is withdrawn
	unsure          bool          // or as long as before
}

// take takes in one alert, and says whether it matched an Incident.
func (m *modelIncident) take(a told) bool {
	status := a.text("status")
	if m.state == "" && status != firing {
		return false
	}
	late := a.order < m.newest
	switch {
	case m.state == "":
		m.begin(a, "Opened")
	case late, status == silenced:
	case status == assigned, status == unassigned:
		m.assign(a)
	case m.state == stateOpen:
		m.update(a)
	case status == firing && !m.isLate(a):
		m.begin(a, "Reopened")
	}
	if status == noted && a.text("comment") != "" {
		m.timeline = append(m.timeline, "Noted")
	}
	m.newest = max(m.newest, a.order)
	m.digest.add(a.id)
	isReport := status != firing && a.by() != ""
	if isReport || slices.Contains([]string{noted, silenced, assigned, unassigned}, status) {
		return true
	}
	m.count++
	m.episodeCount++
	m.heard = latest(m.heard, a.heard)
	return true
}

// update takes in an alert of an Open Incident.
func (m *modelIncident) update(a told) {
	status := a.text("status")
	if status == resolved && a.by() == "" && m.isStale(a) {
		return
	}
	before := m.content["severity"]
	m.merge(a)
	if status == resolved {
		m.state, m.resolved, m.quiet = stateResolved, a.received, false
		m.timeline = append(m.timeline, "Resolved")
		return
	}
	if m.content["severity"] != before {
		m.timeline = append(m.timeline, "SeverityChanged")
	}
	if status == acknowledged {
		m.unsure = a.unsure
		if a.acknowledges > 0 {
			m.expires = a.received.Add(a.acknowledges)
		}
	}
	switch {
	case status == unacknowledged && m.acknowledged:
		m.acknowledged, m.expires = false, time.Time{}
		m.timeline = append(m.timeline, "Unacknowledged")
	case status == acknowledged && (!m.acknowledged || a.text("comment") != ""):
		m.acknowledged = true
		m.timeline = append(m.timeline, "Acknowledged")
	}
}

func (m *modelIncident) begin(a told, transition string) {
	m.state = stateOpen
	m.acknowledged, m.excused, m.quiet = false, false, false
	m.expires, m.expired, m.assignee = time.Time{}, 0, ""
	m.episode++
	m.episodeCount = 0
	if a.alert[ofReport] == nil {
		m.content = map[string]any{}
	}
	delete(m.content, "startTime") // of a person's report, which tells nothing but that it is as before
	delete(m.content, "endTime")
	m.started, m.lastStart, m.opened, m.resolved = time.Time{}, time.Time{}, a.received, time.Time{}
	m.merge(a)
	m.timeline = append(m.timeline, transition)
}

// assign takes in who works on an Open Incident: nobody, if the assignment is withdrawn.
func (m *modelIncident) assign(a told) {
	to, entry := a.text("assignee"), "Assigned"
	if a.text("status") == unassigned {
		to, entry = "", "Unassigned"
	}
	if m.state == stateOpen && (to != m.assignee || to != "" && a.text("comment") != "") {
		m.assignee = to
		m.timeline = append(m.timeline, entry)
	}
}

// endQuiet ends the episode because no alert came.
func (m *modelIncident) endQuiet(at time.Time) {
	m.state, m.quiet, m.resolved = stateResolved, true, at
	m.timeline = append(m.timeline, "Resolved")
}

// endAcknowledgement ends the acknowledgement because it was not repeated.
func (m *modelIncident) endAcknowledgement() {
	m.acknowledged, m.expires = false, time.Time{}
	m.expired++
	m.timeline = append(m.timeline, "Unacknowledged")
}

// isLate says whether a firing repeats the episode that has ended.
func (m *modelIncident) isLate(a told) bool {
	startTime, ok := timeIn(a.alert, "startTime")
	if !ok || m.quiet || a.received.Sub(m.resolved) >= a.window {
		return false
	}
	if first, ok := timeIn(m.content, "startTime"); ok && startTime.Equal(first) || startTime.Equal(m.lastStart) {
		return true
	}
	if startTime.After(m.resolved) {
		return false
	}
	endTime, ended := timeIn(m.content, "endTime")
	return !startTime.After(m.started) || !startTime.After(m.lastStart) || ended && !startTime.After(endTime)
}

// isStale says whether a resolve tells of a firing before the newest one of the episode.
func (m *modelIncident) isStale(a told) bool {
	startTime := m.lastStart
	about, ok := timeIn(a.alert, "endTime")
	if !ok {
		about, ok = timeIn(a.alert, "startTime")
	}
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		if about.Truncate(unit).Equal(about) {
			startTime = startTime.Truncate(unit)
			break
		}
	}
	return ok && about.Before(startTime)
}

func timeIn(fields map[string]any, name string) (time.Time, bool) {
	text, _ := fields[name].(string)
	t, err := time.Parse(time.RFC3339Nano, text)
	return t, err == nil
}

// adopt makes the model agree with a status, so that one fault is found once.
func (m *modelIncident) adopt(s *storedStatus) {
	*m = modelIncident{
		state: s.State, acknowledged: meta.IsStatusConditionTrue(s.Conditions, "Acknowledged"),
		episode: s.Episode.Number, episodeCount: s.Episode.AlertCount, count: s.AlertCount,
		digest:  parseDigest(s.Ledger.Digest),
		content: cloneContent(s.Alert), excused: m.excused, quiet: s.endedQuiet(),
		started: s.Episode.Start, lastStart: s.Episode.LastStart, opened: s.Opened, resolved: s.Resolved, heard: s.LastAlert,
		expires: s.Acknowledgement.Expires, expired: s.Episode.Expired, assignee: s.Assignee.Name,
		timeline: s.transitions(), adopted: true, newest: m.newest,
	}
}

// transitions are the entries of the timeline that the model has too.
func (s *storedStatus) transitions() []string {
	var types []string
	for _, entry := range s.Timeline {
		switch entry.Type {
		case "Opened", "Reopened", "Resolved", "Acknowledged", "Unacknowledged", "Assigned", "Unassigned", "Noted", "SeverityChanged":
			types = append(types, entry.Type)
		default: // depends on sizes, on the API server or on Alertmanager
		}
	}
	return types
}

// replacesContent says whether the timeline tells that the content of the current episode was rejected or replaced.
func (s *storedStatus) replacesContent() bool {
	for _, entry := range slices.Backward(s.Timeline) {
		switch entry.Type {
		case "ContentRejected", "ContentReplaced":
			return true
		case "Opened", "Reopened":
			return false
		}
	}
	return false
}
