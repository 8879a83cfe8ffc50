package webhookserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// pendingEvent is an AlertEvent of the integration "prometheus".
func pendingEvent(namespace, name string, change ...func(*v1alpha1.AlertEvent)) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: "prometheus",
			Alerts:          []v1alpha1.Alert{{DedupKey: "x"}},
		},
	}
	for _, f := range change {
		f(event)
	}
	return event
}

// blockedIntegration is the integration "prometheus" as the leader marks it for this reason.
func blockedIntegration(namespace, reason string) *v1alpha1.WebhookIntegration {
	w := integration(namespace, "prometheus")
	w.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionAlertsFolded, Status: metav1.ConditionFalse, Reason: reason},
	}
	return w
}

func TestANamespaceThatCannotDrainRefusesNobodyElse(t *testing.T) {
	terminating := func(e *v1alpha1.AlertEvent) { e.DeletionTimestamp = &metav1.Time{Time: noon} }
	for name, test := range map[string]struct {
		change  func(*v1alpha1.AlertEvent)
		blocked string
		drains  bool
		reason  string
	}{
		"kept by a finalizer": {change: terminating, reason: v1alpha1.StuckTerminating},
		"with packed alerts that cannot be decoded": {reason: v1alpha1.StuckUnreadable, change: func(e *v1alpha1.AlertEvent) {
			e.Spec.Alerts, e.Spec.PackedAlerts = nil, "bm8gZ3ppcA=="
		}},
		"quarantined": {reason: v1alpha1.StuckQuarantined, change: func(e *v1alpha1.AlertEvent) {
			e.Labels = map[string]string{v1alpha1.QuarantineLabel: "Invalid"}
		}},
		"of an integration whose Incidents a quota rejects": {
			blocked: v1alpha1.ReasonQuotaExceeded, reason: v1alpha1.ReasonQuotaExceeded},
		"of an integration at the limit of Incidents": {
			blocked: v1alpha1.ReasonIncidentLimit, reason: v1alpha1.ReasonIncidentLimit},
		"of an integration that does not exist": {change: func(e *v1alpha1.AlertEvent) { e.Spec.IntegrationName = "none" }},
		"of no integration":                     {change: func(e *v1alpha1.AlertEvent) { e.Spec.IntegrationName = "" }},
		"that wait for their fold":              {drains: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			change := test.change
			if change == nil {
				change = func(*v1alpha1.AlertEvent) {}
			}
			p := newPendingCounter(80, 0.25)
			events, integrations := p.handler(), p.integrations()
			var added []*v1alpha1.AlertEvent
			for n := range 40 { // namespaces, each with its share
				namespace := fmt.Sprintf("bad-%d", n)
				integrations.OnAdd(blockedIntegration(namespace, test.blocked), true)
				for i := range 3 {
					event := pendingEvent(namespace, fmt.Sprint(i), change)
					events.OnAdd(event, true)
					added = append(added, event)
				}
			}
			g.Expect(p.draining.events >= 80).To(Equal(test.drains), "%+v", p.draining)
			if test.reason != "" {
				g.Expect(p.stuck()).To(HaveKeyWithValue(test.reason, int64(120)))
			}
			for i := range 17 {
				events.OnAdd(pendingEvent("bad-0", fmt.Sprint("more-", i), change), false)
			}
			g.Expect(p.refuses("bad-0")).To(BeTrue(), "its share is full")
			g.Expect(p.fullest()).To(HaveKeyWithValue("bad-0", 1.0))
			g.Expect(p.fullest()).To(HaveLen(1))
			g.Expect(p.refuses("good")).To(Equal(false))
			g.Expect(p.refuses("bad-1")).To(Equal(test.drains), "3 of 80, when those that drain fill the limit")

			for i := range 17 {
				events.OnDelete(pendingEvent("bad-0", fmt.Sprint("more-", i)))
			}
			for _, event := range added {
				events.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: event})
			}
			g.Expect(p.all).To(BeZero())
			g.Expect(p.draining).To(BeZero())
			g.Expect(p.busy).To(BeZero())
			g.Expect(p.refuses("bad-0")).To(BeFalse(), "it recovers by itself")
		})
	}
}

