package webhookserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// statusReporter shows rejected requests and failed expressions in the status of their integration, each at most once a minute,
// and rejections as a Kubernetes Event as well. Every replica reports its own requests; through the status in the cache they
// share the minute. It also reports the uses of tokens, and 5xx answers: the leader measures no quiet meanwhile. The messages
// come from the list of problems, which have nothing of a request, or from a policy; neither contains the token.
type statusReporter struct {
	client   client.Client
	recorder events.EventRecorder
	now      func() time.Time // by the API server's clock, as replicas compare their times
	log      logr.Logger
	queue    chan report
	uses     chan report // apart, since every token is used first after an upgrade: rejections do not wait behind these

	mu          sync.Mutex
	reported    *cache.LRUExpireCache          // a *reportState by integration
	unavailable sets.Set[types.NamespacedName] // integrations with 5xx answers that are not reported yet
	signals     *signalReporter
}

type report struct {
	integration *v1alpha1.WebhookIntegration // from the cache, never modified
	rejection   *v1alpha1.Rejection
	failure     *v1alpha1.MappingFailure
	use         *v1alpha1.TokenUse
}

// reportState holds the last reports of an integration by this replica.
type reportState struct {
	rejected time.Time
	failed   time.Time
	failures int64 // since failed

	unavailable time.Time
	used        map[string]time.Time // by the hash of the token
}

func newReporter(c client.Client, recorder events.EventRecorder, log logr.Logger) *statusReporter {
	return &statusReporter{
		client:      c,
		recorder:    recorder,
		now:         time.Now,
		log:         log,
		queue:       make(chan report, maxReportQueue),
		uses:        make(chan report, maxReportQueue),
		reported:    cache.NewLRUExpireCache(maxReportMemory),
		unavailable: sets.New[types.NamespacedName](),
		signals:     newSignalReporter(c, c, log),
	}
}

// state returns the state of an integration. The caller holds the mutex.
func (r *statusReporter) state(key types.NamespacedName) *reportState {
	known, _ := r.reported.Get(key)
	if state, ok := known.(*reportState); ok {
		return state
	}
	state := &reportState{}
	r.reported.Add(key, state, reportMemory)
	return state
}

// reportRejection implements reporter. When too many reports wait, it drops this one.
func (r *statusReporter) reportRejection(integration *v1alpha1.WebhookIntegration, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, state, last := r.now(), r.state(client.ObjectKeyFromObject(integration)), integration.Status.LastRejection
	if now.Sub(state.rejected).Abs() < reportInterval || last != nil && now.Sub(last.Time.Time).Abs() < reportInterval {
		return
	}
	rejection := &v1alpha1.Rejection{Reason: reason, Message: message, Time: v1alpha1.NewTimestamp(now)}
	select {
	case r.queue <- report{integration: integration, rejection: rejection}:
		state.rejected = now
	default:
	}
}

// reportFailures implements reporter. It shows the most important failure, and how many occurred.
func (r *statusReporter) reportFailures(integration *v1alpha1.WebhookIntegration, failures []mapping.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, state := r.now(), r.state(client.ObjectKeyFromObject(integration))
	for _, failure := range failures {
		state.failures += int64(failure.Count)
	}
	last := integrations.CurrentMappingFailure(integration, now)
	if now.Sub(state.failed).Abs() < reportInterval || last != nil && now.Sub(last.Time.Time).Abs() < reportInterval {
		return
	}
	failure := &v1alpha1.MappingFailure{
		Field:              failures[0].Field,
		Expression:         payload.Shorten(failures[0].Expression, maxFailedExpression),
		Message:            failures[0].Message,
		Count:              state.failures,
		Time:               v1alpha1.NewTimestamp(now),
		ObservedGeneration: integration.Generation,
	}
	if last != nil {
		failure.Count += last.Count
	}
	select {
	case r.queue <- report{integration: integration, failure: failure}:
		state.failed, state.failures = now, 0
	default: // it is reported with the next failure
	}
}

// reportUnavailable implements reporter. A report is never dropped: it is tried until it is written.
func (r *statusReporter) reportUnavailable(integration types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now().Sub(r.state(integration).unavailable).Abs() >= unavailableInterval && len(r.unavailable) < maxReportMemory {
		r.unavailable.Insert(integration)
	}
}

