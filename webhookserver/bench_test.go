package webhookserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/heartbeat"
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

// BenchmarkHeartbeats measures the time of a signal of one of many heartbeats.
func BenchmarkHeartbeats(b *testing.B) {
	reporter, cached, now := newReporter(nil, nil, logr.Discard()), manyHeartbeats(time.Now()), time.Now()
	n := 0
	for b.Loop() {
		reporter.addReport(heartbeat.Signal{Heartbeat: cached[n%len(cached)], Kind: v1alpha1.SignalSuccess, Time: now})
		n++
	}
}
