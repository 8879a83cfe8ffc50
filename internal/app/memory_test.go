package app

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// TestTinyAlertEventsTakeLittleMemory has a replica keep AlertEvents that a user has made by hand, in its cache, its memory and
// its counts.
func TestTinyAlertEventsTakeLittleMemory(t *testing.T) {
	const objects = 20_000
	for sentence, test := range map[string]struct {
		sizes int64 // the bound of what is no stub
		most  int   // bytes of each
	}{
		"with their alerts": {1 << 30, 3000},
		"as stubs":          {1, 2000},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			heap := func() int {
				var stats runtime.MemStats
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&stats)
				return int(stats.HeapAlloc)
			}
			memory := queue.NewMemory(clock.RealClock{})
			memory.Cached = queue.NewBoundedCached(fair.Limit{All: 1 << 30, Share: 1}, fair.Limit{All: test.sizes, Share: 1})
			counts := capacity.New(capacity.Limits{Share: 1}, memory.Cached, clock.RealClock{})
			names := func(object any) (names []string, err error) {
				for name := range replica.IncidentNames(object.(*v1alpha1.AlertEvent)) {
					names = append(names, name)
				}
				return names, nil
			}
			byNamespace := func(object any) ([]string, error) { return []string{object.(*v1alpha1.AlertEvent).Namespace}, nil }
			store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{"names": names, "namespace": byNamespace})
			steps := map[string]func(*v1alpha1.AlertEvent){
				"1 cache":  func(event *v1alpha1.AlertEvent) { g.Expect(store.Add(event)).To(Succeed()) },
				"2 memory": func(event *v1alpha1.AlertEvent) { memory.NoteShown(event, true) },
				"3 counts": func(event *v1alpha1.AlertEvent) { counts.SetEvent(event, true) },
			}
			before := heap()
			last := before
			stored := make([]*v1alpha1.AlertEvent, 0, objects)
			for n := range objects {
				event := &v1alpha1.AlertEvent{}
				g.Expect(json.Unmarshal([]byte(fmt.Sprintf(`{"metadata":{"namespace":"hostile","name":"%s-%d",
					"uid":"019b76da-a800-7000-8000-%012d","resourceVersion":"%d","creationTimestamp":"2026-01-02T03:04:05Z",
					"managedFields":[{"manager":"kubectl","operation":"Update","time":"2026-01-02T03:04:05Z"}]},
					"spec":{"integrationName":"shop","alerts":"[{\"dedupKey\":\"key-%d\",\"status\":\"firing\",\"title\":\"disk full\"}]"}}`,
					strings.Repeat("a", 30), n, n, 1_000_000+n, n)), event)).To(Succeed())
				_, err := memory.Cached.Condense(event)
				g.Expect(err).NotTo(HaveOccurred())
				stored = append(stored, event)
			}
			for _, step := range []string{"0 objects", "1 cache", "2 memory", "3 counts"} {
				for _, event := range stored {
					if steps[step] != nil {
						steps[step](event)
					}
				}
				now := heap()
				t.Logf("%s: %d bytes for each", step, (now-last)/objects)
				last = now
			}
			each := (last - before) / objects
			t.Logf("%d bytes for each", each)
			g.Expect(each).To(BeNumerically("<", test.most))
			runtime.KeepAlive(stored)
			runtime.KeepAlive(store)
			runtime.KeepAlive(memory)
			runtime.KeepAlive(counts)
		})
	}
}
