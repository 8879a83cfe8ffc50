package webhookserver

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// failing is an integration whose mapping fails.
type failing struct {
	reported time.Time // the last report by this replica
	counted  int64     // failures since then
}

// reportFailures implements reporter: it shows the failure that matters most, and how many there were, in
// status.lastMappingFailure, at most once a minute.
func (r *rejectionReporter) reportFailures(integration *v1alpha1.WebhookIntegration, failures []mapping.Failure) {
	now := r.now()
	key := types.NamespacedName{Namespace: integration.Namespace, Name: integration.Name}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.failing[key]
	if f == nil {
		if len(r.failing) >= maxRejectionMemory {
			r.forgetFailing(now)
		}
		if len(r.failing) >= maxRejectionMemory {
			return
		}
		f = &failing{}
		r.failing[key] = f
	}
	for _, failure := range failures {
		f.counted += int64(failure.Count)
	}
	last := integration.CurrentMappingFailure(now)
	if now.Sub(f.reported) < rejectionInterval || last != nil && now.Sub(last.Time.Time) < rejectionInterval {
		return
	}
	report := &v1alpha1.MappingFailure{
		Field:              failures[0].Field,
		Expression:         shorten(failures[0].Expression, maxFailedExpression),
		Message:            failures[0].Message,
		Count:              f.counted,
		Time:               v1alpha1.NewTimestamp(now),
		ObservedGeneration: integration.Generation,
	}
	if last != nil {
		report.Count += last.Count
	}
	select {
	case r.queue <- rejection{integration: integration, failure: report}:
		f.reported, f.counted = now, 0
	default: // it is reported with the next failure
	}
}

// forgetFailing forgets the integrations whose failures have been reported, a minute ago or more.
func (r *rejectionReporter) forgetFailing(now time.Time) {
	for key, f := range r.failing {
		if now.Sub(f.reported) >= rejectionInterval {
			delete(r.failing, key)
		}
	}
}

// shorten is the beginning of a text, of so many characters at most.
func shorten(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}
