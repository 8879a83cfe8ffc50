package incident

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// A leader whose clock is two hours ahead mutes by the clock of the API server.
func TestIncidentsAreMutedByTheTimeOfTheAPIServer(t *testing.T) {
	s := newSite(t)
	l := s.listen()
	s.Integrate(func(*v1alpha1.WebhookIntegrationSpec) {})
	s.windows.Set(new(testenv.Window(s.Namespace, "db", testEpoch.Add(time.Hour), testEpoch.Add(3*time.Hour))))
	const ahead = 2 * time.Hour
	at := func(hours int) {
		s.Clock.SetTime(testEpoch.Add(time.Duration(hours)*time.Hour + ahead))
		s.answer(l, ahead)
	}
	at(0)
	s.PostFiring("before")
	s.fold("before")
	s.Expect(s.Incident("before").Status.Mute).To(BeNil())
	at(2)
	s.PostFiring("within")
	s.fold("within")
	s.fold("before")
	s.Expect(s.Incident("within").Status.Mute.EndTime.Time).To(Equal(testEpoch.Add(3 * time.Hour)))
	s.Expect(s.Incident("within").Status.Mute.ForwardedSeverity).To(BeEmpty())
	s.Expect(s.Incident("before").Status.Mute.ForwardedSeverity).To(Equal(v1alpha1.SeverityWarning))
	s.folder = s.newFolder() // a new leader
	s.incidents.Health = l
	at(3)
	s.fold("within")
	s.Expect(s.Incident("within").Status.Mute).To(BeNil())
	s.Expect(s.Incident("within").Status.AlertCount).To(BeEquivalentTo(1))
}
