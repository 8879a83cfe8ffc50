package leader

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var cluster *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(c *rest.Config) { cluster = c }))
}

// candidate is a campaign for a test's lease that counts its terms.
type candidate struct {
	*Campaign
	terms, working atomic.Int32
	fail           chan error
}

func newCandidate(t *testing.T, namespace, identity string) *candidate {
	t.Helper()
	leases, err := coordinationv1client.NewForConfig(cluster)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	c := &candidate{fail: make(chan error)}
	c.Campaign = &Campaign{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lease"}, Client: leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		Name: "lease", LeaseDuration: 2 * time.Second, RenewDeadline: time.Second, RetryPeriod: 100 * time.Millisecond,
		Prepare: func(context.Context) bool { return true },
		Backoff: time.Second,
		Log:     logr.Discard(),
		Work: func(ctx context.Context) error {
			c.terms.Add(1)
			c.working.Add(1)
			defer c.working.Add(-1)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-c.fail:
				return err
			}
		},
	}
	return c
}

// run starts the campaign and returns what stops it.
func (c *candidate) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	stop = func() {
		cancel()
		NewWithT(t).Eventually(ended, "10s").Should(Receive(BeNil()))
		ended <- nil
	}
	t.Cleanup(stop)
	return stop
}

func TestCampaign(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(cluster, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, c)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lease"}}
	first, second := newCandidate(t, namespace, "first"), newCandidate(t, namespace, "second")
	stopFirst := first.run(t)
	g.Eventually(first.working.Load, "5s", "10ms").Should(BeEquivalentTo(1))
	second.run(t)
	g.Consistently(second.working.Load, "500ms").Should(BeEquivalentTo(0))
	g.Expect([]bool{first.Holds(), second.Holds()}).To(Equal([]bool{true, false}))

	// Work that fails gives the lease up to another candidate.
	first.fail <- errors.New("cannot fold")
	g.Eventually(second.working.Load, "3s", "10ms").Should(BeEquivalentTo(1))
	g.Expect(first.working.Load()).To(BeEquivalentTo(0))

	// Somebody who takes the lease and goes silent ends the term, and the campaign goes on.
	g.Eventually(func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
			return err
		}
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = new("a thief"), &now
		return c.Update(t.Context(), lease)
	}, "5s", "5ms").Should(Succeed())
	g.Eventually(second.working.Load, "3s", "10ms").Should(BeEquivalentTo(0))
	total := first.terms.Load() + second.terms.Load()
	g.Eventually(func() int32 { return first.terms.Load() + second.terms.Load() }, "10s", "10ms").Should(Equal(total + 1))

	// Who stops hands over at once.
	stopFirst()
	g.Eventually(second.working.Load, "3s", "10ms").Should(BeEquivalentTo(1))
}

func TestTermsFollowEachOtherWithoutALease(t *testing.T) {
	g := NewWithT(t)
	c := newCandidate(t, "default", "only")
	c.Lock, c.Backoff = nil, time.Millisecond
	c.run(t)
	g.Expect(c.Holds()).To(BeTrue())
	c.fail <- errors.New("once")
	c.fail <- nil
	g.Eventually(c.terms.Load, "5s", "5ms").Should(BeEquivalentTo(3))
}
