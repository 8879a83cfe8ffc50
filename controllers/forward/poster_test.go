package forward

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
)

// rig is a poster of a cluster's Incidents to an Alertmanager, in a synctest bubble: times are exact and cost nothing.
type rig struct {
	*testing.T
	*WithT
	*cluster
	am     *fakeAlertmanager
	target *config.Target
	poster *poster
	stop   func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, WithT: NewWithT(t), cluster: newCluster(), am: newFakeAlertmanager(), target: targetOf(&config.Config{})}
	r.integrate(v1alpha1.WebhookIntegrationSpec{})
	return r
}

// lead starts a new poster, as a new leader does, after stopping the last one.
func (r *rig) lead() {
	if r.stop != nil {
		r.stop()
	}
	r.poster = r.newPoster(r.am)
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.poster.run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
	r.Cleanup(r.stop)
	synctest.Wait()
}

func (r *rig) newPoster(am *fakeAlertmanager) *poster {
	s := newPoster(r.term, "alertmanager:9093", r.Name())
	s.configured.Store(&requestParams{target: r.target, client: am.client()})
	return s
}

// alert folds an alert and tells the poster, as the informer does.
func (r *rig) alert(key string, status v1alpha1.AlertStatus, change ...func(*v1alpha1.Alert)) types.NamespacedName {
	alert := v1alpha1.Alert{DedupKey: key, Status: status}
	for _, c := range change {
		c(&alert)
	}
	before, after := r.fold(alert)
	if received, urgent := alerts.Urgent(before, after, r.target.AlertLabels); urgent && r.poster != nil {
		r.poster.schedule.changed.add(client.ObjectKeyFromObject(after), received)
		synctest.Wait()
	}
	return client.ObjectKeyFromObject(after)
}

func severity(s v1alpha1.Severity) func(*v1alpha1.Alert) {
	return func(a *v1alpha1.Alert) { a.Severity = s }
}

func typed(kind string) func(*v1alpha1.Alert) { return func(a *v1alpha1.Alert) { a.Type = kind } }

func (r *rig) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestFireChangeResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.alert("before", v1alpha1.AlertFiring)
		r.lead()
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=warning"), "what exists is posted at the start")

		r.alert("k", v1alpha1.AlertFiring, typed("Disk"))
		r.Expect(r.am.firing()).To(ContainElement("alertname=Disk severity=warning"), "at once")
		r.wait(time.Hour)
		r.Expect(r.am.firing()).To(HaveLen(2), "renewed before the expiry ends")
		r.alert("k", v1alpha1.AlertFiring, severity("critical"))
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=warning", "alertname=Disk severity=critical"))
		r.wait(time.Minute)
		r.alert("k", v1alpha1.AlertResolved)
		r.wait(time.Second)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=warning"))
		requests := r.am.requests
		r.wait(time.Hour)
		r.Expect(r.am.requests-requests).To(BeNumerically("~", 60, 1), "one a minute")
		for set, fired := range r.am.fired {
			r.Expect(fired).To(HaveLen(1), set)
		}
	})
}

// labelChanges is how often the labels of an Incident change within the time in which its end is posted, see package alerts.
const labelChanges = 8

func TestChangedLabelsEndTheOldSet(t *testing.T) {
	team := func(name string) func(*v1alpha1.Alert) {
		return func(a *v1alpha1.Alert) { a.Labels = map[string]string{"team": name} }
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.target.AlertLabels = []string{"team"}
		r.lead()
		r.alert("k", v1alpha1.AlertFiring, team("core"))
		r.alert("k", v1alpha1.AlertFiring, team("shop"))
		r.wait(time.Second)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=warning team=shop"))
		r.alert("k", v1alpha1.AlertFiring, team("core"))
		r.wait(time.Second)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=warning team=core"))
		for i := range 100 {
			r.alert("k", v1alpha1.AlertFiring, team(fmt.Sprint(i)))
			r.wait(time.Second)
			newest := min(i, labelChanges-4) // after "core", "shop" and "core"
			r.Expect(r.am.firing()).To(ConsistOf(fmt.Sprint("alertname=mon severity=warning team=", newest)))
		}
		r.alert("k", v1alpha1.AlertFiring, severity("critical"))
		r.wait(time.Second)
		r.Expect(r.am.firing()).To(ConsistOf(HavePrefix("alertname=mon severity=critical team=")), "a severity always changes")
		r.wait(alerts.MinEndedWindow + 2*alerts.MaxRoundInterval)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=critical team=99"))
		r.alert("k", v1alpha1.AlertResolved)
		r.wait(time.Hour)
		r.Expect(r.am.firing()).To(BeEmpty())
		r.Expect(r.poster.record.incidents).To(BeEmpty())
	})
}

