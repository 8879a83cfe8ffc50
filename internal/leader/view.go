package leader

import (
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
)

// view is what a replica knows of the Lease. It compares the times of its own clock alone: those in the Lease are of other
// clocks, and only tell one renewal from another.
type view struct {
	identity string // of this replica

	mu      sync.Mutex
	known   bool                     // the Lease was read once
	object  *coordinationv1.Lease    // the newest version; nil: it does not exist
	version string                   // the newest resourceVersion, also that of a deletion
	learned time.Time                // when the newest version was
	spec    coordinationv1.LeaseSpec // of the newest version that existed
	renewed time.Time                // when that was learned
	expires time.Time                // when others may take the lease; zero if nobody holds it
	checked bool                     // a read has shown that it has run out
	doubted bool                     // a request has failed since the last renewal: others may have, too

	writes    []*write      // those of the last maxDuration, but for earlier terms'
	confirmed *write        // the newest one that is known to be stored
	slowest   time.Duration // answer to a write, recently
	nextTurn  time.Time     // no request is due before
}

// write is a write of the Lease that makes this replica its holder.
type write struct {
	object   *coordinationv1.Lease // to be written
	over     *coordinationv1.Lease // the version of the Lease that it is to replace
	sent     time.Time
	duration time.Duration // of the lease
	answered bool
}

// learn notes a version of the Lease; a nil object does not exist. began is when the read of it did: the store cannot answer it
// with less than what was learned before, whatever the versions say, which go back when etcd is restored. It is zero for what was
// not read; then the version tells whether it is new.
func (v *view) learn(version string, object *coordinationv1.Lease, began time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known && !began.After(v.learned) && !isNewer(version, v.version) {
		return
	}
	v.known, v.learned = true, time.Now()
	if !equality.Semantic.DeepEqual(v.object, object) { // else a write under way is still over this object
		v.object = object
	}
	if version != "" {
		v.version = version
	}
	// A Lease that was deleted remains its holder's until it would have run out, who creates it again. Whoever else
	// changes the object renews nothing.
	if object == nil || equality.Semantic.DeepEqual(object.Spec, v.spec) {
		v.check(began)
		return
	}
	v.spec, v.renewed, v.checked, v.doubted = *object.Spec.DeepCopy(), v.learned, false, false
	switch v.holder() {
	case "":
		v.expires = time.Time{}
	case v.identity:
		v.confirm()
	default:
		v.expires = v.learned.Add(durationOf(&v.spec) + takeoverDelay)
	}
	if v.holder() != v.identity { // no write from before can succeed any more
		v.writes, v.confirmed, v.slowest = nil, nil, durationOf(&v.spec)/slowFactor
	}
}

// check notes that a read showed no renewal. What nobody holds needs none: a write over this version takes it. v.mu is held, as
// for all that has no lock of its own.
func (v *view) check(began time.Time) {
	if v.checked || began.IsZero() || began.Before(v.expires) || v.holder() == "" {
		return
	}
	now := time.Now()
	took := now.Sub(began)
	if v.doubted || took > freshness {
		v.expires = now.Add(renewInterval)
		if slow := v.renewed.Add(slowFactor*took + takeoverDelay); slow.After(v.expires) {
			v.expires = slow
		}
	}
	v.checked, v.doubted, v.nextTurn = true, false, now
}

func (v *view) doubt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.checked, v.doubted = false, true
}

func isNewer(version, than string) bool {
	if version == "" || than == "" {
		return version != ""
	}
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
}

// durationOf returns how long a holder's lease lasts. No version of Tocsin asks for more than maxDuration, and a mistake in the
// Lease must not keep all replicas from leading.
func durationOf(spec *coordinationv1.LeaseSpec) time.Duration {
	if spec.LeaseDurationSeconds == nil {
		return maxDuration
	}
	return min(time.Duration(*spec.LeaseDurationSeconds)*time.Second, maxDuration)
}

// holder returns the holder in the newest Lease that existed; empty if nobody holds it.
func (v *view) holder() string {
	return ptr.Deref(v.spec.HolderIdentity, "")
}

