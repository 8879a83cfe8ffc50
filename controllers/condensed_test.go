package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// richAlert has something in every field.
func (s *site) richAlert(status v1alpha1.AlertStatus, key, id string) v1alpha1.Alert {
	alert := s.alert(status, key)
	alert.ID = id
	began := v1alpha1.NewTimestamp(s.clock.Now().Add(-time.Minute))
	bag := v1alpha1.Bag{"a": []byte(`{"b":[1,2]}`)}
	alert.AlertContent = v1alpha1.AlertContent{
		Title: "Disk almost full", Description: strings.Repeat("long ", 100), Severity: v1alpha1.SeverityCritical, Type: "disk",
		Link: "https://example.com", Hostname: "db-1", Region: "eu", Labels: bag, Annotations: bag, Values: bag, Custom: bag,
		StartsAt: &began,
	}
	return alert
}

// TestACondensedIncidentFoldsAsAWholeOne folds the same alerts twice: by a cache that condenses Resolved Incidents, and by one
// that keeps them whole. What is stored must be the same.
func TestACondensedIncidentFoldsAsAWholeOne(t *testing.T) {
	silence := func(a *v1alpha1.Alert) { a.SilenceFor, a.By = "1h", "alice" }
	for sentence, then := range map[string]struct {
		status v1alpha1.AlertStatus
		change func(*v1alpha1.Alert)
		after  time.Duration // the resolve
		policy func(*v1alpha1.WebhookIntegrationSpec)
		forget bool // the leader is a new one
	}{
		"a firing reopens it":           {status: v1alpha1.AlertFiring, after: time.Hour},
		"a firing is late":              {status: v1alpha1.AlertFiring, after: time.Second},
		"a late firing after a restart": {status: v1alpha1.AlertFiring, after: time.Second, forget: true},
		"a resolve is late":             {status: v1alpha1.AlertResolved, after: time.Minute},
		"an acknowledgement is late":    {status: v1alpha1.AlertAcknowledged, after: time.Minute},
		"an acknowledgement of a user changes nothing but the digest": {
			status: v1alpha1.AlertAcknowledged, after: time.Minute, change: func(a *v1alpha1.Alert) { a.By = "alice" }},
		"the end of an acknowledgement is late": {status: v1alpha1.AlertUnacknowledged, after: time.Minute},
		"a note is recorded": {
			status: v1alpha1.AlertNoted, after: time.Minute, change: func(a *v1alpha1.Alert) { a.By, a.Comment = "alice", "fixed" }},
		"a silence is requested": {status: v1alpha1.AlertSilenced, after: time.Minute, change: silence},
		"another retention is recorded": {after: time.Minute, policy: func(spec *v1alpha1.WebhookIntegrationSpec) {
			spec.Retention = &metav1.Duration{Duration: 30 * day}
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			statuses := map[bool]v1alpha1.IncidentStatus{}
			start := time.Now().UTC().Truncate(time.Second)
			for _, whole := range []bool{false, true} {
				s := newSite(t)
				s.clock.SetTime(start)
				s.cache.whole = whole
				integration := s.integrate(nil)
				firing := s.richAlert(v1alpha1.AlertFiring, "disk", "1")
				s.post(firing)
				s.fold("disk")
				s.post(s.richAlert(v1alpha1.AlertAcknowledged, "disk", "2"))
				s.post(s.richAlert(v1alpha1.AlertResolved, "disk", "3"))
				s.fold("disk")
				if then.forget {
					s.restart()
					s.cache.whole = whole
				} else {
					s.release()
				}
				s.clock.SetTime(start.Add(then.after))
				if then.policy != nil {
					then.policy(&integration.Spec)
					s.Expect(s.live.Update(s.ctx, integration)).To(Succeed())
				}
				if then.status != "" {
					alert := firing
					alert.ID, alert.Status = "4", then.status
					if then.change != nil {
						then.change(&alert)
					}
					s.post(alert)
				}
				before := s.incident("disk").ResourceVersion
				s.fold("disk")
				status := s.incident("disk").Status
				s.Expect(s.incident("disk").ResourceVersion).NotTo(Equal(before), "it is written")
				s.Expect(status.Ledger.ResourceVersion).NotTo(BeEmpty())
				s.Expect(status.Timeline).NotTo(BeEmpty())
				for i := range status.Ledger.Events { // of two clusters, as it were
					status.Ledger.Events[i] = v1alpha1.LedgerEntry{UID: fmt.Sprint(i)}
				}
				status.Ledger.ResourceVersion = ""
				statuses[whole] = status
			}
			NewWithT(t).Expect(statuses[false]).To(Equal(statuses[true]))
		})
	}
}