func TestWhatCannotDrainIsBoundedForEtcd(t *testing.T) {
	g := NewWithT(t)
	p := newPendingCounter(80, 0.25)
	for n := range 60 {
		namespace := fmt.Sprintf("bad-%d", n)
		for i := 0; !p.refuses(namespace); i++ {
			p.set(pendingEvent(namespace, fmt.Sprint(i), func(e *v1alpha1.AlertEvent) { e.Spec.IntegrationName = "" }))
		}
	}
	g.Expect(p.all.events).To(And(BeNumerically(">=", 160), BeNumerically("<=", 300)),
		"between twice and three times the limit, and one for each namespace")
	g.Expect(p.draining).To(BeZero())
	g.Expect(p.ratio()).To(BeNumerically(">=", 1))
	g.Expect(p.refuses("good")).To(BeFalse())
}

func TestLargeAlertEventsFillAShareAsWell(t *testing.T) {
	g := NewWithT(t)
	p := newPendingCounter(DefaultMaxPendingEvents, 0.25)
	unreadable := pendingEvent("bad", "", func(e *v1alpha1.AlertEvent) {
		e.Spec.Alerts, e.Spec.PackedAlerts = nil, strings.Repeat("A", 1<<20)
		e.Condense()
	})
	g.Expect(len(unreadable.Spec.PackedAlerts)).To(BeNumerically("<", 200), "the text is not kept")
	for i := range 63 {
		unreadable.Name = fmt.Sprint(i)
		p.set(unreadable)
	}
	g.Expect(p.refuses("bad")).To(BeFalse())
	unreadable.Name = "last"
	p.set(unreadable)
	g.Expect(p.refuses("bad")).To(BeTrue(), "64 MiB are a quarter of 256")
	g.Expect(p.refuses("good")).To(BeFalse())
}

func TestTheCounterAgreesWithACountMadeAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPendingCounter(10, 0.5)
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			namespace := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "namespace")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				p.set(pendingEvent(namespace, rapid.StringMatching("[a-h]").Draw(t, "name"), func(e *v1alpha1.AlertEvent) {
					e.Spec.IntegrationName = rapid.SampledFrom([]string{"", "prometheus", "other"}).Draw(t, "integration")
					if rapid.Bool().Draw(t, "stuck") {
						e.DeletionTimestamp = &metav1.Time{Time: noon}
					}
				}))
			case 2:
				p.handler().OnDelete(pendingEvent(namespace, rapid.StringMatching("[a-h]").Draw(t, "name")))
			default:
				reason := rapid.SampledFrom([]string{"", v1alpha1.ReasonQuotaExceeded}).Draw(t, "reason")
				if rapid.Bool().Draw(t, "deleted") {
					p.integrations().OnDelete(integration(namespace, "prometheus"))
				} else {
					p.integrations().OnUpdate(nil, blockedIntegration(namespace, reason))
				}
			}
			checkPending(t, p)
		}
	})
}

// checkPending counts anew what the counter has counted.
func checkPending(t *rapid.T, p *pendingCounter) {
	var all, draining int64
	for _, namespace := range []string{"a", "b", "c"} {
		own := int64(0)
		for name, event := range p.events {
			if name.Namespace != namespace {
				continue
			}
			all++
			queue := p.namespaces[namespace].integrations[event.integration]
			if event.stuck == "" && queue != nil && queue.exists && queue.blocked == "" {
				own++
			}
		}
		draining += min(own, 5)
	}
	if p.all.events != all || p.draining.events != draining {
		t.Fatalf("counted %d, of which %d drain; there are %d and %d", p.all.events, p.draining.events, all, draining)
	}
	busy := map[string]bool{}
	for name := range p.events {
		busy[name.Namespace] = true
	}
	if p.busy != len(busy) {
		t.Fatalf("%d namespaces are busy, not %d", len(busy), p.busy)
	}
}

