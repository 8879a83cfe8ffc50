package oracle

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestDigest(t *testing.T) {
	g := NewWithT(t)
	// Of SHA-256: a is ca978112ca1bbdcafac231b39a23dc4d…, b is 3e23e8160039594a33894f6564e1b134…
	g.Expect(Digest([]string{"a"})).To(Equal("ca978112ca1bbdcafac231b39a23dc4d"))
	g.Expect(Digest([]string{"b", "a"})).To(Equal("08bb6928ca5517152e4b8118ff058d81"))
	g.Expect(parseDigest(Digest([]string{"a", "b"})).String()).To(Equal("08bb6928ca5517152e4b8118ff058d81"))
}

// step is an alert, and what the Incident is after it.
type step struct {
	after  time.Duration // since the first one
	order  int           // default: in order
	alert  alert
	counts bool
	want   string // state and newest transition
}

func (m *modelIncident) summary() string {
	if m.state == "" {
		return "none"
	}
	return m.state + " " + m.timeline[len(m.timeline)-1]
}

func TestLifeCycle(t *testing.T) {
	const second, minute, hour = time.Second, time.Minute, time.Hour
	at := func(d time.Duration) string { return stamp(start.Add(d)) }
	for name, steps := range map[string][]step{
		"the walkthrough of the documentation": {
			{alert: an("firing", "k", "startTime", at(-minute)), counts: true, want: "Open Opened"},
			{after: minute, alert: an("firing", "k", "severity", "critical"), counts: true, want: "Open SeverityChanged"},
			{after: 2 * minute, alert: an("acknowledged", "k"), counts: true, want: "Open Acknowledged"},
			{after: hour, alert: an("resolved", "k", "endTime", at(hour-minute)), counts: true, want: "Resolved Resolved"},
			{after: hour + 20*second, alert: an("firing", "k", "startTime", at(-minute)), counts: true, want: "Resolved Resolved"},
			{after: hour + minute, alert: an("firing", "k", "startTime", at(-minute)), counts: true, want: "Open Reopened"},
		},
		"reports before the first firing": {
			{alert: an("resolved", "k"), want: "none"},
			{alert: an("noted", "k", "by", "maria"), want: "none"},
			{alert: an("firing", "k"), counts: true, want: "Open Opened"},
		},
		"reports of a user are no alerts": {
			{alert: an("firing", "k"), counts: true, want: "Open Opened"},
			{alert: an("acknowledged", "k", "by", "maria"), want: "Open Acknowledged"},
			{alert: an("acknowledged", "k", "by", "paul"), want: "Open Acknowledged"},
			{alert: an("unacknowledged", "k", "by", "maria"), want: "Open Unacknowledged"},
			{alert: an("noted", "k", "by", "maria", "comment", "look"), want: "Open Noted"},
			{alert: an("noted", "k", "comment", "again"), want: "Open Noted"},
			{alert: an("silenced", "k", "by", "maria", "silenceFor", "1h"), want: "Open Noted"},
			{alert: an("resolved", "k", "by", "maria"), want: "Resolved Resolved"},
			{alert: an("noted", "k", "comment", "after"), want: "Resolved Noted"},
			{alert: an("acknowledged", "k"), counts: true, want: "Resolved Noted"},
		},
		"an assignment of an episode": {
			{alert: an("assigned", "k", "by", "maria", "assignee", "maria"), want: "none"},
			{alert: an("firing", "k"), counts: true, want: "Open Opened"},
			{alert: an("unassigned", "k", "by", "maria"), want: "Open Opened"},
			{alert: an("assigned", "k", "by", "maria", "assignee", "maria"), want: "Open Assigned"},
			{alert: an("acknowledged", "k", "by", "maria"), want: "Open Acknowledged"},
			{alert: an("assigned", "k", "assignee", "maria"), want: "Open Acknowledged"},
			{alert: an("assigned", "k", "assignee", "alex"), want: "Open Assigned"},
			{alert: an("noted", "k", "comment", "x"), want: "Open Noted"},
			{alert: an("assigned", "k", "assignee", "alex", "comment", "hurry"), want: "Open Assigned"},
			{alert: an("unassigned", "k"), want: "Open Unassigned"},
			{alert: an("resolved", "k"), counts: true, want: "Resolved Resolved"},
			{alert: an("assigned", "k", "assignee", "alex"), want: "Resolved Resolved"},
		},
		"a user's name in a firing alert is ignored": {
			{alert: an("firing", "k", "by", "maria"), counts: true, want: "Open Opened"},
		},
		"a stale resolve": {
			{alert: an("firing", "k", "startTime", at(0)), counts: true, want: "Open Opened"},
			{alert: an("resolved", "k", "endTime", at(-minute)), counts: true, want: "Open Opened"},
			{alert: an("resolved", "k", "endTime", at(-minute), "by", "maria"), want: "Resolved Resolved"},
		},
		"a resolve of an earlier round than the newest firing": {
			{alert: an("firing", "k", "startTime", at(-20*minute)), counts: true, want: "Open Opened"},
			{alert: an("firing", "k", "startTime", at(-2*minute)), counts: true, want: "Open Opened"},
			{alert: an("firing", "k", "startTime", at(-20*minute)), counts: true, want: "Open Opened"},
			{alert: an("resolved", "k", "startTime", at(-20*minute), "endTime", at(-5*minute)), counts: true, want: "Open Opened"},
			{alert: an("resolved", "k", "startTime", at(-2*minute), "endTime", at(-minute)), counts: true, want: "Resolved Resolved"},
		},
		"a resolve in the second in which the alert began": {
			{alert: an("firing", "k", "startTime", at(500*time.Millisecond)), counts: true, want: "Open Opened"},
			{alert: an("resolved", "k", "endTime", at(0)), counts: true, want: "Resolved Resolved"},
		},
		"a beginning far ahead is not believed": {
			{alert: an("firing", "k", "startTime", at(48*time.Hour)), counts: true, want: "Open Opened"},
			{alert: an("resolved", "k", "endTime", at(0)), counts: true, want: "Resolved Resolved"},
		},
		"a predicted end hides no outage": {
			{alert: an("firing", "k", "startTime", at(0), "endTime", at(time.Hour)), counts: true, want: "Open Opened"},
			{after: minute, alert: an("resolved", "k"), counts: true, want: "Resolved Resolved"},
			{after: minute + 10*second, alert: an("firing", "k", "startTime", at(minute+second)), counts: true, want: "Open Reopened"},
		},
		"a resolve that is older than what is folded": {
			{alert: an("firing", "k"), order: 5, counts: true, want: "Open Opened"},
			{alert: an("resolved", "k"), order: 3, counts: true, want: "Open Opened"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var m modelIncident
			for i, step := range steps {
				order, count := step.order, m.count
				if order == 0 {
					order = i + 1
				}
				received := start.Add(step.after)
				m.take(told{
					alert: step.alert, id: "id", order: order, received: received, heard: received,
					integration: integration, window: defaultLateFiringWindow,
				})
				g.Expect(m.summary()).To(Equal(step.want), "step %d", i)
				g.Expect(m.count > count).To(Equal(step.counts), "step %d", i)
			}
		})
	}
}

