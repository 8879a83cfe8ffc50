package page

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/live"
)

// The limits of the watches of users. Together they bound the memory of the page: maxWatches times maxWatchBytes are 512 MiB, of
// which the limit of the component's Deployment leaves room for as much again. A user gets an eighth of it.
const (
	maxWatches        = 32
	maxWatchesPerUser = 4
	// maxWatchBytes bounds the Incidents of one watch: about 8,000, without their descriptions and bags.
	maxWatchBytes = 16 << 20
	// maxStreams is the number of tabs that follow one watch.
	maxStreams = 32
	// linger is how long a watch is kept that no tab follows: a page is reloaded meanwhile, and asks for its chart every half
	// minute, with another token than that of its stream once a proxy has refreshed it.
	linger = 2 * time.Minute
	// denialPatience is how long the API server must deny a watch before it ends: one that has just started denies everything until
	// it has read its roles, or the keys of an issuer.
	denialPatience = 5 * time.Second
	// bytesPerObject is what an Incident takes beside its content.
	bytesPerObject = 1000
)

type tokenHash = [sha256.Size]byte

// watchKey identifies a watch. Two tokens of a user may have different rights, so each has its own watch.
type watchKey struct {
	token     tokenHash
	namespace string
}

// watch is what the tabs of a user share.
type watch struct {
	feed    *live.Feed
	changes atomic.Int64 // of the feed's Incidents
	users   *users       // nil if there is one user, whose watch has no limits and does not end

	// The rest is for a page with many users, and guarded by users.mu.
	key     watchKey
	user    string
	began   time.Time
	cancel  context.CancelFunc
	streams int
	idle    *time.Timer
	bytes   fair.Budget[types.NamespacedName] // of each Incident
	denied  time.Time                         // since when the API server denies the watch; zero while it does not
	ended   error

	sharing  sync.Mutex
	versions map[types.NamespacedName]string // of the Incidents, as a tab has sent them last
}

// share returns one map for all tabs that have sent the same: each would have one of its own otherwise.
func (w *watch) share(versions map[types.NamespacedName]string) map[types.NamespacedName]string {
	w.sharing.Lock()
	defer w.sharing.Unlock()
	if !maps.Equal(w.versions, versions) {
		w.versions = versions
	}
	return w.versions
}

func newWatch(c client.WithWatch, namespace string, u *users) *watch {
	w := &watch{users: u}
	w.feed = live.Follow(c, namespace, live.Prune, w.changed)
	return w
}

func (u *users) join(ctx context.Context, c *caller) (*watch, error) {
	if w, err := u.attach(c, false); w != nil || err != nil {
		return w, err
	}
	// Nobody starts a watch without a valid token that may list.
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout)
	defer cancel()
	if err := live.Check(ctx, c.client, c.namespace); err != nil {
		return nil, err
	}
	return u.attach(c, true)
}

// attach returns the watch of a caller for one more tab. If there is none, it starts one, or returns nil if it must not.
func (u *users) attach(c *caller, may bool) (*watch, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.watches[c.key]
	switch {
	case w == nil && !may:
		return nil, nil
	case w == nil:
		if err := u.makeRoom(c.user); err != nil {
			return nil, err
		}
		w = u.start(c)
	case w.streams >= maxStreams:
		return nil, statusError{http.StatusTooManyRequests, fmt.Sprintf("the page is open in %d tabs already", maxStreams)}
	}
	w.streams++
	return w, nil
}

// start starts a watch. The caller holds users.mu.
func (u *users) start(c *caller) *watch {
	w := newWatch(c.client, c.namespace, u)
	ctx, cancel := context.WithCancel(u.ctx)
	w.key, w.user, w.began, w.cancel = c.key, c.user, time.Now(), cancel
	w.idle = time.AfterFunc(linger, w.expire)
	u.watches[c.key] = w
	u.tasks.Go(func() { w.feed.Run(ctx) })
	return w
}

// makeRoom ends a watch if there are too many: of the user, one that no tab follows; of all, one that no tab follows, or else the
// oldest of the user who has most, if that is more than this one will have.
func (u *users) makeRoom(user string) error {
	all, byUser := slices.Collect(maps.Values(u.watches)), map[string][]*watch{}
	for _, w := range all {
		byUser[w.user] = append(byUser[w.user], w)
	}
	own := byUser[user]
	if len(own) >= maxWatchesPerUser && !dropIdle(own) {
		return statusError{http.StatusTooManyRequests, fmt.Sprintf(
			"you follow %d namespaces or sessions already: close a tab", maxWatchesPerUser)}
	}
	if len(u.watches) < maxWatches || dropIdle(all) {
		return nil
	}
	most := slices.MaxFunc(slices.Collect(maps.Values(byUser)), func(a, b []*watch) int { return cmp.Compare(len(a), len(b)) })
	if len(most) <= len(own)+1 {
		return statusError{http.StatusServiceUnavailable, "the page has too many users"}
	}
	slices.MinFunc(most, func(a, b *watch) int { return a.began.Compare(b.began) }).drop(errOthers)
	return nil
}

// dropIdle ends one of the watches that no tab follows, and reports whether there is one.
func dropIdle(watches []*watch) bool {
	i := slices.IndexFunc(watches, func(w *watch) bool { return w.streams == 0 })
	if i >= 0 {
		watches[i].drop(nil)
	}
	return i >= 0
}

func (w *watch) leave() {
	if w.users == nil {
		return
	}
	w.users.mu.Lock()
	defer w.users.mu.Unlock()
	if w.streams--; w.streams == 0 {
		w.idle.Reset(linger)
	}
}

func (w *watch) expire() {
	w.users.mu.Lock()
	defer w.users.mu.Unlock()
	if w.streams == 0 {
		w.drop(nil)
	}
}

// drop ends the watch, because of an error that its tabs get, if any. The caller holds users.mu.
func (w *watch) drop(err error) {
	w.ended = cmp.Or(w.ended, err)
	w.changes.Add(1)
	w.idle.Stop()
	w.cancel()
	if w.users.watches[w.key] == w {
		delete(w.users.watches, w.key)
	}
}

// problem returns why the watch has ended; nil while it runs. A watch ends that the API server denies for a while.
func (w *watch) problem() error {
	if w.users == nil {
		return nil
	}
	w.users.mu.Lock()
	defer w.users.mu.Unlock()
	switch denied := w.feed.Problem(); {
	case !live.Denied(denied):
		w.denied = time.Time{}
	case w.denied.IsZero():
		w.denied = time.Now()
	case time.Since(w.denied) >= denialPatience:
		w.drop(denied)
	}
	return w.ended
}

// changed counts the changes of the Incidents, and their memory.
func (w *watch) changed(change live.Change) {
	w.changes.Add(1)
	if w.users == nil {
		return
	}
	w.users.mu.Lock()
	defer w.users.mu.Unlock()
	size := 0
	if !change.Deleted {
		size = sizeOf(change.Incident)
	}
	w.bytes.Set(client.ObjectKeyFromObject(change.Incident), int64(size))
	if w.bytes.Sum() > maxWatchBytes {
		w.drop(errTooMany)
	}
}

// sizeOf estimates the memory of an Incident.
func sizeOf(incident *v1alpha1.Incident) int {
	size := bytesPerObject + alertcontent.Size(&incident.Status.Alert) + len(incident.Spec.DedupKey)
	for i := range incident.Status.Timeline {
		entry := &incident.Status.Timeline[i]
		size += 100 + len(entry.Message) + len(entry.By) + len(entry.Comment)
	}
	return size
}
