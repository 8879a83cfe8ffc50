package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
)

// run runs the plugin for a site. The namespace of its context is default.
func (s *site) run(stdin io.Reader, args ...string) (exit int, stdout, stderr string) {
	s.t.Helper()
	s.t.Setenv("KUBECONFIG", filepath.Join(s.t.TempDir(), "none"))
	s.t.Setenv("TZ", "UTC")
	var out, errOut bytes.Buffer
	exit = Main(append([]string{"kubectl-tocsin", "--server", s.url}, args...), stdin, &out, &errOut)
	return exit, out.String(), errOut.String()
}

// A script whose variable is not set would act on all Incidents otherwise.
func TestABlankFilterIsRejected(t *testing.T) {
	s := newSite(t)
	s.open("shop", "disk", v1alpha1.SeverityCritical, v1alpha1.AlertContent{Title: "Disk full"})
	for sentence, test := range map[string]struct {
		args []string
		exit int
		flag string
	}{
		"resolve by an empty selector":             {[]string{"resolve", "--yes", "-l", ""}, exitFailure, "label"},
		"resolve by a blank selector":              {[]string{"resolve", "--yes", "-l", " "}, exitFailure, "label"},
		"resolve by one selector of two":           {[]string{"resolve", "--yes", "-l", "team=a", "-l", ""}, exitFailure, "label"},
		"silence what is assigned to a blank name": {[]string{"silence", "--yes", "--for", "1h", "--assignee", ""}, exitFailure, "assignee"},
		"acknowledge by an empty integration":      {[]string{"ack", "--yes", "--severity", "critical", "-i", ""}, exitFailure, "integration"},
		"acknowledge by an empty severity":         {[]string{"ack", "--yes", "-i", "mon", "--severity", ""}, exitFailure, "severity"},
		"get by an empty selector":                 {[]string{"get", "-l", ""}, exitFailure, "label"},
		"check by an empty selector":               {[]string{"check", "-l", ""}, exitUnknown, "label"},
		"read the history of an empty assignee":    {[]string{"history", "--assignee", ""}, exitFailure, "assignee"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			exit, stdout, stderr := s.run(strings.NewReader(""), append([]string{"-n", "shop"}, test.args...)...)
			g.Expect(exit).To(Equal(test.exit))
			g.Expect(stdout).To(BeEmpty())
			g.Expect(stderr).To(Equal("error: --" + test.flag + " needs a value that is not blank\n"))
		})
	}
	NewWithT(t).Expect(s.reports).To(BeEmpty())
}

func TestAnAcknowledgementAtALowerSeverityHidesNothing(t *testing.T) {
	g := NewWithT(t)
	s := newSite(t)
	disk := s.open("shop", "disk", v1alpha1.SeverityCritical, v1alpha1.AlertContent{Title: "Disk full"})
	disk.Status.Acknowledgement = &v1alpha1.Acknowledgement{
		Severity: v1alpha1.SeverityInfo, By: "alex", Time: v1alpha1.NewTimestamp(time.Now()),
	}
	disk.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonAcknowledgedByUser, Message: "alex acknowledged the incident.", LastTransitionTime: metav1.Now()}}
	g.Expect(s.Status().Update(t.Context(), disk)).To(Succeed())
	exit, stdout, _ := s.run(nil, "check", "-n", "shop", "--unacknowledged")
	g.Expect(exit).To(Equal(exitFailure))
	g.Expect(stdout).To(ContainSubstring("1 incident is open:"))
	_, stdout, _ = s.run(nil, "get", "-n", "shop", "--unacknowledged", "--no-headers")
	g.Expect(stdout).To(MatchRegexp(`critical +- `))
	_, stdout, _ = s.run(nil, "show", "-n", "shop", disk.Name)
	g.Expect(stdout).To(MatchRegexp(`(?m)^Acknowledged: yes, since .* It was given at severity info, and does not cover critical\.$`))
	_, stdout, stderr := s.run(nil, "ack", "-n", "shop", "--severity", "critical", "--yes")
	g.Expect(stdout).To(HaveSuffix(disk.Name+" acknowledged\n"), stderr)
	_, stdout, _ = s.run(nil, "unack", "-n", "shop", "--all", "--yes")
	g.Expect(stdout).To(HaveSuffix(disk.Name+" unacknowledged\n"), "it can be withdrawn")
	g.Expect(s.reports).To(HaveLen(2))
}

// answering is a stdin on which a person says yes after something has happened.
type answering struct{ happens func() }

func (a *answering) Read(text []byte) (int, error) {
	a.happens()
	return copy(text, "y\n"), nil
}

