package incident

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

func TestWhatWaitsKeepsAnIncidentFromBeingEmpty(t *testing.T) {
	some := []*v1alpha1.AlertEvent{{}}
	for sentence, test := range map[string]struct {
		listed alertEvents
		want   bool
	}{
		"nothing is listed":                   {want: true},
		"one is to be folded":                 {listed: alertEvents{toFold: some}},
		"one is settled":                      {listed: alertEvents{settled: some}},
		"one is to be folded, one settled":    {listed: alertEvents{toFold: some, settled: some}},
		"one is to be folded at a later time": {listed: alertEvents{nextFold: time.Unix(1, 0)}},
	} {
		t.Run(sentence, func(t *testing.T) { NewWithT(t).Expect(test.listed.isEmpty()).To(Equal(test.want)) })
	}
}

func TestALedgerIsWrittenEarlyOnlyIfThatIsWorthAWrite(t *testing.T) {
	for sentence, test := range map[string]struct {
		used, waiting int
		want          bool
	}{
		"an empty one and few alerts":                  {waiting: v1alpha1.MaxLedger - 1},
		"an empty one, and alerts that fill it":        {waiting: v1alpha1.MaxLedger, want: true},
		"one with a quarter free, and alerts for that": {used: v1alpha1.MaxLedger * 3 / 4, waiting: v1alpha1.MaxLedger / 4, want: true},
		"one with less free":                           {used: v1alpha1.MaxLedger*3/4 + 1, waiting: v1alpha1.MaxLedger},
		"a full one":                                   {used: v1alpha1.MaxLedger, waiting: 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := &facts{incident: &v1alpha1.Incident{}, list: newEventList(0)}
			for n := range test.used {
				event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(n))}}
				f.list.add(event)
				ledger := &f.incident.Status.Ledger
				ledger.Events = append(ledger.Events, v1alpha1.LedgerEntry{UID: string(event.UID)})
			}
			f.toFold = make([]*v1alpha1.AlertEvent, test.waiting)
			NewWithT(t).Expect(f.ledgerNearlyFull()).To(Equal(test.want))
		})
	}
}

// titleRule is the rule of a feature that gives Incidents a title.
type titleRule struct{ title string }

func (r titleRule) RuleFor(incident types.NamespacedName) fold.Rule {
	return titleRule{r.title + " of " + incident.Name}
}

func (titleRule) TakeReport(*fold.Plan, *v1alpha1.Alert, v1alpha1.Transition) string { return "" }
func (titleRule) Reset(*v1alpha1.IncidentStatus)                                     {}
func (titleRule) Due(*v1alpha1.IncidentStatus) time.Time                             { return time.Time{} }
func (titleRule) Bare(*v1alpha1.IncidentStatus)                                      {}
func (r titleRule) Finish(_ *fold.Input, p *fold.Plan)                               { p.Status.Alert.Title = r.title }

func TestAFoldGoesByTheRulesOfAllFeatures(t *testing.T) {
	s := newSite(t)
	s.incidents.Rules = []RuleSource{titleRule{"the first"}, titleRule{"the second"}}
	s.PostFiring("disk")
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal("the second of " + s.KeyOf("disk").Name))
}

// counted returns how many samples a histogram has, and their sum.
func counted(t *testing.T, histogram prometheus.Collector) (samples uint64, sum float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(histogram)
	families, err := registry.Gather()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	of := families[0].Metric[0].Histogram
	return of.GetSampleCount(), of.GetSampleSum()
}

func TestAFoldIsMeasured(t *testing.T) {
	s := newSite(t)
	folds, _ := counted(t, foldDuration)
	alerts, lag := counted(t, foldLag)
	s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertFiring, "disk"))
	s.Post(s.Alert(v1alpha1.AlertResolved, "never fired"))
	s.pass(3 * time.Second)
	s.fold("disk")
	s.fold("never fired")
	foldsNow, _ := counted(t, foldDuration)
	alertsNow, lagNow := counted(t, foldLag)
	s.Expect(foldsNow-folds).To(BeEquivalentTo(2), "of two Incidents")
	s.Expect(alertsNow-alerts).To(BeEquivalentTo(2), "no status counts what matches none")
	s.Expect(lagNow - lag).To(BeNumerically("~", 6, 0.1))
}
