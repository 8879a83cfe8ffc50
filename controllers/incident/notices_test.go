package incident

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
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

func TestTheNoteOfAKubernetesEvent(t *testing.T) {
	const resolved = "Resolved by an alert"
	for sentence, test := range map[string]struct {
		message, comment, title, want string
	}{
		"has the message alone":              {message: resolved, want: resolved},
		"has the comment":                    {message: resolved, comment: "by ann", want: resolved + ": by ann"},
		"has the title":                      {message: resolved, comment: "by ann", title: "Disk full", want: resolved + ": by ann (Disk full)"},
		"has a title once":                   {message: "Disk full", title: "Disk full", want: "Disk full"},
		"is as long as it may be":            {message: strings.Repeat("é", maxNote/2), want: strings.Repeat("é", maxNote/2)},
		"is shortened between characters":    {message: strings.Repeat("é", maxNote/2+1), want: strings.Repeat("é", (maxNote-3)/2) + "…"},
		"is shortened at the end of a title": {message: strings.Repeat("m", maxNote), title: "t", want: strings.Repeat("m", maxNote-3) + "…"},
	} {
		t.Run(sentence, func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			incident := &v1alpha1.Incident{}
			incident.Status.Alert.Title = test.title
			emit(recorder, incident,
				&v1alpha1.Transition{Type: v1alpha1.TransitionResolved, Message: test.message, Comment: test.comment})
			NewWithT(t).Expect(<-recorder.Events).To(Equal("Normal Resolved " + test.want))
		})
	}
}

func TestTheLogOfAnOpenedIncident(t *testing.T) {
	const opened, resolved = v1alpha1.TransitionOpened, v1alpha1.TransitionResolved
	title := "Disk\u202e full\n" + strings.Repeat("é", 200)
	for sentence, test := range map[string]struct {
		transition v1alpha1.TransitionType
		notices    flowcontrol.RateLimiter
		want       string // how the value of title begins
		lines      int
	}{
		"has its title, in a short and printable line": {opened, flowcontrol.NewFakeAlwaysRateLimiter(), "Disk full é", 1},
		"is absent in a storm":                         {opened, flowcontrol.NewFakeNeverRateLimiter(), "", 0},
		"has no title of another transition":           {resolved, flowcontrol.NewFakeAlwaysRateLimiter(), "", 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			var lines []string
			logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
			r := &reconciler{recorder: events.NewFakeRecorder(1), notices: test.notices}
			incident := &v1alpha1.Incident{}
			incident.Status.Alert.Title = title
			r.announce(log.IntoContext(t.Context(), logger), incident,
				fold.Plan{Transitions: []v1alpha1.Transition{{Type: test.transition}}})
			g.Expect(lines).To(HaveLen(test.lines))
			line := strings.Join(lines, "")
			g.Expect(strings.Contains(line, `"title"=`)).To(Equal(test.want != ""))
			g.Expect(line).To(ContainSubstring(test.want))
			g.Expect(len(line)).To(BeNumerically("<", 300))
		})
	}
}
