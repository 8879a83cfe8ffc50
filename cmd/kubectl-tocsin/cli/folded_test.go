package cli

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
)

// integration creates an integration in shop with the condition AlertsFolded: False with a reason, or True without one.
func (s *site) integration(name, reason string) {
	s.t.Helper()
	g := NewWithT(s.t)
	integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	g.Expect(s.Create(s.t.Context(), integration)).To(Succeed())
	condition := metav1.Condition{Type: v1alpha1.ConditionAlertsFolded, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonFolding, Message: "They do.", LastTransitionTime: metav1.Now()}
	if reason != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, "Said by "+name+"."
	}
	integration.Status.Conditions = []metav1.Condition{condition}
	g.Expect(s.Status().Update(s.t.Context(), integration)).To(Succeed())
}

// forbidIntegrations has the API server deny lists of integrations.
func (s *site) forbidIntegrations() {
	s.arrive = func(_ context.Context, call *apiserver.Call) (*metav1.Status, error) {
		if call.Resource != "webhookintegrations.tocsin.dev" {
			return nil, nil
		}
		resource := v1alpha1.GroupVersion.WithResource("webhookintegrations").GroupResource()
		status := apierrors.NewForbidden(resource, "", errors.New("no")).Status()
		return &status, nil
	}
}

const (
	notFoldedInShop = "alerts for shop/mon (QuotaExceeded) do not become incidents: Said by mon."
	notVerified     = "Warning: cannot verify that alerts become incidents: permission denied\n"
)

// While alerts cannot become Incidents, that none is open says nothing about what the alerts said.
func TestCheckFailsWhileAlertsDoNotBecomeIncidents(t *testing.T) {
	blocked := func(s *site) { s.integration("mon", v1alpha1.ReasonQuotaExceeded) }
	for sentence, test := range map[string]struct {
		prepare        func(*site)
		args           []string
		exit           int
		stdout, stderr string
	}{
		"none becomes one":           {blocked, nil, exitUnknown, "", "error: " + notFoldedInShop + "\n"},
		"none becomes one, in JSON":  {blocked, []string{"-o", "json"}, exitUnknown, "", "error: " + notFoldedInShop + "\n"},
		"none becomes one, quietly":  {blocked, []string{"-q"}, exitUnknown, "", "error: " + notFoldedInShop + "\n"},
		"another namespace is asked": {blocked, []string{"-n", "web"}, exitOK, "No incident is open.\n", ""},
		"all namespaces are asked":   {blocked, []string{"-A"}, exitUnknown, "", "error: " + notFoldedInShop + "\n"},
		"another integration is asked about": {func(s *site) {
			blocked(s)
			s.integration("other", "")
		}, []string{"-i", "other"}, exitOK, "No incident is open.\n", ""},
		"four do not fold": {func(s *site) {
			for _, name := range []string{"a", "b", "c", "d"} {
				s.integration(name, v1alpha1.ReasonQueueFull)
			}
		}, nil, exitUnknown, "", "error: alerts for shop/a (QueueFull), shop/b (QueueFull), shop/c (QueueFull) and 1 more " +
			"do not become incidents: Said by a.\n"},
		"an Incident is open all the same": {func(s *site) {
			blocked(s)
			s.open("shop", "disk", v1alpha1.SeverityError, v1alpha1.AlertContent{Title: "Disk full"})
		}, []string{"-q"}, exitFailure, "", ""},
		"the user may not know": {(*site).forbidIntegrations, nil, exitOK, "No incident is open.\n", notVerified},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			s := newSite(t)
			test.prepare(s)
			exit, stdout, stderr := s.run(nil, append([]string{"check", "-n", "shop"}, test.args...)...)
			g.Expect(stderr).To(Equal(test.stderr))
			g.Expect(stdout).To(Equal(test.stdout))
			g.Expect(exit).To(Equal(test.exit))
		})
	}
}

func TestGetWarnsWhileAlertsDoNotBecomeIncidents(t *testing.T) {
	g := NewWithT(t)
	s := newSite(t)
	s.integration("mon", v1alpha1.ReasonQuotaExceeded)
	warning := "Warning: " + notFoldedInShop + "\n"
	exit, stdout, stderr := s.run(nil, "get", "-A")
	g.Expect(exit).To(Equal(exitOK))
	g.Expect(stdout).To(BeEmpty())
	g.Expect(stderr).To(Equal(warning + "No open incidents found; --all lists resolved ones.\n"))
	_, stdout, stderr = s.run(nil, "get", "-n", "shop", "-o", "name")
	g.Expect(stdout + stderr).To(Equal(warning))
	_, _, stderr = s.run(nil, "get", "-A", "--state", "Resolved")
	g.Expect(stderr).NotTo(ContainSubstring("Warning"), "it is not about what is open")
	_, stdout, _ = s.run(nil, "integration", "list", "-n", "shop")
	g.Expect(stdout).To(MatchRegexp(`NAME +READY +FOLDED .*\nmon +- +QuotaExceeded `))
	s.open("shop", "disk", v1alpha1.SeverityError, v1alpha1.AlertContent{Title: "Disk full"})
	_, _, stderr = s.run(nil, "get", "-A")
	g.Expect(stderr).To(BeEmpty())
}

func TestTheToolsTellThatAlertsDoNotBecomeIncidents(t *testing.T) {
	g := NewWithT(t)
	s := newSite(t)
	s.integration("mon", v1alpha1.ReasonQuotaExceeded)
	session, _ := startMCP(t, s.url, "-A")
	checked, _ := callTool(t, session, "check", nil)
	g.Expect(checked).To(And(HaveKeyWithValue("passes", false), HaveKeyWithValue("unknown", notFoldedInShop)))
	listed, _ := callTool(t, session, "list_incidents", nil)
	g.Expect(listed).To(And(HaveKeyWithValue("total", 0.0), HaveKeyWithValue("notes", []any{"Warning: " + notFoldedInShop})))
	s.open("shop", "disk", v1alpha1.SeverityError, v1alpha1.AlertContent{Title: "Disk full"})
	checked, _ = callTool(t, session, "check", nil)
	g.Expect(checked).To(And(HaveKeyWithValue("passes", false), Not(HaveKey("unknown"))))
}
