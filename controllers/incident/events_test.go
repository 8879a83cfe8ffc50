package incident

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/events"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestKubernetesEventsAreWarningsUnlessTheIncidentIsForInformation(t *testing.T) {
	for severity, want := range map[v1alpha1.Severity]string{
		v1alpha1.SeverityCritical: "Warning Opened Disk full",
		v1alpha1.SeverityInfo:     "Normal Opened Disk full",
	} {
		t.Run(string(severity), func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			incident := &v1alpha1.Incident{}
			incident.Status.Alert.Severity = severity
			emit(recorder, incident, &v1alpha1.Transition{Type: v1alpha1.TransitionOpened, Message: "Disk full"})
			NewWithT(t).Expect(<-recorder.Events).To(Equal(want))
		})
	}
}
