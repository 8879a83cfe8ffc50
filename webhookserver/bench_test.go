package webhookserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// BenchmarkHandler measures what a request costs besides the API server's part and the network's.
func BenchmarkHandler(b *testing.B) {
	alert := `{"title":"Disk full on node-17","description":"92% used","severity":"P1","dedup_key":"disk-17",` +
		`"hostname":"node-17","labels":{"cluster":"eu-1","device":"sda1"},"values":{"used":0.92},"team":"storage"}`
	for name, body := range map[string]string{
		"a usual alert":       alert,
		"an alert of 100 KiB": `{"dedup_key":"d","log":"` + strings.Repeat("x", 100<<10) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			bench := newBench()
			bench.log = logr.Discard()
			bench.committer = committerFunc(func(_ context.Context, s commit.Submission) (commit.Receipt, error) {
				return commit.Receipt{EventName: "event", Alerts: s.Alerts}, nil
			})
			b.ReportAllocs()
			for b.Loop() {
				recorder := httptest.NewRecorder()
				bench.handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, testPath, strings.NewReader(body)))
				if recorder.Code != http.StatusAccepted {
					b.Fatalf("status %d", recorder.Code)
				}
			}
		})
	}
}

// BenchmarkCommit measures alerts stored in the control plane of the tests, with so many senders at a time.
func BenchmarkCommit(b *testing.B) {
	store, err := commit.NewClient(restConfig)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	for _, senders := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("%d senders", senders), func(b *testing.B) {
			c := commit.New(store, DefaultMaxInFlightWrites, nil)
			b.SetParallelism(max(1, senders/2)) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					s := commit.Submission{
						Integration: types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "x"}, Received: time.Now(),
						Alerts: []v1alpha1.Alert{{
							ID: "1", DedupKey: "1", Status: v1alpha1.AlertFiring,
							AlertContent: v1alpha1.AlertContent{Title: "Disk full", Description: strings.Repeat("x", 300)},
						}},
					}
					if _, err := c.Commit(context.Background(), s); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "alerts/s")
		})
	}
}

// BenchmarkHeartbeats measures the signals of 10,000 heartbeats, twenty to an integration: the time of one, and the memory of a
// replica that has just heard all, with the integrations in its cache.
func BenchmarkHeartbeats(b *testing.B) {
	const integrations, each = 500, 20
	heap := func() float64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc) / (1 << 20)
	}
	before := heap()
	reporter := newSignalReporter(nil, nil, logr.Discard())
	cached, now := make([]*v1alpha1.WebhookIntegration, integrations), v1alpha1.NewTimestamp(time.Now())
	for i := range cached {
		cached[i] = &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint("integration-", i)}}
		for k := range each {
			name := fmt.Sprint("heartbeat-", k)
			cached[i].Spec.Heartbeats = append(cached[i].Spec.Heartbeats, v1alpha1.Heartbeat{
				Name: name, Interval: &metav1.Duration{Duration: 5 * time.Minute}, Match: &v1alpha1.HeartbeatMatch{Ping: true},
			})
			cached[i].Status.Heartbeats = append(cached[i].Status.Heartbeats, v1alpha1.HeartbeatStatus{
				Name: name, ObservedTime: now.DeepCopy(), LastSignalTime: now.DeepCopy(),
			})
		}
	}
	n := 0
	for b.Loop() {
		reporter.note(cached[n%integrations], []signal{{heartbeat: cached[0].Spec.Heartbeats[n/integrations%each].Name, time: now.Time}})
		n++
	}
	for ; n < integrations*each; n++ {
		reporter.note(cached[n%integrations], []signal{{heartbeat: cached[0].Spec.Heartbeats[n/integrations%each].Name, time: now.Time}})
	}
	b.ReportMetric(heap()-before, "MiB")
	runtime.KeepAlive(reporter)
	runtime.KeepAlive(cached)
}
