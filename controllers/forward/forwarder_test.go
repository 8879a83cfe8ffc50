package forward

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
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

// mutings describe the time that they are asked for.
type mutings struct{ Mutings }

func (mutings) Describe(condition *metav1.Condition, _ *v1alpha1.WebhookIntegration, now time.Time) {
	condition.Message += " Muted at " + now.UTC().Format(time.RFC3339) + "."
}

// A window opens by the API server's clock.
func TestTheConditionSaysWhatMutesByTheClockOfTheAPIServer(t *testing.T) {
	g := NewWithT(t)
	c := newCluster()
	f := c.term.forwarder
	f.Mutings = mutings{}
	f.term.Store(c.term)
	target := targetOf(&config.Config{})
	f.file.Store(&file{config: &config.Config{Alertmanagers: []*config.Target{target}}})
	c.term.endpoints.members["a"] = newEndpoint(c.term, target)
	message := func(isKnown bool) string {
		c.clock = func() (time.Time, bool) { return noon, isKnown }
		condition, _ := f.Condition(&v1alpha1.WebhookIntegration{})
		return condition.Message
	}
	g.Expect(message(true)).To(HaveSuffix(" Muted at " + noon.UTC().Format(time.RFC3339) + "."))
	g.Expect(message(false)).NotTo(ContainSubstring("Muted"))
}