// Alertmanager keeps a set for half an hour. A sender changes the type with every alert, and resolves and fires in turns.
func TestAlertmanagerGetsFewSetsOfAnIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		severities := v1alpha1.Severities()
		for i := range 1200 {
			status := v1alpha1.AlertFiring
			if i%5 == 4 {
				status = v1alpha1.AlertResolved
			}
			r.alert("k", status, typed(fmt.Sprint("Disk", i)), severity(severities[i%7%len(severities)]))
			r.wait(time.Second)
		}
		r.Expect(len(r.am.sets(false))).To(BeNumerically("<=", 2*labelChanges*len(severities)), "in 20 minutes")
		r.alert("k", v1alpha1.AlertResolved)
		r.wait(time.Second)
		r.Expect(r.am.firing()).To(BeEmpty())
		r.wait(time.Hour)
		r.Expect(r.poster.record.incidents).To(BeEmpty())
		r.alert("k", v1alpha1.AlertFiring, typed("New"), severity("info"))
		r.Expect(r.am.firing()).To(ConsistOf("alertname=New severity=info"))
	})
}

func TestTheNameOfAnAlertStaysWhileItFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		alert := func(title, kind string) types.NamespacedName {
			key := r.alert("k", v1alpha1.AlertFiring, typed(kind), func(a *v1alpha1.Alert) { a.Title = title })
			r.wait(time.Second)
			return key
		}
		alert("Disk 91% full", "")
		r.Expect(r.am.firing()).To(ConsistOf("alertname=Disk full severity=warning"))
		alert("Disk 92% full, help", "")
		r.Expect(r.am.firing()).To(ConsistOf("alertname=Disk full severity=warning"))
		key := alert("", "DiskFull")
		r.Expect(r.am.firing()).To(ConsistOf("alertname=DiskFull severity=warning"))
		r.edit(key, func(s *v1alpha1.IncidentStatus) { s.Episode.Title = "" })
		alert("Disk 93% full", "webhook")
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=warning"), "an earlier version began the episode, and named the alert so")
	})
}

func TestNewLeaderEndsEarlierSeverities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.alert("k", v1alpha1.AlertFiring)
		r.stop() // between leaders, nobody posts
		r.poster = nil
		r.alert("k", v1alpha1.AlertFiring, severity("critical"))
		r.wait(time.Minute)
		r.lead()
		r.wait(time.Second)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=critical"))
	})
}

