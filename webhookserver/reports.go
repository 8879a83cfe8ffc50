package webhookserver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// statusReporter shows rejected requests and failed expressions in the status of their integration, each at most once a minute,
// and rejections as a Kubernetes Event as well. Every replica reports its own requests; through the status in the cache they
// share the minute. It also reports the uses of tokens, and 5xx answers: the leader measures no quiet meanwhile. What a
// feature reports is written to the status of its object. The messages come from the list of problems, which have nothing of a
// request, or from a policy; neither contains the token.
//
// Several objects are written at a time, each by one patch for everything that is due. Namespaces take turns, so one whose status
// cannot be written, or with very many integrations, delays another by one write at most.
type statusReporter struct {
	client   client.Client
	live     client.Reader // of the API server, not of a cache
	recorder events.EventRecorder
	health   Health
	log      logr.Logger

	mu        sync.Mutex
	reported  *cache.LRUExpireCache              // a *reportState by integration
	postponed map[types.NamespacedName]rejection // rejections within the minute after one that is shown
	pending   map[reportKey]*pendingReports
	rests     map[reportKey]time.Time // until when what was written rests, of the last reportPause
	turns     fair.Turns[reportKey]
	changed   *sync.Cond  // when something is due
	ending    atomic.Bool // everything is to be written; changes with the mutex only, and write reads it without
}

// rejection is a Rejection with its integration, for the Kubernetes Event.
type rejection struct {
	v1alpha1.Rejection
	of *v1alpha1.WebhookIntegration
}

// losesNone is the reason of a rejection with which no alert is lost.
var losesNone = problemMethod.Reason

// reportState holds the last reports of an integration by this replica.
type reportState struct {
	rejected time.Time // when one was shown
	asked    time.Time // when a handshake was shown
	lost     time.Time // of the newest rejection shown with which alerts are lost
	failed   time.Time
	failures int64 // since failed

	unavailable time.Time
	used        map[string]time.Time // by the hash of the token
}

func newReporter(c client.Client, recorder events.EventRecorder, log logr.Logger) *statusReporter {
	r := &statusReporter{
		client:    c,
		live:      c,
		recorder:  recorder,
		health:    unobserved{clock.RealClock{}},
		log:       log,
		reported:  cache.NewLRUExpireCache(maxReportMemory),
		postponed: map[types.NamespacedName]rejection{},
		pending:   map[reportKey]*pendingReports{},
		rests:     map[reportKey]time.Time{},
		turns:     fair.NewTurns[reportKey](reportWriters),
	}
	r.turns.PerKey = reportShare
	r.changed = sync.NewCond(&r.mu)
	return r
}

// now returns the time by the API server's clock: replicas compare their times.
func (r *statusReporter) now() time.Time { return r.health.APITime() }

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

// reportRejection shows a rejection. Within a minute of the last one, the newest rejection waits for its end, but one with
// which alerts are lost is not replaced by one with which none is. Nor is one that is shown, for an hour.
func (r *statusReporter) reportRejection(integration *v1alpha1.WebhookIntegration, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, now := client.ObjectKeyFromObject(integration), r.now()
	rejected := rejection{v1alpha1.Rejection{Reason: reason, Message: message, Time: v1alpha1.NewTimestamp(now)}, integration}
	state := r.state(key)
	if reason == losesNone {
		if next, waits := r.postponed[key]; waits && next.Reason != losesNone || now.Sub(state.lost).Abs() < lossShown {
			return
		}
		if shown := integration.Status.LastRejection; shown != nil && shown.Reason != losesNone &&
			now.Sub(shown.Time.Time).Abs() < lossShown {
			return
		}
	}
	if r.mayReject(state, integration, now) {
		r.noteRejection(key, rejected)
	} else if _, waits := r.postponed[key]; waits || len(r.postponed) < maxReportMemory {
		r.postponed[key] = rejected
	}
}

// mayReject reports whether the last rejection of an integration was shown a minute ago.
func (r *statusReporter) mayReject(state *reportState, integration *v1alpha1.WebhookIntegration, now time.Time) bool {
	shown := integration.Status.LastRejection
	return now.Sub(state.rejected).Abs() >= reportInterval &&
		(shown == nil || now.Sub(shown.Time.Time).Abs() >= reportInterval)
}

