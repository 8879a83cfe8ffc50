package capture

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Nothing reads RequestCaptures from a cache: that would have all of them in memory.
// +kubebuilder:rbac:groups=tocsin.dev,resources=requestcaptures,verbs=create;delete;get;list;update

// batch is what of an integration is written at a time.
type batch struct {
	key         types.NamespacedName
	ring        *ring
	turn        *fair.Turn[types.NamespacedName]
	integration *v1alpha1.WebhookIntegration // nil: the RequestCapture is deleted
	pending     []*Pending
	requests    []Request // of those
	leftOut     int64
}

// Run writes until ctx ends, and then what is left, for flushTimeout.
func (r *Recorder) Run(ctx context.Context) {
	if r == nil {
		return
	}
	wait.UntilWithContext(ctx, r.step, tickInterval)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	r.enqueue(true)
	for more := true; more && ctx.Err() == nil; {
		more = r.writeNext(ctx)
	}
}

// step writes to the RequestCapture of one integration if one is due, unless the last write was a large one.
func (r *Recorder) step(ctx context.Context) {
	if now := r.now(); !now.Before(r.nextSweep) {
		r.nextSweep = now.Add(sweepInterval)
		r.sweep(ctx)
	}
	if !r.now().Before(r.nextWrite) {
		r.enqueue(false)
		r.writeNext(ctx)
	}
}

// enqueue queues the integrations that are due or, at the end, all whose last write has not failed.
func (r *Recorder) enqueue(isEnd bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, known := range r.rings {
		if known.hasWork() && (!known.due.After(r.now()) || isEnd && known.failed == 0) {
			r.turns.Add(key.Namespace, key, false)
		}
	}
}

// writeNext writes to the RequestCapture of the integration whose turn it is. It returns false without any.
func (r *Recorder) writeNext(ctx context.Context) bool {
	b, ok := r.next()
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var written int64
	var err error
	if b.integration == nil {
		err = r.client.Delete(ctx, named(b.key))
	} else {
		written, err = r.write(ctx, &b)
	}
	r.nextWrite = r.now().Add(time.Duration(written/bytesPerTick) * tickInterval)
	r.finish(&b, err)
	return true
}

func (r *Recorder) next() (b batch, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if b.key, b.turn, ok = r.turns.Next(); !ok {
			return b, false
		}
		if b.ring = r.rings[b.key]; b.ring != nil && b.ring.hasWork() {
			break
		}
		b.turn.Done() // it was deleted while it waited for its turn
	}
	b.integration, b.leftOut = b.ring.integration, b.ring.leftOut
	b.pending = slices.Clone(b.ring.answered)
	for _, p := range b.pending {
		b.requests = append(b.requests, p.request)
	}
	return b, true
}

// hasWork reports whether something is to be written, or deleted.
func (k *ring) hasWork() bool {
	return !k.on || k.leftOut > 0 || len(k.answered) > 0
}

// finish forgets what is written. What is not is tried again later, with what has come meanwhile.
func (r *Recorder) finish(b *batch, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.turn.Done()
	known := b.ring
	if r.rings[b.key] != known {
		return // it was deleted, or its capture was turned on or off, meanwhile
	}
	known.due = r.now().Add(wait.Jitter(writeInterval, 0.1)) // of replicas that write at the same time, one has a conflict
	switch {
	case !known.on && client.IgnoreNotFound(err) == nil:
		delete(r.rings, b.key)
		r.others[b.key] = nil
	case err == nil:
		known.failed = 0
		known.leftOut -= b.leftOut
		for _, p := range b.pending {
			if p.ring != nil { // it was not dropped meanwhile
				r.drop(p)
			}
		}
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // another replica has written
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		known.due = r.now().Add(maxPause)
	default:
		known.due = r.now().Add(min(writeInterval<<min(known.failed, 10), maxPause))
		if known.failed++; known.failed > 1 {
			return
		}
		r.log.Error(err, "Could not store captured requests; trying again", "namespace", b.key.Namespace, "integration", b.key.Name)
		if b.integration != nil && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			r.tell(b.integration, "Could not store captured requests: %s", plaintext.ShortMessage(err.Error()))
		}
	}
}