func TestACondensedStatusIsNeverWritten(t *testing.T) {
	s := newSite(t)
	s.resolvedUnder("cpu", nil)
	whole := s.incident("cpu")
	condensed := whole.DeepCopy()
	condensed.Condense()

	plan := fold.Decide(fold.Input{
		Name: whole.Name, Incident: condensed, Events: []*v1alpha1.AlertEvent{s.postFiring("cpu")},
		Exists: func(string) bool { return true }, Now: s.clock.Now().Add(time.Hour),
	})
	s.Expect(plan.Write).To(BeTrue())
	for _, attempt := range []struct {
		read   *v1alpha1.Incident
		status v1alpha1.IncidentStatus
	}{{whole, plan.Status}, {condensed, plan.Status}, {condensed, whole.Status}, {whole, condensed.Status}} {
		_, err := s.incidents.write(s.ctx, attempt.read, attempt.status)
		s.Expect(err).To(MatchError(errCondensed))
	}
	s.Expect(s.incident("cpu")).To(Equal(whole))
}

func TestTheLedgerOfACondensedIncidentKeepsIt(t *testing.T) {
	s := newSite(t)
	event := s.postFiring("disk")
	s.post(s.alert(v1alpha1.AlertResolved, "disk"))
	s.fold("disk")
	s.cache.hidden[event.UID] = true // another process folded it, and this cache lags behind
	s.Expect(s.live.DeleteAllOf(s.ctx, &v1alpha1.AlertEvent{}, client.InNamespace(s.namespace),
		client.MatchingFieldsSelector{})).To(Succeed())
	s.restart()
	var cached v1alpha1.Incident
	s.Expect(s.cache.Get(s.ctx, s.keyOf("disk"), &cached)).To(Succeed())
	s.Expect(cached.Status.Condensed).To(BeTrue())

	listed := newEventList(1)
	listed.add(event)
	remove := func(listed *eventList) bool {
		list := func(context.Context) (*eventList, error) { return listed, nil }
		deleted, err := s.incidents.deletions.delete(s.ctx, &cached, list)
		s.Expect(err).NotTo(HaveOccurred())
		return deleted
	}
	s.Expect(remove(listed)).To(BeFalse(), "the list has an AlertEvent that the Incident has counted")

	changed := s.incident("disk")
	changed.Labels = map[string]string{"a": "b"}
	s.Expect(s.live.Update(s.ctx, changed)).To(Succeed())
	s.Expect(remove(newEventList(0))).To(BeFalse(), "another version has another ledger")
	s.Expect(s.cache.Get(s.ctx, s.keyOf("disk"), &cached)).To(Succeed())
	s.Expect(remove(newEventList(0))).To(BeTrue())
}

func TestAnIncidentThatCannotBeReadWholeIsNotFolded(t *testing.T) {
	s := newSite(t)
	s.resolvedUnder("disk", nil)
	var cached v1alpha1.Incident
	s.Expect(s.cache.Get(s.ctx, s.keyOf("disk"), &cached)).To(Succeed())

	other := cached
	other.UID = "another"
	_, err := readWhole(s.ctx, s.live, &other)
	s.Expect(errors.Is(err, errStale)).To(BeTrue(), "an Incident of the same name was created since")
	s.Expect(s.live.Delete(s.ctx, s.incident("disk"))).To(Succeed())
	_, err = readWhole(s.ctx, s.live, &cached)
	s.Expect(errors.Is(err, errStale)).To(BeTrue())
}
