package commit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/admission"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// Store is the part of the API server that a write needs. Its errors are client-go's.
type Store interface {
	// Create stores an AlertEvent as its spec has it.
	Create(ctx context.Context, event *v1alpha1.AlertEvent) error
	// Get reads what was last committed, from no cache.
	Get(ctx context.Context, namespace, name string) (*v1alpha1.AlertEvent, error)
}

// Reasons of a DeniedError, as status.lastRejection and the metric have them.
const (
	// ReasonPolicy: a ValidatingAdmissionPolicy or an admission webhook of the cluster denied the AlertEvent.
	ReasonPolicy = "DeniedByPolicy"
	// ReasonQuota: a ResourceQuota of the namespace does not allow another AlertEvent.
	ReasonQuota = "QuotaExceeded"
)

// InvalidError says that the schema of AlertEvents does not allow the submission. Nothing was stored; a retry cannot succeed.
type InvalidError struct {
	Message string // names the fields at fault, in one printable line without anything of the alert
}

func (e *InvalidError) Error() string { return "the alert is invalid: " + e.Message }

// DeniedError says that the cluster does not allow the submission to be stored, and that the alert need not be at
// fault: a retry succeeds once the policy is changed, or the quota has capacity again. Nothing was stored.
type DeniedError struct {
	Reason string // ReasonPolicy or ReasonQuota

	// Message is the API server's message, in one printable line. It names policies and may quote the alert, so it is
	// for the owner of the integration and not for the sender.
	Message string
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("the cluster denied the AlertEvent (%s): %s", e.Reason, e.Message)
}

// notStoredError is the error of an attempt that cannot have stored anything.
type notStoredError struct{ error }

func (e *notStoredError) Unwrap() error { return e.error }

// writeBatch stores a batch and tells every entry of it its outcome.
func (c *Committer) writeBatch(entries []*entry) {
	last := slices.MaxFunc(entries, func(a, b *entry) int { return a.deadline.Compare(b.deadline) })
	// No request's context: a client that hangs up must not take its neighbours' alerts with it.
	ctx, cancel := context.WithDeadline(context.Background(), last.deadline)
	defer cancel()
	splits := maxRefusedSplits
	c.writeOrSplit(ctx, entries, &splits)
}

// writeOrSplit writes a batch as one AlertEvent. When the API server finds it invalid, or a policy refuses it, its halves
// are written under names of their own, so that in the end only the submissions at fault are refused. A policy may refuse
// them all, so its refusals split at most splits batches.
func (c *Committer) writeOrSplit(ctx context.Context, entries []*entry, splits *int) {
	event := newAlertEvent(entries)
	end := startSpan(c.tracer, entries, event)
	stored, err := c.createWithRetries(ctx, event)
	end(err)
	if len(entries) > 1 && mayStoreHalf(err, splits) {
		half := len(entries) / 2
		c.writeOrSplit(ctx, entries[:half], splits)
		c.writeOrSplit(ctx, entries[half:], splits)
		return
	}
	for _, e := range entries {
		if err != nil {
			e.done <- result{err: err}
			continue
		}
		receipt := Receipt{EventName: event.Name, Alerts: e.Alerts}
		if e.EventName != "" && stored != nil {
			receipt.Alerts = stored.Alerts
		}
		e.done <- result{receipt: receipt}
	}
}

// mayStoreHalf says whether a part of a batch may be stored although the whole was not. A refusal by a policy costs
// one of splits.
func mayStoreHalf(err error, splits *int) bool {
	var invalid *InvalidError
	var denied *DeniedError
	switch {
	case errors.As(err, &invalid):
		return true
	case errors.As(err, &denied) && denied.Reason == ReasonPolicy && *splits > 0:
		*splits--
		return true
	}
	return false
}

// newAlertEvent makes the AlertEvent that holds the alerts of a batch, in the order of their arrival.
func newAlertEvent(entries []*entry) *v1alpha1.AlertEvent {
	first := entries[0]
	name := first.EventName
	if name == "" {
		name = uuid.Must(uuid.NewV7()).String()
	}
	event := &v1alpha1.AlertEvent{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AlertEvent"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: first.Integration.Namespace, Name: name,
			Labels: map[string]string{v1alpha1.ExcludeFromBackupLabel: "true"},
		},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: first.Integration.Name,
			ReceivedTime:    v1alpha1.NewTimestamp(first.Received),
			Defaults:        first.Defaults,
		},
	}
	for _, e := range entries {
		if e.Received.Before(event.Spec.ReceivedTime.Time) {
			event.Spec.ReceivedTime = v1alpha1.NewTimestamp(e.Received)
		}
		event.Alerts = append(event.Alerts, e.Alerts...)
	}
	return event
}

