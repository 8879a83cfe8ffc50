package leader

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	after time.Duration
	now   func() time.Time

	mu    sync.Mutex
	kinds map[string]*callState
}

// callState is the state of one kind of calls.
type callState struct {
	under   int       // calls under way
	failing time.Time // since when there have been calls and no answer; zero after an answer
	latest  time.Time // end of the latest call
}

func newStuckDetector() *stuckDetector {
	return &stuckDetector{after: stuckAfter, now: time.Now, kinds: map[string]*callState{}}
}

// track makes a call and notes how it went.
func (d *stuckDetector) track(kind string, call func() error) error {
	d.begin(kind)
	err := call()
	d.end(kind, isAnswer(err))
	return err
}

func (d *stuckDetector) begin(kind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.kinds[kind]
	if state == nil {
		state = &callState{}
		d.kinds[kind] = state
	}
	state.under++
	if state.failing.IsZero() {
		state.failing = d.now()
	}
}

func (d *stuckDetector) end(kind string, answered bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.kinds[kind]
	state.under--
	state.latest = d.now()
	switch {
	case !answered:
	case state.under > 0:
		state.failing = state.latest
	default:
		state.failing = time.Time{}
	}
}

// check returns an error when calls of one kind have had no answer for too long. Failures that were not retried do
// not count: there is no work left.
func (d *stuckDetector) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for kind, state := range d.kinds {
		tried := state.under > 0 || now.Sub(state.latest) < d.after
		if !state.failing.IsZero() && tried && now.Sub(state.failing) >= d.after {
			return fmt.Errorf("cannot fold: the API server has answered no %s for %s", kind, d.after)
		}
	}
	return nil
}

// Start is a runnable of the term that fails as soon as the leader is stuck.
func (d *stuckDetector) Start(ctx context.Context) error {
	ticker := time.NewTicker(stuckCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := d.check(); err != nil {
				return err
			}
		}
	}
}

// isAnswer reports whether the API server has done the work or decided about the object. Timeouts, overload and server
// errors are no answers.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
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
func TrackCalls(mgr ctrl.Manager, live client.Client) (client.Client, error) {
	detector := newStuckDetector()
	if err := mgr.Add(detector); err != nil {
		return nil, fmt.Errorf("adding the detector of a stuck leader: %w", err)
	}
	return &trackedClient{Client: live, detector: detector}, nil
}

// trackedClient is a client whose calls a stuckDetector tracks.
type trackedClient struct {
	client.Client
	detector *stuckDetector
}

// kindOf names a kind of calls, such as "list of *v1.PartialObjectMetadataList".
func kindOf(verb string, object any) string { return fmt.Sprintf("%s of %T", verb, object) }

// Get implements client.Reader.
func (c *trackedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return c.detector.track(kindOf("get", object), func() error { return c.Client.Get(ctx, key, object, opts...) })
}

// List implements client.Reader.
func (c *trackedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.detector.track(kindOf("list", list), func() error { return c.Client.List(ctx, list, opts...) })
}

// Create implements client.Writer.
func (c *trackedClient) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	return c.detector.track(kindOf("write", object), func() error { return c.Client.Create(ctx, object, opts...) })
}

// Status implements client.StatusClient.
func (c *trackedClient) Status() client.SubResourceWriter {
	return &trackedStatus{SubResourceWriter: c.Client.Status(), detector: c.detector}
}

// trackedStatus is the status client of an trackedClient.
type trackedStatus struct {
	client.SubResourceWriter
	detector *stuckDetector
}

// Update implements client.SubResourceWriter.
func (s *trackedStatus) Update(ctx context.Context, object client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.detector.track(kindOf("write", object), func() error { return s.SubResourceWriter.Update(ctx, object, opts...) })
}