// noteRejection has a rejection be shown. The caller holds the mutex.
func (r *statusReporter) noteRejection(key types.NamespacedName, rejected rejection) {
	state := r.state(key)
	state.rejected = r.now()
	if rejected.Reason != losesNone {
		state.lost = rejected.Time.Time
	}
	delete(r.postponed, key)
	r.noteField(key, "lastRejection", &rejected)
}

// noteNext has the rejections be shown whose minute has passed, or all. The caller holds the mutex.
func (r *statusReporter) noteNext(all bool) {
	now := r.now()
	for key, rejected := range r.postponed {
		if all || r.mayReject(r.state(key), rejected.of, now) {
			r.noteRejection(key, rejected)
		}
	}
}

func (r *statusReporter) reportHandshake(integration *v1alpha1.WebhookIntegration, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, now := client.ObjectKeyFromObject(integration), r.now()
	state, shown := r.state(key), integration.Status.LastHandshake
	if now.Sub(state.asked).Abs() < reportInterval || shown != nil && now.Sub(shown.Time.Time).Abs() < reportInterval {
		return
	}
	state.asked = now
	r.noteField(key, "lastHandshake", &v1alpha1.Handshake{Message: message, Time: v1alpha1.NewTimestamp(now)})
}

// reportFailures shows the most important failure, and how many occurred.
func (r *statusReporter) reportFailures(integration *v1alpha1.WebhookIntegration, failures []mapping.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, now := client.ObjectKeyFromObject(integration), r.now()
	state := r.state(key)
	for _, failure := range failures {
		state.failures += int64(failure.Count)
	}
	last := integrations.CurrentMappingFailure(integration, now)
	if now.Sub(state.failed).Abs() < reportInterval || last != nil && now.Sub(last.Time.Time).Abs() < reportInterval {
		return
	}
	failure := &v1alpha1.MappingFailure{
		Field:              failures[0].Field,
		Expression:         plaintext.Shorten(failures[0].Expression, maxFailedExpression),
		Message:            failures[0].Message,
		Count:              state.failures,
		Time:               v1alpha1.NewTimestamp(now),
		ObservedGeneration: integration.Generation,
	}
	if last != nil {
		failure.Count += last.Count
	}
	state.failed, state.failures = now, 0
	r.noteField(key, "lastMappingFailure", failure)
}

func (r *statusReporter) reportUnavailable(integration types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if now.Sub(r.state(integration).unavailable).Abs() < unavailableInterval {
		return
	}
	r.note(reportKey{NamespacedName: integration}, func(p *pendingReports) time.Time {
		p.unavailable++
		return now
	})
}

// reportUse reports the use of a token. One that the cache shows needs no lock.
func (r *statusReporter) reportUse(integration *v1alpha1.WebhookIntegration, token *v1alpha1.Token) {
	now := r.now()
	for i := range integration.Status.Tokens {
		if use := &integration.Status.Tokens[i]; use.SHA256 == token.SHA256 && now.Sub(use.LastUsedTime.Time).Abs() < useInterval {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(integration)
	state := r.state(key)
	if now.Sub(state.used[token.SHA256]).Abs() < useInterval {
		return
	}
	if len(state.used) >= maxTokens || state.used == nil { // tokens that are not listed any more
		state.used = map[string]time.Time{}
	}
	state.used[token.SHA256] = now
	r.note(reportKey{NamespacedName: key}, func(p *pendingReports) time.Time {
		if p.uses == nil {
			p.uses = map[string]v1alpha1.TokenUse{}
		}
		p.uses[token.SHA256] = v1alpha1.TokenUse{
			Name: token.Name, SHA256: token.SHA256, LastUsedTime: v1alpha1.NewTimestamp(now)}
		return now
	})
}

func (r *statusReporter) addReport(report feature.Report) { r.noteReport(report) }

func (r *statusReporter) writeReport(ctx context.Context, report feature.Report) error {
	written := make(chan error, 1)
	r.noteReport(report, written)
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
