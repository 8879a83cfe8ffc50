package page

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owner is the access to a page of one user: whoever sends its key acts with the client of that user, without limits.
type owner struct {
	caller
	key   string
	watch *watch
}

func newOwner(c client.WithWatch, namespace string) *owner {
	return &owner{
		caller: caller{client: c, namespace: namespace}, key: rand.Text(), watch: newWatch(c, namespace, nil),
	}
}

func (o *owner) identify(r *http.Request) (*caller, error) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+o.key)) != 1 {
		return nil, errKey
	}
	return &o.caller, nil
}

func (o *owner) admit(*caller) (release func(), err error) { return func() {}, nil }

func (o *owner) join(context.Context, *caller) (*watch, error) { return o.watch, nil }

func (o *owner) follow(ctx context.Context) (wait func()) {
	var tasks sync.WaitGroup
	tasks.Go(func() { o.watch.feed.Run(ctx) })
	return tasks.Wait
}
