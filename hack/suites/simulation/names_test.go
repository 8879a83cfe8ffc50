package simulation

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
)

// act is an operation of a test.
type act struct {
	name string
	f    func(w *world)
}

func (o act) do(w *world) { o.f(w) }

// TestNamesAreOfTheTimeOfTheirStory plays a long story, and another one after it in the same process.
func TestNamesAreOfTheTimeOfTheirStory(t *testing.T) {
	g := NewWithT(t)
	var ages []time.Duration
	watchNames := act{"watch the names", func(w *world) {
		w.server.OnCommit(func(c apiserver.Commit) {
			metadata, _ := c.Object["metadata"].(map[string]any)
			name, _ := metadata["name"].(string)
			if id, err := uuid.Parse(name); err == nil && c.Type == watch.Added && v1alpha1.IsGeneratedEventName(name) {
				ages = append(ages, time.Since(time.Unix(id.Time().UnixTime())))
			}
		})
	}}
	for _, before := range []time.Duration{3 * time.Minute, time.Second} {
		ages = nil
		story := &Story{Settings: calm.Settings, Operations: slices.Concat([]operation{watchNames, wait{before}}, calm.Operations)}
		g.Expect(Run(t, 1, story, Watcher{})).To(BeEmpty())
		g.Expect(ages).NotTo(BeEmpty())
		g.Expect(ages).To(HaveEach(And(BeNumerically(">=", 0), BeNumerically("<", time.Second))), "from the name to the commit")
	}
}
