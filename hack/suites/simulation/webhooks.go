package simulation

import (
	"context"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
)

// webhookTimeout is how long the API server waits for an admission webhook: the default timeoutSeconds.
const webhookTimeout = 10 * time.Second

// breakWebhook has an admission webhook of a namespace fail for some writes, or hang until its time-out.
type breakWebhook struct {
	tenant int
	target
	hangs bool
	d     time.Duration // 0: to the end, also after all other faults
}

func (o breakWebhook) do(w *world) {
	hook := &brokenWebhook{breakWebhook: o, mended: make(chan struct{})}
	w.network.mu.Lock()
	w.network.webhooks = append(w.network.webhooks, hook)
	w.network.mu.Unlock()
	if o.d > 0 {
		w.later(o.d, func() { w.network.mend(hook) })
	}
}

type brokenWebhook struct {
	breakWebhook
	mended chan struct{}
}

// mend has a webhook work again. Calls that hang are answered.
func (n *network) mend(hook *brokenWebhook) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.webhooks = slices.DeleteFunc(n.webhooks, func(other *brokenWebhook) bool { return other == hook })
	close(hook.mended)
}

// admit asks the admission webhooks about a call, and returns the answer if one of them does not work.
func (n *network) admit(ctx context.Context, call *apiserver.Call) (*metav1.Status, error) {
	n.mu.Lock()
	at := slices.IndexFunc(n.webhooks, func(hook *brokenWebhook) bool { return hook.concerns(call) })
	if at < 0 {
		n.mu.Unlock()
		return nil, nil
	}
	hook := n.webhooks[at]
	n.mu.Unlock()
	reason := `failed to call webhook: Post "https://admission.example.com/": dial tcp 10.0.0.1:443: connect: connection refused`
	if hook.hangs {
		if err := sleep(ctx, webhookTimeout, hook.mended); err != nil || isClosed(hook.mended) {
			return nil, err
		}
		reason = "context deadline exceeded"
	}
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
		Message: `Internal error occurred: failed calling webhook "admission.example.com": ` + reason,
	}, nil
}

// concerns says whether the API server asks the webhook about a call: not about reads.
func (o *breakWebhook) concerns(call *apiserver.Call) bool {
	isWrite := slices.Contains([]string{"create", "update", "patch", "delete"}, call.Verb)
	return isWrite && call.Namespace == tenantName(o.tenant) && o.matches(call)
}
