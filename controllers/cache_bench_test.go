package controllers

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// storedIncident is a Resolved Incident with 1 KiB of content, as the API server sends it.
func storedIncident(n int) ([]byte, error) {
	at := v1alpha1.NewTimestamp(testEpoch.Add(time.Duration(n) * time.Second))
	integration, key := fmt.Sprint("integration-", n%1000), fmt.Sprint("disk/web-", n)
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: v1alpha1.IncidentName(integration, key), ResourceVersion: fmt.Sprint(1000000 + n),
			UID: types.UID(fmt.Sprintf("059065d8-23ea-43d3-a86e-%012d", n)), CreationTimestamp: metav1.NewTime(at.Time),
		},
		Spec: v1alpha1.IncidentSpec{IntegrationName: integration, DedupKey: key},
		Status: v1alpha1.IncidentStatus{
			State: v1alpha1.IncidentResolved, ObservedGeneration: 1, AlertCount: 2, OpenedTime: &at, ResolvedTime: &at, LastAlertTime: &at,
			Episode: &v1alpha1.Episode{Number: 1, StartTime: at, AlertCount: 2},
			Alert: v1alpha1.AlertContent{
				Title: "High CPU usage on web-17", Description: strings.Repeat("CPU usage was over 90 %. ", 20), Severity: "critical",
				Type: "cpu", Link: "https://monitoring.example.com/alerts/17", Hostname: "web-17.example.com", Region: "eu-west-1",
				Labels:      v1alpha1.Bag{"env": []byte(`"production"`), "service": []byte(`"api"`), "team": []byte(`"blue"`)},
				Annotations: v1alpha1.Bag{"runbook": []byte(`"https://runbooks.example.com/cpu"`), "summary": []byte(`"CPU usage is high"`)},
				Values:      v1alpha1.Bag{"cpu": []byte(`93.5`), "load5": []byte(`17.25`)},
				StartsAt:    &at, EndsAt: &at,
			},
			Timeline: []v1alpha1.Transition{
				{Type: v1alpha1.TransitionOpened, Time: at, Message: "Opened with severity critical: High CPU usage on web-17"},
				{Type: v1alpha1.TransitionResolved, Time: at, Message: "Resolved by an alert"},
			},
			Ledger: v1alpha1.Ledger{ResourceVersion: "1000000", Digest: strings.Repeat("0", 32)},
		},
	}
	for _, kind := range []string{v1alpha1.ConditionResolved, v1alpha1.ConditionAcknowledged} {
		incident.Status.Conditions = append(incident.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "ResolvedByAlert", Message: "An alert resolved the incident.",
			LastTransitionTime: metav1.NewTime(at.Time),
		})
	}
	for i := range 2 {
		id := fmt.Sprintf("059065d8-23ea-43d3-a86e-%02d%010d", i, n)
		incident.Status.Ledger.Events = append(incident.Status.Ledger.Events, v1alpha1.LedgerEntry{UID: id, Name: id})
	}
	return json.Marshal(incident)
}

// BenchmarkCachedIncident reports the heap that a Resolved Incident takes in a replica's cache with its index, and in the counts.
func BenchmarkCachedIncident(b *testing.B) {
	const incidents = 20_000
	for name, transform := range map[string]func(any) (any, error){
		"whole":     func(object any) (any, error) { return object, nil },
		"condensed": TransformIncident,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				counts := newStoreCounts(time.Now)
				indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
					toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
					integrationNameIndex: func(object any) ([]string, error) {
						incident, _ := object.(*v1alpha1.Incident)
						return []string{incident.Namespace + "/" + incident.Spec.IntegrationName, "*/" + incident.Spec.IntegrationName}, nil
					},
				})
				for n := range incidents {
					text, err := storedIncident(n)
					if err != nil {
						b.Fatal(err)
					}
					incident := &v1alpha1.Incident{}
					if err := json.Unmarshal(text, incident); err != nil {
						b.Fatal(err)
					}
					if _, err := transform(incident); err != nil {
						b.Fatal(err)
					}
					if err := indexer.Add(incident); err != nil {
						b.Fatal(err)
					}
					counts.setIncident(incident, true)
				}
				b.ReportMetric(float64(heap()-before)/incidents, "B/Incident")
				runtime.KeepAlive(indexer)
				runtime.KeepAlive(counts)
			}
		})
	}
}

// BenchmarkScrape measures the collection of the metrics of the store with 100,000 Incidents.
func BenchmarkScrape(b *testing.B) {
	counts := newStoreCounts(time.Now)
	counts.synced = func() bool { return true }
	for n := range 100_000 {
		incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(n)}}
		incident.Status.State = v1alpha1.IncidentResolved
		counts.setIncident(incident, true)
	}
	for b.Loop() {
		metrics := make(chan prometheus.Metric, 1000)
		counts.Collect(metrics)
	}
}

// heap returns the size of the live heap.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
