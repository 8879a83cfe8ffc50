package fold

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestPreview(t *testing.T) {
	g := NewWithT(t)
	alert := func(key string, status v1alpha1.AlertStatus, title string) v1alpha1.Alert {
		return v1alpha1.Alert{DedupKey: key, Status: status, AlertContent: v1alpha1.AlertContent{Title: title}}
	}
	event := &v1alpha1.AlertEvent{}
	event.Namespace = "shop"
	event.Spec.IntegrationName = "mon"
	event.Spec.Defaults = &v1alpha1.AlertDefaults{Severity: v1alpha1.SeverityError}
	event.Alerts = []v1alpha1.Alert{
		alert("b", v1alpha1.AlertFiring, "B"), alert("none", v1alpha1.AlertResolved, ""),
		alert("a", v1alpha1.AlertFiring, "A"), alert("b", v1alpha1.AlertFiring, "B, still"), alert("a", v1alpha1.AlertResolved, ""),
	}
	before := event.DeepCopy()
	incidents := Preview(event, &v1alpha1.WebhookIntegration{}, nil, minute(0))
	g.Expect(event).To(Equal(before))
	g.Expect(incidents).To(HaveLen(2))
	g.Expect(incidents[0].Namespace).To(Equal("shop"))
	g.Expect(incidents[0].Name).To(Equal(v1alpha1.IncidentName("mon", "b")))
	g.Expect(incidents[0].Status.State).To(Equal(v1alpha1.IncidentOpen))
	g.Expect(incidents[0].Status.AlertCount).To(BeEquivalentTo(2))
	g.Expect(incidents[0].Status.Alert.Title).To(Equal("B, still"))
	g.Expect(incidents[0].Status.Alert.Severity).To(Equal(v1alpha1.SeverityError))
	g.Expect(incidents[0].Status.OpenedTime.Time).To(Equal(minute(0)))
	g.Expect(incidents[0].Status.Ledger).To(BeZero())
	g.Expect(incidents[1].Spec.DedupKey).To(Equal("a"))
	g.Expect(incidents[1].Status.State).To(Equal(v1alpha1.IncidentResolved))
}
