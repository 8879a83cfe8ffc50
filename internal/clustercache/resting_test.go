package clustercache

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// anyIncident generates Incidents with any values in all fields.
func anyIncident() *rapid.Generator[v1alpha1.Incident] {
	seconds := rapid.Int64Range(-1e9, 1e10)
	return rapid.MakeCustom[v1alpha1.Incident](rapid.MakeConfig{
		Types: map[reflect.Type]*rapid.Generator[any]{
			reflect.TypeFor[metav1.Time](): rapid.Map(seconds, func(s int64) any { return metav1.Unix(s, 0) }),
			reflect.TypeFor[v1alpha1.Timestamp](): rapid.Map(seconds, func(s int64) any {
				return v1alpha1.NewTimestamp(time.UnixMicro(s * 1003))
			}),
			reflect.TypeFor[v1alpha1.Bag]():      rapid.Just[any](v1alpha1.Bag{}),
			reflect.TypeFor[metav1.ObjectMeta](): rapid.Map(rapid.Make[objectMeta](), objectMeta.asAny),
		},
		Fields: map[reflect.Type]map[string]*rapid.Generator[any]{reflect.TypeFor[v1alpha1.IncidentStatus](): {
			"Condensed": rapid.Just[any](false),
			"State":     rapid.SampledFrom([]any{v1alpha1.IncidentOpen, v1alpha1.IncidentResolved, v1alpha1.IncidentState("")}),
		}},
	})
}

// objectMeta are the metadata that anybody reads.
type objectMeta struct {
	Name, Namespace, UID, ResourceVersion string
	Generation                            int64
	Created                               int32
	Deleted                               bool
	Labels                                map[string]string
}

func (m objectMeta) asAny() any {
	meta := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: types.UID(m.UID), ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: metav1.Unix(int64(m.Created), 0), Labels: m.Labels, Annotations: m.Labels,
	}
	if m.Deleted {
		meta.DeletionTimestamp = &meta.CreationTimestamp
	}
	return meta
}

// TestTheStoreLosesNothingOfACondensedIncident also finds fields that are added to Incidents.
func TestTheStoreLosesNothingOfACondensedIncident(t *testing.T) {
	resting := 0
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		incident := anyIncident().Draw(t, "incident")
		incident.TypeMeta = metav1.TypeMeta{} // nobody reads it
		if rapid.Bool().Draw(t, "ordinary") {
			incident.Status.State, incident.DeletionTimestamp = v1alpha1.IncidentResolved, nil
			incident.Status.Silence, incident.Status.OrphanedTime, incident.Status.UnarchivedEpisodes = nil, nil, nil
		}
		if len(incident.Status.UnarchivedEpisodes) == 0 {
			incident.Status.UnarchivedEpisodes = nil // the same
		}
		condensed := incident.DeepCopy()
		condensed.Condense()
		stored := condense(&incident)
		if _, ok := stored.(*restingIncident); ok {
			resting++
		}
		g.Expect(expand(stored)).To(Equal(condensed))
		tombstone, _ := expand(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: stored}).(toolscache.DeletedFinalStateUnknown)
		g.Expect(tombstone.Obj).To(Equal(condensed))
		g.Expect(toolscache.MetaNamespaceKeyFunc(stored)).To(Equal(toolscache.MetaObjectToName(&incident).String()))
		g.Expect(condense(condensed)).To(Equal(stored), "the transform of the informer gets what the page condensed")
	})
	if resting == 0 {
		t.Error("no Incident became a restingIncident")
	}
}

// storedIncident is a Resolved Incident with 1 KiB of content, as the API server sends it.
func storedIncident(n int) ([]byte, error) {
	at := v1alpha1.NewTimestamp(time.Date(2026, 5, 4, 10, 0, n, 0, time.UTC))
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

// BenchmarkCachedIncident reports the heap that a Resolved Incident takes in the store of a cache.
func BenchmarkCachedIncident(b *testing.B) {
	const incidents = 20_000
	for name, stored := range map[string]func(*v1alpha1.Incident) any{
		"whole":     func(incident *v1alpha1.Incident) any { return incident },
		"condensed": func(incident *v1alpha1.Incident) any { incident.Condense(); return incident },
		"resting":   func(incident *v1alpha1.Incident) any { return condense(incident) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
					toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
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
					if err := indexer.Add(stored(incident)); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(heap()-before)/incidents, "B/Incident")
				runtime.KeepAlive(indexer)
			}
		})
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
