package series

import (
	"fmt"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func newVectors() (*Limit, *CounterVec, *GaugeVec) {
	limit := NewLimit()
	return limit, NewCounterVec(limit, prometheus.CounterOpts{Name: "requests_total"}, "code", "route"),
		NewGaugeVec(limit, prometheus.GaugeOpts{Name: "expiration"}, "token")
}

func integrationOf(namespace string, n int) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("i-", n)}
}

// TestThousandsOfIntegrationsMakeFewSeries has each integration answer with fifty combinations of code and route.
func TestThousandsOfIntegrationsMakeFewSeries(t *testing.T) {
	g := NewWithT(t)
	limit, requests, expirations := newVectors()
	for n := range 1000 {
		limit.Add(integrationOf("hostile", n))
		expirations.Set(integrationOf("hostile", n), 1, "main")
		for code := range 5 {
			for route := range 10 {
				requests.Of(integrationOf("hostile", n), fmt.Sprint(code), fmt.Sprint(route)).Inc()
			}
		}
	}
	count := func() int { return testutil.CollectAndCount(requests) + testutil.CollectAndCount(expirations) }
	g.Expect(count()).To(BeNumerically("~", maxNamed+50, 1))
	g.Expect(testutil.ToFloat64(requests.WithLabelValues("hostile", "", "0", "0"))).To(BeNumerically(">", 900))
	limit.Add(integrationOf("quiet", 1))
	requests.Of(integrationOf("quiet", 1), "202", "/").Inc()
	quiet := requests.WithLabelValues("quiet", "i-1", "202", "/")
	g.Expect(testutil.ToFloat64(quiet)).To(BeEquivalentTo(1), "others have their own share")

	for n := range 1000 {
		limit.Forget(integrationOf("hostile", n))
	}
	g.Expect(count()).To(Equal(50 + 1))
	limit.Forget(integrationOf("quiet", 1))
	g.Expect(limit.named).To(BeEmpty())
	g.Expect(limit.used.Sum()).To(BeZero())

	for namespace := range 40 {
		for n := range 1000 {
			integration := integrationOf(fmt.Sprint("many-", namespace), n)
			limit.Add(integration)
			requests.Of(integration, "202", "/").Inc()
		}
	}
	g.Expect(limit.used.Sum()).To(BeNumerically("<=", maxAllNamed+100))
	g.Expect(limit.used.Used("many-39")).To(BeNumerically(">", 0), "the last one has a place as well")
}

// TestADeletedIntegrationLeavesNoSeries has integrations come, go and come again while requests of them are answered.
func TestADeletedIntegrationLeavesNoSeries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, requests, expirations := newVectors()
		exists := map[types.NamespacedName]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			integration := integrationOf("a", rapid.IntRange(0, 3).Draw(t, "integration"))
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				limit.Add(integration)
				exists[integration] = true
			case 1:
				limit.Forget(integration)
				delete(exists, integration)
			case 2:
				expirations.Set(integration, 1, "main")
			case 3:
				expirations.Remove(integration, "main")
			default:
				requests.Of(integration, "202", "/").Inc()
			}
		}
		for integration := range exists {
			limit.Forget(integration)
		}
		if left := testutil.CollectAndCount(expirations); left > 0 || testutil.CollectAndCount(requests) > 1 || limit.used.Sum() != 0 {
			t.Fatalf("%d gauges are left, and %d series count", left, limit.used.Sum())
		}
	})
}

func TestSeriesAreMadeAndRemovedAtOnce(t *testing.T) {
	limit, requests, _ := newVectors()
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for n := range 2000 {
				integration := integrationOf("a", n%3)
				if n%5 == worker {
					limit.Forget(integration)
				}
				limit.Add(integration)
				requests.Of(integration, "202", fmt.Sprint(n%7)).Inc()
			}
		})
	}
	all.Wait()
	for n := range 3 {
		limit.Forget(integrationOf("a", n))
	}
	requests.DeletePartialMatch(prometheus.Labels{"integration": ""}) // counted while another worker had it forgotten
	g := NewWithT(t)
	g.Expect(testutil.CollectAndCount(requests)).To(BeZero(), "each that was made is removed")
	g.Expect(limit.used.Sum()).To(BeZero())
}
