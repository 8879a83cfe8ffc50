package cli

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
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
