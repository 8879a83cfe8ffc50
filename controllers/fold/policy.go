package fold

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// Limits of the fold.
const (
	// DefaultRetention is how long a Resolved Incident is kept when its integration does not say.
	DefaultRetention = 168 * time.Hour

	// defaultLateFiringWindow is how long after a resolve a firing may be a late duplicate, when neither the integration
	// nor its preset says: longer than the replicas of a sender wait for each other (Alertmanager: 15 s each), shorter
	// than any interval at which senders repeat.
	defaultLateFiringWindow = 30 * time.Second

	// MaxClockDifference is how far the clocks of a replica or a sender may differ from the API server's. A receivedTime that lies
	// further ahead of the creation is not believed.
	MaxClockDifference = time.Minute

	// maxStoreDelay is how long after its alerts were received an AlertEvent may be stored. An earlier receivedTime is not believed.
	// A write times out after seconds, but the API server may complete it minutes later.
	maxStoreDelay = 5 * time.Minute

	// maxClockLead is how far ahead of its receipt a startTime may lie. A local time taken for UTC is up to 14 hours ahead.
	maxClockLead = 24 * time.Hour

	// EmptyPatience is how long an Incident without a status is kept: its creator may be about to write it.
	EmptyPatience = 10 * time.Minute

	// minExpiry and maxExpiry bound how long an Incident stays open without a repetition of an alert whose sender says until
	// when it is valid. Prometheus' default is four minutes.
	minExpiry = time.Minute
	maxExpiry = 24 * time.Hour
)

// Policy is the part of an integration's spec that applies to its Incidents, and the state of ingest.
type Policy struct {
	AutoResolveAfter time.Duration // 0: never
	Retention        time.Duration

	LateFiringWindow time.Duration // 0: no firing is late
	Presets          Presets       // whose windows go first; nil: none has one that counts

	ObjectLabels   []string // names of the alert labels that become labels of the Incident object
	Absent         bool     // there is no such integration
	RetentionKnown bool     // it is absent, and Retention is the one that it had

	NotAccepting bool      // the integration accepts no alerts
	ReadySince   time.Time // it has accepted alerts since then, as far as its conditions tell

	Unavailable time.Time // when a replica last reported an answer of 5xx, by the API server's clock

	QuietFrom     time.Time // quiet is measured from then on at the earliest: from now while the time is not certain
	Uncertain     bool      // the time is not certain: no time of the future is corrected
	AcceptingFrom time.Time // as QuietFrom, for expiries: their senders can renew them from then on

	ForwardAfter                *v1alpha1.ForwardAfter   // nil: nothing is held back
	Flapping                    *v1alpha1.FlappingPolicy // nil: the defaults
	AcknowledgementExpiresAfter time.Duration            // 0: never

	KeptTypes []string // types of alerts that an Incident keeps without its content, also if its integration is gone

	Sender Sender
	Muting Muting // of its Incidents, by one feature; nil: nothing mutes them
	Rules  []Rule // of other packages
	Stub   bool   // Muting is not known: what is muted stays so; and nothing ends for its age
}

// Presets knows the presets that read payloads.
type Presets interface {
	// LateFiringWindow returns the window for late firings of a preset. It is not ok if the preset has none of its own.
	LateFiringWindow(preset string) (window time.Duration, ok bool)
}

// Sender is what features know of an integration's sender.
type Sender struct {
	Missing     bool      // it may be dead, its job may have failed, or nobody can tell: no Incident ends for want of alerts
	PresentFrom time.Time // unless it is missing, its quiet counts from then on; zero: from any time
	Keys        []string  // dedup keys of Incidents that are about the sender, and end when it is there again
}

