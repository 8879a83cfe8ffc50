// Package silences decides which silences Alertmanager is to have for Incidents, and which of those that it has match them. It is
// pure: no client, no context, no clock.
//
//  1. Plan.Want adds the silences that an Incident is to have: the requested one, and that of its acknowledgement.
//  2. Plan.Compare compares a silence that exists with them.
//  3. Plan.Calls returns the calls that make up the difference, in turns by namespace.
//
// Rule records in the status of an Incident what its users request, and what Matching finds in Alertmanager.
//
// Nothing of the plan is stored: a marker in the comment of each silence names the Incident and the request for which it is.
package silences

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

// Matcher and Silence are those of Alertmanager's API v2.
type Matcher struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	IsRegex bool   `json:"isRegex"`
	IsEqual *bool  `json:"isEqual,omitempty"` // absent: true
}

// Silence is a silence of Alertmanager's API v2, to read and to post.
type Silence struct {
	ID        string    `json:"id,omitempty"`
	Matchers  []Matcher `json:"matchers"`
	StartsAt  time.Time `json:"startsAt"`
	EndsAt    time.Time `json:"endsAt"`
	CreatedBy string    `json:"createdBy"`
	Comment   string    `json:"comment"`
	Status    *Status   `json:"status,omitempty"` // absent when it is posted
}

// Status is the status of a silence.
type Status struct {
	State string `json:"state"`
}

// IsOver reports whether the silence has ended.
func (s *Silence) IsOver() bool { return s.Status != nil && s.Status.State == "expired" }

// hasMatchers reports whether a silence has exactly these matchers, in any order.
func (s *Silence) hasMatchers(wanted []Matcher) bool {
	return len(s.Matchers) == len(wanted) && !slices.ContainsFunc(s.Matchers, func(m Matcher) bool {
		return m.IsRegex || m.IsEqual != nil && !*m.IsEqual || !slices.Contains(wanted, Matcher{Name: m.Name, Value: m.Value})
	})
}

// matchersOf returns the matchers of an Incident's silences, which match its alerts whatever their severity.
func matchersOf(key types.NamespacedName, settings *alerts.Settings) []Matcher {
	matchers := []Matcher{{Name: alerts.LabelNamespace, Value: key.Namespace}, {Name: alerts.LabelIncident, Value: key.Name}}
	for _, name := range slices.Sorted(maps.Keys(settings.ExternalLabels)) {
		matchers = append(matchers, Matcher{Name: name, Value: settings.ExternalLabels[name]})
	}
	return matchers
}

// Kinds of silences that Tocsin creates. The comment ends with a marker of kind, Incident and installation. A new leader finds
// them by it, and leaves alone those of another Tocsin that shares the Alertmanager.
const (
	kindAcknowledged = "acknowledged"
	kindRequested    = "requested"
)

type marker struct {
	kind         string
	key          types.NamespacedName
	installation string
}

func (m marker) String() string { return m.of("") }

// of returns the marker of the silence for one request: those for earlier requests have others.
func (m marker) of(request string) string {
	return fmt.Sprintf("[tocsin %s %s/%s %s]", m.kind, m.key.Namespace, m.key.Name, strings.TrimSpace(request+" "+m.installation))
}

// markerOf returns the marker at the end of a comment, and what precedes it; not ok if Tocsin did not write the comment.
func markerOf(comment string) (m marker, before string, ok bool) {
	at := max(0, strings.LastIndexByte(comment, '['))
	const parts, withRequest = 4, 5
	words := strings.Split(strings.TrimSuffix(comment[at:], "]"), " ")
	request := ""
	switch len(words) {
	case parts:
	case withRequest:
		request = words[3]
	default:
		return marker{}, "", false
	}
	m = marker{kind: words[1], installation: words[len(words)-1]}
	m.key.Namespace, m.key.Name, _ = strings.Cut(words[2], "/")
	return m, strings.TrimSpace(comment[:at]), comment[at:] == m.of(request)
}

// Concern reports whether an Incident may want a silence, or has a condition about one.
func Concern(status *v1alpha1.IncidentStatus) bool {
	acknowledged := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAcknowledged)
	return status.State == v1alpha1.IncidentOpen && acknowledged || InStatus(status)
}

// InStatus reports whether a silence was requested for an Incident or found, and is not known to be over. Where one is over, a
// new one is found by the alerts that it matches.
func InStatus(status *v1alpha1.IncidentStatus) bool {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSilenced)
	return status.Silence != nil || condition != nil && condition.Reason != v1alpha1.ReasonNotSilenced
}