// What an earlier leader has posted with labels that no status has any more ends, also if Alertmanager tells it only later.
func TestNewLeaderEndsEarlierLabels(t *testing.T) {
	team := func(name string) func(*v1alpha1.Alert) {
		return func(a *v1alpha1.Alert) { a.Labels = map[string]string{"team": name} }
	}
	for sentence, test := range map[string]struct {
		failures int // of requests for what fires
		change   func(r *rig, key types.NamespacedName)
		firing   string
	}{
		"of a sender":        {change: func(*rig, types.NamespacedName) {}, firing: "alertname=Old severity=warning team=shop"},
		"that are read late": {failures: 2, change: func(*rig, types.NamespacedName) {}, firing: "alertname=Old severity=warning team=shop"},
		"of another type and severity": {change: func(r *rig, _ types.NamespacedName) {
			r.alert("k", v1alpha1.AlertFiring, typed("New"), severity("critical"))
		}, firing: "alertname=New severity=critical team=shop"},
		"of a former Incident": {change: func(r *rig, key types.NamespacedName) {
			r.delete(key)
			r.alert("k", v1alpha1.AlertFiring, typed("New"), severity("info"))
		}, firing: "alertname=New severity=info"},
		"of one that is Resolved": {change: func(r *rig, _ types.NamespacedName) { r.alert("k", v1alpha1.AlertResolved) }},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, failures := newRig(t), test.failures
				r.target.AlertLabels = []string{"team"}
				r.target.Expiry = 24 * time.Hour
				r.lead()
				key := r.alert("k", v1alpha1.AlertFiring, typed("Old"), team("core"))
				r.stop() // between leaders, nobody posts
				r.poster = nil
				r.alert("k", v1alpha1.AlertFiring, team("shop"))
				test.change(r, key)
				r.am.fail = func(body string) int {
					if body == "null" && failures > 0 {
						failures--
						return http.StatusServiceUnavailable
					}
					return 0
				}
				r.lead()
				r.wait(time.Duration(test.failures)*alerts.MaxRoundInterval + alerts.FormerDelay + time.Second)
				if test.firing == "" {
					r.Expect(r.am.firing()).To(BeEmpty())
				} else {
					r.Expect(r.am.firing()).To(ConsistOf(test.firing))
				}
			})
		})
	}
}

// An Incident is deleted between two leaders, and the next one of its name has another severity and is Resolved when it is first
// seen, which is after Alertmanager has told what fires.
func TestNewLeaderEndsWhatFiredOfADeletedIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.target.Expiry = 24 * time.Hour
		r.lead()
		key := r.alert("k", v1alpha1.AlertFiring)
		r.stop()
		r.delete(key)
		delete(r.term.incidents.index, key)
		r.lead()
		r.wait(time.Second)
		poster := r.poster
		r.poster = nil
		r.alert("k", v1alpha1.AlertFiring, severity("info"))
		r.alert("k", v1alpha1.AlertResolved)
		poster.schedule.changed.add(key, time.Time{})
		r.wait(alerts.FormerDelay)
		r.Expect(r.am.firing()).To(BeEmpty())
	})
}

// An Alertmanager that does not tell what it has is asked until all of that has expired, and hardly delays what is new.
func TestAnAlertmanagerDoesNotTellWhatFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, asked := newRig(t), 0
		r.alert("old", v1alpha1.AlertFiring)
		r.am.fail = func(body string) int {
			if body != "null" {
				return 0
			}
			asked++
			return hangs
		}
		r.lead()
		r.wait(partTimeout)
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.alert("new", v1alpha1.AlertFiring)
		r.Expect(r.am.firing()).To(HaveLen(2))
		r.wait(24 * time.Hour)
		interval := r.target.RoundInterval() + alertmanager.RequestTimeout
		r.Expect(asked).To(BeNumerically("~", r.target.Expiry/interval, 6), "more often at first")
		r.Expect(r.am.firing()).To(HaveLen(2))
	})
}

// A new leader whose watch is behind what the earlier one has posted does not end that.
func TestANewLeaderWithAnOldCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		key := r.alert("k", v1alpha1.AlertFiring)
		old := r.term.incidents.index[key]
		r.alert("k", v1alpha1.AlertFiring, severity("critical"))
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=critical"))
		shown := r.term.incidents.index[key]
		r.term.incidents.index[key] = old
		r.lead()
		r.wait(alerts.FormerDelay / 2)
		r.Expect(r.am.firing()).To(ContainElement("alertname=mon severity=critical"))
		r.term.incidents.index[key] = shown
		r.poster.schedule.changed.add(key, time.Time{})
		r.wait(time.Hour)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=critical"))
		for set, ends := range r.am.fired {
			if strings.Contains(set, "critical") {
				r.Expect(ends).To(HaveLen(1), "it has never ended")
			}
		}
	})
}

// What others have in an Alertmanager takes no memory, however much it is.
func TestAlertsOfOthersTakeNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 20_000 {
			labels := map[string]string{
				alerts.LabelNamespace: namespace, "integration": "other", alerts.LabelIncident: fmt.Sprint("other-", i), "severity": "info",
			}
			if i%2 == 0 {
				labels["integration"], labels["text"] = integration, strings.Repeat("x", 8<<10)
			}
			r.am.alerts[fmt.Sprint(i)] = stored{labels: labels, endsAt: time.Now().Add(time.Hour)}
		}
		r.lead()
		r.wait(time.Second)
		r.Expect(len(r.poster.record.incidents)).To(BeNumerically("~", maxFormerBytes/(8<<10), 100))
		r.wait(r.target.Expiry + time.Minute)
		r.Expect(r.poster.record.incidents).To(BeEmpty())
	})
}

func TestDeletedAndDeselectedIncidentsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		deleted := r.alert("deleted", v1alpha1.AlertFiring, typed("Deleted"))
		kept := r.alert("kept", v1alpha1.AlertFiring, typed("Kept"))
		r.delete(deleted)
		r.poster.schedule.changed.add(deleted, time.Time{})
		r.wait(time.Second)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=Kept severity=warning"))
		r.integrate(v1alpha1.WebhookIntegrationSpec{Forward: v1alpha1.ForwardNever})
		r.poster.schedule.changed.add(kept, time.Time{})
		r.wait(time.Second)
		r.Expect(r.am.firing()).To(BeEmpty())
		r.wait(time.Hour)
		r.Expect(r.poster.record.incidents).To(BeEmpty())
		r.Expect(r.am.fired).To(HaveLen(2))
	})
}

// An integration that is deleted and created again, as GitOps tools do, must not end its alerts.
func TestIntegrationThatIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		key := r.alert("k", v1alpha1.AlertFiring)
		r.disintegrate()
		r.poster.schedule.changed.add(key, time.Time{})
		r.wait(10 * time.Minute)
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.integrate(v1alpha1.WebhookIntegrationSpec{})
		r.wait(time.Hour)
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.disintegrate()
		r.wait(15*time.Minute + time.Second)
		r.Expect(r.am.firing()).To(BeEmpty(), "the expiry ended")
	})
}

func TestNothingEndsWithinTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.alert("k", v1alpha1.AlertFiring)
		r.wait(30 * time.Second)
		r.stop() // Tocsin is down
		r.wait(10 * time.Minute)
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.lead()
		r.wait(time.Hour)
		r.am.fail = func(string) int { return http.StatusInternalServerError }
		r.wait(10 * time.Minute)
		r.am.fail = nil
		r.wait(time.Minute)
		for _, fired := range r.am.fired {
			r.Expect(fired).To(HaveLen(1), "it never ended")
		}
	})
}

func TestRestartedAlertmanagerLearnsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		for i := range 600 {
			r.alert(fmt.Sprint(i), v1alpha1.AlertFiring, typed(fmt.Sprint("Disk", i)))
		}
		r.am.fail = func(string) int { return http.StatusServiceUnavailable }
		r.wait(5 * time.Minute)
		r.am.fail, r.am.alerts = nil, map[string]stored{}
		r.wait(2 * maxBackoff)
		r.Expect(r.am.firing()).To(HaveLen(600))
	})
}

// A person who looks at the log an hour later still finds why.
func TestAFailureIsLoggedWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var lines []string
		r.term.forwarder.log = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		r.am.fail = func(string) int { return http.StatusServiceUnavailable }
		r.lead()
		r.alert("disk", v1alpha1.AlertFiring)
		r.wait(time.Hour)
		r.Expect(len(lines)).To(BeNumerically("~", time.Hour/logInterval, 1), "each maxBackoff, there is an attempt")
		r.Expect(lines).To(HaveEach(ContainSubstring("Alerts cannot be forwarded")))
		r.am.fail = nil
		r.wait(2 * maxBackoff)
		r.Expect(lines[len(lines)-1]).To(ContainSubstring("Alerts are forwarded again"))
	})
}

