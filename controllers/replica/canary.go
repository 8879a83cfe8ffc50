package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/admission"
	"github.com/tocsin-dev/tocsin/internal/eventclient"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// canaryInterval is how often a replica stores a canary, and canaryRetry how long it waits after an attempt that failed. So
	// within maxGap there are two attempts.
	canaryInterval = 10 * time.Second
	canaryRetry    = time.Second

	// canaryTimeout bounds one attempt. The API server gives up after canaryVerdict, for instance when an admission webhook hangs,
	// so that its answer, which tells the time, comes before that.
	canaryTimeout = 3 * time.Second
	canaryVerdict = 2500 * time.Millisecond

	// checkInterval is how often a replica whose check fails looks at it again.
	checkInterval = 100 * time.Millisecond

	// stuckAfter is how long a leader keeps the lease while no canary ends.
	stuckAfter = 30 * time.Second
)

// Canary stores an AlertEvent in the operator's own namespace, again and again, as ingest stores alerts. Its alert resolves an
// Incident that never exists: the leader folds it, finds nothing, and deletes it. That tells all that a replica needs to know of
// the API server, by nothing that a tenant has:
//
//   - Each answer tells the time, and whether alerts can be stored (IngestHealth).
//   - If resourceVersions go back, the store was restored from a backup. Start fails, which ends the process: a cache that is
//     newer than the store does not show objects created after the restore.
//   - If the watch does not show the canary, or the leader's does not show its end, the watch begins again.
//   - If the leader sees no canary end, it cannot list, fold or delete. Lead fails, which gives the lease up.
//
// A process has one canary at a time: as long as there is no leader, the API server answers that it exists.
type Canary struct {
	options CanaryOptions
	client  *rest.RESTClient
	date    string // of the last answer

	name     string
	stored   queue.Ref // the canary that exists as far as this process knows
	storedAt time.Time
	remedied time.Duration // the age of the canary at which the watch began again
	newest   string        // resourceVersion of a canary
	denial   string        // why the cluster denies canaries; empty if it does not

	denied atomic.Int64 // denials
	led    atomic.Pointer[time.Time]
}

// CanaryOptions are the settings of a Canary.
type CanaryOptions struct {
	// Namespace is the operator's own, of which the manager's cache has the AlertEvents.
	Namespace string

	// Health is told what each answer says.
	Health *IngestHealth

	// Memory tells what the watch has shown.
	Memory *queue.Memory

	Schemas Schemas
	Watches Watches
}

// Schemas tells whether the API server stores all fields. It is a *schemacheck.Checker outside of tests.
type Schemas interface {
	// Verdict returns why this process must store nothing; nil if it may.
	Verdict() error
}

// Watches are those of the manager's cache. They are of *clustercache.Informers outside of tests.
type Watches interface {
	// RestartWatches has the cache watch objects of a kind again, from where it was, or list them anew.
	RestartWatches(kind client.Object, listAnew bool)
}

// NewCanary returns a Canary that is still to be started. It tells Memory its namespace, and who knows the API server's time.
func NewCanary(config *rest.Config, o CanaryOptions) (*Canary, error) {
	c := &Canary{options: o}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{next, &c.date} })
	var err error
	if c.client, err = eventclient.New(config); err != nil {
		return nil, err
	}
	o.Memory.Cached.Canaries, o.Memory.ServerTime = o.Namespace, o.Health.Now
	c.rename()
	return c, nil
}

// dated keeps the date of the last answer.
type dated struct {
	http.RoundTripper
	date *string
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (d dated) WrappedRoundTripper() http.RoundTripper { return d.RoundTripper }

func (d dated) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := d.RoundTripper.RoundTrip(request)
	if err == nil {
		*d.date = response.Header.Get("Date")
	}
	return response, err
}

// rename gives the next canary a name that no other one has.
func (c *Canary) rename() { c.name = v1alpha1.CanaryName + "-" + uuid.NewString()[:8] }

// Start implements manager.Runnable: every replica stores canaries until ctx ends. It fails if the store was restored from a
// backup.
func (c *Canary) Start(ctx context.Context) error {
	for {
		next, err := c.round(ctx)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
	}
}