func TestAfterSilenceNothingIsLate(t *testing.T) {
	g := NewWithT(t)
	var m modelIncident
	fires := told{
		alert: an("firing", "k", "startTime", stamp(start)), received: start, heard: start, window: defaultLateFiringWindow,
	}
	m.take(fires)
	m.endQuiet(start.Add(time.Second))
	m.take(fires)
	g.Expect(m.summary()).To(Equal("Open Reopened"))
}

func TestContent(t *testing.T) {
	g := NewWithT(t)
	var m modelIncident
	take := func(status string, fields ...any) {
		m.take(told{
			alert: an(status, "k", fields...), received: start, heard: start, integration: integration,
			defaults: map[string]any{"severity": "error", "labels": map[string]any{"team": "blue"}},
		})
	}
	take("firing", "description", "\n first  line \nsecond", "labels", map[string]any{"a": 1.0})
	g.Expect(m.content).To(Equal(map[string]any{
		"title": "first line", "description": "\n first  line \nsecond", "severity": "error", "type": "webhook",
		"labels": map[string]any{"a": 1.0, "team": "blue"},
	}))
	take("firing", "title", "T", "hostname", "h", "labels", map[string]any{"a": 2.0, "team": "red"})
	take("resolved", "title", "Recovered", "description", "all well", "severity", "info", "hostname", "g")
	g.Expect(m.content).To(Equal(map[string]any{
		"title": "T", "description": "\n first  line \nsecond", "severity": "error", "type": "webhook", "hostname": "g",
		"labels": map[string]any{"a": 2.0, "team": "red"},
		"custom": map[string]any{"resolved_title": "Recovered", "resolved_description": "all well"},
	}))
}

