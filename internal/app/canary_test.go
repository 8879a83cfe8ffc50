package app

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// TestCanariesAreFoldedAndReleased has them in the operator's own namespace, which is served or not.
func TestCanariesAreFoldedAndReleased(t *testing.T) {
	for sentence, isServed := range map[string]bool{"a namespace that is served": true, "a namespace of their own": false} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			c, err := client.NewWithWatch(config, client.Options{Scheme: testenv.Scheme()})
			g.Expect(err).NotTo(HaveOccurred())
			own := testenv.Namespace(t, c)
			served := own
			if !isServed {
				served = testenv.Namespace(t, c)
			}
			events, err := c.Watch(t.Context(), &v1alpha1.AlertEventList{}, client.InNamespace(own))
			g.Expect(err).NotTo(HaveOccurred())
			defer events.Stop()

			registry := prometheus.NewPedanticRegistry()
			o, err := ParseFlags([]string{
				"--webhook-bind-address=" + freeAddress(t), "--health-probe-bind-address=0", "--metrics-bind-address=0", "--leader-elect",
				"--leader-election-namespace=" + own, "--watch-namespaces=" + served, "--shutdown-delay=0s",
			})
			g.Expect(err).NotTo(HaveOccurred())
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- Run(ctx, o, Environment{Config: config, Log: logr.Discard(), Metrics: registry}) }()

			seen := map[watch.EventType]string{}
			for len(seen) < 2 {
				var event watch.Event
				g.Eventually(events.ResultChan(), "30s").Should(Receive(&event))
				object, ok := event.Object.(*v1alpha1.AlertEvent)
				g.Expect(ok).To(BeTrue())
				seen[event.Type] = object.Name
			}
			g.Expect(seen[watch.Added]).To(HavePrefix(v1alpha1.CanaryName + "-"))
			g.Expect(seen[watch.Deleted]).To(Equal(seen[watch.Added]), "the leader has released it")
			g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP tocsin_alertevents_pending AlertEvents that are not yet released, without canaries.
# TYPE tocsin_alertevents_pending gauge
tocsin_alertevents_pending 0
`), "tocsin_alertevents_pending")).To(Succeed())
			stop()
			g.Eventually(ended, "30s").Should(Receive(BeNil()))
		})
	}
}

func TestTheOwnNamespace(t *testing.T) {
	for sentence, test := range map[string]struct {
		flags  string
		own    string
		events []string // the namespaces of which the cache has the AlertEvents
	}{
		"is that of the lease":                          {"--leader-election-namespace=own", "own", nil},
		"is cached beside those that are served":        {"--leader-election-namespace=own --watch-namespaces=a,b", "own", []string{"a", "b", "own"}},
		"may be served":                                 {"--leader-election-namespace=a --watch-namespaces=a,b", "a", []string{"a", "b"}},
		"is the first served one outside of a cluster":  {"--watch-namespaces=a,b", "a", []string{"a", "b"}},
		"is the default one if a process serves all so": {"--max-incidents=7", "default", nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			o, err := ParseFlags(strings.Fields(test.flags))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(ownNamespace(&o)).To(Equal(test.own))
			g.Expect(eventNamespaces(&o)).To(Equal(test.events))
		})
	}
}
