package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// eventStore is the part of the API server that a write needs. Its errors are client-go's.
type eventStore interface {
	create(ctx context.Context, event *v1alpha1.AlertEvent) error
	// get reads what was last committed, from no cache.
	get(ctx context.Context, namespace, name string) (*v1alpha1.AlertEvent, error)
}

// write stores a batch and tells every entry of it what became of it.
func (c *groupCommitter) write(batch []*entry) {
	deadline := batch[0].deadline
	for _, e := range batch[1:] {
		if e.deadline.After(deadline) {
			deadline = e.deadline
		}
	}
	// No request's context: a client that hangs up must not take its neighbours' alerts with it.
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	splits := maxRefusedSplits
	c.store(ctx, batch, &splits)
}

// store writes a batch as one AlertEvent. When the API server finds it invalid, or a policy refuses it, its halves are
// written under names of their own, so that in the end only the submissions at fault are refused. A policy may refuse
// them all: it is asked for halves only so many times.
func (c *groupCommitter) store(ctx context.Context, batch []*entry, splits *int) {
	event := eventOf(batch)
	end := c.tracing.beginWrite(batch, event)
	stored, err := c.writer.write(ctx, event)
	end(err)
	if len(batch) > 1 && mayBeOneOfThem(err, splits) {
		half := len(batch) / 2
		c.store(ctx, batch[:half], splits)
		c.store(ctx, batch[half:], splits)
		return
	}
	for _, e := range batch {
		if err != nil {
			e.done <- result{err: err}
			continue
		}
		receipt := Receipt{EventName: event.Name, Alerts: e.Alerts}
		if e.EventName != "" && stored != nil {
			receipt.Alerts = stored.Spec.Alerts
		}
		e.done <- result{receipt: receipt}
	}
}

// mayBeOneOfThem tells whether a part of a batch may be stored although the whole was not. A refusal by a policy costs
// one of splits.
func mayBeOneOfThem(err error, splits *int) bool {
	var rejected *RejectedError
	var refused *RefusedError
	switch {
	case errors.As(err, &rejected):
		return true
	case errors.As(err, &refused) && refused.Reason == refusedByPolicy && *splits > 0:
		*splits--
		return true
	}
	return false
}

// eventOf makes the AlertEvent that holds the alerts of a batch, in the order of their arrival.
func eventOf(batch []*entry) *v1alpha1.AlertEvent {
	first := batch[0]
	name := first.EventName
	if name == "" {
		name = uuid.Must(uuid.NewV7()).String()
	}
	event := &v1alpha1.AlertEvent{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AlertEvent"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: first.Namespace, Name: name, Labels: map[string]string{v1alpha1.ExcludeFromBackupLabel: "true"},
		},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: first.Integration,
			ReceivedTime:    v1alpha1.NewTimestamp(first.Received),
			Defaults:        first.Defaults,
		},
	}
	for _, e := range batch {
		if e.Received.Before(event.Spec.ReceivedTime.Time) {
			event.Spec.ReceivedTime = v1alpha1.NewTimestamp(e.Received)
		}
		event.Spec.Alerts = append(event.Spec.Alerts, e.Alerts...)
	}
	return event
}

func sameDefaults(a, b *v1alpha1.AlertDefaults) bool {
	return a == b || reflect.DeepEqual(a, b)
}

// writer carries one write through its attempts. All of them create the same object under the same name,
// so however many of them reach the API server, it is stored once.
type writer struct {
	store   eventStore
	metrics func(alerts int, took time.Duration)
}

// write stores the event and returns nil, or the stored one when it was there already with the same alerts.
// It returns when ctx ends at the latest.
func (w *writer) write(ctx context.Context, event *v1alpha1.AlertEvent) (*v1alpha1.AlertEvent, error) {
	start := time.Now()
	defer func() { w.metrics(len(event.Spec.Alerts), time.Since(start)) }()
	// The error of the last attempt that may have stored the event all the same. From then on no other
	// answer than success says what is stored: a batch that is rejected must not be split and written again.
	var maybe error
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		stored, err := w.attempt(ctx, event)
		v := judge(err)
		if v == writeUncertain {
			maybe = err
		}
		switch {
		case v == writeDone:
			return stored, nil
		case v == writeConflict:
			return nil, ErrConflict
		case v == writeRejected && maybe == nil:
			return nil, refusedBy(err)
		case v == writeRejected, v == writeRefusedForGood, !pause(ctx, backoff, err):
			if maybe != nil {
				return nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, maybe)
			}
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// attempt creates the event once. When there is one of its name already, it is compared.
func (w *writer) attempt(ctx context.Context, event *v1alpha1.AlertEvent) (*v1alpha1.AlertEvent, error) {
	if err := ctx.Err(); err != nil {
		return nil, &notSentError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := w.store.create(ctx, event)
	if !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	keyed := v1alpha1.IsKeyedEventName(event.Name)
	stored, err := w.store.get(ctx, event.Namespace, event.Name)
	switch {
	case apierrors.IsNotFound(err) && !keyed:
		// Nobody else makes this name: an earlier attempt stored it, and by now it is folded and gone.
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, &notSentError{errors.New("the earlier request with this key has just been forgotten")}
	case err != nil:
		return nil, fmt.Errorf("reading what is stored under the name: %w", err)
	case !sameAlerts(stored.Spec.Alerts, event.Spec.Alerts):
		return nil, ErrConflict
	}
	return stored, nil
}

// sameAlerts compares by id: the id of a keyed alert is derived from the request's body.
func sameAlerts(a, b []v1alpha1.Alert) bool {
	return slices.EqualFunc(a, b, func(a, b v1alpha1.Alert) bool { return a.ID == b.ID })
}

// notSentError is the error of an attempt that cannot have stored anything.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

// outcome is what an attempt came to.
type outcome int

const (
	writeDone           outcome = iota
	writeRejected               // the object is invalid, or a policy or quota refuses it
	writeConflict               // another object has the name
	writeRefused                // not stored, another attempt may succeed
	writeRefusedForGood         // not stored, and another attempt within seconds is of no use
	writeUncertain              // possibly stored
)

// judge tells what the error of an attempt means.
func judge(err error) outcome {
	var notSent *notSentError
	var dial *net.OpError
	switch {
	case err == nil:
		return writeDone
	case errors.Is(err, ErrConflict):
		return writeConflict
	case errors.As(err, &notSent), errors.As(err, &dial) && dial.Op == "dial", apierrors.IsTooManyRequests(err):
		return writeRefused
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return writeRefusedForGood
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return writeUncertain
	}
	switch code := status.Status().Code; {
	case refusedBy(err) != nil:
		return writeRejected
	case code == http.StatusConflict:
		return writeRefused // a ResourceQuota was counted by another request at the same time
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		return writeRefusedForGood // no such namespace, no permission: time or the operator will tell
	default:
		return writeUncertain
	}
}

// pause waits before the next attempt, as long as the API server asked for or else about backoff. It returns
// false, at once, when ctx would end before that.
func pause(ctx context.Context, backoff time.Duration, err error) bool {
	wait := backoff/2 + rand.N(backoff)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		wait = max(wait, time.Duration(seconds)*time.Second)
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
