package leader

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const (
	// stuckAfter is how long a leader keeps the lease while the API server answers none of its calls of one kind, and
	// stuckCheck is how often that is looked at.
	stuckAfter = 30 * time.Second
	stuckCheck = time.Second
)

// stuckDetector tells a leader that can renew its lease but cannot fold, because its lists, reads or writes fail or
// hang, that another replica should have the lease. It tracks the calls of one term.
//
// It counts as progress when the API server answers, an error about the one object included: that would be no different
// on another replica.
type stuckDetector struct {
	mu    sync.Mutex
	kinds map[string]*callState
}

// callState is the state of one kind of calls.
type callState struct {
	under   int       // calls under way
	failing time.Time // since when there have been calls and no answer; zero after an answer
	latest  time.Time // end of the latest call
}

// track makes a call and notes how it went. Its kind is such as "list of *v1.PartialObjectMetadataList".
func (d *stuckDetector) track(verb string, object any, call func() error) error {
	kind := fmt.Sprintf("%s of %T", verb, object)
	d.note(kind, func(state *callState, now time.Time) {
		state.under++
		if state.failing.IsZero() {
			state.failing = now
		}
	})
	err := call()
	d.note(kind, func(state *callState, now time.Time) {
		state.under--
		state.latest = now
		switch {
		case !isAnswer(err):
		case state.under > 0:
			state.failing = now
		default:
			state.failing = time.Time{}
		}
	})
	return err
}

// note changes the state of a kind.
func (d *stuckDetector) note(kind string, change func(state *callState, now time.Time)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kinds[kind] == nil {
		d.kinds[kind] = &callState{}
	}
	change(d.kinds[kind], time.Now())
}

// check returns an error when calls of one kind have had no answer for too long. Failures that were not retried do
// not count: there is no work left.
func (d *stuckDetector) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for kind, state := range d.kinds {
		tried := state.under > 0 || now.Sub(state.latest) < stuckAfter
		if !state.failing.IsZero() && tried && now.Sub(state.failing) >= stuckAfter {
			return fmt.Errorf("cannot fold: the API server has answered no %s for %s", kind, stuckAfter)
		}
	}
	return nil
}

// Start is a runnable of the term that fails as soon as the leader is stuck.
func (d *stuckDetector) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, stuckCheck, false, func(context.Context) (bool, error) { return false, d.check() })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// isAnswer reports whether the API server has done the work or decided about the object. Timeouts, overload and server
// errors are no answers.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err == nil
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// TrackCalls returns the client of a term. The term fails if the API server answers no calls of one kind.
func TrackCalls(mgr ctrl.Manager, live client.WithWatch) (client.WithWatch, error) {
	d := &stuckDetector{kinds: map[string]*callState{}}
	if err := mgr.Add(d); err != nil {
		return nil, fmt.Errorf("adding the detector of a stuck leader: %w", err)
	}
	return interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			return d.track("get", object, func() error { return c.Get(ctx, key, object, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return d.track("list", list, func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			return d.track("write", object, func() error { return c.Create(ctx, object, opts...) })
		},
		SubResourceUpdate: func(
			ctx context.Context, c client.Client, status string, object client.Object, opts ...client.SubResourceUpdateOption,
		) error {
			return d.track("write", object, func() error { return c.SubResource(status).Update(ctx, object, opts...) })
		},
	}), nil
}