// Alertmanager, or a proxy in front of it, does not accept some alerts.
func TestRejectedAlertDelaysNoOther(t *testing.T) {
	for name, c := range map[string]struct{ bad, code int }{
		"rejects one":             {1, http.StatusBadRequest},
		"rejects most":            {190, http.StatusBadRequest},
		"forbids one":             {1, http.StatusForbidden},
		"fails at one":            {1, http.StatusBadGateway},
		"fails at most":           {190, http.StatusServiceUnavailable},
		"does not answer for one": {1, hangs},
		"does not answer for 20":  {20, hangs},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.am.fail = func(body string) int {
					if strings.Contains(body, `"alertname":"Bad`) {
						return c.code
					}
					return 0
				}
				for i := range 200 {
					kind := "Good"
					if i < c.bad {
						kind = "Bad"
					}
					r.alert(fmt.Sprint(i), v1alpha1.AlertFiring, typed(fmt.Sprint(kind, i)))
				}
				r.lead()
				r.wait(time.Minute)
				r.wait(time.Hour)
				r.Expect(r.am.firing()).To(HaveLen(200 - c.bad))
				for set, fired := range r.am.fired {
					r.Expect(fired).To(HaveLen(1), set)
				}
				requests := r.am.requests
				r.wait(time.Hour)
				r.Expect((r.am.requests-requests)/60).To(BeNumerically("<=", 2+2*c.bad), "a minute: a sweep, and two for each of the others")
				r.alert("new", v1alpha1.AlertFiring, typed("New"))
				r.wait(maxAlone * partTimeout)
				r.Expect(r.am.firing()).To(HaveLen(201 - c.bad))

				healthy, known := r.poster.record.health(time.Now())
				r.Expect(healthy && known).To(BeTrue(), "others are accepted")
				e := newEndpoint(r.term, r.target)
				e.posters.members["a"] = r.poster
				condition := metav1.Condition{}
				r.Expect(r.term.describeHealth(&condition, []*endpoint{e}, types.NamespacedName{Namespace: namespace, Name: integration}, time.Now())).To(BeTrue())
				r.Expect(condition.Reason).To(Equal(v1alpha1.ReasonSomeFailing))
				cause := fmt.Sprint("HTTP ", c.code, " ", http.StatusText(c.code))
				if c.code == hangs {
					cause = "no answer in time"
				}
				r.Expect(condition.Message).To(Equal(
					messageForwarding + "alertmanager:9093. " + messageRejecting + "alertmanager:9093 (" + cause + ")."))

				r.am.fail = nil
				r.wait(2 * time.Minute)
				r.Expect(r.am.firing()).To(HaveLen(201), "the next sweep tries again")
				r.Expect(r.poster.record.rejected).To(BeZero())
			})
		})
	}
}

// One namespace has Incidents that Alertmanager does not answer, so many that they cannot all be found at once. Those of another one
// come in the same request.
func TestWhatGetsNoAnswerDelaysNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.target.Expiry = time.Minute
		r.am.fail = func(body string) int {
			if strings.Contains(body, `"alertname":"Bad`) {
				return hangs
			}
			return 0
		}
		const bad, good = 30, 20
		other := types.NamespacedName{Namespace: "other", Name: integration}
		r.term.incidents.replaceIntegration(other,
			&v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: other.Namespace, Name: other.Name}})
		for i := range bad {
			key := r.alert(fmt.Sprint("bad-", i), v1alpha1.AlertFiring, typed(fmt.Sprint("Bad", i)))
			moved := r.objects[key].DeepCopy()
			moved.Namespace = other.Namespace
			r.delete(key)
			r.store(moved)
		}
		for i := range good {
			r.alert(fmt.Sprint("good-", i), v1alpha1.AlertFiring, typed(fmt.Sprint("Good", i)))
		}
		r.lead()
		r.wait(2 * time.Minute)
		r.Expect(r.am.firing()).To(HaveLen(good))
		for second := range 600 {
			r.wait(time.Second)
			r.Expect(r.am.firing()).To(HaveLen(good), "after %d seconds", second)
		}
		r.alert("new", v1alpha1.AlertFiring, typed("New"))
		r.wait(maxAlone * partTimeout)
		r.Expect(r.am.firing()).To(HaveLen(good + 1))
	})
}

