package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestTheConditionOfHeartbeats(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		for _, name := range []string{"backup", "watchdog"} {
			spec.Heartbeats = append(spec.Heartbeats, v1alpha1.Heartbeat{Name: name, Interval: &metav1.Duration{Duration: time.Minute}})
		}
	})
	write := func(heartbeats ...v1alpha1.HeartbeatStatus) {
		s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
		integration.Status.Heartbeats = heartbeats
		s.Expect(s.Live.Status().Update(s.Ctx, integration)).To(Succeed())
	}
	message := func() string {
		return meta.FindStatusCondition(s.IntegrationStatus().Conditions, v1alpha1.ConditionHeartbeatsHeard).Message
	}
	now := new(v1alpha1.NewTimestamp(s.Clock.Now()))
	s.Expect(s.shown(v1alpha1.ConditionHeartbeatsHeard)).To(Equal("True Waiting"))
	s.Expect(message()).To(ContainSubstring("backup, watchdog"))
	write(v1alpha1.HeartbeatStatus{Name: "backup", LastSignalTime: now}, v1alpha1.HeartbeatStatus{Name: "watchdog", LastSignalTime: now})
	s.Expect(s.isOutdated(integrationOf(s))).To(BeTrue())
	s.Expect(s.shown(v1alpha1.ConditionHeartbeatsHeard)).To(Equal("True Heard"))
	write(v1alpha1.HeartbeatStatus{Name: "backup", LastSignalTime: now, MissedTime: now})
	s.Expect(s.shown(v1alpha1.ConditionHeartbeatsHeard)).To(Equal("False Missed"))
	s.Expect(message()).To(Equal("Not heard in time: backup."))
	s.Expect(s.isOutdated(integrationOf(s))).To(BeFalse())

	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
	integration.Spec.Heartbeats = nil
	s.Expect(s.Live.Update(s.Ctx, integration)).To(Succeed())
	s.Expect(s.shown(v1alpha1.ConditionHeartbeatsHeard)).To(BeEmpty())
}

func integrationOf(s *site) *v1alpha1.WebhookIntegration {
	var integration v1alpha1.WebhookIntegration
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), &integration)).To(Succeed())
	return &integration
}
