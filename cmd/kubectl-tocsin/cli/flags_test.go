package cli

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestDurations(t *testing.T) {
	g := NewWithT(t)
	var value time.Duration
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	durationVar(flags, &value, "for", "How long.")
	g.Expect(flags.FlagUsages()).NotTo(ContainSubstring("default"))
	for text, want := range map[string]time.Duration{
		"0": 0, "90m": 90 * time.Minute, "1.5h": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour,
	} {
		g.Expect(flags.Set("for", text)).To(Succeed())
		g.Expect(value).To(Equal(want), text)
	}
	for _, text := range []string{"", "5", "-1h", "-1d", "soon"} {
		g.Expect(flags.Set("for", text)).To(MatchError(ContainSubstring("is not a duration such as 90m, 12h or 7d")), text)
	}
}

func TestAnAcknowledgementHasALength(t *testing.T) {
	for text, problem := range map[string]string{
		"1m": "", "30d": "", "90m": "", "0": "from 1m to 30d", "59s": "from 1m to 30d", "721h": "from 1m to 30d", "": "not a duration",
	} {
		g := NewWithT(t)
		command, _, err := newPlugin(genericiooptions.NewTestIOStreamsDiscard()).command().Find([]string{"ack"})
		g.Expect(err).NotTo(HaveOccurred())
		if err := command.Flags().Set("for", text); problem == "" {
			g.Expect(err).NotTo(HaveOccurred(), text)
		} else {
			g.Expect(err).To(MatchError(ContainSubstring(problem)), text)
		}
	}
}

func TestAWebhookURLHasNoFragment(t *testing.T) {
	err := checkURL("https://alerts.example.com" + webhookPath + "/token?severity=info#x")
	NewWithT(t).Expect(err).To(MatchError("the URL may not have a fragment"))
}
