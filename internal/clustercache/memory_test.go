package clustercache

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// shortKeys returns the JSON of an object with so many keys.
func shortKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%04x":0`, i)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// gzipped returns the text as an AlertEvent has it.
func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(w.Close()).To(Succeed())
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// heapOf returns how many bytes the result of make takes.
func heapOf[T any](create func() T) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	created := create()
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(created)
	runtime.KeepAlive(create) // and what it reads
	return int(after.HeapAlloc) - int(before.HeapAlloc)
}

// condensed returns an AlertEvent as the cache has it.
func condensed(g *WithT, stored []byte) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{}
	g.Expect(json.Unmarshal(stored, event)).To(Succeed())
	_, err := queue.NewCached(fair.DefaultShare).Condense(event)
	g.Expect(err).NotTo(HaveOccurred())
	return event
}

// TestManyKeysTakeLittleMemory has an Incident of an earlier version, whose keys were not bounded, in the cache.
func TestManyKeysTakeLittleMemory(t *testing.T) {
	g := NewWithT(t)
	stored := []byte(`{"status":{"state":"Open","alert":{"custom":` + shortKeys(171<<10/9) + `}}}`)
	took := heapOf(func() *v1alpha1.Incident {
		incident := &v1alpha1.Incident{}
		g.Expect(json.Unmarshal(stored, incident)).To(Succeed())
		_, _ = Condense(incident)
		return incident
	})
	t.Logf("%d bytes take %d", len(stored), took)
	g.Expect(took).To(BeNumerically("<", 2*len(stored)))
}

// A few kilobytes are a million alerts with nothing in them.
func TestEmptyAlertsAreNotDecoded(t *testing.T) {
	for _, empty := range []string{"{}", "null", "[]", "0"} {
		g := NewWithT(t)
		list := "[" + strings.TrimSuffix(strings.Repeat(empty+",", 700_000), ",") + "]"
		stored, err := json.Marshal(map[string]any{"spec": map[string]any{"alerts": gzipped(t, list), "encoding": "gzip"}})
		g.Expect(err).NotTo(HaveOccurred())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		event := condensed(g, stored)
		runtime.ReadMemStats(&after)
		g.Expect(queue.Stuck(event)).To(Equal(queue.StuckUnreadable))
		g.Expect(after.TotalAlloc-before.TotalAlloc).To(BeNumerically("<", 30<<20), empty)
	}
}

// What takes too much memory is unreadable.
func TestAlertsTakeLittleMemory(t *testing.T) {
	for sentence, test := range map[string]struct {
		alerts, keys int
		readable     bool
	}{
		"one alert with 4 MiB of keys":       {1, 460_000, false},
		"500 alerts with 900 keys each":      {500, 900, false},
		"500 alerts with 256 keys each":      {500, 256, false},
		"500 alerts with 100 keys each":      {500, 100, true},
		"one alert with 20,000 keys, a text": {1, 20_000, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			alert := `{"incidentName":"a","dedupKey":"a","status":"firing","custom":` + shortKeys(test.keys) + `}`
			list := "[" + strings.TrimSuffix(strings.Repeat(alert+",", test.alerts), ",") + "]"
			stored, err := json.Marshal(map[string]any{"spec": map[string]any{"alerts": gzipped(t, list), "encoding": "gzip"}})
			g.Expect(err).NotTo(HaveOccurred())
			took := heapOf(func() *v1alpha1.AlertEvent {
				event := condensed(g, stored)
				g.Expect(queue.Stuck(event)).To(Equal(map[bool]string{true: "", false: queue.StuckUnreadable}[test.readable]))
				return event
			})
			t.Logf("%d bytes, %d unpacked, take %d", len(stored), len(list), took)
			g.Expect(took).To(BeNumerically("<", 10<<20))
		})
	}
}

// TestMarksByHandTakeLittleMemory has marks with names of Incidents that the AlertEvents have no alerts of.
func TestMarksByHandTakeLittleMemory(t *testing.T) {
	g, events := NewWithT(t), queue.NewCached(fair.DefaultShare)
	const objects = 500
	took := heapOf(func() (cached []*v1alpha1.AlertEvent) {
		for n := range objects {
			event := largeEvent("a", n, 0)
			event.ResourceVersion = "10"
			event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "9/x," + strings.Repeat("y", 160<<10-4)}
			_, err := events.Condense(event)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(event.Annotations).To(Equal(map[string]string{v1alpha1.SettledAnnotation: "9/x"}), "its own Incident")
			cached = append(cached, event)
		}
		return cached
	})
	t.Logf("%d AlertEvents take %d bytes each", objects, took/objects)
	g.Expect(took / objects).To(BeNumerically("<", 4<<10))
}