// PolicyOf returns the policy of an integration, without what features add; nil stands for one that does not exist. The presets
// may be nil if the window for late firings does not matter.
func PolicyOf(integration *v1alpha1.WebhookIntegration, presets Presets) Policy {
	p := Policy{Retention: DefaultRetention, LateFiringWindow: defaultLateFiringWindow, Presets: presets, Absent: true}
	if integration == nil {
		return p
	}
	spec := &integration.Spec
	p = Policy{
		AutoResolveAfter: durationOr(spec.AutoResolveAfter, 0),
		Retention:        RetentionOf(integration),
		LateFiringWindow: durationOr(spec.LateFiringWindow, p.lateWindow(spec.Preset)),
		ObjectLabels:     spec.ObjectLabels,
		NotAccepting:     true, // also one that is new or restored: alerts may have been rejected until now
		Stub:             !integrations.IsWhole(integration),
		Unavailable:      valueOf(integration.Status.LastUnavailableTime).Time,
		Flapping:         spec.Flapping,

		AcknowledgementExpiresAfter: durationOr(spec.AcknowledgementExpiresAfter, 0),
	}
	if spec.Forward != v1alpha1.ForwardNever {
		p.ForwardAfter = spec.ForwardAfter
	}
	if spec.LateFiringWindow == nil {
		p.Presets = presets
	}
	ready := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionTrue {
		p.NotAccepting = spec.Suspend || p.Stub || !integration.DeletionTimestamp.IsZero()
		p.ReadySince = ready.LastTransitionTime.Time
	}
	return p
}

// lateWindow returns how long after a resolve a firing alert may be a late duplicate that the preset has read.
func (p *Policy) lateWindow(preset string) time.Duration {
	if p.Presets != nil {
		if window, ok := p.Presets.LateFiringWindow(preset); ok {
			return window
		}
	}
	return p.LateFiringWindow
}

// RetentionOf returns how long Resolved Incidents of an integration are kept.
func RetentionOf(integration *v1alpha1.WebhookIntegration) time.Duration {
	return durationOr(integration.Spec.Retention, DefaultRetention)
}

// IsMoreSevere reports whether a severity is above another one. An unknown one is above all.
func IsMoreSevere(a, b v1alpha1.Severity) bool {
	severities := v1alpha1.Severities()
	return slices.Index(severities, a) < slices.Index(severities, b)
}

// Rule is a rule of another package, made for one Incident with all that it goes by: it does no I/O, and reads no clock.
type Rule interface {
	// TakeReport returns the result of a report; empty for all other alerts, which are merged. entry is for the timeline, without a
	// type; its message says by whom, after a space.
	TakeReport(p *Plan, a *v1alpha1.Alert, entry v1alpha1.Transition) (result string)

	Reset(status *v1alpha1.IncidentStatus) // an episode is about to open, or has ended
	Finish(in *Input, p *Plan)             // the others are as in rule
	Due(status *v1alpha1.IncidentStatus) time.Time
	Bare(status *v1alpha1.IncidentStatus)
}

// addedRule has a rule of another package called.
type addedRule struct {
	noRule
	Rule
}

func (r addedRule) opens(f *folding)                                                { r.Reset(f.status) }
func (r addedRule) ends(f *folding)                                                 { r.Reset(f.status) }
func (r addedRule) finish(f *folding, _ stateBefore)                                { r.Finish(&f.in, &f.plan) }
func (r addedRule) due(status *v1alpha1.IncidentStatus, _ *Policy) time.Time        { return r.Due(status) }
func (r addedRule) bare(status, _ *v1alpha1.IncidentStatus, _ *Policy, _ time.Time) { r.Bare(status) }

func (r addedRule) takeReport(f *folding, a receivedAlert) string {
	return r.TakeReport(&f.plan, a.Alert, a.transition("", ""))
}

// allRules returns the rules, and those of other packages after that of acknowledgements: before that of the forwarding, which
// reads the condition Silenced.
func (p *Policy) allRules() []rule {
	all := slices.Clone(rules[:])
	for _, r := range slices.Backward(p.Rules) {
		all = slices.Insert(all, 1, rule(addedRule{Rule: r}))
	}
	return all
}