// confirm notes which write of this replica the Lease shows.
func (v *view) confirm() {
	for _, w := range v.writes {
		if w.object.Spec.RenewTime.Equal(v.spec.RenewTime) {
			v.confirmed = w
			return
		}
	}
}

// isMine reports whether the newest Lease names this replica, whether or not it has run out: then nobody else has taken it.
func (v *view) isMine() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.holder() == v.identity
}

// holds reports whether the lease is this replica's and has not run out, from when the last renewal that was stored was sent. No
// candidate takes the lease as early as that: each counts from when it saw the renewal.
func (v *view) holds() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.confirmed == nil || v.holder() != v.identity {
		return false
	}
	// The monotonic clock stands still while a virtual machine is suspended, and the wall clock may be set back.
	now, sent := time.Now(), v.confirmed.sent
	return max(now.Sub(sent), now.Round(0).Sub(sent.Round(0))) < v.confirmed.duration
}

// due returns when this replica is to send the next request, unless it learns something before.
func (v *view) due() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !v.known:
		return time.Now().Add(watchTimeout)
	case v.holder() == v.identity || v.nextTurn.After(v.expires):
		return v.nextTurn
	default:
		return v.expires
	}
}

// next returns the write that is to be sent now; nil if the Lease is to be read before.
func (v *view) next(name types.NamespacedName) *write {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	v.nextTurn = now.Add(renewInterval)
	if holder := v.holder(); holder != "" && holder != v.identity && !v.checked {
		return nil
	}
	v.checked = false // each attempt to take over needs a read of its own
	w := &write{over: v.object, sent: now, duration: v.duration(now)}
	w.object = v.objectOver(name)
	stamp := metav1.NewMicroTime(now.UTC().Truncate(time.Microsecond)) // as it is stored
	spec := &w.object.Spec
	if v.holder() != v.identity {
		transitions := ptr.Deref(spec.LeaseTransitions, 0) + 1
		spec.HolderIdentity, spec.AcquireTime, spec.LeaseTransitions = &v.identity, &stamp, &transitions
	}
	spec.RenewTime, spec.LeaseDurationSeconds = &stamp, new(int32(w.duration/time.Second))
	v.writes = append(slices.DeleteFunc(v.writes, func(w *write) bool { return now.Sub(w.sent) >= maxDuration }), w)
	return w
}

// objectOver returns the Lease to be written over the newest version; it has none if the Lease is to be created.
func (v *view) objectOver(name types.NamespacedName) *coordinationv1.Lease {
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	if v.object != nil {
		object = v.object.DeepCopy()
	}
	object.Spec = *v.spec.DeepCopy()
	return object
}

// duration returns how long the lease is to last that is asked for now, in whole seconds.
func (v *view) duration(now time.Time) time.Duration {
	slowest := v.slowest
	for _, w := range v.writes {
		if !w.answered {
			slowest = max(slowest, now.Sub(w.sent))
		}
	}
	seconds := (slowFactor*slowest + time.Second - 1).Truncate(time.Second)
	return min(max(seconds, minDuration), maxDuration)
}

// answered notes the answer to a write. It reports whether the Lease is, as far as is known, still the version that the write was
// to replace; otherwise the outcome is no news.
func (v *view) answered(w *write, err error) (isNewest bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	w.answered = true
	v.slowest = max(min(now.Sub(w.sent), maxDuration/slowFactor), time.Duration(float64(v.slowest)*(1-forgetting)))
	if isNewest = w.over == v.object; isNewest && err != nil {
		v.checked, v.doubted = false, v.doubted || !isOutdated(err)
		if retry := now.Add(retryInterval); retry.Before(v.nextTurn) {
			v.nextTurn = retry
		}
	}
	return isNewest
}

// released returns the Lease to be written to give it up; nil if this replica does not have it.
func (v *view) released() *coordinationv1.Lease {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.object == nil || v.holder() != v.identity {
		return nil
	}
	object := v.object.DeepCopy()
	now := metav1.NowMicro()
	// What a release by client-go has, which candidates of earlier versions know.
	object.Spec.HolderIdentity, object.Spec.LeaseDurationSeconds = new(string), new(int32(1))
	object.Spec.RenewTime, object.Spec.AcquireTime = &now, &now
	return object
}