// A request that fails once is split, and an Alertmanager that is slow accepts the parts as well.
func TestASlowAlertmanagerAcceptsParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.am.takes = 2 * partTimeout
		failures := 1
		r.am.fail = func(body string) int {
			if strings.Contains(body, "Disk") {
				if failures--; failures >= 0 {
					return http.StatusBadGateway
				}
			}
			return 0
		}
		for i := range 20 {
			r.alert(fmt.Sprint(i), v1alpha1.AlertFiring, typed(fmt.Sprint("Disk", i)))
		}
		r.lead()
		r.wait(time.Minute)
		r.Expect(r.am.firing()).To(HaveLen(20))
		r.Expect(r.poster.record.rejected).To(BeZero())
	})
}

// A failure that is over after a moment costs no alert more than that moment.
func TestAnAlertThatFailsOnceIsPostedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		failures := 3
		r.am.fail = func(body string) int {
			if failures--; failures < 0 || body == "[]" {
				return 0
			}
			return http.StatusBadGateway
		}
		r.alert("k", v1alpha1.AlertFiring)
		r.wait(3 * time.Second)
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.Expect(r.poster.record.rejected).To(BeZero())
	})
}

// One that accepts nothing but empty lists does not notify anybody.
func TestAcceptingOnlyEmptyListsIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.am.fail = func(body string) int {
			if body == "[]" {
				return 0
			}
			return http.StatusForbidden
		}
		r.alert("k", v1alpha1.AlertFiring)
		r.lead()
		r.wait(5 * time.Minute)
		healthy, known := r.poster.record.health(time.Now())
		r.Expect(!healthy && known).To(BeTrue())
	})
}

func TestProxyThatRejectsEverythingIsNotBisected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 200 {
			r.alert(fmt.Sprint(i), v1alpha1.AlertFiring, typed(fmt.Sprint("Disk", i)))
		}
		r.am.fail = func(string) int { return http.StatusBadRequest }
		r.lead()
		r.wait(10 * time.Minute)
		r.Expect(r.am.requests).To(BeNumerically("<", 120), "two for each attempt")
		healthy, known := r.poster.record.health(time.Now())
		r.Expect(!healthy && known).To(BeTrue())
		r.am.fail = nil
		r.wait(2 * maxBackoff)
		r.Expect(r.am.firing()).To(HaveLen(200))
	})
}

func TestHangingAlertmanagerDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		hanging := newFakeAlertmanager()
		hanging.hang = true
		other := r.newPoster(hanging)
		go other.run(r.Context())
		before, after := r.fold(v1alpha1.Alert{DedupKey: "k", Status: v1alpha1.AlertFiring})
		received, _ := alerts.Urgent(before, after, nil)
		for _, s := range []*poster{other, r.poster} {
			s.schedule.changed.add(client.ObjectKeyFromObject(after), received)
		}
		synctest.Wait()
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.wait(2 * time.Minute)
		healthy, known := other.record.health(time.Now())
		r.Expect(!healthy && known).To(BeTrue())
		hanging.mu.Lock()
		hanging.hang = false
		hanging.mu.Unlock()
		r.wait(2*maxBackoff + alertmanager.RequestTimeout)
		r.Expect(hanging.firing()).To(HaveLen(1))
		healthy, known = other.record.health(time.Now())
		r.Expect(healthy && known).To(BeTrue())
	})
}

func TestHealthWithoutIncidents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.Expect(r.am.empty).To(Equal(2), "an empty list tells the time, and another one in each round whether Alertmanager works")
		healthy, known := r.poster.record.health(time.Now())
		r.Expect(healthy && known).To(BeTrue())
		r.am.fail = func(string) int { return http.StatusNotFound }
		r.wait(5 * time.Minute)
		healthy, known = r.poster.record.health(time.Now())
		r.Expect(!healthy && known).To(BeTrue())
	})
}

// The leader's clock is wrong by an hour; the API server's is right.
func TestWrongClock(t *testing.T) {
	for name, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				answered := false
				own := func() time.Time { return time.Now().Add(offset) }
				r.clock = func() (time.Time, bool) { return own().Add(-offset), answered }
				r.alert("k", v1alpha1.AlertFiring)
				r.lead()
				r.Expect(r.am.requests).To(BeZero(), "the API server's time is not known yet")
				answered = true
				r.wait(time.Second)
				r.Expect(r.am.firing()).To(HaveLen(1))
				for _, alert := range r.am.alerts {
					r.Expect(alert.endsAt).To(BeTemporally("~", time.Now().Add(15*time.Minute), time.Second))
				}
			})
		})
	}
}

