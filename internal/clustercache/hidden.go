package clustercache

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// KindEvent is the kind of AlertEvents.
const KindEvent = "AlertEvent"

const (
	// maxCachedIntegrations is how many WebhookIntegrations the cache has below its reserve, and integrationShare the part of it
	// that a namespace may have: 10,000.
	maxCachedIntegrations = 16_000
	integrationShare      = 0.625

	// maxCachedOthers is the same of each kind in Hidden.others, of which a namespace may have 500: a fold of an Incident may look
	// at those of its namespace. Each takes at most 40 KiB.
	maxCachedOthers = 8000
	otherShare      = 0.0625

	// maxSettledEvents is how many AlertEvents that are settled for all their Incidents a namespace may have beside the others.
	// Package release lets as many of all namespaces stay for their idempotency keys.
	maxSettledEvents = 5000

	// minMargin is how many AlertEvents the cache has at least beyond those of ingest: of what it accepts, some is not stored yet.
	minMargin = 500

	// listInterval is the least between two lists that look for hidden objects. It is listPause times as long as the last list
	// took, if that is more: to list hundreds of thousands of objects is work for the API server.
	listInterval = time.Minute
	listPause    = 20
)

// Hidden bounds how many objects of the kinds that users create the cache has of each namespace: however small an object is, even
// a stub takes a kilobyte or two. Those beyond are hidden. Lists and watches do not pass them on, and of them only their number
// is known. First come, first served; in a list, objects come in the order of their names. What is shown stays so.
//
// Once half of a namespace's places are free, its objects are listed anew. Until then those that come later are hidden too, since
// alerts must be folded in order. If a list hides objects though others that had places are gone, since the watch had a gap, the
// next list comes at once.
//
// Only users' AlertEvents can be hidden, not those that ingest accepts: for a namespace, the cache has half as many places again
// as ingest gives away, and divides them in the same way; and while a namespace has hidden AlertEvents, ingest accepts no more.
//
// Incidents and IncidentSummaries are not bounded: the roles let no tenant create or change them, package capacity bounds the
// Incidents of the operator, and a namespace has one summary.
type Hidden struct {
	events, integrations *places
	others               []*places
}

// NewHidden returns bounds for an ingest that accepts so many AlertEvents. A namespace may have a share of them.
func NewHidden(events int, share float64) *Hidden {
	own := fair.Limit{All: int64(events), Share: share}.Own()
	own += max(own/2, minMargin)
	// Ingest divides twice its limit where AlertEvents do not drain, of which a namespace may use half its share.
	waiting := fair.Limit{All: int64(float64(own) * 2 / share), Share: share / 2}
	many, few := fair.Limit{All: maxCachedIntegrations, Share: integrationShare}, fair.Limit{All: maxCachedOthers, Share: otherShare}
	h := &Hidden{
		events:       newPlaces(&v1alpha1.AlertEvent{}, waiting),
		integrations: newPlaces(&v1alpha1.WebhookIntegration{}, many),
		others: []*places{
			newPlaces(&v1alpha1.MaintenanceWindow{}, few),
			newPlaces(&v1alpha1.Heartbeat{}, few),
		},
	}
	h.events.settled.Limit = fair.Limit{All: 2 * maxSettledEvents, Share: 0.5}
	h.events.isSettled = func(event client.Object) bool { mark, _ := queue.MarkOf(event); return mark.All }
	return h
}

// In returns how many objects of a namespace are hidden.
func (h *Hidden) In(namespace string) (events, integrations int) {
	return h.events.hiddenIn(namespace), h.integrations.hiddenIn(namespace)
}

func (h *Hidden) kinds() []*places {
	return append([]*places{h.events, h.integrations}, h.others...)
}

// Each calls use for each kind that may be hidden, without a namespace, and for its namespaces with hidden objects, those with
// the most first.
func (h *Hidden) Each(use func(kind, namespace string, objects int)) {
	for _, p := range h.kinds() {
		use(p.kind, "", 0)
		p.mu.Lock()
		for _, namespace := range slices.SortedFunc(maps.Keys(p.hidden), func(a, b string) int {
			return cmp.Or(p.hidden[b].count-p.hidden[a].count, cmp.Compare(a, b))
		}) {
			use(p.kind, namespace, p.hidden[namespace].count)
		}
		p.mu.Unlock()
	}
}

// follow forgets the objects that are gone from a cache. Canaries are exempt: as long as the leader folds none, it gives the
// lease up.
func (h *Hidden) follow(objects cache.Cache, canaries *queue.Cached) (err error) {
	if h == nil {
		return nil
	}
	if canaries != nil {
		h.events.isExempt = func(object client.Object) bool { return canaries.IsCanary(client.ObjectKeyFromObject(object)) }
	}
	for _, kind := range h.kinds() {
		_, failure := informers.Feed(objects, kind.object, func(client.Object, bool) {}, kind.forget)
		err = errors.Join(err, failure)
	}
	return err
}

// of returns the places of the objects of a kind; nil if it is not bounded.
func (h *Hidden) of(kind runtime.Object) *places {
	if h == nil {
		return nil
	}
	for _, p := range h.kinds() {
		if reflect.TypeOf(p.object) == reflect.TypeOf(kind) {
			return p
		}
	}
	return nil
}