// createWithRetries stores the event and returns nil, or the stored one if the name existed already. All attempts create the
// same object under the same name, so it is stored once, however many of them reach the API server. A late attempt may store a
// second copy after the first was folded and deleted; queue.Memory recognizes it. It returns when ctx ends at the latest.
func (c *Committer) createWithRetries(ctx context.Context, event *v1alpha1.AlertEvent) (*v1alpha1.AlertEvent, error) {
	writeAlerts.Observe(float64(len(event.Alerts)))
	start := time.Now()
	defer func() { writeDuration.Observe(time.Since(start).Seconds()) }()
	if err := queue.Encode(event); err != nil {
		return nil, &InvalidError{Message: "not valid: " + printable(err.Error())}
	}
	// uncertain is the error of the last attempt that may have stored the event all the same. After it, only success says what is
	// stored: a batch that is then rejected must not be split and written again.
	var uncertain error
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		stored, err := c.attempt(ctx, event)
		if err == nil {
			return stored, nil
		}
		mayBeStored, final := classify(err)
		if mayBeStored {
			uncertain = err
			event = retryOf(event)
		}
		switch {
		case final == nil && pause(ctx, backoff, err):
		case uncertain != nil:
			return nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, uncertain)
		case final != nil:
			return nil, final
		default:
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// retryOf returns the event with the annotation of a retry, for its next attempts: it may be stored already, and folded and
// deleted before the next attempt arrives, which is then a second copy. It is a copy, because an attempt that was abandoned may
// still be encoding the event.
func retryOf(event *v1alpha1.AlertEvent) *v1alpha1.AlertEvent {
	again := *event
	again.Annotations = map[string]string{}
	maps.Copy(again.Annotations, event.Annotations)
	again.Annotations[v1alpha1.RetryAnnotation] = "true"
	return &again
}

// attempt creates the event once. When an event of its name exists already, attempt returns that one.
func (c *Committer) attempt(ctx context.Context, event *v1alpha1.AlertEvent) (*v1alpha1.AlertEvent, error) {
	if err := ctx.Err(); err != nil {
		return nil, &notStoredError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := c.store.Create(ctx, event)
	if admission.IsDenied(err) || !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	keyed := v1alpha1.IsKeyedEventName(event.Name)
	stored, err := c.store.Get(ctx, event.Namespace, event.Name)
	switch {
	case apierrors.IsNotFound(err) && !keyed:
		// Nobody else makes this name: an earlier attempt stored it, and by now it is folded and deleted.
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, &notStoredError{errors.New("the AlertEvent of the earlier request with this key was deleted meanwhile")}
	case err != nil:
		return nil, fmt.Errorf("reading the AlertEvent of the same name: %w", err)
	}
	return stored, nil
}

// pause waits before the next attempt, as long as the API server asked for or else about backoff. It returns
// false, at once, when ctx would end before that.
func pause(ctx context.Context, backoff time.Duration, err error) bool {
	delay := wait.Jitter(backoff/2, 2)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		delay = max(delay, time.Duration(seconds)*time.Second)
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= delay {
		return false
	}
	select {
	case <-time.After(delay):
		return true
	case <-ctx.Done():
		return false
	}
}

// classify returns what the error of an attempt means. final is the error to give up with, the verdict of the API server or
// ErrUnavailable; if it is nil, another attempt within seconds can succeed. mayBeStored says that the attempt may have stored the
// AlertEvent anyway.
func classify(err error) (mayBeStored bool, final error) {
	var notStored *notStoredError
	var dial *net.OpError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &notStored), errors.As(err, &dial) && dial.Op == "dial", apierrors.IsTooManyRequests(err):
		return false, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case !errors.As(err, &status):
		return true, nil
	}
	verdict, code := verdictOf(err, status.Status()), status.Status().Code
	switch {
	case verdict != nil:
		return false, verdict
	case code == http.StatusConflict: // a ResourceQuota was counted by another request at the same time
		return false, nil
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout: // no such namespace, no permission
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return true, nil
}

// verdictOf returns the *DeniedError or *InvalidError that an answer of the API server stands for, nil for any other answer.
func verdictOf(err error, status metav1.Status) error {
	code, message := status.Code, status.Message
	_, isQuota := admission.Quota(err)
	switch {
	case isSchemaError(status): // first, as it may quote the alert, and the alert may say anything
		return invalidOf(status)
	case admission.IsDenied(err), code == http.StatusUnprocessableEntity, code == http.StatusBadRequest:
		return &DeniedError{Reason: ReasonPolicy, Message: printable(message)}
	case isQuota:
		return &DeniedError{Reason: ReasonQuota, Message: printable(message)}
	case code == http.StatusRequestEntityTooLarge:
		return &InvalidError{Message: "too large for the API server"}
	}
	return nil
}

// isSchemaError says whether the CustomResourceDefinition's schema or rules found the AlertEvent invalid: then
// each cause names a field. An admission policy's causes name none.
func isSchemaError(status metav1.Status) bool {
	if status.Code != http.StatusUnprocessableEntity || status.Reason != metav1.StatusReasonInvalid ||
		status.Details == nil || len(status.Details.Causes) == 0 {
		return false
	}
	return !slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "" || !strings.HasPrefix(string(cause.Type), "FieldValue")
	})
}

// invalidOf names the fields that the schema does not allow, but neither their values nor the AlertEvent.
func invalidOf(status metav1.Status) *InvalidError {
	var fields []string
	for _, cause := range status.Details.Causes {
		field, isSpec := strings.CutPrefix(cause.Field, "spec.")
		if !isSpec {
			continue // "<nil>": that the rules were not checked because the fields are not valid
		}
		fields = append(fields, field+" ("+strings.TrimPrefix(string(cause.Type), "FieldValue")+")")
	}
	return &InvalidError{Message: printable("not allowed by the schema: " + strings.Join(fields, ", "))}
}

func printable(text string) string {
	text = plaintext.SanitizeLine(text)
	if len(text) > maxServerMessage {
		text = strings.ToValidUTF8(text[:maxServerMessage], "\uFFFD") // a cut rune becomes U+FFFD
	}
	return text
}

// DurationBuckets are the buckets of histograms of durations from 1 ms to 30 s.
var DurationBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

var (
	writeDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tocsin_webhook_write_duration_seconds",
		Help:    "Time to write one AlertEvent, retries included, whether or not it succeeded.",
		Buckets: DurationBuckets,
	})

	writeAlerts = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tocsin_webhook_write_alerts",
		Help:    "Alerts in one written AlertEvent: above 1 for batches, and when alerts had to wait for a writer.",
		Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500},
	})
)

// RegisterMetrics registers the metrics of writes.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(writeDuration, writeAlerts)
}
