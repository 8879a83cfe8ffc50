package leader

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// member is a replica of a group.
type member struct {
	*candidate
	*connection
	stop context.CancelFunc
}

// group is replicas that compete for the Lease of one store, in a bubble.
type group struct {
	*store
	*WithT
	members []*member
}

// newGroup starts replicas at the same instant, and waits until one leads.
func newGroup(t *testing.T, size int) *group {
	t.Helper()
	r := &group{store: newStore(), WithT: NewWithT(t)}
	for range size {
		r.join(t.Context())
	}
	time.Sleep(100 * time.Millisecond)
	r.Expect(r.leaders()).To(HaveLen(1))
	t.Cleanup(func() {
		for _, m := range r.members {
			m.set(faults{})
			m.stop()
		}
		time.Sleep(2 * time.Minute)
	})
	return r
}

// join starts one more replica.
func (r *group) join(ctx context.Context) *member {
	c := &connection{store: r.store}
	name := types.NamespacedName{Namespace: "default", Name: "lease"}
	m := &member{connection: c}
	m.candidate = newCandidate(newLease(c, name, fmt.Sprint("replica-", len(r.members)), logr.Discard()))
	ctx, m.stop = context.WithCancel(ctx)
	r.members = append(r.members, m)
	go func() { _ = m.Start(ctx) }()
	return m
}

// leaders returns the members that work.
func (r *group) leaders() (found []*member) {
	for _, m := range r.members {
		if m.working.Load() > 0 && !m.now().dead {
			found = append(found, m)
		}
	}
	return found
}

// terms returns how many terms began.
func (r *group) terms() (total int32) {
	for _, m := range r.members {
		total += m.terms.Load()
	}
	return total
}

// setAll gives all connections the same faults.
func (r *group) setAll(f faults) {
	for _, m := range r.members {
		m.set(f)
	}
}

// awaitOther waits until a member other than this one works, and returns how long that took.
func (r *group) awaitOther(than *member) time.Duration {
	began := time.Now()
	for time.Since(began) < time.Minute {
		for _, m := range r.leaders() {
			if m != than {
				return time.Since(began)
			}
		}
		time.Sleep(time.Millisecond)
	}
	return time.Minute
}

func TestAKilledLeaderIsFollowedWithinTheLease(t *testing.T) {
	for phase := time.Duration(0); phase < renewInterval; phase += 50 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			r := newGroup(t, 3)
			time.Sleep(10*time.Second + phase)
			killed := r.leaders()[0]
			killed.set(faults{dead: true})
			took := r.awaitOther(killed)
			wait := minDuration + takeoverDelay
			r.Expect(took).To(BeNumerically(">", wait-renewInterval-50*time.Millisecond))
			r.Expect(took).To(BeNumerically("<", wait+50*time.Millisecond))
			time.Sleep(20 * time.Second)
			r.Expect(r.leaders()).To(HaveLen(1), "of two candidates at the same instant, one wins")
			r.Expect(r.terms()).To(BeEquivalentTo(2))
		})
	}
}

func TestAnOrderlyEndIsFollowedAtOnce(t *testing.T) {
	for sentence, f := range map[string]faults{
		"that all see":                         {},
		"while a renewal is slow":              {there: 300 * time.Millisecond},
		"whose answer is slow to come":         {back: 300 * time.Millisecond},
		"which the leader cannot see accepted": {lost: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newGroup(t, 3)
				time.Sleep(3 * time.Second)
				stopped := r.leaders()[0]
				stopped.slow = 30 * time.Second // the work of the term takes long to end
				stopped.set(f)
				time.Sleep(time.Second + 100*time.Millisecond)
				stopped.stop()
				r.Expect(r.awaitOther(stopped)).To(BeNumerically("<", time.Second))
			})
		})
	}
}

func TestARestIsOneWriteASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGroup(t, 3)
		before := r.count()
		time.Sleep(time.Minute)
		r.Expect(r.count() - before).To(BeNumerically("~", 60, 1))
		lease := r.current()
		r.Expect(lease.Spec.LeaseDurationSeconds).To(HaveValue(BeEquivalentTo(3)))
		r.Expect(lease.Spec.LeaseTransitions).To(HaveValue(BeEquivalentTo(1)))
		r.Expect(lease.Spec.RenewTime.Time).To(BeTemporally("~", time.Now(), 2*renewInterval))
	})
}

