package leader

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	anyName        = types.NamespacedName{Namespace: "default", Name: "lease"}
	errUnreachable = errors.New("connection refused")
)

// sight is what the replica "me" knows of a Lease whose versions the test makes.
type sight struct {
	*WithT
	view
	versions int
}

// each runs tests in bubbles of their own.
func each(t *testing.T, tests map[string]func(*sight)) {
	t.Helper()
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(&sight{WithT: NewWithT(t), view: view{identity: "me"}}) })
		})
	}
}

// show tells of a new version of the Lease, as a watch does; nil deletes it.
func (s *sight) show(object *coordinationv1.Lease) {
	s.versions++
	version := strconv.Itoa(s.versions)
	if object = object.DeepCopy(); object != nil {
		object.ResourceVersion = version
	}
	s.learn(version, object, time.Time{})
}

// label shows that a user has changed the Lease.
func (s *sight) label() {
	object := s.object.DeepCopy()
	object.Labels = map[string]string{"n": strconv.Itoa(s.versions)}
	s.show(object)
}

// read tells of the newest version once more, by a read that takes this long.
func (s *sight) read(took time.Duration) {
	time.Sleep(time.Nanosecond) // no two things happen at the same time
	began := time.Now()
	time.Sleep(took)
	s.learn(s.version, s.object.DeepCopy(), began)
}

// write stores the write that is due now, which is answered after a while.
func (s *sight) write(took time.Duration) coordinationv1.LeaseSpec {
	w := s.next(anyName)
	time.Sleep(took)
	s.answered(w, nil)
	s.show(w.object)
	return w.object.Spec
}

// expectDue expects the next request to be due after a while.
func (s *sight) expectDue(after time.Duration) {
	s.Expect(max(0, time.Until(s.due()))).To(BeNumerically("~", after, time.Microsecond))
}

// calm is no trouble.
func calm(*sight) {}

// held returns the Lease that another replica renews now.
func held(seconds int32) *coordinationv1.Lease {
	now := metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{HolderIdentity: new("another"), LeaseDurationSeconds: &seconds, RenewTime: &now}
	return &coordinationv1.Lease{Spec: spec}
}

func TestTheLeaseLastsThreeTimesTheSlowestAnswer(t *testing.T) {
	lasts := func(seconds int32, pending, first time.Duration, fast int) func(*sight) {
		return func(s *sight) {
			s.write(first)
			for range fast {
				s.write(0)
			}
			s.next(anyName)
			time.Sleep(pending)
			w := s.next(anyName)
			s.Expect(w.object.Spec.LeaseDurationSeconds).To(HaveValue(Equal(seconds)))
			s.Expect(w.duration).To(Equal(time.Duration(seconds) * time.Second))
		}
	}
	each(t, map[string]func(*sight){
		"and three seconds at least":              lasts(3, 0, time.Second, 0),
		"in whole seconds":                        lasts(4, 0, time.Second+1, 0),
		"though the next one was faster":          lasts(6, 0, 2*time.Second, 1),
		"which loses weight with each other one":  lasts(9, 0, 5*time.Second, 20),
		"until it is forgotten":                   lasts(3, 0, 5*time.Second, 60),
		"and 15 seconds at most":                  lasts(15, 0, 9*time.Second, 0),
		"none of which counts for more than that": lasts(9, 0, 9*time.Second, 20),
		"or one that has not come":                lasts(6, 2*time.Second, 0, 0),
		"or one that has not come for long":       lasts(15, 9*time.Second, 0, 0),
	})
}

func TestATakeoverCounts(t *testing.T) {
	each(t, map[string]func(*sight){
		"unlike a renewal": func(s *sight) {
			first := s.write(4 * time.Second)
			s.Expect(first.HolderIdentity).To(HaveValue(Equal("me")))
			time.Sleep(time.Second)
			again := s.write(0)
			s.Expect(again.RenewTime.Time).To(BeTemporally("==", time.Now()))
			s.Expect(again.AcquireTime).To(Equal(first.AcquireTime))
			s.Expect(again.LeaseTransitions).To(HaveValue(BeEquivalentTo(1)))
			s.read(freshness + 1)
			s.expectDue(0) // whatever keeps others from taking over
		},
		"on from what the Lease tells": func(s *sight) {
			s.next(anyName) // and gets no answer before another replica has the lease
			theirs := held(7)
			theirs.Labels, theirs.Spec.LeaseTransitions = map[string]string{"a": "b"}, new(int32(41))
			s.show(theirs)
			time.Sleep(20 * time.Second)
			s.read(0)
			taken := s.write(0)
			s.Expect(s.object.Labels).To(Equal(theirs.Labels))
			s.Expect(taken.LeaseTransitions).To(HaveValue(BeEquivalentTo(42)))
			s.Expect(taken.AcquireTime).To(Equal(taken.RenewTime))
			s.Expect(taken.LeaseDurationSeconds).To(HaveValue(BeEquivalentTo(7)))
			s.show(nil)
			created := s.next(anyName).object
			s.Expect(created.ResourceVersion).To(BeEmpty())
			s.Expect(created.Spec.LeaseTransitions).To(HaveValue(BeEquivalentTo(42)))
		},
	})
}

