package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestTheConditionOfMaintenanceWindows(t *testing.T) {
	s := newSite(t)
	hour := func(n int) *v1alpha1.Timestamp {
		return new(v1alpha1.NewTimestamp(testEpoch.Add(time.Duration(n) * time.Hour)))
	}
	integration := s.Integrate(func(*v1alpha1.WebhookIntegrationSpec) {})
	s.Expect(s.shown(v1alpha1.ConditionMaintenanceValid)).To(BeEmpty(), "it has no windows")

	maintain := func(windows ...v1alpha1.MaintenanceWindow) {
		s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
		integration.Spec.Maintenance = windows
		s.Expect(s.Live.Update(s.Ctx, integration)).To(Succeed())
	}
	message := func() string {
		return meta.FindStatusCondition(s.IntegrationStatus().Conditions, v1alpha1.ConditionMaintenanceValid).Message
	}
	once := v1alpha1.MaintenanceWindow{Name: "db", StartTime: hour(1), EndTime: hour(3)}
	wrong := v1alpha1.MaintenanceWindow{
		Name: "nightly", Schedule: "0 25 * * *", Duration: &metav1.Duration{Duration: time.Hour}, TimeZone: "Europe/Atlantis",
	}
	maintain(once)
	s.Expect(s.shown(v1alpha1.ConditionMaintenanceValid)).To(Equal("True NoWindowOpen"))
	s.Clock.SetTime(testEpoch.Add(time.Hour))
	s.Expect(s.isOutdated(integrationOf(s))).To(BeTrue(), "the leader looks for windows that have opened")
	s.Expect(s.shown(v1alpha1.ConditionMaintenanceValid)).To(Equal("True WindowOpen"))
	s.Expect(message()).To(Equal("The window db is open until 2026-03-01T15:00:00Z."))
	s.Expect(s.isOutdated(integrationOf(s))).To(BeFalse())

	maintain(once, wrong)
	for range 2 { // the second time there is nothing new to tell
		s.Expect(s.shown(v1alpha1.ConditionMaintenanceValid)).To(Equal("False InvalidWindow"))
	}
	s.Expect(message()).To(Equal(`These windows mute nothing: nightly: timeZone "Europe/Atlantis" is not in the IANA database. ` +
		"The window db is open until 2026-03-01T15:00:00Z."))
	s.Expect(s.events.Events).To(Receive(ContainSubstring("Warning InvalidWindow")))
	s.Expect(s.events.Events).NotTo(Receive())

	maintain()
	s.Expect(s.shown(v1alpha1.ConditionMaintenanceValid)).To(BeEmpty())
}

func integrationOf(s *site) *v1alpha1.WebhookIntegration {
	var integration v1alpha1.WebhookIntegration
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), &integration)).To(Succeed())
	return &integration
}
