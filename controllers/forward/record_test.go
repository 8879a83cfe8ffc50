package forward

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
)

// reported counts the writes that a rig's term has caused.
type reported struct{ writes int }

// report has the term of a rig report on what its poster posts, and folds each Incident that it names.
func (r *rig) report() *reported {
	r.Helper()
	result := &reported{}
	e := newEndpoint(r.term, r.target)
	e.posters.members["address"] = r.poster
	r.term.endpoints.members[e.name] = e
	r.term.forwarder.term.Store(r.term)
	changed := func(name types.NamespacedName) {
		key := types.NamespacedName{Namespace: name.Namespace, Name: name.Name}
		r.mu.Lock()
		incident := r.objects[key]
		r.mu.Unlock()
		input := r.input(name.Name, incident)
		input.Forwarding = r.term.forwarder.Forwarding(name)
		if plan := fold.Decide(input); plan.Write {
			result.writes++
			r.edit(key, func(status *v1alpha1.IncidentStatus) { *status = plan.Status })
		}
	}
	r.term.forwarder.requestFold.Store(&changed)
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.term.refolder.run(ctx)
	}()
	r.Cleanup(func() {
		cancel()
		<-ended
	})
	return result
}

func (r *rig) status(key types.NamespacedName) *v1alpha1.IncidentStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &r.objects[key].Status
}

// said is what the status of an Incident says about its forwarding, but for the time.
func (r *rig) said(key types.NamespacedName) string {
	f := r.status(key).Forwarding
	if f == nil {
		return "nothing"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Reason, f.Severity, f.Message))
}

func TestTheStatusTellsWhetherPeopleAreTold(t *testing.T) {
	from := func(preset string) func(*v1alpha1.Alert) { return func(a *v1alpha1.Alert) { a.Preset = preset } }
	for sentence, test := range map[string]struct {
		prepare func(r *rig)
		key     string
		change  func(*v1alpha1.Alert)
		told    string
	}{
		"posted": {told: "Posted warning"},
		"a severity that the file filters": {
			prepare: func(r *rig) { r.target.Severities = []v1alpha1.Severity{"critical"} },
			told:    "Filtered  The operator's configuration selects the severity warning for no Alertmanager.",
		},
		"an integration that is not to be forwarded": {
			prepare: func(r *rig) { r.integrate(v1alpha1.WebhookIntegrationSpec{Forward: v1alpha1.ForwardNever}) },
			told:    "Off  spec.forward is Never.",
		},
		"one that the file does not select": {
			prepare: func(r *rig) { r.target.Integrations = labels.Nothing() },
			told:    "Off  The operator's configuration selects this integration for no Alertmanager.",
		},
		"a payload of Alertmanager that was recognized": {
			change: from("alertmanager"),
			told: "FromAlertmanager  The alerts come from Alertmanager or vmalert. Set spec.forward to Always to forward the " +
				"Incidents.",
		},
		"a heartbeat that Tocsin misses, of an integration with that preset": {
			prepare: func(r *rig) { r.integrate(v1alpha1.WebhookIntegrationSpec{Preset: "alertmanager"}) },
			key:     v1alpha1.HeartbeatKey("watchdog"),
			told:    "Posted warning",
		},
		"a window": {
			prepare: func(r *rig) { r.maintain(within(2 * time.Hour)) },
			told:    "Muted  The maintenance window db is open.",
		},
		"an Alertmanager that is dead": {
			prepare: func(r *rig) { r.am.fail = func(string) int { return http.StatusBadGateway } },
			told:    "Failing  No Alertmanager accepts the Incidents: alertmanager:9093 (HTTP 502 Bad Gateway).",
		},
		"an Alertmanager that rejects this Incident": {
			prepare: func(r *rig) {
				r.am.fail = func(body string) int {
					if strings.Contains(body, "labels") {
						return http.StatusBadRequest
					}
					return 0
				}
			},
			told: "Failing  No Alertmanager accepts the Incidents: alertmanager:9093 (HTTP 400 Bad Request).",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.lead()
				r.report()
				if test.prepare != nil {
					test.prepare(r)
				}
				if test.change == nil {
					test.change = func(*v1alpha1.Alert) {}
				}
				if test.key == "" {
					test.key = "k"
				}
				key := r.alert(test.key, v1alpha1.AlertFiring, test.change)
				r.wait(3 * reportInterval)
				r.Expect(r.said(key)).To(Equal(test.told))
			})
		})
	}
}

func TestTheStatusFollowsTheForwarding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		said := r.report()
		r.am.fail = func(string) int { return http.StatusBadGateway }
		key := r.alert("k", v1alpha1.AlertFiring)
		r.wait(time.Minute)
		r.Expect(r.said(key)).To(HavePrefix("Failing"))
		r.am.fail = nil
		r.wait(maxBackoff + reportInterval)
		r.Expect(r.said(key)).To(Equal("Posted warning"))
		since := r.status(key).Forwarding.Time
		r.alert("k", v1alpha1.AlertFiring, severity("critical"))
		r.wait(reportInterval)
		r.Expect(r.said(key)).To(Equal("Posted critical"))
		r.Expect(r.status(key).Forwarding.Time).To(Equal(since))

		r.am.fail = func(string) int { return http.StatusBadGateway }
		r.wait(time.Hour)
		r.Expect(r.said(key)).To(Equal("Posted critical"), "people were told; the condition of the integration says the rest")
		r.alert("k", v1alpha1.AlertResolved)
		r.Expect(r.said(key)).To(Equal("Posted critical"), "they were told while it was open")
		r.alert("k", v1alpha1.AlertFiring, func(a *v1alpha1.Alert) { a.StartTime = new(v1alpha1.NewTimestamp(time.Now())) })
		r.Expect(r.said(key)).To(Equal("nothing"), "of the new episode")
		r.wait(reportInterval)
		r.Expect(r.said(key)).To(HavePrefix("Failing"))
		r.Expect(said.writes).To(Equal(4))
		var timeline []string
		for _, entry := range r.status(key).Timeline {
			if entry.Type == v1alpha1.TransitionForwarding {
				timeline = append(timeline, entry.Message)
			}
		}
		const failing = "Not posted to Alertmanager. No Alertmanager accepts the Incidents: alertmanager:9093 (HTTP 502 Bad Gateway)."
		r.Expect(timeline).To(Equal([]string{failing, "Posted to Alertmanager", failing}))
	})
}

