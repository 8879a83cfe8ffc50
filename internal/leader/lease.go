package leader

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

const (
	// renewInterval is how often the leader writes the Lease, whether or not the last write was answered: a slow API server delays
	// the answers, and not the renewals. It is one write a second, however many replicas there are.
	renewInterval = time.Second

	// retryInterval is how soon a write that failed is repeated, so that there are several attempts before the lease runs out.
	retryInterval = 250 * time.Millisecond

	// minDuration is how long a lease lasts from its last renewal on, of which a candidate counts from when it saw it; then it waits
	// for takeoverDelay, in which a leader whose last renewals failed repeats one. Together that lets two renewals be lost, and has
	// alerts folded again within 5 s of the end of a leader that could not release the lease.
	minDuration   = 3 * time.Second
	takeoverDelay = 2 * retryInterval

	// slowFactor is how many times the slowest recent answer to a renewal a lease lasts at least, up to maxDuration: while the API
	// server is slow, so are the renewals of a leader that another one would only replace. A successor takes over what the Lease
	// tells of that. Each answer takes the weight of forgetting off the slowest one: five seconds are forgotten after 50.
	slowFactor  = 3
	maxDuration = 15 * time.Second
	forgetting  = 0.03

	// freshness is how long the read may take by which a candidate makes sure that the lease has run out. If it takes longer, so
	// may renewals: then the lease lasts for slowFactor times as long, and for another renewInterval at least. It also does after
	// reads that failed.
	freshness = 500 * time.Millisecond

	// requestTimeout bounds a request, of which there may be one for each renewInterval.
	requestTimeout = 10 * time.Second

	// releaseTimeout bounds the release of the lease; after that it has run out by itself.
	releaseTimeout = minDuration

	// watchTimeout is how long the Lease is watched before it is read again.
	watchTimeout = 5 * time.Minute

	dialTimeout   = 2 * time.Second
	dialKeepAlive = 30 * time.Second
)

// Lease is the Lease object by which replicas agree which of them leads.
//
// A replica watches it, and writes it when a write is due: the leader each second, a candidate when nobody holds the lease, or
// when the holder's has run out and a read has shown that. A write succeeds only over the version that was seen last, so of
// several candidates one wins, and none wins against a renewal that it has not seen. Whatever tells a version of the Lease, be it
// the answer to a write, an event of the watch or a read, is learned by the same function (view.learn), so a renewal whose answer
// was lost counts too.
type Lease struct {
	types.NamespacedName
	view
	client coordinationv1client.LeaseInterface
	log    logr.Logger

	changed chan struct{}   // full when the view has changed
	failing map[string]bool // by what does, as the log says; guarded by view.mu
	sending sync.WaitGroup
}

// NewLease returns the Lease with this name, for which the process has an identity of its own.
func NewLease(config *rest.Config, name types.NamespacedName, log logr.Logger) (*Lease, error) {
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	// Clients with equal configurations share one HTTP/2 connection. This one shares none, so that a renewal never waits behind a
	// flood of alerts; and it has a connection for each request under way, so that one that has died delays one renewal alone.
	config.NextProtos = []string{"http/1.1"}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialKeepAlive}).DialContext
	}
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of leases: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the name of the host: %w", err)
	}
	return newLease(client.Leases(name.Namespace), name, host+"_"+uuid.NewString(), log), nil
}

func newLease(
	client coordinationv1client.LeaseInterface, name types.NamespacedName, identity string, log logr.Logger,
) *Lease {
	return &Lease{
		NamespacedName: name, view: view{identity: identity}, client: client, log: log,
		changed: make(chan struct{}, 1), failing: map[string]bool{},
	}
}

// ID returns the UID of the Lease, which tells this installation from others.
func (l *Lease) ID(ctx context.Context) (string, error) {
	object, err := l.client.Get(ctx, l.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the lease: %w", err)
	}
	return string(object.UID), nil
}

// start follows the Lease until ctx ends. It returns what waits for the end of all requests.
func (l *Lease) start(ctx context.Context) (wait func()) {
	masterStatus.WithLabelValues(l.Name).Set(0)
	l.sending.Go(func() { l.follow(ctx) })
	return l.sending.Wait
}

func (l *Lease) acquire(ctx context.Context) {
	for ctx.Err() == nil && !l.isMine() {
		l.turn(ctx, nil)
	}
}

