package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/silences"
)

// silencer keeps the silences of Tocsin in the Alertmanagers of an endpoint, and reads which silences match Incidents.
// Alertmanagers of one endpoint share their silences, so one that answers is enough.
type silencer struct {
	term    *term
	name    string // of the endpoint
	posters *group[*poster]

	mu       sync.Mutex
	silenced map[types.NamespacedName]v1alpha1.Silence // the silence that matches an Incident for the longest; nil: not read yet
	ended    map[types.NamespacedName]time.Time        // the endTime of requests whose silence somebody has ended
}

// run reconciles the silences until ctx ends.
func (s *silencer) run(ctx context.Context) {
	synced := silencesSynced.WithLabelValues(s.name)
	synced.SetToCurrentTime()
	defer silencesSynced.DeleteLabelValues(s.name)
	failing := false
	sleep(ctx, silenceInterval, nil) // until there are posters
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := alertmanager.ErrNoClient
		for _, poster := range s.posters.all() {
			params, ok := poster.requestParams()
			if !ok || params.client == nil || ctx.Err() != nil {
				continue
			}
			var answers bool
			if answers, err = s.reconcile(ctx, params); answers {
				break
			}
		}
		if err == nil {
			synced.SetToCurrentTime()
		} else if !failing && ctx.Err() == nil {
			s.term.forwarder.log.Error(err, "Silences cannot be read or written", "alertmanager", s.name)
		}
		failing = err != nil
	}, silenceInterval)
}

// reconcile compares the silences in one Alertmanager with those that are wanted, and changes them. It reports whether that
// answers.
func (s *silencer) reconcile(ctx context.Context, params requestParams) (answers bool, err error) {
	installation, err := s.term.forwarder.installation.ID(ctx)
	if err != nil {
		return false, fmt.Errorf("reading the identity of this installation: %w", err)
	}
	plan := silences.NewPlan(&params.target.Target, installation, params.now, params.ahead)
	matching := silences.NewMatching(params.target.ExternalURL, installation)
	inStatus, unread := s.want(ctx, plan)
	unmatched := s.readSilenced(ctx, params, matching)
	if err := params.client.Silences(ctx, func(silence *silences.Silence) {
		plan.Compare(silence)
		matching.AddSilence(silence)
	}); alertmanager.IsTocsins(err) {
		return true, unread
	} else if err != nil {
		return false, errors.Join(unread, unmatched, err)
	}
	if unmatched == nil {
		s.setSilenced(matching.Longest, plan.EndedRequests(), inStatus)
	}
	return true, errors.Join(unread, unmatched, s.change(ctx, params.client, plan.Calls()))
}

// want adds the silences that Tocsin wants to a plan, and returns the Incidents that have one by their status.
func (s *silencer) want(ctx context.Context, plan *silences.Plan) (inStatus []types.NamespacedName, first error) {
	for _, key := range s.term.incidents.silenced() {
		incident, integration, err := s.term.incidents.read(ctx, key)
		if err != nil {
			plan.Leave(key)
			first = cmp.Or(first, fmt.Errorf("reading the Incident %s: %w", key, err))
		}
		if incident == nil {
			continue
		}
		plan.Want(incident, integration)
		if silences.InStatus(&incident.Status) {
			inStatus = append(inStatus, key)
		}
	}
	return inStatus, first
}

// readSilenced reads which silences match the alerts of Incidents. Those that Tocsin does not have are none of its own.
func (s *silencer) readSilenced(ctx context.Context, params requestParams, matching *silences.Matching) error {
	since := params.now.Add(-params.target.EndedWindow())
	return params.client.SilencedAlerts(ctx, params.target.ExternalLabels, func(labels map[string]string, silencedBy []string) {
		key, _ := alerts.IncidentOf(labels)
		if known, _, ok := s.term.incidents.get(key); ok && !known.isOver(since) {
			matching.AddAlert(key, silencedBy)
		}
	})
}

// change makes as many calls as may be made at a time. A call that fails does not keep the others from being made, unless nothing
// succeeds any more. It returns the first error.
func (s *silencer) change(ctx context.Context, client *alertmanager.Client, calls []silences.Call) (first error) {
	failures := 0
	for i := range calls[:min(len(calls), silences.MaxCalls)] {
		if _, ok := s.term.clock(); !ok { // another leader may want others
			return cmp.Or(first, errNoClock)
		}
		call := &calls[i]
		if err := client.ChangeSilence(ctx, call); err != nil {
			first = cmp.Or(first, fmt.Errorf("a silence of the namespace %s: %w", call.Incident.Namespace, err))
			if failures++; failures >= maxSilenceFailures {
				break
			}
			continue
		}
		failures = 0
		if call.Expire != "" { // Alertmanager has to receive the end of an alert again that ended under the silence
			s.term.enqueue(call.Incident, time.Time{})
		}
	}
	return first
}

// setSilenced sets which silences match Incidents and which requests have ended, and has each Incident folded of which that is
// news. The first time, everything is.
func (s *silencer) setSilenced(
	silenced map[types.NamespacedName]v1alpha1.Silence, ended map[types.NamespacedName]time.Time, inStatus []types.NamespacedName,
) {
	s.mu.Lock()
	before, endedBefore := s.silenced, s.ended
	s.silenced, s.ended = silenced, ended
	s.mu.Unlock()
	for key := range sets.KeySet(before).Union(sets.KeySet(silenced)).Insert(inStatus...) {
		if before == nil || before[key] != silenced[key] || !endedBefore[key].Equal(ended[key]) {
			s.term.forwarder.refold(key)
		}
	}
}

// RuleFor implements incident.RuleSource. Nothing is known before the silences were read in this term, nor of an Incident that is
// not forwarded.
func (f *Forwarder) RuleFor(incident types.NamespacedName) fold.Rule {
	rule := silences.Rule{Disabled: f == nil}
	if rule.Disabled {
		return rule
	}
	if t := f.term.Load(); t != nil {
		for _, e := range t.endpoints.all() {
			e.silencer.describe(incident, &rule)
		}
	}
	return rule
}

// describe adds what the silencer knows about an Incident.
func (s *silencer) describe(incident types.NamespacedName, rule *silences.Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rule.Read = rule.Read || s.silenced != nil
	if silence, ok := s.silenced[incident]; ok && (rule.Covering == nil || silence.EndTime.After(rule.Covering.EndTime.Time)) {
		rule.Covering = &silence
	}
	if ended := s.ended[incident]; ended.After(rule.Ended) {
		rule.Ended, rule.EndedIn = ended, s.name
	}
}