// endingLease is a Lease that may run out.
type endingLease struct{ ended bool }

func (l *endingLease) Holds() bool { return !l.ended }

// A leader that was frozen may not know that another one leads.
func TestNothingIsPostedAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		lease := &endingLease{}
		r.term.lease = lease
		r.lead()
		b := &batch{posts: []*post{{key: r.alert("k", v1alpha1.AlertFiring)}}}
		r.wait(time.Minute)
		lease.ended = true
		requests := r.am.requests
		params, _ := r.poster.requestParams()
		r.Expect(r.poster.deliver(t.Context(), params, b)).To(MatchError(errNoClock), "it was frozen just before it posts")
		r.alert("new", v1alpha1.AlertFiring)
		r.wait(time.Hour)
		r.Expect(r.am.requests).To(Equal(requests))
		lease.ended = false
		r.wait(time.Minute)
		r.Expect(r.am.firing()).To(HaveLen(2))
	})
}

// Alertmanager's clock is wrong; those of the API server and of the leader are right. A proxy that writes the Date may be the
// one that is wrong.
func TestWrongClockOfAlertmanager(t *testing.T) {
	for name, c := range map[string]struct{ ahead, proxy time.Duration }{
		"ahead by an expiry":             {15 * time.Minute, 15 * time.Minute},
		"ahead by a day":                 {24 * time.Hour, 24 * time.Hour},
		"behind by an hour":              {-time.Hour, -time.Hour},
		"a proxy in front an hour ahead": {0, time.Hour},
		"a proxy in front a day behind":  {0, -24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.am.now = func() time.Time { return time.Now().Add(c.ahead) }
				r.am.date = func() time.Time { return time.Now().Add(c.proxy) }
				r.alert("k", v1alpha1.AlertFiring)
				r.lead()
				r.wait(time.Second)
				r.Expect(r.am.firing()).To(HaveLen(1))
				r.wait(time.Hour)
				r.alert("new", v1alpha1.AlertFiring)
				r.Expect(r.am.firing()).To(HaveLen(2), "at once")
				e := newEndpoint(r.term, r.target)
				e.posters.members["a"] = r.poster
				var condition metav1.Condition
				r.Expect(r.term.describeHealth(&condition, []*endpoint{e}, types.NamespacedName{Namespace: namespace, Name: integration}, time.Now())).To(BeTrue())
				r.Expect(condition.Message).To(Equal(messageForwarding + "alertmanager:9093. " + messageWrongClock + "alertmanager:9093."))

				r.am.date = r.am.now
				r.wait(time.Minute)
				r.alert("k", v1alpha1.AlertResolved)
				r.alert("new", v1alpha1.AlertResolved)
				r.wait(2 * time.Second)
				r.Expect(r.am.firing()).To(BeEmpty())
				r.wait(time.Hour)
				r.Expect(r.am.firing()).To(BeEmpty())
				for set, fired := range r.am.fired {
					r.Expect(fired).To(HaveLen(1), set)
				}
			})
		})
	}
}

// An Alertmanager that was away is started on another machine, whose clock is wrong. It is not told of an end that is none.
func TestAnAlertmanagerComesBackWithAnotherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		key := r.alert("k", v1alpha1.AlertFiring)
		r.am.fail = func(string) int { return http.StatusServiceUnavailable }
		r.wait(5 * time.Minute)
		ahead := func() time.Time { return time.Now().Add(r.target.Expiry + time.Minute) }
		ended := 0
		r.am.alerts, r.am.now, r.am.date = map[string]stored{}, ahead, ahead
		r.am.fail = func(body string) int {
			var posted []struct{ EndsAt time.Time }
			_ = json.Unmarshal([]byte(body), &posted)
			for _, alert := range posted {
				if !alert.EndsAt.After(ahead()) {
					ended++
				}
			}
			return 0
		}
		r.poster.schedule.changed.add(key, time.Time{})
		r.wait(2 * maxBackoff)
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.Expect(ended).To(BeZero())
		r.Expect(r.am.listed).To(Equal(1), "what an earlier leader has posted is asked for once")
	})
}

