package tally

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestCounts(t *testing.T) {
	const critical, failing, warning, info = v1alpha1.SeverityCritical, v1alpha1.SeverityError, v1alpha1.SeverityWarning, v1alpha1.SeverityInfo
	for sentence, test := range map[string]struct {
		severities []v1alpha1.Severity
		said       string
		severe     int64
	}{
		"none":                                  {nil, "", 0},
		"harmless ones":                         {[]v1alpha1.Severity{info, warning, info}, "1 warning, 2 info", 0},
		"an error":                              {[]v1alpha1.Severity{failing, info}, "1 error, 1 info", 1},
		"severe ones, the most severe first":    {[]v1alpha1.Severity{failing, critical, critical}, "2 critical, 1 error", 3},
		"one of no severity counts as severe":   {[]v1alpha1.Severity{warning, ""}, "1 warning, 1 without a severity", 1},
		"so does a severity of a later version": {[]v1alpha1.Severity{"fatal"}, "1 without a severity", 1},
		"each severity, and one without, is said": {[]v1alpha1.Severity{"", info, warning, failing, critical},
			"1 critical, 1 error, 1 warning, 1 info, 1 without a severity", 3},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			var counts Counts
			for _, severity := range test.severities {
				counts.Add(severity)
			}
			g.Expect(counts.String()).To(Equal(test.said))
			g.Expect(counts.Severe()).To(Equal(test.severe))
			g.Expect(counts.Total).To(BeEquivalentTo(len(test.severities)))
		})
	}
}

func TestWhichIncidentsCount(t *testing.T) {
	g := NewWithT(t)
	incident := &v1alpha1.Incident{}
	g.Expect(Includes(incident)).To(BeFalse(), "no status is written yet")
	incident.Status.State = v1alpha1.IncidentOpen
	g.Expect(Includes(incident)).To(BeTrue())
	incident.Status.Mute, incident.Status.Acknowledgement = &v1alpha1.Mute{}, &v1alpha1.Acknowledgement{}
	incident.Finalizers, incident.DeletionTimestamp = []string{"example.com/stay"}, nil
	g.Expect(Includes(incident)).To(BeTrue())
	incident.Status.State = v1alpha1.IncidentResolved
	g.Expect(Includes(incident)).To(BeFalse())
}