func TestATakeoverNeedsARead(t *testing.T) {
	each(t, map[string]func(*sight){"of its own, after the lease has run out": func(s *sight) {
		s.expectDue(watchTimeout) // nothing is known
		s.show(held(3))
		s.expectDue(minDuration + takeoverDelay)
		time.Sleep(minDuration + takeoverDelay - time.Millisecond)
		s.read(2 * time.Millisecond)
		s.Expect(s.next(anyName)).To(BeNil(), "the read began before the lease ran out")
		s.label()
		s.Expect(s.next(anyName)).To(BeNil(), "a watch may be late")
		s.expectDue(renewInterval)
		s.read(0)
		s.expectDue(0)
		s.Expect(s.next(anyName)).NotTo(BeNil())
		s.Expect(s.next(anyName)).To(BeNil())
		s.read(0)
		s.doubt()
		s.Expect(s.next(anyName)).To(BeNil())
	}})
}

func TestTheLeaseOfAnotherReplicaLastsLongerInTrouble(t *testing.T) {
	lasts := func(longer, took time.Duration, before func(*sight)) func(*sight) {
		return func(s *sight) {
			s.show(held(3))
			time.Sleep(time.Second)
			before(s)
			time.Sleep(time.Until(s.due()))
			s.read(took)
			s.expectDue(longer - took)
			time.Sleep(time.Until(s.due()))
			s.read(took)
			s.expectDue(0) // one read is enough
		}
	}
	each(t, map[string]func(*sight){
		"unless there is none":            lasts(0, 0, calm),
		"unless a read is fast":           lasts(freshness, freshness, calm),
		"if a read is slow":               lasts(freshness+1+renewInterval, freshness+1, calm),
		"if a read is slower by far":      lasts(6*time.Second, 3*time.Second, calm),
		"if a read failed":                lasts(renewInterval, 0, (*sight).doubt),
		"unless a renewal was seen since": lasts(0, 0, func(s *sight) { s.doubt(); s.show(held(3)) }),
	})
}

func TestALeaseThatNobodyHoldsIsFreeAtOnce(t *testing.T) {
	isFree := func(lease *coordinationv1.Lease) func(*sight) {
		return func(s *sight) {
			s.show(lease)
			s.doubt()
			s.read(3 * time.Second)
			s.expectDue(0)
		}
	}
	each(t, map[string]func(*sight){
		"without a Lease": isFree(nil),
		"after a release": isFree(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("")}}),
	})
}

func TestOnlyARenewalRenews(t *testing.T) {
	each(t, map[string]func(*sight){"unlike other changes": func(s *sight) {
		for _, change := range []func(){s.label, func() { s.show(nil) }, func() { s.show(&coordinationv1.Lease{Spec: s.spec}) }} {
			s.show(held(3))
			time.Sleep(time.Second)
			change()
			s.expectDue(2*time.Second + takeoverDelay)
		}
		released := held(1)
		released.Spec.HolderIdentity = new(string)
		s.show(released)
		s.label()
		s.expectDue(0)
		s.Expect(s.next(anyName)).NotTo(BeNil())
	}})
}

func TestNewsComesOfLaterVersionsAndReads(t *testing.T) {
	const event, earlier, later = time.Duration(0), -time.Second, time.Second // than the newest one was learned
	is := func(news bool, version string, read time.Duration) func(*sight) {
		return func(s *sight) {
			s.learn("10", held(3), time.Time{})
			began := time.Now().Add(read)
			if read == event {
				began = time.Time{}
			}
			time.Sleep(2 * time.Second)
			s.learn(version, nil, began)
			s.Expect(s.object == nil).To(Equal(news))
			s.learn("10", held(3), time.Time{})
			s.Expect(s.object == nil).To(Equal(news && version != "9"), "an event that is later unless etcd was restored")
		}
	}
	each(t, map[string]func(*sight){
		"of a newer version":               is(true, "11", event),
		"not of the one that is known":     is(false, "10", event),
		"not of an older one":              is(false, "9", event),
		"not without a version":            is(false, "", event),
		"not of what is no version":        is(false, "x", event),
		"from a later answer":              is(true, "11", earlier),
		"not from one that is outdated":    is(false, "9", earlier),
		"not from one that there was none": is(false, "", earlier),
		"from a read of the same version":  is(true, "10", later),
		"from one after a restore of etcd": is(true, "9", later),
		"from one that there is none":      is(true, "", later),
		"of the first version": func(s *sight) {
			s.learn("", nil, time.Now())
			s.show(held(3))
			s.Expect(s.object).NotTo(BeNil())
		},
	})
}

