package forward

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// matcher and silence are those of Alertmanager's API v2.
type matcher struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	IsRegex bool   `json:"isRegex"`
	IsEqual *bool  `json:"isEqual,omitempty"` // absent: true
}

type silence struct {
	ID        string    `json:"id,omitempty"`
	Matchers  []matcher `json:"matchers"`
	StartsAt  time.Time `json:"startsAt"`
	EndsAt    time.Time `json:"endsAt"`
	CreatedBy string    `json:"createdBy"`
	Comment   string    `json:"comment"`
	Status    *struct {
		State string `json:"state"`
	} `json:"status,omitempty"`
}

// silencedAlert is an alert that silences cover.
type silencedAlert struct {
	Labels map[string]string `json:"labels"`
	Status struct {
		SilencedBy []string `json:"silencedBy"`
	} `json:"status"`
}

// Kinds of silences that Tocsin creates. The comment ends with a marker of kind and Incident, by which a new leader finds
// them again.
const (
	kindAcknowledged = "acknowledged"
	kindRequested    = "requested"
)

func marker(kind string, key incidentKey) string {
	return fmt.Sprintf("[tocsin %s %s/%s]", kind, key.namespace, key.name)
}

// silencesOf returns the silences that an Incident is to have, by their markers.
func silencesOf(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, t *target, now time.Time,
) map[string]silence {
	if integration == nil || !t.forwards(incident, integration) {
		return nil
	}
	key, wanted := keyOf(incident), map[string]silence{}
	add := func(kind, by, comment string, until time.Time) {
		mark := marker(kind, key)
		if by == "" {
			by = "tocsin"
		}
		if comment != "" {
			comment += " "
		}
		wanted[mark] = silence{
			Matchers: matchersOf(key, t.config), StartsAt: now.UTC(), EndsAt: until.UTC(), CreatedBy: by, Comment: comment + mark,
		}
	}
	if request := incident.Status.Silence; request != nil && request.Until.After(now) {
		add(kindRequested, v1alpha1.ShortMessage(request.By), v1alpha1.ShortMessage(request.Comment), request.Until.Time)
	}
	if t.config.SilenceAcknowledged && fold.StaysAcknowledged(&incident.Status) {
		comment := incident.Status.Acknowledgement.Comment
		add(kindAcknowledged, fold.AcknowledgedBy(&incident.Status), comment, now.Add(acknowledgedSilence))
	}
	return wanted
}

// matchersOf returns the matchers of an Incident's silences, which cover its alerts whatever their severity.
func matchersOf(key incidentKey, config *Config) []matcher {
	matchers := []matcher{{Name: labelNamespace, Value: key.namespace}, {Name: labelIncident, Value: key.name}}
	for _, name := range slices.Sorted(maps.Keys(config.ExternalLabels)) {
		matchers = append(matchers, matcher{Name: name, Value: config.ExternalLabels[name]})
	}
	return matchers
}

// hasMatchers reports whether a silence has exactly these matchers, in any order.
func (s *silence) hasMatchers(wanted []matcher) bool {
	return len(s.Matchers) == len(wanted) && !slices.ContainsFunc(s.Matchers, func(m matcher) bool {
		return m.IsRegex || m.IsEqual != nil && !*m.IsEqual || !slices.Contains(wanted, matcher{Name: m.Name, Value: m.Value})
	})
}

// mark returns the marker of a silence that Tocsin created, and its Incident.
func (s *silence) mark() (mark string, kind string, key incidentKey, ok bool) {
	at := strings.LastIndex(s.Comment, "[tocsin ")
	if at < 0 || !strings.HasSuffix(s.Comment, "]") {
		return "", "", incidentKey{}, false
	}
	mark = s.Comment[at:]
	kind, rest, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(mark, "[tocsin "), "]"), " ")
	key.namespace, key.name, _ = strings.Cut(rest, "/")
	return mark, kind, key, ok && mark == marker(kind, key)
}

func (s *silence) isOver() bool { return s.Status != nil && s.Status.State == "expired" }

// silencePlan is what to do about silences.
type silencePlan struct {
	set    []silence // to create or, with an ID, to update
	expire []string  // IDs
}

// planSilences compares the silences that exist with those that are wanted, by marker. It leaves alone those of others and
// those of another cluster, which have other matchers.
func planSilences(existing []silence, wanted map[string]silence, config *Config, now time.Time) silencePlan {
	var plan silencePlan
	found := map[string]bool{}
	for i := range existing {
		s := &existing[i]
		mark, kind, key, ok := s.mark()
		if !ok || s.isOver() || !s.hasMatchers(matchersOf(key, config)) {
			continue
		}
		want, needed := wanted[mark]
		if !needed || found[mark] {
			plan.expire = append(plan.expire, s.ID)
			continue
		}
		found[mark] = true
		outdated := s.EndsAt.Sub(want.EndsAt).Abs() > time.Second // Alertmanager keeps milliseconds
		if kind == kindAcknowledged {
			outdated = s.EndsAt.Sub(now) < acknowledgedSilence/2
		}
		if outdated || s.Comment != want.Comment || s.CreatedBy != want.CreatedBy {
			want.ID, want.StartsAt = s.ID, s.StartsAt
			plan.set = append(plan.set, want)
		}
	}
	for _, mark := range slices.Sorted(maps.Keys(wanted)) {
		if !found[mark] {
			plan.set = append(plan.set, wanted[mark])
		}
	}
	return plan
}

// covering returns the silence that covers each Incident for the longest time, except those for acknowledgements: the
// condition Acknowledged tells of these.
func covering(alerts []silencedAlert, silences []silence) map[incidentKey]fold.Silence {
	byID := make(map[string]*silence, len(silences))
	for i := range silences {
		byID[silences[i].ID] = &silences[i]
	}
	covered := map[incidentKey]fold.Silence{}
	for _, a := range alerts {
		key := incidentKey{a.Labels[labelNamespace], a.Labels[labelIncident]}
		for _, id := range a.Status.SilencedBy {
			s := byID[id]
			if s == nil {
				continue
			}
			mark, kind, _, own := s.mark()
			if own && kind == kindAcknowledged {
				continue
			}
			if s.EndsAt.After(covered[key].Until) {
				comment := s.Comment
				if own {
					comment = strings.TrimSpace(strings.TrimSuffix(comment, mark))
				}
				covered[key] = fold.Silence{By: s.CreatedBy, Comment: comment, Until: s.EndsAt.Truncate(time.Second).UTC()}
			}
		}
	}
	return covered
}