// TestNoTermEndsByItself has trouble for ten minutes in which no other leader would do better.
func TestNoTermEndsByItself(t *testing.T) {
	always := func(f faults) func(*group) {
		return func(r *group) {
			r.setAll(f)
			time.Sleep(10 * time.Minute)
		}
	}
	often := func(d time.Duration, f faults) func(*group) {
		return func(r *group) {
			for range 60 {
				r.setAll(f)
				time.Sleep(d)
				r.setAll(faults{})
				time.Sleep(10*time.Second - d)
			}
		}
	}
	unreachable := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "lease", errors.New("no watch"))
	for sentence, trouble := range map[string]func(*group){
		"while a request takes 2 s":                     always(faults{there: time.Second, back: time.Second}),
		"while a request takes 4 s to arrive":           always(faults{there: 4 * time.Second}),
		"while an answer takes 4 s":                     always(faults{back: 4 * time.Second}),
		"while answers are later than anybody waits":    always(faults{back: time.Hour}),
		"while no write is answered":                    always(faults{lost: true}),
		"while watches show nothing":                    always(faults{mute: true}),
		"while watches are forbidden, by an older Role": always(faults{unwatched: forbidden}),
		"while nothing can be reached":                  always(faults{refused: unreachable}),
		"though nothing could be reached for 2 s":       often(2*time.Second, faults{refused: unreachable}),
		"though nothing could be reached for 9 s":       often(9*time.Second, faults{refused: unreachable}),
		"though all stood still for 9 s":                often(9*time.Second, faults{dead: true}),
		"though the Lease is deleted again and again": func(r *group) {
			for range 200 {
				r.edit(nil)
				time.Sleep(3100 * time.Millisecond)
			}
		},
		"though users change the Lease's labels all the time": func(r *group) {
			for n := range 2000 {
				r.edit(func(lease *coordinationv1.Lease) { lease.Labels = map[string]string{"n": fmt.Sprint(n)} })
				time.Sleep(301 * time.Millisecond)
			}
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newGroup(t, 3)
				time.Sleep(5 * time.Second)
				leader := r.leaders()[0]
				trouble(r)
				r.setAll(faults{})
				time.Sleep(90 * time.Second)
				r.Expect(r.terms()).To(BeEquivalentTo(1))
				r.Expect(leader.Holds()).To(BeTrue())
				r.Expect(r.current().Spec.LeaseDurationSeconds).To(HaveValue(BeEquivalentTo(3)), "it is fast again")
			})
		})
	}
}

func TestASuspendedLeaderHasASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGroup(t, 3)
		time.Sleep(5 * time.Second)
		zombie := r.leaders()[0]
		zombie.set(faults{dead: true})
		for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(time.Millisecond) {
			held := 0
			for _, m := range r.members {
				if m.Holds() {
					held++
				}
			}
			r.Expect(held).To(BeNumerically("<=", 1), "the leases of two leaders do not overlap")
		}
		r.Expect(zombie.working.Load()).To(BeEquivalentTo(1))
		zombie.set(faults{})
		time.Sleep(renewInterval)
		r.Expect(zombie.working.Load()).To(BeZero())
		time.Sleep(time.Minute)
		r.Expect(r.terms()).To(BeEquivalentTo(2))
		r.Expect(r.leaders()).To(HaveLen(1))
	})
}

