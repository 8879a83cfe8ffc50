package alerts

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Whatever a sender changes, an Incident takes little memory here and in Alertmanager.
func TestAHistoryIsBounded(t *testing.T) {
	g := NewWithT(t)
	target, incident, now := targetOf(&Settings{}), openIncident(), noon
	var h History
	for i := range 200 {
		incident.Status.Alert.Type, incident.Status.Alert.Severity = fmt.Sprint("Disk", i), v1alpha1.Severities()[i%4]
		now = now.Add(time.Second)
		h.Extend(target.Want(incident, &v1alpha1.WebhookIntegration{}, nil, now), target, now)
		g.Expect(len(h.sets)).To(BeNumerically("<=", 1+maxEndedSets))
		g.Expect(len(h.changes)).To(BeNumerically("<=", maxLabelChanges))
	}
	h.Extend(Wanted{}, target, now)
	g.Expect(h.IsEmpty()).To(BeFalse(), "the set that fired has to end")
	h.Extend(Wanted{}, target, now.Add(target.EndedWindow()))
	g.Expect(h.IsEmpty()).To(BeTrue())
}

// Only what this installation may have posted to this Alertmanager is taken for its own: whatever else names one of its Incidents
// fires on.
func TestOnlyOwnAlertsOfEarlierLeadersEnd(t *testing.T) {
	settings := &Settings{ExternalLabels: map[string]string{"cluster": "here"}, AlertLabels: []string{"team", "cluster"}}
	for name, c := range map[string]struct {
		change func(labels map[string]string)
		ends   bool
	}{
		"its own":                       {func(map[string]string) {}, false}, // it fires on
		"another alertname":             {func(l map[string]string) { l["alertname"] = "Old" }, true},
		"another severity":              {func(l map[string]string) { l["severity"] = "critical" }, true},
		"a label of the sender":         {func(l map[string]string) { l["team"] = "core" }, true},
		"an assignee":                   {func(l map[string]string) { l["tocsin_assignee"] = "alex" }, true},
		"a reminder":                    {func(l map[string]string) { l["tocsin_reminder"] = "2" }, true},
		"other hops":                    {func(l map[string]string) { l["tocsin_hops"] = "3" }, true},
		"a severity of another target":  {func(l map[string]string) { l["severity"] = "info" }, false},
		"another integration":           {func(l map[string]string) { l["integration"] = "other" }, false},
		"an external label of another":  {func(l map[string]string) { l["cluster"] = "there" }, false},
		"no external label":             {func(l map[string]string) { delete(l, "cluster") }, false},
		"a label that is not forwarded": {func(l map[string]string) { l["severity"], l["page"] = "critical", "yes" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			target := targetOf(settings)
			target.Severities = []v1alpha1.Severity{"warning", "critical"}
			wanted := target.Want(openIncident(), &v1alpha1.WebhookIntegration{}, nil, noon)
			posted := decodeLabels(wanted.labels)
			posted["severity"] = "warning"
			c.change(posted)
			var h, late History
			h.AddFormer(posted, wanted, target, noon)
			h.AddFormer(posted, wanted, target, noon)
			late.AddFormer(posted, Wanted{}, target, noon) // the Incident is not known yet
			g.Expect(late.Extend(wanted, target, noon.Add(FormerDelay)).sets).To(HaveLen(map[bool]int{true: 2, false: 1}[c.ends]))
			g.Expect(h.Extend(wanted, target, noon.Add(FormerDelay-1)).sets).To(HaveLen(1), "the cache may show something older")
			extended := h.Extend(wanted, target, noon.Add(FormerDelay))
			ended := slices.DeleteFunc(extended.sets, set.fires)
			g.Expect(ended).To(HaveLen(map[bool]int{true: 1}[c.ends]))
			for _, s := range ended {
				labels := decodeLabels(s.labels)
				labels["severity"] = string(s.severity)
				g.Expect(labels).To(Equal(posted))
			}
			g.Expect(h.former).To(BeEmpty())
		})
	}
}

// An alert that is as the Incident was when it was read is ended by a change before the first post.
func TestAFormerAlertEndsWhenTheIncidentChanges(t *testing.T) {
	g := NewWithT(t)
	target, incident := targetOf(&Settings{}), openIncident()
	before := target.Want(incident, &v1alpha1.WebhookIntegration{}, nil, noon)
	posted := decodeLabels(before.labels)
	posted["severity"] = "warning"
	var h History
	g.Expect(h.AddFormer(posted, before, target, noon)).To(BeZero())
	incident.Status.Alert.Type = "Disk"
	sets := h.Extend(target.Want(incident, &v1alpha1.WebhookIntegration{}, nil, noon), target, noon).sets
	g.Expect(sets).To(HaveLen(2))
	g.Expect(sets[1].labels).To(Equal(before.labels))
	g.Expect(sets[1].fires()).To(BeFalse())
}