func TestAtTheLimitOfIncidentsOnlyNewKeysAreRefused(t *testing.T) {
	known := v1alpha1.IncidentName("prometheus", "known")
	for name, test := range map[string]struct {
		body   string
		limit  int64
		status int
		kind   string
		stored []string // keys
	}{
		"a new key":                          {`{"dedup_key":"new"}`, 4, 503, "incident-limit", nil},
		"a new key, and another namespace's": {`{"dedup_key":"new"}`, 8, 202, "", []string{"new"}},
		"no key":                             {`{"title":"x"}`, 4, 503, "incident-limit", nil},
		"a known key":                        {`{"dedup_key":"known"}`, 4, 202, "", []string{"known"}},
		"a resolve of an unknown key":        {`{"dedup_key":"other","status":"resolved"}`, 4, 202, "", []string{"other"}},
		"an acknowledgement":                 {`{"dedup_key":"other","status":"acknowledged"}`, 4, 202, "", []string{"other"}},
		"a new key among others": {
			`[{"dedup_key":"known"},{"dedup_key":"new"},{"dedup_key":"old","status":"resolved"}]`, 4, 503, "incident-limit",
			[]string{"known", "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			b.incidents.capacity.Limit = test.limit
			b.incidents.set("team-a", known)
			response := b.post(testPath, test.body)
			g.Expect(response.StatusCode).To(Equal(test.status))
			var stored []string
			for _, event := range b.store.stored() {
				for i := range event.Spec.Alerts {
					stored = append(stored, event.Spec.Alerts[i].DedupKey)
				}
			}
			slices.Sort(stored)
			g.Expect(stored).To(Equal(test.stored))
			if test.status == 503 {
				g.Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
				g.Expect(decode[problemBody](g, response).kind()).To(Equal(test.kind))
				g.Expect(b.reports.reasons).To(ConsistOf("IncidentLimit"))
			}
		})
	}
}

func TestWhereAQuotaRejectsIncidentsNewKeysAreRefused(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	w := blockedIntegration("team-a", v1alpha1.ReasonQuotaExceeded)
	w.Spec.Tokens = integration("", "", testToken).Spec.Tokens
	b.tokens.set(w)
	g.Expect(b.post(testPath, `{"dedup_key":"new"}`).StatusCode).To(Equal(503))
	b.incidents.set("team-a", v1alpha1.IncidentName("prometheus", "known"))
	g.Expect(b.post(testPath, `{"dedup_key":"known"}`).StatusCode).To(Equal(202))
}

func TestAKeyedRequestThatWasStoredInPartIsStoredWholeLater(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.incidents.set("team-a", v1alpha1.IncidentName("prometheus", "known"))
	const body = `[{"dedup_key":"known"},{"dedup_key":"new"}]`
	b.incidents.capacity.Limit = 4
	g.Expect(b.post(testPath, body, with("Idempotency-Key", "k")).StatusCode).To(Equal(503))
	b.incidents.capacity.Limit = 400
	g.Expect(b.post(testPath, body, with("Idempotency-Key", "k")).StatusCode).To(Equal(202))
	g.Expect(b.store.stored()).To(HaveLen(2))
	b.incidents.capacity.Limit = 4
	g.Expect(b.post(testPath, `[{"dedup_key":"new"}]`, with("Idempotency-Key", "l")).StatusCode).To(Equal(503))
}

func TestGeneratedKeysAreRecognised(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.post(testPath, `{"title":"x"}`)
	b.post(testPath, `{"title":"x"}`, with("Idempotency-Key", "k"))
	b.post(testPath, firing)
	var generated []bool
	for _, event := range b.store.stored() {
		generated = append(generated, v1alpha1.IsGeneratedKey(event.Spec.Alerts[0].DedupKey))
	}
	g.Expect(generated).To(Equal([]bool{true, true, false}))
	g.Expect(v1alpha1.IsGeneratedKey("tocsin:disk")).To(BeFalse())
	g.Expect(v1alpha1.IsGeneratedKey("019b76da-a800-7000-8000-000000000001")).To(BeFalse())
}