// TestACandidateTakesOverInTrouble kills the leader while the candidates are in trouble.
func TestACandidateTakesOverInTrouble(t *testing.T) {
	for sentence, test := range map[string]struct {
		faults faults
		within time.Duration
	}{
		"whose claims are stored and not answered":  {faults{lost: true}, 3600 * time.Millisecond},
		"whose watch shows nothing":                 {faults{mute: true}, 4 * time.Second},
		"that may not watch":                        {faults{unwatched: errors.New("forbidden")}, 4600 * time.Millisecond},
		"for whom each request takes 2 s":           {faults{there: 2 * time.Second}, 8600 * time.Millisecond},
		"for whom nothing can be reached for a bit": {faults{refused: errors.New("connection refused")}, 7100 * time.Millisecond},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newGroup(t, 3)
				time.Sleep(5*time.Second + 500*time.Millisecond)
				killed := r.leaders()[0]
				for _, m := range r.members {
					if m != killed {
						m.set(test.faults)
						if test.faults.refused != nil {
							time.AfterFunc(5*time.Second, func() { m.set(faults{}) })
						}
					}
				}
				killed.set(faults{dead: true})
				r.Expect(r.awaitOther(killed)).To(BeNumerically("<", test.within))
				time.Sleep(10 * time.Second)
				r.Expect(r.leaders()).To(HaveLen(1))
			})
		})
	}
}

// TestALeaseOfOthersIsHonoured has somebody else take the lease, and never renew it.
func TestALeaseOfOthersIsHonoured(t *testing.T) {
	for sentence, test := range map[string]struct {
		renewed time.Duration // from now
		seconds *int32
		lasts   time.Duration
	}{
		"of ten seconds":                        {0, new(int32(10)), 10 * time.Second},
		"whose clock is an hour ahead":          {time.Hour, new(int32(3)), 3 * time.Second},
		"whose clock is an hour behind":         {-time.Hour, new(int32(3)), 3 * time.Second},
		"that says for ever, for some time":     {0, new(int32(1 << 30)), maxDuration},
		"that does not say how long it lasts":   {0, nil, maxDuration},
		"as long as an earlier version asks it": {0, new(int32(15)), 15 * time.Second},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newGroup(t, 2)
				time.Sleep(5 * time.Second)
				r.edit(func(lease *coordinationv1.Lease) {
					at := metav1.NewMicroTime(time.Now().Add(test.renewed))
					lease.Spec.HolderIdentity, lease.Spec.RenewTime = new("somebody else"), &at
					lease.Spec.LeaseDurationSeconds = test.seconds
				})
				time.Sleep(50 * time.Millisecond)
				r.Expect(r.leaders()).To(BeEmpty())
				r.Expect(r.awaitOther(nil) + 50*time.Millisecond).To(BeNumerically("~", test.lasts+takeoverDelay, 50*time.Millisecond))
			})
		})
	}
}

func TestALeaseThatIsDeletedAfterItsHolderRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGroup(t, 2)
		time.Sleep(5 * time.Second)
		killed := r.leaders()[0]
		killed.set(faults{dead: true})
		time.Sleep(time.Second)
		r.edit(nil)
		r.Expect(r.awaitOther(killed)).To(BeNumerically("<", minDuration))
	})
}

// TestAKilledLeaderOfASlowAPIServer is the price for terms that do not end by themselves.
func TestAKilledLeaderOfASlowAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGroup(t, 2)
		r.setAll(faults{there: time.Second, back: time.Second})
		time.Sleep(time.Minute)
		killed := r.leaders()[0]
		killed.set(faults{dead: true})
		r.Expect(r.awaitOther(killed)).To(BeNumerically("<", 12*time.Second))
	})
}

func TestTermsFollowEachOtherWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := newCandidate(nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Start(ctx) }()
		g.Expect(c.Holds()).To(BeTrue())
		c.fail <- errors.New("once")
		c.fail <- nil
		time.Sleep(2 * c.Backoff)
		g.Expect(c.terms.Load()).To(BeEquivalentTo(3))
		cancel()
		g.Expect(<-ended).To(Succeed())
	})
}

func TestATermWaitsForTheEndOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGroup(t, 1)
		only := r.members[0]
		only.slow = time.Minute
		thief := func(lease *coordinationv1.Lease) {
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("a thief"), new(int32(5))
		}
		r.edit(thief)
		time.Sleep(50 * time.Second)
		r.Expect(only.Holds()).To(BeFalse())
		r.Expect(only.terms.Load()).To(BeEquivalentTo(1), "the last term has not ended")
		time.Sleep(11 * time.Second)
		r.Expect(only.terms.Load()).To(BeEquivalentTo(2))
		only.slow = 0
	})
}
