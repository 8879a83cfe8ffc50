package simulation

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// leaderDeaths is a story in which a test ends the leader.
type leaderDeaths struct {
	lease leaseLook
	told  []toldOf // what the second Alertmanager knew of key-0 at each look
}

func (l *leaderDeaths) look() operation {
	key := types.NamespacedName{Namespace: tenantName(0), Name: v1alpha1.IncidentName(integrationName, keyName(0))}
	return act{"look at Alertmanager", func(w *world) { l.told = append(l.told, w.alertmanagers[1].told()[key]) }}
}

// replaceLeader ends the leader, and takes 20 seconds.
func (l *leaderDeaths) replaceLeader() []operation {
	return []operation{l.lease.end((*replica).kill), wait{10 * time.Second}, start{0}, start{1}, wait{10 * time.Second}}
}

// run tells a story that forwards, with these settings too.
func (l *leaderDeaths) run(t *testing.T, s Settings, parts ...[]operation) {
	t.Helper()
	s.Replicas, s.Elect, s.Writes, s.Forward = 2, true, 8, true
	begin := []operation{l.lease.look(), wait{time.Minute}}
	NewWithT(t).Expect(Run(t, 1, &Story{Settings: s, Operations: slices.Concat(begin, slices.Concat(parts...))}, Watcher{})).To(BeEmpty())
}

func sayWarning(status string) operation {
	return post{times: 1, alerts: []alert{{key: 0, status: status, severity: "warning"}}}
}

// TestALeaderThatDiesHurriesNoHold has leaders die while an Incident is held back for 90 seconds, and right before its time.
func TestALeaderThatDiesHurriesNoHold(t *testing.T) {
	g, l := NewWithT(t), &leaderDeaths{}
	l.run(t, Settings{HoldBack: true}, []operation{sayWarning("firing"), wait{30 * time.Second}}, l.replaceLeader(),
		[]operation{wait{30 * time.Second}, l.look()}, l.replaceLeader(), []operation{wait{time.Minute}, l.look()})
	g.Expect(l.told).To(Equal([]toldOf{{}, {severity: "warning", firing: 1}}))
}

// TestALeaderThatDiesForgetsNoAcknowledgement has leaders die while an acknowledgement lasts, which is for a minute.
func TestALeaderThatDiesForgetsNoAcknowledgement(t *testing.T) {
	g, l := NewWithT(t), &leaderDeaths{}
	l.run(t, Settings{Forget: true}, []operation{sayWarning("firing"), wait{5 * time.Second}, sayWarning("acknowledged"), wait{15 * time.Second}},
		l.replaceLeader(), []operation{l.look()}, l.replaceLeader(), []operation{wait{longestExpiry}, l.look()})
	g.Expect(l.told).To(Equal([]toldOf{{severity: "warning", firing: 1, silenced: true}, {severity: "warning", firing: 1}}))
}

// TestALateAlertFreesNothingThatIsOver has a critical alert that was stored late, folded after an Alertmanager accepted the episode.
func TestALateAlertFreesNothingThatIsOver(t *testing.T) {
	for sentence, test := range map[string]struct {
		heldFor           time.Duration // how long ago the first alert of severity error was received
		findings, withEnd int
	}{
		"the hold is over": {heldFor: time.Minute},
		"it is not":        {heldFor: time.Second, findings: 1, withEnd: 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			opened := v1alpha1.Timestamp{Time: time.Now().Add(-test.heldFor)}
			entry := func(kind v1alpha1.TransitionType, severity v1alpha1.Severity) v1alpha1.Transition {
				return v1alpha1.Transition{Type: kind, Severity: severity, Time: opened}
			}
			held := v1alpha1.Timestamp{Time: opened.Add(heldFor[v1alpha1.SeverityError])}
			incident := &v1alpha1.Incident{Status: v1alpha1.IncidentStatus{
				State: v1alpha1.IncidentOpen, OpenedTime: &opened, Episode: &v1alpha1.Episode{ForwardTime: &held},
				Timeline: []v1alpha1.Transition{entry(v1alpha1.TransitionOpened, v1alpha1.SeverityError)},
			}}
			h, found := newHolds(&Story{Settings: Settings{HoldBack: true}}), oracle.Findings{}
			h.judge(types.NamespacedName{}, incident, &found)
			incident.Status.Timeline = append(incident.Status.Timeline,
				entry(v1alpha1.TransitionSeverityChanged, v1alpha1.SeverityCritical))
			h.judge(types.NamespacedName{}, incident, &found)
			NewWithT(t).Expect(found).To(HaveLen(test.findings))
			incident.Status.State, incident.Status.Episode.ForwardTime = v1alpha1.IncidentResolved, nil
			h.judge(types.NamespacedName{}, incident, &found)
			NewWithT(t).Expect(found).To(HaveLen(test.withEnd), "its end is forwarded")
		})
	}
}
