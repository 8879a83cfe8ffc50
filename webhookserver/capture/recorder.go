package capture

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// Recorder has the requests that wait to be written. A nil one keeps nothing.
type Recorder struct {
	client     client.Client
	live       client.Reader // of the API server: no cache has RequestCaptures
	events     events.EventRecorder
	namespaces []string // that are served; empty: all
	log        logr.Logger
	now        func() time.Time

	mu sync.Mutex
	// rings has the integrations that are captured, or whose RequestCapture is to be deleted. others has the other ones: those that
	// wait for a place, and nil for those that are not to be captured.
	rings        map[types.NamespacedName]*ring
	others       map[types.NamespacedName]*v1alpha1.WebhookIntegration
	integrations fair.Budget[string] // those that are captured, by namespace
	waiting      fair.Budget[string] // bytes, by namespace
	turns        fair.Turns[types.NamespacedName]

	// Only Run uses these.
	nextWrite, nextSweep time.Time
}

// ring is the requests of an integration that wait. Of those that are answered, the newest ones are kept. Of the others, the
// oldest ones are: in a storm, all of the newest requests would always be unanswered, and none would ever be written.
type ring struct {
	on          bool                         // false: the capture was turned off
	integration *v1alpha1.WebhookIntegration // as the cache has it, or in brief; nil if it is off
	unanswered  []*Pending                   // in the order of their arrival
	answered    []*Pending                   // in the order of their answers
	bytes       int64                        // of all, and of
	open        int64                        // those that are not answered
	leftOut     int64                        // requests that were left out, and that the RequestCapture does not count yet

	due    time.Time // when it may be written
	failed int       // writes that failed in a row
}

// Pending is a request that waits. A nil one waits for nothing.
type Pending struct {
	recorder *Recorder
	ring     *ring // nil once the request is dropped, or written
	request  Request
	bytes    int64
}

// NewRecorder returns a Recorder that writes with a client, reads from the API server, and tells of what cannot be written by
// Kubernetes Events. No namespaces stand for all of them.
func NewRecorder(
	c client.Client, live client.Reader, recorder events.EventRecorder, namespaces []string, log logr.Logger,
) *Recorder {
	r := &Recorder{
		client: c, live: live, events: recorder, namespaces: namespaces, log: log, now: time.Now,
		rings:        map[types.NamespacedName]*ring{},
		others:       map[types.NamespacedName]*v1alpha1.WebhookIntegration{},
		integrations: fair.Budget[string]{Limit: fair.Limit{All: MaxIntegrations, Share: 1.0 * MaxOfNamespace / MaxIntegrations}},
		waiting:      fair.Budget[string]{Limit: fair.Limit{All: maxWaiting, Share: waitingShare}},
		turns:        fair.NewTurns[types.NamespacedName](1),
	}
	r.nextSweep = r.now().Add(firstSweep)
	return r
}

// Set notes an integration that exists or has changed. Of one whose spec is not whole, nobody knows what it says now.
func (r *Recorder) Set(w *v1alpha1.WebhookIntegration) {
	if !integrations.IsWhole(w) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(w)
	known := r.rings[key]
	switch isOn := known != nil && known.on; {
	case w.Spec.Capture == nil && isOn:
		r.rings[key] = &ring{}
		r.clear(known)
	case w.Spec.Capture == nil:
		if known == nil {
			r.others[key] = nil
		}
	case isOn:
		known.integration = w
		r.trim(known)
	case r.integrations.Allows(w.Namespace):
		r.start(key, w)
	default:
		r.postpone(key, w)
	}
}

// start has the requests of an integration be kept.
func (r *Recorder) start(key types.NamespacedName, w *v1alpha1.WebhookIntegration) {
	r.integrations.Add(key.Namespace, 1)
	delete(r.others, key)
	r.rings[key] = &ring{on: true, integration: w}
}

// postpone notes an integration that is captured once there is a place. Another replica, which has given the places in another
// order, may capture it now: its RequestCapture is not deleted.
func (r *Recorder) postpone(key types.NamespacedName, w *v1alpha1.WebhookIntegration) {
	if r.others[key] == nil {
		r.tell(w, "Keeps no requests: other integrations came first, of at most %d of a namespace and %d in all",
			MaxOfNamespace, MaxIntegrations)
	}
	delete(r.rings, key)
	brief := &v1alpha1.WebhookIntegration{} // without a mapping: there may be many
	brief.Namespace, brief.Name, brief.UID, brief.Spec.Capture = w.Namespace, w.Name, w.UID, w.Spec.Capture
	r.others[key] = brief
}

// startNext gives a place that has become free to the first integration, by name, that may take it.
func (r *Recorder) startNext() {
	var first types.NamespacedName
	for key, waiting := range r.others {
		if waiting != nil && r.integrations.Allows(key.Namespace) && (first.Name == "" || key.String() < first.String()) {
			first = key
		}
	}
	if first.Name != "" {
		r.start(first, r.others[first])
	}
}

