package leader

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		Worker:  c,
		Backoff: time.Second,
		Log:     logr.Discard(),
	}
	return c
}

// Prepare implements Worker.
func (*candidate) Prepare(context.Context) bool { return true }

// Work implements Worker.
func (c *candidate) Work(ctx context.Context) error {
	c.terms.Add(1)
	c.working.Add(1)
	defer c.working.Add(-1)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-c.fail:
		return err
	}
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

// memoryLock is a lease in memory that nobody else wants.
type memoryLock struct {
	resourcelock.Interface

	record  *resourcelock.LeaderElectionRecord
	failing atomic.Bool
}

func (l *memoryLock) Identity() string   { return "only" }
func (l *memoryLock) Describe() string   { return "memory" }
func (l *memoryLock) RecordEvent(string) {}

func (l *memoryLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.record == nil {
		return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "lease")
	}
	return l.record, []byte(l.record.RenewTime.String()), nil
}

func (l *memoryLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *memoryLock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.failing.Load() {
		return errors.New("cannot be reached")
	}
	l.record = &record
	return nil
}

// slowWorker takes a minute to end a term.
type slowWorker struct{ Worker }

func (w slowWorker) Work(ctx context.Context) error {
	err := w.Worker.Work(ctx)
	time.Sleep(time.Minute) // as a retry after a conflict does; whoever waits for it lets the time of the bubble pass
	return err
}

func TestATermWaitsForTheEndOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c, lock := newCandidate(t, "default", "only"), &memoryLock{}
		c.Lock, c.Worker = lock, slowWorker{c}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Start(ctx) }()
		time.Sleep(time.Second)
		g.Expect(c.terms.Load()).To(BeEquivalentTo(1))

		lock.failing.Store(true)
		time.Sleep(5 * time.Second)
		g.Expect(c.Holds()).To(BeFalse())
		lock.failing.Store(false)
		time.Sleep(50 * time.Second)
		g.Expect(c.terms.Load()).To(BeEquivalentTo(1), "the last term has not ended")
		time.Sleep(10 * time.Second)
		g.Expect(c.terms.Load()).To(BeEquivalentTo(2))
		cancel()
		g.Expect(<-ended).To(Succeed())
	})
}