// reportUse implements reporter. A use that the cache shows needs no lock. When too many reports wait, the next use is reported.
func (r *statusReporter) reportUse(integration *v1alpha1.WebhookIntegration, token *v1alpha1.Token) {
	now := r.now()
	for i := range integration.Status.Tokens {
		if use := &integration.Status.Tokens[i]; use.SHA256 == token.SHA256 && now.Sub(use.LastUsedTime.Time).Abs() < useInterval {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.state(client.ObjectKeyFromObject(integration))
	if now.Sub(state.used[token.SHA256]).Abs() < useInterval {
		return
	}
	select {
	case r.uses <- report{integration: integration, use: &v1alpha1.TokenUse{
		Name: token.Name, SHA256: token.SHA256, LastUsedTime: v1alpha1.NewTimestamp(now)}}:
		if len(state.used) >= listedTokens || state.used == nil { // tokens that are not listed any more
			state.used = map[string]time.Time{}
		}
		state.used[token.SHA256] = now
	default:
	}
}

func (r *statusReporter) run(ctx context.Context) {
	var signals sync.WaitGroup
	signals.Go(func() { r.signals.run(ctx) })
	defer signals.Wait()
	ticker := time.NewTicker(unavailablePause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			r.writeUnavailable(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
			r.writeUnavailable(ctx)
		case report := <-r.queue:
			r.logged(ctx, report, r.write(ctx, report))
		case report := <-r.uses:
			r.logged(ctx, report, r.writeUse(ctx, client.ObjectKeyFromObject(report.integration), report.use))
		}
	}
}

// reportSignals implements reporter.
func (r *statusReporter) reportSignals(integration *v1alpha1.WebhookIntegration, signals []signal) {
	r.signals.note(integration, signals)
}

func (r *statusReporter) logged(ctx context.Context, report report, err error) {
	if err != nil && ctx.Err() == nil {
		r.log.Error(err, "Could not report to an integration",
			"namespace", report.integration.Namespace, "integration", report.integration.Name)
	}
}

// writeUse writes the use of a token beside those of the other listed tokens. A patch replaces the whole list, so it carries the
// resourceVersion that the list was read with: of two replicas, the second one reads again.
func (r *statusReporter) writeUse(ctx context.Context, key types.NamespacedName, use *v1alpha1.TokenUse) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		integration := &v1alpha1.WebhookIntegration{}
		if err := r.client.Get(ctx, key, integration); err != nil {
			return err
		}
		known := append([]v1alpha1.TokenUse{*use}, integration.Status.Tokens...) // of two for one token, the first counts
		var uses []v1alpha1.TokenUse
		for _, listed := range integration.Spec.Tokens {
			isOfListed := func(u v1alpha1.TokenUse) bool { return u.Name == listed.Name && u.SHA256 == listed.SHA256 }
			if at := slices.IndexFunc(known, isOfListed); at >= 0 {
				uses = append(uses, known[at])
			}
		}
		return patchStatus(ctx, r.client, key, integration.ResourceVersion, map[string]any{"tokens": uses})
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the use of a token: %w", err)
	}
	return nil
}

// writeUnavailable reports 5xx answers, of at most maxUnavailableReports integrations, in turns of their namespaces. The time is
// that of the report: it is never before the answer, and no report replaces a later one.
func (r *statusReporter) writeUnavailable(ctx context.Context) {
	r.mu.Lock()
	due := fair.InTurns(r.unavailable.UnsortedList(), namespaceOf)
	r.mu.Unlock()
	var writes sync.WaitGroup // none waits for another tenant's, which may fail or hang each time
	for _, integration := range due[:min(len(due), maxUnavailableReports)] {
		writes.Go(func() {
			err := patchStatus(ctx, r.client, integration, "", map[string]any{"lastUnavailableTime": v1alpha1.NewTimestamp(r.now())})
			if client.IgnoreNotFound(err) != nil {
				r.log.V(1).Info("Could not report 5xx answers to an integration; trying again",
					"namespace", integration.Namespace, "integration", integration.Name, "reason", err.Error())
				return
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.unavailable.Delete(integration)
			r.state(integration).unavailable = r.now()
		})
	}
	writes.Wait()
}

// write patches one field of the status, and then makes the Kubernetes Event of a rejection. That of a failure is the
// leader's, when the condition changes.
func (r *statusReporter) write(ctx context.Context, report report) error {
	status := map[string]any{"lastRejection": report.rejection}
	if report.failure != nil {
		status = map[string]any{"lastMappingFailure": report.failure}
	}
	err := patchStatus(ctx, r.client, client.ObjectKeyFromObject(report.integration), "", status)
	if apierrors.IsNotFound(err) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	if report.rejection != nil {
		r.recorder.Eventf(report.integration, nil, corev1.EventTypeWarning, "Rejected", "Receive",
			"Refused a request (%s): %s", report.rejection.Reason, report.rejection.Message)
	}
	return nil
}

// patchStatus sets fields of an integration's status, unless it is not the version any more that is given.
func patchStatus(
	ctx context.Context, c client.Client, integration types.NamespacedName, version string, status map[string]any,
) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	fields := map[string]any{"status": status}
	if version != "" {
		fields["metadata"] = map[string]any{"resourceVersion": version}
	}
	patch, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	target := &v1alpha1.WebhookIntegration{}
	target.Namespace, target.Name = integration.Namespace, integration.Name
	return c.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
}
