package forward

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

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

// Kinds of silences that Tocsin creates. The comment ends with a marker of kind, Incident and installation, by which a new leader
// finds them again, and which tells them from those of another Tocsin that shares the Alertmanager.
const (
	kindAcknowledged = "acknowledged"
	kindRequested    = "requested"
)

func marker(kind string, key incidentKey, installation string) string {
	return fmt.Sprintf("[tocsin %s %s/%s %s]", kind, key.namespace, key.name, installation)
}

// silencesOf returns the silences that an Incident is to have, by their markers.
func silencesOf(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, t *target, installation string, now time.Time,
) map[string]silence {
	if integration == nil || !t.forwards(incident, integration) {
		return nil
	}
	key, wanted := keyOf(incident), map[string]silence{}
	add := func(kind, by, comment string, until time.Time) {
		mark := marker(kind, key, installation)
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
	if t.config.SilenceAcknowledged && staysAcknowledged(incident) {
		by, comment := fold.Acknowledgement(&incident.Status)
		add(kindAcknowledged, by, comment, now.Add(acknowledgedSilence))
	}
	return wanted
}

// staysAcknowledged reports whether an Incident is open, acknowledged, and not more severe than it was then.
func staysAcknowledged(incident *v1alpha1.Incident) bool {
	status := &incident.Status
	acknowledged := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAcknowledged)
	if status.State != v1alpha1.IncidentOpen || fold.AcknowledgedBy(status) == "" {
		return false
	}
	then := status.Alert.Severity
	for _, period := range fold.SeverityPeriods(status.Timeline) {
		// The condition has whole seconds.
		if !period.From.Truncate(time.Second).After(acknowledged.LastTransitionTime.Time) {
			then = period.Severity
		}
	}
	severities := v1alpha1.Severities()
	return slices.Index(severities, status.Alert.Severity) >= slices.Index(severities, then)
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

// mark is what a marker says.
type mark struct {
	kind         string
	key          incidentKey
	installation string
}

// mark returns the marker of a silence that a Tocsin created.
func (s *silence) mark() (text string, m mark, ok bool) {
	at := strings.LastIndex(s.Comment, "[tocsin ")
	if at < 0 {
		return "", mark{}, false
	}
	text = s.Comment[at:]
	const parts = 4
	words := strings.Split(strings.TrimSuffix(text, "]"), " ")
	if len(words) != parts {
		return "", mark{}, false
	}
	m.kind, m.installation = words[1], words[3]
	m.key.namespace, m.key.name, _ = strings.Cut(words[2], "/")
	return text, m, text == marker(m.kind, m.key, m.installation)
}

func (s *silence) isOver() bool { return s.Status != nil && s.Status.State == "expired" }

// silencePlan is what to do about silences.
type silencePlan struct {
	set    []silence // to create or, with an ID, to update
	expire []string  // IDs
}

// planSilences compares the silences that exist with those that are wanted, by marker. It leaves alone those of others,
// those of another installation, and such as have other matchers.
func planSilences(existing []silence, wanted map[string]silence, t *target, installation string, now time.Time) silencePlan {
	var plan silencePlan
	found := map[string]bool{}
	for i := range existing {
		s := &existing[i]
		mark, m, ok := s.mark()
		if !ok || m.installation != installation || s.isOver() || !s.hasMatchers(matchersOf(m.key, t.config)) {
			continue
		}
		want, needed := wanted[mark]
		if !needed || found[mark] {
			plan.expire = append(plan.expire, s.ID)
			continue
		}
		found[mark] = true
		outdated := s.EndsAt.Sub(want.EndsAt).Abs() > time.Second // Alertmanager keeps milliseconds
		if m.kind == kindAcknowledged {
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
			mark, m, own := s.mark()
			if own && m.kind == kindAcknowledged {
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