// write adds requests to the RequestCapture of their integration, and returns how many bytes it has written.
func (r *Recorder) write(ctx context.Context, b *batch) (written int64, err error) {
	stored := named(b.key)
	err = r.live.Get(ctx, b.key, stored)
	isOwn := func(owner metav1.OwnerReference) bool { return owner.UID == b.integration.UID }
	if err == nil && !slices.ContainsFunc(stored.OwnerReferences, isOwn) {
		// It is of an integration of the same name that was deleted, or nobody's, such as one of a backup.
		err = r.client.Delete(ctx, stored, client.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion})
		stored = named(b.key)
	}
	isNew := stored.UID == ""
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if isNew {
		stored.Labels = map[string]string{v1alpha1.ExcludeFromBackupLabel: "true"}
		if err := controllerutil.SetOwnerReference(b.integration, stored, r.client.Scheme()); err != nil {
			return 0, err
		}
	}
	var added []v1alpha1.CapturedRequest
	stored.Spec.LeftOut += b.leftOut
	for i := range b.requests {
		if encoded := b.requests[i].encode(); len(encoded.Content) <= v1alpha1.MaxCaptureBytes {
			added = append(added, encoded)
		} else {
			stored.Spec.LeftOut++
		}
	}
	stored.Spec.Requests = newest(append(stored.Spec.Requests, added...), b.integration.Spec.Capture.Payloads)
	for i := range stored.Spec.Requests {
		written += int64(len(stored.Spec.Requests[i].Content))
	}
	if isNew {
		return written, r.client.Create(ctx, stored, client.FieldOwner(v1alpha1.FieldManager))
	}
	return written, r.client.Update(ctx, stored, client.FieldOwner(v1alpha1.FieldManager)) // of the version that was read
}

// newest returns the last requests, as many as are kept and at most MaxCaptureBytes of them, each once: a write whose outcome is
// unknown may have stored what is added again.
func newest(all []v1alpha1.CapturedRequest, most int64) []v1alpha1.CapturedRequest {
	var kept []v1alpha1.CapturedRequest
	left := v1alpha1.MaxCaptureBytes
	for _, one := range slices.Backward(all) {
		isSame := func(other v1alpha1.CapturedRequest) bool {
			return other.Time.Equal(one.Time.Time) && other.Content == one.Content
		}
		if slices.ContainsFunc(kept, isSame) {
			continue
		}
		if left -= len(one.Content); left < 0 || int64(len(kept)) == most {
			break
		}
		kept = append(kept, one)
	}
	slices.Reverse(kept)
	return kept
}

// sweep finds the RequestCaptures of integrations whose capture was turned off while no replica saw it.
func (r *Recorder) sweep(ctx context.Context) {
	namespaces := r.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		found := &metav1.PartialObjectMetadataList{}
		found.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("RequestCaptureList"))
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		err := r.live.List(ctx, found, client.InNamespace(namespace),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}) // from the memory of the API server
		cancel()
		if err != nil {
			r.log.V(1).Info("Could not list RequestCaptures; trying again", "reason", err.Error())
			continue
		}
		r.mu.Lock()
		for i := range found.Items {
			key := client.ObjectKeyFromObject(&found.Items[i])
			if waiting, isKnown := r.others[key]; isKnown && waiting == nil {
				r.rings[key] = &ring{}
			}
		}
		r.mu.Unlock()
	}
}

func named(key types.NamespacedName) *v1alpha1.RequestCapture {
	capture := &v1alpha1.RequestCapture{}
	capture.Namespace, capture.Name = key.Namespace, key.Name
	return capture
}
