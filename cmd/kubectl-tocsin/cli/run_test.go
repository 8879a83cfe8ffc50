package cli

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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
