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
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var cluster *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(c *rest.Config) { cluster = c }))
}

// candidate is a campaign that counts its terms.
type candidate struct {
	*Campaign
	terms, working atomic.Int32
	fail           chan error
	slow           time.Duration // how long a term takes to end
}

func newCandidate(lease *Lease) *candidate {
	c := &candidate{fail: make(chan error)}
	c.Campaign = &Campaign{Lease: lease, Prepare: c.Prepare, Work: c.Work, Backoff: time.Second, Log: logr.Discard()}
	return c
}

func (*candidate) Prepare(ctx context.Context) bool { return ctx.Err() == nil }

func (c *candidate) Work(ctx context.Context) error {
	c.terms.Add(1)
	c.working.Add(1)
	defer c.working.Add(-1)
	defer func() { time.Sleep(c.slow) }()
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

// TestCampaign has two replicas compete on a real API server.
func TestCampaign(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(cluster, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	name := types.NamespacedName{Namespace: testenv.Namespace(t, c), Name: "lease"}
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	compete := func() (*candidate, func()) {
		lease, err := NewLease(cluster, name, logr.Discard())
		g.Expect(err).NotTo(HaveOccurred())
		candidate := newCandidate(lease)
		return candidate, candidate.run(t)
	}
	first, stopFirst := compete()
	g.Eventually(first.working.Load, "5s", "10ms").Should(BeEquivalentTo(1))
	second, _ := compete()
	g.Consistently(second.working.Load, "500ms").Should(BeEquivalentTo(0))
	g.Expect([]bool{first.Holds(), second.Holds()}).To(Equal([]bool{true, false}))
	g.Expect(c.Get(t.Context(), name, object)).To(Succeed())
	g.Expect(first.Lease.ID(t.Context())).To(BeEquivalentTo(object.UID))
	g.Expect(object.Spec.LeaseDurationSeconds).To(HaveValue(BeEquivalentTo(3)))

	// Work that fails gives the lease up to another candidate.
	first.fail <- errors.New("cannot fold")
	g.Eventually(second.working.Load, "1s", "10ms").Should(BeEquivalentTo(1))
	g.Expect(first.working.Load()).To(BeEquivalentTo(0))

	// Somebody who takes the lease and goes silent ends the term, and the campaign goes on.
	g.Eventually(func() error {
		if err := c.Get(t.Context(), name, object); err != nil {
			return err
		}
		now := metav1.NowMicro()
		object.Spec.HolderIdentity, object.Spec.RenewTime = new("a thief"), &now
		return c.Update(t.Context(), object)
	}, "5s", "5ms").Should(Succeed())
	g.Eventually(second.working.Load, "1s", "10ms").Should(BeEquivalentTo(0))
	total := first.terms.Load() + second.terms.Load()
	g.Eventually(func() int32 { return first.terms.Load() + second.terms.Load() }, "10s", "10ms").Should(Equal(total + 1))

	// Nobody loses a lease that is deleted.
	leads := func() []int32 { return []int32{first.working.Load(), second.working.Load()} }
	before := leads()
	g.Expect(c.Delete(t.Context(), object)).To(Succeed())
	g.Eventually(func() error { return c.Get(t.Context(), name, object) }, "3s", "50ms").Should(Succeed())
	g.Consistently(leads, "1s", "10ms").Should(Equal(before))

	// Who stops hands over at once.
	stopFirst()
	g.Eventually(second.working.Load, "1s", "10ms").Should(BeEquivalentTo(1))
}

// TestVersionsTakeTurns has a replica of an earlier version compete, with client-go's election.
func TestVersionsTakeTurns(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(cluster, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	name := types.NamespacedName{Namespace: testenv.Namespace(t, c), Name: "lease"}
	lease, err := NewLease(cluster, name, logr.Discard())
	g.Expect(err).NotTo(HaveOccurred())
	newer := newCandidate(lease)
	stopNewer := newer.run(t)
	g.Eventually(newer.working.Load, "5s", "10ms").Should(BeEquivalentTo(1))

	leases, err := coordinationv1client.NewForConfig(cluster)
	g.Expect(err).NotTo(HaveOccurred())
	var leads atomic.Bool
	older, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Client: leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: "older"},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leads.Store(true) }, OnStoppedLeading: func() { leads.Store(false) },
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, stopOlder := context.WithCancel(t.Context())
	defer stopOlder()
	go older.Run(ctx)
	g.Consistently(leads.Load, "10s", "50ms").Should(BeFalse(), "the lease is shorter than two of its looks at it")
	stopNewer()
	g.Eventually(leads.Load, "6s", "10ms").Should(BeTrue())

	successor := newCandidate(newLease(lease.client, name, "successor", logr.Discard()))
	successor.run(t)
	g.Consistently(successor.working.Load, "6s", "50ms").Should(BeEquivalentTo(0), "it renews its lease every two seconds only")
	stopOlder()
	g.Eventually(successor.working.Load, "1s", "10ms").Should(BeEquivalentTo(1))
}

func TestMetricsTakeThePlaceOfClientGos(t *testing.T) {
	g := NewWithT(t)
	RegisterMetrics(metrics.Registry)
	masterStatus.WithLabelValues("lease").Set(1)
	families, err := metrics.Registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(families).To(ContainElement(HaveField("GetName()", "leader_election_master_status")))
}