// rejected is a status that was written without its content.
func rejected(status map[string]any) {
	status["alert"] = map[string]any{"severity": within(status, "alert")["severity"], "title": "The content was rejected."}
	timeline, _ := status["timeline"].([]map[string]any)
	status["timeline"] = append(timeline, map[string]any{"type": "ContentRejected"})
}

func TestState(t *testing.T) {
	opened := func(change func(status map[string]any)) func(s *script) {
		return func(s *script) {
			s.sent("a", an("firing", "k", "severity", "critical"))
			s.fold("k", []string{"a"}, change)
			s.release("a")
		}
	}
	set := func(field string, value any) func(s *script) {
		return opened(func(status map[string]any) { status[field] = value })
	}
	tellAll(t, map[string]story{
		"the state is wrong":       {tell: set("state", "Resolved"), found: "B: "},
		"the content is wrong":     {tell: set("alert", map[string]any{"severity": "critical"}), found: "B: "},
		"a time is wrong":          {tell: set("openedTime", stamp(start.Add(time.Second))), found: "B: "},
		"the last alert is wrong":  {tell: set("lastAlertTime", stamp(start.Add(time.Second))), found: "B: "},
		"the timeline is wrong":    {tell: set("timeline", []map[string]any{{"type": "Reopened"}}), found: "B: "},
		"the content was rejected": {tell: opened(rejected)},
		"the severity was rejected": {found: "B: ", tell: opened(func(status map[string]any) {
			rejected(status)
			status["alert"] = map[string]any{}
		})},
		"later alerts of the episode have what the rejected one left": {tell: func(s *script) {
			opened(rejected)(s)
			s.sent("b", an("firing", "k", "hostname", "h"))
			s.fold("k", []string{"b"}, func(status map[string]any) {
				delete(within(status, "alert"), "labels")
				rejected(status)
			})
			s.release("b")
		}},
		"the next episode is to have all of its content": {found: "B: ", tell: func(s *script) {
			opened(rejected)(s)
			s.sent("b", an("resolved", "k"))
			s.fold("k", []string{"b"}, rejected)
			s.sent("c", an("firing", "k"))
			s.fold("k", []string{"c"}, func(status map[string]any) { status["alert"] = map[string]any{"severity": "warning"} })
			s.release("b", "c")
		}},
		"the state must be right without the content": {found: "B: ", tell: opened(func(status map[string]any) {
			rejected(status)
			status["state"] = "Resolved"
		})},
		"a user edits the status": {tell: func(s *script) {
			opened(func(map[string]any) {})(s)
			i := s.incidents["k"]
			i.status["state"] = "Resolved"
			s.commitIncident("k", Commit{ByUser: true})
		}},
	})
}