func TestAnActionIsForTheEpisodesThatTheQuestionShowed(t *testing.T) {
	g := NewWithT(t)
	s := newSite(t)
	in := func(incident *v1alpha1.Incident, number int64) {
		incident.Status.Episode = &v1alpha1.Episode{Number: number, StartTime: v1alpha1.NewTimestamp(time.Now())}
		g.Expect(s.Status().Update(t.Context(), incident)).To(Succeed())
	}
	stays := s.open("shop", "stays", v1alpha1.SeverityError, v1alpha1.AlertContent{Title: "Queue stalls"})
	opens := s.open("shop", "opens", v1alpha1.SeverityError, v1alpha1.AlertContent{Title: "Disk full"})
	goes := s.open("shop", "goes", v1alpha1.SeverityError, v1alpha1.AlertContent{Title: "No more"})
	in(stays, 1)
	in(opens, 1)
	exit, stdout, stderr := s.run(&answering{func() {
		in(opens, 2)
		g.Expect(s.Delete(t.Context(), goes)).To(Succeed())
	}}, "resolve", "-n", "shop", "--all")
	g.Expect(exit).To(Equal(exitOK), stderr)
	g.Expect(stdout).To(Equal("incident.tocsin.dev/" + stays.Name + " resolved\n"))
	g.Expect(stderr).To(And(ContainSubstring("shop/%s was left out: it has opened again meanwhile.\n", opens.Name),
		ContainSubstring("shop/%s was left out: it has been deleted meanwhile.\n", goes.Name)))
	g.Expect(s.reports).To(HaveExactElements(HaveField("IncidentName", stays.Name)))
}

// Scripts run a check under "timeout", which sends SIGTERM.
func TestTheExitCodeOfAnInterruptedCommand(t *testing.T) {
	for _, test := range []struct {
		args []string
		exit int
	}{
		{[]string{"check"}, exitUnknown}, {[]string{"explain", "--replay", "mon"}, exitUnknown}, {[]string{"get"}, exitFailure},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			g := NewWithT(t)
			s := newSite(t)
			s.arrive = func(ctx context.Context, _ *apiserver.Call) (*metav1.Status, error) {
				g.Expect(syscall.Kill(os.Getpid(), syscall.SIGTERM)).To(Succeed())
				<-ctx.Done()
				return nil, ctx.Err()
			}
			exit, stdout, stderr := s.run(nil, append([]string{"-n", "shop"}, test.args...)...)
			g.Expect(exit).To(Equal(test.exit))
			g.Expect(stdout + stderr).To(BeEmpty())
		})
	}
}

// Kinds are names of namespaces, too, and an Incident has the same name in all namespaces.
func TestAKindBeforeANameMayBeANamespace(t *testing.T) {
	const name = "mon-x"
	for sentence, test := range map[string]struct {
		exist []string // the namespaces that have the Incident
		argument,
		stdout, stderr string
		flags []string
	}{
		"only the namespace of the context has it": {[]string{"default"}, "inc/" + name, "incident.tocsin.dev/" + name, "", nil},
		"only the namespace inc has it":            {[]string{"inc"}, "inc/" + name, "inc/" + name, "", nil},
		"the namespace incidents has it": {
			[]string{"incidents"}, "incidents/mon-", "incidents/" + name, "", nil},
		"both have it": {[]string{"default", "inc"}, "inc/" + name, "",
			`"mon-x" is in namespace "inc" and, if "inc" is a kind, in namespace "default": specify --namespace`, nil},
		"both have it, and the flag says which": {
			[]string{"default", "inc"}, "inc/" + name, "incident.tocsin.dev/" + name, "", []string{"-n", "default"}},
		"a kind with its group is no namespace": {
			[]string{"default", "inc"}, "incidents.tocsin.dev/" + name, "incident.tocsin.dev/" + name, "", nil},
		"none has it": {nil, "inc/" + name, "", `incidents.tocsin.dev "mon-x" not found in namespace default`, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			s := newSite(t)
			for _, namespace := range test.exist {
				incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
				incident.Spec = v1alpha1.IncidentSpec{IntegrationName: "mon", DedupKey: "disk"}
				g.Expect(s.Create(t.Context(), incident)).To(Succeed())
			}
			_, stdout, stderr := s.run(nil, append([]string{"note", test.argument, "-m", "seen"}, test.flags...)...)
			if test.stdout != "" {
				test.stdout += " noted\n"
			}
			g.Expect(stdout).To(Equal(test.stdout))
			g.Expect(stderr).To(ContainSubstring(test.stderr))
			g.Expect(s.reports).To(HaveLen(strings.Count(test.stdout, "noted")))
		})
	}
}
