package webhookserver

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

const (
	floodSenders = 64
	maxFlood     = 128 << 20 // by which the heap may grow

	// maxGroupFlood is that for groups: as many as wait to be stored are larger, and so is what each leaves to be collected.
	maxGroupFlood = 192 << 20
)

// inUse is the memory of the heap, what has not been collected yet included.
func inUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() + sample[1].Value.Uint64()
}

// peak watches the heap until it is stopped, and returns how far it grew.
func peak(ctx context.Context) func() uint64 {
	runtime.GC()
	before, most := inUse(), uint64(0)
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			most = max(most, inUse())
		}
	})
	return func() uint64 {
		cancel()
		done.Wait()
		return max(most, before) - before
	}
}

// TestBodiesThatDecodeToMuchAreTamed posts such bodies from many senders at a time, while the store is slow and another
// integration goes on.
func TestBodiesThatDecodeToMuchAreTamed(t *testing.T) {
	for name, element := range map[string]string{
		"objects of one entry": `{"":0},`, "objects within objects": `{"":{"":{"":{}}}},`, "empty lists": `[],`, "digits": `1,`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			body := `{"a":[` + strings.Repeat(element, (DefaultMaxBodyBytes-20)/len(element)) + `0]}`
			g.Expect(flood(t, "", body)).To(BeNumerically("<", maxFlood))
		})
	}
}

// TestWhatIsDecodedDoesNotWaitForMemory decodes a second text of a request while others hold the memory.
func TestWhatIsDecodedDoesNotWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		h := newBench().handler
		a := &authenticated{integration: integration("team-a", "prometheus")}
		parser := &parser{handler: h, request: a, limit: maxDecodedMemory, wait: maxDecodeWait}
		_, _, err := parser.Parse([]byte(`{}`))
		g.Expect(err).NotTo(HaveOccurred())
		other := h.decoded.Reserve(a.integrationName(), maxDecodedMemory/4-1000, 0)
		g.Expect(other).NotTo(BeNil())
		began := time.Now()
		_, _, err = parser.Parse([]byte(`{"a":"` + strings.Repeat("x", 1000) + `"}`))
		g.Expect(err).To(Equal(&problemOverload))
		g.Expect(time.Since(began)).To(BeZero())
		parser.release()
		other.Release()
		g.Expect(h.decoded).To(Equal(fair.NewSpace(maxDecodedMemory)))
	})
}

// TestLargeGroupsAreTamed does the same with the largest groups, and with the groups that decode to the most.
func TestLargeGroupsAreTamed(t *testing.T) {
	t.Run("alerts of 4 KiB", func(t *testing.T) {
		NewWithT(t).Expect(flood(t, "alertmanager", largeGroup(4_000))).To(BeNumerically("<", maxGroupFlood))
	})
	t.Run("alerts with many labels", func(t *testing.T) {
		labels := strings.TrimSuffix(strings.Repeat(`"":0,`, 12), ",")
		alert := `{"labels":{` + labels + `},"annotations":{` + labels + `}},`
		body := func(n int) string {
			return `{"alerts":[` + strings.TrimSuffix(strings.Repeat(alert, n), ",") + `],"x":"` + strings.Repeat(" ", 260<<10) + `"}`
		}
		flood(t, "alertmanager", body(500))
	})
}

// flood posts a body from many senders at a time, and returns how far the heap grew.
func flood(t *testing.T, preset, body string) uint64 {
	t.Helper()
	g := NewWithT(t)
	b := newBench()
	flooding := integration("team-a", "prometheus")
	flooding.Spec.Preset = preset
	b.tokens.set(flooding)
	b.tokens.set(integration("team-b", "other"))
	b.store.Before = func(context.Context, *v1alpha1.AlertEvent, int) error {
		time.Sleep(20 * time.Millisecond) // as an API server takes
		return nil
	}
	server := httptest.NewServer(b.handler)
	defer server.Close()
	address := server.URL + eventsPath + "/"
	post := func(token, body string) int {
		response, err := http.Post(address+token, "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0
		}
		defer func() { _ = response.Body.Close() }()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	grown := peak(t.Context())
	var senders sync.WaitGroup
	codes := make(chan int, 2*floodSenders)
	for range floodSenders {
		senders.Go(func() {
			for range 2 {
				codes <- post(testToken, body)
			}
		})
	}
	for range 20 {
		g.Expect(post(testenv.Token("team-b", "other"), firing)).To(Equal(http.StatusAccepted), "of another integration")
	}
	senders.Wait()
	grew := grown()
	close(codes)
	count := map[int]int{}
	for code := range codes {
		count[code]++
	}
	t.Logf("the heap grew by %d MiB; answers: %v", grew>>20, count)
	g.Expect(count[http.StatusAccepted]).To(BeNumerically(">", 0))
	g.Expect(count[http.StatusAccepted] + count[http.StatusServiceUnavailable]).To(Equal(2 * floodSenders))
	return grew
}