// keep renews the lease until the work or ctx has ended, or another replica has the lease. It reports whether the work has ended.
func (l *Lease) keep(ctx context.Context, ended <-chan struct{}) bool {
	masterStatus.WithLabelValues(l.Name).Set(1)
	defer masterStatus.WithLabelValues(l.Name).Set(0)
	for ctx.Err() == nil && l.isMine() {
		if l.turn(ctx, ended) {
			return true
		}
	}
	return false
}

// turn waits until the next request is due, which it sends, or until something else has happened. It reports whether the work has
// ended.
func (l *Lease) turn(ctx context.Context, ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	case <-ctx.Done():
	case <-l.changed:
	case <-time.After(time.Until(l.due())):
		if w := l.next(l.NamespacedName); w != nil {
			l.send(ctx, w)
		} else {
			l.check(ctx)
		}
	}
	return false
}

func (l *Lease) check(ctx context.Context) {
	l.sending.Go(func() {
		_, err := l.read(ctx)
		l.report(ctx, reading, err)
	})
}

// send writes the Lease with this replica as its holder, in the background.
func (l *Lease) send(ctx context.Context, w *write) {
	l.sending.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		answer, err := l.put(ctx, w.object)
		isNewest := l.answered(w, err)
		switch {
		case err == nil:
			l.learn(answer.ResourceVersion, answer, time.Time{})
			l.report(ctx, writing, nil)
		case !isNewest:
		case isOutdated(err):
			_, err := l.read(ctx)
			l.report(ctx, reading, err)
		default:
			l.report(ctx, writing, err)
		}
		l.notify()
	})
}

// isOutdated reports whether a write failed because the Lease has changed, was created or was deleted.
func isOutdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

func (l *Lease) put(ctx context.Context, object *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if object.ResourceVersion == "" {
		return l.client.Create(ctx, object, metav1.CreateOptions{})
	}
	return l.client.Update(ctx, object, metav1.UpdateOptions{})
}

// release gives the lease up if this replica has it, so that candidates need not wait until it runs out.
func (l *Lease) release() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	for ctx.Err() == nil {
		object := l.released()
		if object == nil {
			return
		}
		answer, err := l.client.Update(ctx, object, metav1.UpdateOptions{})
		if err == nil {
			l.learn(answer.ResourceVersion, answer, time.Time{})
			return
		}
		if !isOutdated(err) { // else a renewal was still under way
			l.report(ctx, writing, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
			_, _ = l.read(ctx)
		}
	}
}

func (l *Lease) follow(ctx context.Context) {
	for ctx.Err() == nil {
		pause := retryInterval
		version, err := l.read(ctx)
		if err == nil {
			err = l.watch(ctx, version)
		}
		if l.report(ctx, watching, err); err != nil {
			pause = renewInterval // if the Lease cannot be watched, the reads alone have to do
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// read reads the Lease from the quorum. It returns the version from which on it is to be watched.
func (l *Lease) read(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	began := time.Now()
	defer l.notify()
	switch object, err := l.client.Get(ctx, l.Name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		l.learn("", nil, began)
	case err != nil:
		l.doubt()
		return "", err
	default:
		l.learn(object.ResourceVersion, object, began)
		version = object.ResourceVersion
	}
	return version, nil
}

// watch learns each version of the Lease after this one, until the watch ends. If it shows nothing, check's reads have to do.
func (l *Lease) watch(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	events, err := l.client.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, l.Name).String(), ResourceVersion: version,
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-events.ResultChan():
			if !ok {
				return nil
			}
			object, isLease := event.Object.(*coordinationv1.Lease)
			switch {
			case event.Type == watch.Error:
				return apierrors.FromObject(event.Object)
			case !isLease:
			case event.Type == watch.Deleted:
				l.learn(object.ResourceVersion, nil, time.Time{})
			default:
				l.learn(object.ResourceVersion, object, time.Time{})
			}
			l.notify()
		}
	}
}

// What may fail, for report.
const reading, writing, watching = "reading", "writing", "watching"

// report logs it when requests for the Lease begin to fail, and when they no longer do.
func (l *Lease) report(ctx context.Context, what string, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil && !l.failing[what]:
		l.log.Error(err, "Cannot keep up with the lease", "failing", what)
	case err == nil && l.failing[what]:
		l.log.Info("Keeping up with the lease again", "failed", what)
	}
	l.failing[what] = err != nil
}

// notify wakes up turn.
func (l *Lease) notify() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}