// Lead is a runnable of the leader's term, which fails when no canary ends though the cluster denies none. It counts seconds in
// which it runs: nothing follows from those in which the process stands still.
func (c *Canary) Lead(ctx context.Context) error {
	c.led.Store(new(time.Now()))
	defer c.led.Store(nil)
	ended, waited := int64(-1), time.Duration(0)
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(context.Context) (bool, error) {
		if now := c.options.Memory.CanariesEnded() + c.denied.Load(); now != ended {
			ended, waited = now, 0
		}
		if waited += time.Second; waited > stuckAfter {
			return false, fmt.Errorf("cannot fold: for %s no canary was stored, shown by the watch, folded and deleted", stuckAfter)
		}
		return false, nil
	})
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// round stores a canary unless the last one still exists. It returns when the next round is due. If the check of the process
// fails, the process accepts nothing, so it notes no contact either.
func (c *Canary) round(ctx context.Context) (next time.Duration, err error) {
	if c.isOutdated() {
		c.options.Health.Interrupt()
		return checkInterval, nil
	}
	c.watchOver(time.Now())
	sent := c.options.Health.clock.Now()
	canary, server, err := c.create(ctx)
	received := c.options.Health.clock.Now()
	note, next := c.options.Health.tell, canaryRetry
	switch denial := denialOf(err); {
	case err == nil:
		if order, err := resourceversion.CompareResourceVersion(canary.ResourceVersion, c.newest); err == nil && order < 0 {
			return 0, fmt.Errorf("the store has gone back from resourceVersion %s to %s: it was restored from a backup",
				c.newest, canary.ResourceVersion)
		}
		c.newest = canary.ResourceVersion
		c.stored = queue.Ref{NamespacedName: types.NamespacedName{Namespace: c.options.Namespace, Name: c.name}, UID: canary.UID}
		c.storedAt, c.remedied = time.Now(), 0
		c.setDenial(ctx, "")
		note, next = c.options.Health.Answered, canaryInterval
	case apierrors.IsAlreadyExists(err) && !admission.IsDenied(err):
		note, next = c.options.Health.Answered, canaryInterval
		if c.stored.UID == "" { // the response of an earlier attempt was lost, or it is in a backup
			c.rename()
			next = canaryRetry
		}
	case denial != "":
		c.denied.Add(1)
		c.setDenial(ctx, denial)
		if next = canaryInterval; admission.UnreachableWebhook(err) == "" {
			note = c.options.Health.Answered
		}
	default:
		log.FromContext(ctx).V(1).Info("No canary can be stored", "reason", err.Error())
	}
	if !server.IsZero() {
		reportClock(ctx, func() (time.Duration, bool, bool) { return note(sent, received, server) })
	}
	return next, nil
}

// isOutdated reports whether the check of the process fails.
func (c *Canary) isOutdated() bool { return c.options.Schemas.Verdict() != nil }

// watchOver has the watch of AlertEvents begin again if it does not show this process's canary, or the leader's does not show its
// end. If that does not help, it has them listed anew.
func (c *Canary) watchOver(now time.Time) {
	if c.options.Memory.IsDeleted(c.stored) {
		c.stored = queue.Ref{}
	}
	if c.stored.UID == "" {
		return
	}
	since := c.storedAt
	if c.options.Memory.IsShown(c.stored.UID) {
		led := c.led.Load()
		if led == nil {
			return
		}
		if led.After(since) {
			since = *led
		}
	}
	switch age := now.Sub(since); {
	case age >= 2*canaryInterval && c.remedied < 2*canaryInterval:
		c.remedied = age
		c.options.Watches.RestartWatches(&v1alpha1.AlertEvent{}, true)
	case age >= canaryInterval && c.remedied < canaryInterval:
		c.remedied = age
		c.options.Watches.RestartWatches(&v1alpha1.AlertEvent{}, false)
	}
}

// create creates a canary, and returns its metadata. server is the time that the API server told, zero if it told none.
func (c *Canary) create(ctx context.Context) (canary *metav1.PartialObjectMetadata, server time.Time, err error) {
	event := &v1alpha1.AlertEvent{}
	event.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEvent"))
	event.Namespace, event.Name = c.options.Namespace, c.name
	event.Labels = map[string]string{v1alpha1.ExcludeFromBackupLabel: "true"}
	event.Spec.Report = &v1alpha1.Report{IncidentName: v1alpha1.CanaryName, Status: v1alpha1.AlertResolved}
	body, err := json.Marshal(event)
	if err != nil {
		return nil, server, fmt.Errorf("encoding the canary: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	c.date = ""
	result := eventclient.Create(c.client, c.options.Namespace, body).Param("timeout", canaryVerdict.String()).Do(ctx)
	if server, err = http.ParseTime(c.date); err != nil {
		server = time.Time{}
	}
	if err := result.Error(); err != nil {
		return nil, server, err
	}
	answer, _ := result.Raw()
	canary = &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(answer, canary); err != nil {
		return nil, server, fmt.Errorf("decoding the answer: %w", err)
	}
	return canary, server, nil
}

// denialOf returns why the cluster denies the canary, empty if it does not: the API server has not answered, or could store
// nothing.
func denialOf(err error) string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return ""
	}
	switch code := status.ErrStatus.Code; {
	case admission.IsDenied(err), admission.UnreachableWebhook(err) != "": // no other replica could store the object either
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusUnauthorized:
		return ""
	}
	return plaintext.ShortMessage(fmt.Sprintf("%d %s", status.ErrStatus.Code, status.ErrStatus.Message))
}

// setDenial logs it when the cluster begins to deny canaries, and when it no longer does.
func (c *Canary) setDenial(ctx context.Context, denial string) {
	switch {
	case denial != "" && c.denial == "":
		log.FromContext(ctx).Error(nil, "The cluster denies the canary; whether this replica can fold is not known", "reason", denial,
			"namespace", c.options.Namespace)
	case denial == "" && c.denial != "":
		log.FromContext(ctx).Info("The cluster no longer denies the canary")
	}
	c.denial = denial
}

// reportClock sets the metric of the clock's offset, and logs it when the clock becomes wrong or right.
func reportClock(ctx context.Context, note func() (ahead time.Duration, wrong, changed bool)) {
	ahead, wrong, changed := note()
	clockOffset.Set(ahead.Seconds())
	switch {
	case changed && wrong:
		log.FromContext(ctx).Error(nil, "The clock differs from the API server's, by which everything goes",
			"aheadSeconds", ahead.Seconds())
	case changed:
		log.FromContext(ctx).Info("The clock agrees with the API server's again")
	}
}