// places are those of the objects of one kind in the cache.
type places struct {
	kind      string
	object    client.Object            // any of the kind
	isExempt  func(client.Object) bool // from the bounds
	isSettled func(client.Object) bool

	mu      sync.Mutex
	used    fair.Budget[string]
	settled fair.Budget[string] // by those that are settled, which are in no order and use no place of the others
	shown   map[types.UID]place
	hidden  map[string]hiddenObjects // by namespace
	lists   int                      // that have begun
	listed  time.Time                // before then, no list looks for hidden objects, unless it is urgent
}

type place struct {
	budget    *fair.Budget[string]
	namespace string
	informer  *pagedInformer
	list      int // the newest one that had it
}

// hiddenObjects are those of a namespace, which an informer has.
type hiddenObjects struct {
	informer *pagedInformer
	count    int
	isUrgent bool // when the list hid them, objects that were gone held places
}

func newPlaces(object client.Object, limit fair.Limit) *places {
	none := func(client.Object) bool { return false }
	return &places{
		kind: reflect.TypeOf(object).Elem().Name(), object: object, isExempt: none, isSettled: none,
		used: fair.Budget[string]{Limit: limit}, shown: map[types.UID]place{}, hidden: map[string]hiddenObjects{},
	}
}

func (p *places) hiddenIn(namespace string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hidden[namespace].count
}

// show gives an object a place, if it has none; false if there is none. inOrder says that older ones of its namespace are shown.
// list is the number of the list that has it; 0 for a watch.
func (p *places) show(object client.Object, inOrder bool, informer *pagedInformer, list int) bool {
	namespace, own, wanted := object.GetNamespace(), p.shown[object.GetUID()], &p.used
	if p.isSettled(object) && (own.budget == &p.settled || p.settled.Allows(namespace)) {
		wanted = &p.settled
	}
	switch {
	case own.budget != nil:
		own.budget.Add(namespace, -1)
	case wanted == &p.used && (!inOrder || !p.used.Allows(namespace)):
		return false
	}
	p.shown[object.GetUID()] = place{wanted, namespace, informer, max(own.list, list)}
	wanted.Add(namespace, 1)
	return true
}

func (p *places) forget(object client.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(object.GetUID())
}

func (p *places) free(uid types.UID) {
	if own, ok := p.shown[uid]; ok {
		delete(p.shown, uid)
		own.budget.Add(own.namespace, -1)
	}
}

// passes reports whether the cache has the object of a watch event, and gives a new one a place.
func (p *places) passes(event watch.Event, informer *pagedInformer) bool {
	object, ok := event.Object.(client.Object)
	if p == nil || !ok || event.Type == watch.Bookmark || p.isExempt(object) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.shown[object.GetUID()]; !ok && event.Type != watch.Added {
		return false
	}
	return p.show(object, p.hidden[object.GetNamespace()].count == 0, informer, 0)
}

func (p *places) count(event watch.EventType, namespace string, informer *pagedInformer) {
	change := map[watch.EventType]int{watch.Added: 1, watch.Deleted: -1}[event]
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.hidden[namespace]
	now.informer, now.count = informer, now.count+change
	if p.hidden[namespace] = now; now.count <= 0 {
		delete(p.hidden, namespace)
	}
}

// isDue reports whether an informer is to list anew, since there are places for objects that it hides.
func (p *places) isDue(informer *pagedInformer) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	mayList := !time.Now().Before(p.listed)
	for namespace, hidden := range p.hidden {
		isFree := hidden.isUrgent || mayList && p.used.Used(namespace) <= p.used.Own()/2
		if hidden.informer == informer && isFree && p.used.Allows(namespace) {
			return true
		}
	}
	return false
}

// listing is a list that is under way. Nil passes all objects on.
type listing struct {
	places   *places
	informer *pagedInformer
	number   int
	began    time.Time
	shown    []types.UID    // those that it gave a place
	hidden   map[string]int // by namespace
}

func (p *places) list(informer *pagedInformer) *listing {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lists++
	return &listing{places: p, informer: informer, number: p.lists, began: time.Now(), hidden: map[string]int{}}
}

func (l *listing) passes(listed runtime.Object) bool {
	object, ok := listed.(client.Object)
	if l == nil || !ok || l.places.isExempt(object) {
		return true
	}
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	_, had := l.places.shown[object.GetUID()]
	if !l.places.show(object, l.hidden[object.GetNamespace()] == 0, l.informer, l.number) {
		l.hidden[object.GetNamespace()]++
		return false
	}
	if !had {
		l.shown = append(l.shown, object.GetUID())
	}
	return true
}

// end ends a list. If it failed, the informer shows nothing of it.
func (l *listing) end(err error) {
	if l == nil {
		return
	}
	p := l.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		for _, uid := range l.shown {
			p.free(uid)
		}
		return
	}
	wasMisled := l.freeGone()
	for namespace, hidden := range p.hidden {
		if hidden.informer == l.informer {
			wasMisled = wasMisled && !hidden.isUrgent // so that a tenant cannot cause one list after the other
			delete(p.hidden, namespace)
		}
	}
	for namespace, count := range l.hidden {
		p.hidden[namespace] = hiddenObjects{l.informer, count, wasMisled}
	}
	p.listed = time.Now().Add(max(listInterval, listPause*time.Since(l.began)))
}

// freeGone takes the places of objects that the informer forgets, since they are not in the list: it reports whether there were
// any. They were gone before objects of the list were hidden for want of places.
func (l *listing) freeGone() (found bool) {
	for uid, own := range l.places.shown {
		if own.informer == l.informer && own.list != l.number {
			l.places.free(uid)
			found = true
		}
	}
	return found
}
