package alerts

import (
	"fmt"
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
		h.Extend(target.Want(incident, &v1alpha1.WebhookIntegration{}, nil, now), target.Settings, now)
		g.Expect(len(h.sets)).To(BeNumerically("<=", 1+maxEndedSets))
		g.Expect(len(h.changes)).To(BeNumerically("<=", maxLabelChanges))
	}
	h.Extend(Wanted{}, target.Settings, now)
	g.Expect(h.IsEmpty()).To(BeFalse(), "the set that fired has to end")
	h.Extend(Wanted{}, target.Settings, now.Add(target.EndedWindow()))
	g.Expect(h.IsEmpty()).To(BeTrue())
}
