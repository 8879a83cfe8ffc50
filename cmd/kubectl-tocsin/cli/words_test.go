package cli

import (
	"bytes"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestWords(t *testing.T) {
	g := NewWithT(t)
	word, list := "json", []string(nil)
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	wordVar(flags, &word, "output", "o", "json or yaml", "Output format.")
	flags.Var(wordValue{enumeration: severityWords, list: &list}, "severity", "Severities.")
	g.Expect(flags.FlagUsages()).To(ContainSubstring(`Output format. (default "json")`))
	g.Expect(flags.Parse([]string{"-o", "YAML", "--severity", "Critical,info", "--severity", "error", "--severity", ""})).To(Succeed())
	g.Expect(word).To(Equal("yaml"))
	g.Expect(list).To(Equal([]string{"critical", "info", "error"}))
	g.Expect(errorMessage(flags.Parse([]string{"-o", "text"}))).To(Equal(`error: --output must be json or yaml, not "text"`))
	g.Expect(errorMessage(flags.Parse([]string{"--severity", "info,bad"}))).To(
		Equal(`error: --severity must be one of critical, error, warning and info, not "bad"`))
}

// runPlugin runs the plugin without a cluster, and returns its exit code and what it prints on stdout and stderr.
func runPlugin(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	code = Main(append([]string{"kubectl-tocsin"}, args...), bytes.NewBufferString(stdin), &out, &problems)
	return code, out.String(), problems.String()
}

func TestAMistypedWordOfAnAlertIsNotSent(t *testing.T) {
	for _, test := range []struct{ flag, value, problem string }{
		{"--status", "resolve", `--status must be firing, resolved or acknowledged, not "resolve"`},
		{"--severity", "critcal", `--severity must be one of critical, error, warning and info, not "critcal"`},
	} {
		g := NewWithT(t)
		code, _, stderr := runPlugin(t, "", "send", "--url", "http://127.0.0.1:1/", test.flag, test.value)
		g.Expect(code).To(Equal(exitFailure))
		g.Expect(stderr).To(Equal("error: " + test.problem + "\n"))
	}
}

func TestWordsOfAnAlertIgnoreCase(t *testing.T) {
	g := NewWithT(t)
	p := newPlugin(genericiooptions.NewTestIOStreamsDiscard())
	command := p.sendCommand()
	g.Expect(command.ParseFlags([]string{"--status", "Resolved"})).To(Succeed())
	g.Expect(command.Flag("status").Value.String()).To(Equal("resolved"))
}

func TestAMistypedPresetGetsTheNearestName(t *testing.T) {
	g := NewWithT(t)
	for typo, suggestion := range map[string]string{
		"alertmanger": "alertmanager", "Grafana": "grafana", "prometeus-alertmanager": "", "pager-duty": "pagerduty", "x": "",
	} {
		err := checkPreset(typo)
		g.Expect(err).To(MatchError(ContainSubstring("preset %q does not exist", typo)))
		if suggestion == "" {
			g.Expect(err).NotTo(MatchError(ContainSubstring("did you mean")), typo)
		} else {
			g.Expect(err).To(MatchError(ContainSubstring("did you mean %q?", suggestion)))
		}
	}
	g.Expect(checkPreset("alertmanager")).To(Succeed())
	g.Expect(checkPreset("")).To(Succeed())
	code, _, stderr := runPlugin(t, "{}", "explain", "-f", "-", "--preset", "alertmanger")
	g.Expect(code).To(Equal(exitFailure))
	g.Expect(stderr).To(ContainSubstring(`did you mean "alertmanager"?`))
}

func TestCompletionOfAnUnknownShellFails(t *testing.T) {
	g := NewWithT(t)
	code, stdout, stderr := runPlugin(t, "", "completion", "nope")
	g.Expect(code).To(Equal(exitFailure))
	g.Expect(stdout).To(BeEmpty())
	g.Expect(stderr).To(ContainSubstring(`"nope"`))
	code, stdout, _ = runPlugin(t, "", "completion", "bash")
	g.Expect(code).To(Equal(exitOK))
	g.Expect(stdout).To(ContainSubstring("kubectl-tocsin"))
}
