package fold

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/origins"
)

func TestOriginsAreThoseOfTheNewestAlert(t *testing.T) {
	firing := func(content v1alpha1.AlertContent) v1alpha1.Alert { return alertOf(v1alpha1.AlertFiring, content) }
	first := firing(v1alpha1.AlertContent{Title: "Disk full", Severity: v1alpha1.SeverityError, StartTime: minuteStamp(0),
		Origins: "map//mkkb-----k"})
	first.Description = "97 %"
	report := func(status v1alpha1.AlertStatus) v1alpha1.Alert {
		return v1alpha1.Alert{IncidentName: testName, DedupKey: testKey, Status: status, IsReport: true, By: "maria"}
	}
	for sentence, c := range map[string]struct {
		defaults *v1alpha1.AlertDefaults
		alerts   []v1alpha1.Alert
		want     string
	}{
		"an alert without a type gets the operator's": {alerts: []v1alpha1.Alert{first}, want: "map//mkkb-b---k"},
		"the integration's defaults are told": {
			defaults: &v1alpha1.AlertDefaults{Severity: v1alpha1.SeverityInfo, Type: "disk", Title: "Trouble"},
			alerts:   []v1alpha1.Alert{firing(v1alpha1.AlertContent{Origins: "//---b"})}, want: "//d-db-d"},
		"a title of the first line of the description": {
			alerts: []v1alpha1.Alert{firing(v1alpha1.AlertContent{Description: "\na\nb", Origins: "//-k-b"})}, want: "//lkbb-b"},
		"a repeat changes nothing": {alerts: []v1alpha1.Alert{first, first, first}, want: "map//mkkb-b---k"},
		"what a newer alert lacks is of the earlier one": {
			alerts: []v1alpha1.Alert{first, firing(v1alpha1.AlertContent{Severity: v1alpha1.SeverityInfo, Origins: "map//--kb"})},
			want:   "map//MKkb-b---K"},
		"another mapping than the earlier one's": {
			alerts: []v1alpha1.Alert{first, firing(v1alpha1.AlertContent{Severity: v1alpha1.SeverityInfo, Origins: "other//--mb"})},
			want:   "other//-Kmb-b---K"},
		"a later start, which the content does not take": {
			alerts: []v1alpha1.Alert{first, firing(v1alpha1.AlertContent{StartTime: minuteStamp(3), Origins: "map//---b-----g"})},
			want:   "map//MKKb-b---K"},
		"an earlier start": {
			alerts: []v1alpha1.Alert{first, firing(v1alpha1.AlertContent{StartTime: minuteStamp(-3), Origins: "map//---b-----g"})},
			want:   "map//MKKb-b---g"},
		"a resolve keeps the texts of the problem": {
			alerts: []v1alpha1.Alert{first, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{
				Title: "Recovered", Description: "all is well", Link: "L", Origins: "map//kk-m--k"})},
			want: "map//MKKm-bk--K"},
		"what people report changes nothing": {
			alerts: []v1alpha1.Alert{first, report(v1alpha1.AlertAcknowledged), report(v1alpha1.AlertResolved)}, want: "map//mkkb-b---k"},
		"a person reopens it": {
			alerts: []v1alpha1.Alert{first, report(v1alpha1.AlertResolved), report(v1alpha1.AlertFiring)}, want: "map//mkkb-b---k"},
		"an alert of an older version": {alerts: []v1alpha1.Alert{first, firing(v1alpha1.AlertContent{Title: "Disk full"})}, want: ""},
		"an alert of this version after that": {
			alerts: []v1alpha1.Alert{firing(v1alpha1.AlertContent{Title: "Disk full", Severity: v1alpha1.SeverityError}), first}, want: "map//mkkb-----k"},
		"what somebody made up": {alerts: []v1alpha1.Alert{firing(v1alpha1.AlertContent{Title: "a", Origins: "<script>"})}, want: ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := newBench()
			for i, alert := range c.alerts {
				event := eventOf(i+1, alert)
				event.Spec.Defaults = c.defaults
				bench.fold(event)
			}
			g.Expect(bench.status().Alert.Origins).To(Equal(c.want))
			if c.want != "" {
				_, known := origins.Parse(c.want)
				g.Expect(known).To(BeTrue())
			}
		})
	}
}

func TestAnotherEpisodeHasItsOwnOrigins(t *testing.T) {
	g := NewWithT(t)
	bench := newBench()
	firing := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: "a", Description: "b", Origins: "//kkkb"})
	bench.fold(eventOf(1, firing))
	bench.fold(eventOf(2, resolvingAlert()))
	again := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: "a", StartTime: minuteStamp(200), Origins: "//k--b"})
	bench.now = minute(200)
	bench.fold(eventOf(200, again))
	g.Expect(bench.status().Episode.Number).To(Equal(int64(2)))
	g.Expect(bench.status().Alert.Origins).To(Equal("//k-bb-b"))
}

func TestAnAlertThatComesTooLateExplainsNothing(t *testing.T) {
	g := NewWithT(t)
	bench := newBench()
	bench.fold(eventOf(5, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: "new", Severity: v1alpha1.SeverityInfo, Type: "t", Origins: "//k-kb-k"})))
	bench.fold(eventOf(2, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: "old", Origins: "//m--b"})))
	g.Expect(bench.status().Alert.Origins).To(Equal("//k-kb-k"), "it is overtaken")
}

func TestAnEpisodeIsArchivedWithoutOrigins(t *testing.T) {
	g := NewWithT(t)
	bench := newBench()
	bench.fold(eventOf(1, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: "a", Origins: "//k--b"})))
	bench.fold(eventOf(2, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{Origins: "//---k"})))
	g.Expect(bench.status().Alert.Origins).To(Equal("//K-bk-b"))
	episode, ok := DescribeEpisode(bench.status())
	g.Expect(ok).To(BeTrue())
	g.Expect(episode.Alert.Title).To(Equal("a"))
	g.Expect(episode.Alert.Origins).To(BeEmpty())
}