func TestStormOfOneNamespace(t *testing.T) {
	g := NewWithT(t)
	q := newIncidentQueue()
	for i := range 10_000 {
		q.add(types.NamespacedName{Namespace: "storm", Name: fmt.Sprint(i)}, time.Time{})
	}
	q.add(types.NamespacedName{Namespace: "quiet", Name: "one"}, noon)
	q.add(types.NamespacedName{Namespace: "quiet", Name: "one"}, noon.Add(time.Minute))
	var taken []types.NamespacedName
	for range 3 {
		key, received, _ := q.next()
		taken = append(taken, key)
		if key.Namespace == "quiet" {
			g.Expect(received).To(Equal(noon), "the earlier change counts")
		}
	}
	g.Expect(taken).To(Equal([]types.NamespacedName{
		{Namespace: "storm", Name: "0"}, {Namespace: "quiet", Name: "one"}, {Namespace: "storm", Name: "1"},
	}))
}

func TestStormDoesNotStopTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 300 {
			r.alert(fmt.Sprint(i), v1alpha1.AlertFiring, typed(fmt.Sprint("Disk", i)))
		}
		s := r.newPoster(r.am)
		open, _ := r.term.incidents.active(time.Time{})
		for _, key := range open {
			s.schedule.changed.add(key, time.Time{})
		}
		r.alert("last", v1alpha1.AlertFiring)
		s.schedule.round = slices.Repeat([]types.NamespacedName{{Namespace: "shop", Name: v1alpha1.IncidentName("mon", "last")}}, 100)
		params, _ := s.requestParams()
		posts := s.next(t.Context(), params).posts
		r.Expect(posts).To(HaveLen(batchIncidents))
		swept := 0
		for _, p := range posts {
			if p.key.Name == v1alpha1.IncidentName("mon", "last") {
				swept++
			}
		}
		r.Expect(swept).To(Equal(batchIncidents - changedIncidents))
	})
}

// slowReader takes a while for each Incident, and has none.
type slowReader struct{ client.Reader }

func (slowReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	time.Sleep(20 * time.Millisecond)
	return apierrors.NewNotFound(schema.GroupResource{}, "")
}

// Thousands of Resolved Incidents of one namespace, which have to be read one after another, delay no page of another one for long,
// and no round.
func TestReadsDelayNoPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.term.incidents.api = slowReader{}
		r.lead()
		r.alert("open", v1alpha1.AlertFiring, typed("Open"))
		for i := range 5000 {
			gone := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "storm", Name: fmt.Sprint(i), ResourceVersion: "1"}}
			r.term.incidents.noteGone(gone, time.Now())
			r.poster.schedule.changed.add(client.ObjectKeyFromObject(gone), time.Time{})
		}
		time.Sleep(10 * time.Second)
		before := time.Now()
		r.alert("page", v1alpha1.AlertFiring, typed("Page"))
		posted := func(kind string) bool { return slices.Contains(r.am.firing(), "alertname="+kind+" severity=warning") }
		r.Expect(posted("Open")).To(BeTrue())
		for !posted("Page") && time.Since(before) < time.Minute {
			time.Sleep(50 * time.Millisecond)
		}
		r.Expect(time.Since(before)).To(BeNumerically("<", 2*time.Second))
		r.wait(10 * time.Minute)
		r.Expect(posted("Open")).To(BeTrue())
		r.Expect(r.poster.schedule.changed.isEmpty()).To(BeTrue())
	})
}

func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 400 {
			r.alert(fmt.Sprint(i), v1alpha1.AlertFiring, typed(fmt.Sprint("Disk", i)), func(a *v1alpha1.Alert) {
				a.Description = strings.Repeat("\u2028<é", 5000)
			})
		}
		largest := 0
		r.am.fail = func(body string) int {
			largest = max(largest, len(body))
			return 0
		}
		r.lead()
		r.Expect(r.am.firing()).To(HaveLen(400))
		r.Expect(largest).To(And(BeNumerically(">", batchBytes/2), BeNumerically("<", batchBytes+32<<10)))
	})
}
