package forward

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestInvalidFileKeepsTheLastValidContent(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "alertmanager.yaml")
	write := func(text string) { g.Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed()) }
	const valid = "alertmanagers: [{url: 'http://am'}]\nexpiry: 10m"
	f := New(Options{path: file}, clockFunc(realTime), nil, logr.Discard())

	f.load()
	g.Expect(f.current().IsEmpty()).To(BeTrue())
	g.Expect(f.file.Load().err).To(HaveOccurred())
	write(valid)
	f.load()
	first := f.current()
	g.Expect(first.IsEmpty()).To(BeFalse())
	f.load()
	g.Expect(f.current()).To(BeIdenticalTo(first), "an unchanged file changes nothing")
	write("alertmanagers: no")
	f.load()
	g.Expect(f.file.Load().err).To(HaveOccurred())
	g.Expect(f.current()).To(BeIdenticalTo(first))
	g.Expect(os.Remove(file)).To(Succeed())
	f.load()
	g.Expect(f.current()).To(BeIdenticalTo(first))
	write(strings.Replace(valid, "10m", "20m", 1))
	f.load()
	g.Expect(f.current().Expiry).To(Equal(20 * time.Minute))
	g.Expect(f.file.Load().err).NotTo(HaveOccurred())
}

// An installation whose file is invalid at the start forwards nothing, and every integration says so.
func TestTheConditionHasTheErrorOfTheFile(t *testing.T) {
	g := NewWithT(t)
	c := newCluster()
	f := c.term.forwarder
	f.path = filepath.Join(t.TempDir(), "alertmanager.yaml")
	f.term.Store(c.term)
	g.Expect(os.WriteFile(f.path, []byte("expiry: 1s\nexternal_labels: {b: '', a: ''}"), 0o600)).To(Succeed())
	f.load()
	condition, ok := f.Condition(&v1alpha1.WebhookIntegration{})
	g.Expect(ok).To(BeTrue())
	g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonInvalidConfig))
	g.Expect(condition.Message).To(Equal("The operator's Alertmanager configuration is invalid: " +
		"expiry: 1s is not between 1m0s and 24h0m0s; alertmanagers: need 1 to 16 entries, got 0; " +
		"external_labels: the value of a needs 1 to 256 characters; external_labels: the value of b needs 1 to 256 characters."))
}