// The fold that ends a mute asks while the cache still shows it. Nothing was posted then.
func TestTheEndOfAMuteIsNotTakenForAPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.report()
		r.maintain(within(time.Hour))
		key := r.alert("k", v1alpha1.AlertFiring)
		r.wait(reportInterval)
		r.Expect(r.said(key)).To(HavePrefix("Muted"))
		known := r.term.forwarder.Forwarding(types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
		r.Expect(known).To(Equal(fold.KnownForwarding{}))
	})
}

func TestANewLeaderLeavesWhatWasPosted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.report()
		key := r.alert("k", v1alpha1.AlertFiring)
		r.wait(reportInterval)
		r.Expect(r.said(key)).To(Equal("Posted warning"))
		r.am.fail = func(string) int { return http.StatusBadGateway }
		r.lead()
		for _, e := range r.term.endpoints.members {
			e.posters.members["address"] = r.poster
		}
		r.wait(time.Hour)
		r.Expect(r.said(key)).To(Equal("Posted warning"))
	})
}

func TestAStormOfNewsIsWrittenAtARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		said := r.report()
		const incidents = 500
		for i := range incidents {
			r.alert(fmt.Sprint("k", i), v1alpha1.AlertFiring, severity("critical"))
		}
		untold := func() float64 { return testutil.ToFloat64(criticalUntold.WithLabelValues(namespace, reasonPending)) }
		r.wait(reportInterval)
		r.Expect(said.writes).To(BeNumerically("~", reportRate*reportInterval.Seconds(), reportRate))
		r.wait(incidents * time.Second / reportRate)
		r.Expect(said.writes).To(Equal(incidents))
		r.Expect(untold()).To(BeZero())
		r.maintain(within(time.Hour))
		r.alert("new", v1alpha1.AlertFiring, severity("critical"))
		r.wait(reportInterval)
		r.Expect(testutil.ToFloat64(criticalUntold.WithLabelValues(namespace, "Muted"))).To(BeEquivalentTo(1))
	})
}

// An Alertmanager that did not accept an end still has the last episode, and notifies nobody of the next one.
func TestWhatIsKnownIsOfTheEpisodeThatWasPosted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.report()
		key := r.alert("k", v1alpha1.AlertFiring)
		r.wait(reportInterval)
		opened := func() time.Time {
			return r.term.forwarder.Forwarding(types.NamespacedName{Namespace: key.Namespace, Name: key.Name}).Opened
		}
		first := r.status(key).OpenedTime.Time
		r.Expect(opened()).To(BeTemporally("==", first))
		r.am.fail = func(string) int { return http.StatusBadGateway }
		r.alert("k", v1alpha1.AlertResolved)
		r.wait(time.Minute)
		r.alert("k", v1alpha1.AlertFiring, func(a *v1alpha1.Alert) { a.StartTime = new(v1alpha1.NewTimestamp(time.Now())) })
		r.wait(time.Minute)
		r.Expect(opened()).To(BeZero())
		r.Expect(r.said(key)).To(HavePrefix("Failing"))
		r.am.fail = nil
		r.wait(maxBackoff + reportInterval)
		r.Expect(opened()).To(BeTemporally("==", r.status(key).OpenedTime.Time))
		r.Expect(opened()).To(BeTemporally(">", first))
		r.Expect(r.said(key)).To(Equal("Posted warning"))
	})
}

// Nobody is notified of an opening while the alert of the last one fires on.
func TestWhatFiresOnStaysPosted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		key := r.keepBack()
		r.report()
		r.wait(reportInterval)
		r.Expect(r.said(key)).To(Equal("Posted error"))
		r.alert("k", v1alpha1.AlertResolved)
		r.am.fail = func(string) int { return http.StatusBadGateway }
		r.wait(time.Minute)
		r.alert("k", v1alpha1.AlertFiring, severity("error"))
		r.wait(5 * time.Minute)
		r.Expect(r.said(key)).To(Equal("Posted error"))
	})
}

// Failures that alternate cause no writes of the condition.
func TestACauseStaysWhileItIsSeen(t *testing.T) {
	g := NewWithT(t)
	var c cause
	now := noon
	fail := func(err error) string {
		now = now.Add(failingAfter / 2)
		c.set(err, now)
		return c.text
	}
	g.Expect(fail(syscall.ECONNREFUSED)).To(Equal("connection refused"))
	for range 10 {
		g.Expect(fail(context.DeadlineExceeded)).To(Equal("connection refused"))
		g.Expect(fail(syscall.ECONNREFUSED)).To(Equal("connection refused"))
	}
	fail(alertmanager.ErrNoClient)
	g.Expect(fail(alertmanager.ErrNoClient)).To(Equal("http_config cannot be used"), "it lasts")
}
