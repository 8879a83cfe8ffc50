package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// TestPagesShowWhatKubectlPrints posts the samples of every preset to a manager: an alert that fires, is
// repeated and is resolved is one Incident, with the state and the count that it should have.
func TestPagesShowWhatKubectlPrints(t *testing.T) {
	g := NewWithT(t)
	manager := filepath.Join(t.TempDir(), "manager")
	g.Expect(testenv.BuildManager(t.Context(), manager)).To(Succeed())
	printed, err := play(t.Context(), manager, t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(printed)).To(BeNumerically(">", 20))
	for name, text := range printed {
		content, err := os.ReadFile(pagePath(name))
		g.Expect(err).NotTo(HaveOccurred())
		_, block, _, err := cut(string(content))
		g.Expect(err).NotTo(HaveOccurred(), name)
		if masked(block) != masked(text) {
			t.Errorf("docs/senders/%s.md shows\n%s\nbut kubectl prints\n%s\n\"make sender-pages\" brings it up to date", name, block, text)
		}
	}
}

func TestMasked(t *testing.T) {
	g := NewWithT(t)
	row := "a-1   Open   critical   2   3s      Disk 97 % full   a   disk-1   db-1   1m5s\n"
	g.Expect(masked(row)).To(Equal(masked("a-1  Open  critical  2  12m  Disk 97 % full  a  disk-1  db-1  2d\n")))
	for _, other := range []string{
		"a-1   Open   critical   3   3s      Disk 97 % full   a   disk-1   db-1   1m5s\n",
		"a-1   Open   critical   2   3s      Disk 98 % full   a   disk-1   db-1   1m5s\n",
		"a-1   Resolved   critical   2   3s      Disk 97 % full   a   disk-1   db-1   1m5s\n",
	} {
		g.Expect(masked(row)).NotTo(Equal(masked(other)))
	}
}