func TestAWriteThatFailedIsRepeated(t *testing.T) {
	isDue := func(want, after time.Duration, err error, change func(*sight)) func(*sight) {
		return func(s *sight) {
			s.write(0)
			w, version := s.next(anyName), s.version
			change(s)
			time.Sleep(after)
			s.Expect(s.answered(w, err)).To(Equal(s.version == version), "the outcome is news if the Lease is as it was")
			s.expectDue(want - after)
		}
	}
	soon := 100 * time.Millisecond
	each(t, map[string]func(*sight){
		"soon":                               isDue(soon+retryInterval, soon, errUnreachable, calm),
		"unless the next one is due earlier": isDue(renewInterval, 900*time.Millisecond, errUnreachable, calm),
		"unless the Lease has changed since": isDue(renewInterval, soon, errUnreachable, (*sight).label),
		"unlike others":                      isDue(renewInterval, soon, nil, calm),
	})
}

// Otherwise the log would not tell of writes that hang for as long as reads succeed.
func TestAWriteFailsAlthoughTheSameVersionWasReadSince(t *testing.T) {
	each(t, map[string]func(*sight){"which leaves a doubt": func(s *sight) {
		s.write(0)
		w := s.next(anyName)
		s.read(0)
		s.Expect(s.answered(w, errUnreachable)).To(BeTrue())
		s.Expect(s.doubted).To(BeTrue())
	}})
}

func TestAnOutdatedWriteLeavesNoDoubt(t *testing.T) {
	waits := func(want time.Duration, err error, before func(*sight)) func(*sight) {
		return func(s *sight) {
			s.show(held(3))
			time.Sleep(minDuration + takeoverDelay)
			s.read(0)
			w := s.next(anyName)
			before(s)
			s.answered(w, err)
			s.read(0)
			s.expectDue(want)
		}
	}
	leases := coordinationv1.Resource("leases")
	each(t, map[string]func(*sight){
		"over a Lease that has changed": waits(0, apierrors.NewConflict(leases, "lease", nil), calm),
		"over one that was created":     waits(0, apierrors.NewAlreadyExists(leases, "lease"), calm),
		"over one that was deleted":     waits(0, apierrors.NewNotFound(leases, "lease"), calm),
		"and takes none away":           waits(renewInterval, apierrors.NewConflict(leases, "lease", nil), (*sight).doubt),
		"unlike one that never arrived": waits(renewInterval, errUnreachable, calm),
	})
}

func TestALeaseIsHeldFromWhenItsRenewalWasSent(t *testing.T) {
	each(t, map[string]func(*sight){"and stored": func(s *sight) {
		s.Expect(s.holds()).To(BeFalse())
		s.show(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &s.identity}})
		s.Expect(s.holds()).To(BeFalse(), "it was not sent")
		w := s.next(anyName)
		time.Sleep(2 * time.Second)
		s.Expect(s.holds()).To(BeFalse(), "it is not stored")
		s.next(anyName)
		s.show(w.object)
		time.Sleep(time.Second - 1)
		s.Expect(s.holds()).To(BeTrue(), "it is stored, though not answered")
		time.Sleep(time.Nanosecond)
		s.Expect(s.holds()).To(BeFalse())
		s.write(0)
		s.Expect(s.holds()).To(BeTrue())
		s.show(held(3))
		s.Expect(s.holds()).To(BeFalse())
	}})
}

func TestAReleaseNamesNobody(t *testing.T) {
	each(t, map[string]func(*sight){"while the lease is held": func(s *sight) {
		before := s.write(0)
		s.label()
		time.Sleep(time.Second)
		released, now := s.released(), metav1.NowMicro()
		s.Expect(released.ObjectMeta).To(Equal(s.object.ObjectMeta))
		s.Expect(released.Spec).To(Equal(coordinationv1.LeaseSpec{
			HolderIdentity: new(""), LeaseDurationSeconds: new(int32(1)), AcquireTime: &now, RenewTime: &now,
			LeaseTransitions: before.LeaseTransitions,
		}))
		s.Expect(s.holds()).To(BeTrue(), "it is not stored")
		s.show(nil)
		s.Expect(s.released()).To(BeNil(), "there is none")
		s.write(0)
		s.show(released)
		s.Expect(s.released()).To(BeNil(), "it was another's")
	}})
}

func TestTroubleIsLoggedWhenItBeginsAndWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c, lines := NewWithT(t), &connection{store: newStore()}, []string{}
		lease := newLease(c, anyName, "me", funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
		expect := func(want ...any) {
			time.Sleep(2 * time.Second)
			lease.mu.Lock()
			defer lease.mu.Unlock()
			g.Expect(lines).To(HaveExactElements(want...))
			lines = nil
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = newCandidate(lease).Start(ctx) }()
		expect()
		c.set(faults{refused: errUnreachable})
		expect(And(ContainSubstring("Cannot keep up"), ContainSubstring(`"failing"="writing"`)))
		c.set(faults{})
		expect(And(ContainSubstring("again"), ContainSubstring(`"failed"="writing"`)))
		c.edit(func(object *coordinationv1.Lease) { object.Spec = held(3).Spec })
		expect()
		c.set(faults{refused: errUnreachable})
		expect(ContainSubstring(`"failing"="reading"`))
		c.set(faults{})
		expect(ContainSubstring(`"failed"="reading"`))
		c.set(faults{refused: errUnreachable})
		stop()
		expect(ContainSubstring(`"failing"="writing"`))
		lease.report(ctx, watching, errUnreachable)
		expect()
	})
}