// Remove forgets an integration that was deleted. Its RequestCapture is garbage.
func (r *Recorder) Remove(w *v1alpha1.WebhookIntegration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(w)
	known := r.rings[key]
	delete(r.rings, key)
	delete(r.others, key)
	if known != nil && known.on {
		r.clear(known)
	}
}

// clear forgets the requests of an integration that was captured, and no longer is.
func (r *Recorder) clear(known *ring) {
	r.integrations.Add(known.integration.Namespace, -1)
	for _, p := range slices.Concat(known.unanswered, known.answered) {
		r.drop(p)
	}
	r.startNext()
}

// Wants reports whether a request of an integration would be kept now, unless it is too large. That takes less time than to make
// the Request.
func (r *Recorder) Wants(w *v1alpha1.WebhookIntegration) bool {
	if r == nil || w.Spec.Capture == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanting(w) != nil
}

// wanting returns the ring of an integration if it has a place for a request.
func (r *Recorder) wanting(w *v1alpha1.WebhookIntegration) *ring {
	known := r.rings[client.ObjectKeyFromObject(w)]
	if known == nil || !known.on || known.integration.UID != w.UID || int64(len(known.unanswered)) >= w.Spec.Capture.Payloads {
		return nil
	}
	return known
}

// Add keeps a request of an integration, if its requests are kept. The caller does not change the body any more, and reports the
// answer. The request that it gives has no credentials but tokens in its path and its body.
//
// To find tokens takes time, and to replace them a copy of the body: the request has its place, and its bytes count, before.
func (r *Recorder) Add(w *v1alpha1.WebhookIntegration, request Request) *Pending {
	if r == nil || w.Spec.Capture == nil {
		return nil
	}
	p := r.place(w, request, !isSecret(request.Path))
	if p == nil {
		return nil
	}
	body := withoutTokens(request.Body)
	if slack := cap(body) - len(body); slack > len(body)/8 { // read into a buffer for the largest body
		body = bytes.Clone(body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.ring != nil { // it was not dropped meanwhile
		p.request.Body = body
	}
	return p
}

// place gives a request of an integration a place, without its body. It returns nil if there is none, or the request may not be
// stored.
func (r *Recorder) place(w *v1alpha1.WebhookIntegration, request Request, mayBeStored bool) *Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.wanting(w)
	if known == nil {
		return nil
	}
	p := &Pending{recorder: r, ring: known, request: request, bytes: request.size()}
	p.request.Body = nil
	if p.bytes > r.waiting.Own() || !mayBeStored {
		known.leftOut++
		return nil
	}
	known.unanswered = append(known.unanswered, p)
	known.bytes, known.open = known.bytes+p.bytes, known.open+p.bytes
	r.waiting.Add(w.Namespace, p.bytes)
	for from, exceeds := r.waiting.Excess(w.Namespace); exceeds; from, exceeds = r.waiting.Excess(w.Namespace) {
		r.drop(r.largest(from).least())
	}
	if p.ring == nil {
		return nil // the others need the memory
	}
	return p
}

// Answered notes the code of the answer. From then on, the request may be written.
func (p *Pending) Answered(code int) {
	if p == nil {
		return
	}
	r := p.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	known := p.ring
	if known == nil {
		return
	}
	p.request.Code = code
	known.unanswered = slices.DeleteFunc(known.unanswered, func(other *Pending) bool { return other == p })
	known.answered = append(known.answered, p)
	known.open -= p.bytes
	r.trim(known)
}

// trim drops the answered requests of an integration that are not among its newest ones.
func (r *Recorder) trim(known *ring) {
	for int64(len(known.answered)) > known.integration.Spec.Capture.Payloads {
		r.drop(known.answered[0])
	}
}

// least returns the request that is dropped next: neither those that are answered nor the others get more than half of the
// memory.
func (k *ring) least() *Pending {
	if k.open > k.bytes-k.open {
		return k.unanswered[len(k.unanswered)-1]
	}
	return k.answered[0]
}

// largest returns the ring of a namespace with the most bytes.
func (r *Recorder) largest(namespace string) *ring {
	var found *ring
	for key, known := range r.rings {
		if key.Namespace == namespace && (found == nil || known.bytes > found.bytes) {
			found = known
		}
	}
	return found
}

// drop forgets a request that waits. Its sender may be waiting for the answer still, with a reference to it.
func (r *Recorder) drop(p *Pending) {
	known, isThis := p.ring, func(other *Pending) bool { return other == p }
	if p.request.Code == 0 {
		known.unanswered = slices.DeleteFunc(known.unanswered, isThis)
		known.open -= p.bytes
	} else {
		known.answered = slices.DeleteFunc(known.answered, isThis)
	}
	known.bytes -= p.bytes
	r.waiting.Add(known.integration.Namespace, -p.bytes)
	p.ring, p.request = nil, Request{}
}

// tell tells the owner of an integration why its requests are not kept.
func (r *Recorder) tell(w *v1alpha1.WebhookIntegration, format string, args ...any) {
	r.events.Eventf(w, nil, corev1.EventTypeWarning, "CaptureFailed", "Capture", format, args...)
}
