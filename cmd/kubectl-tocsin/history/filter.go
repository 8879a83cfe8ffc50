package history

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

// Filter selects episodes. An empty field selects all.
type Filter struct {
	Namespace    string
	Integrations []string
	// Severities selects by the highest severity of the episode.
	Severities []string
	Hosts      []string
	// Labels select by the labels of the alert; all must match.
	Labels []fields.Selector
	// Words must all be contained in the title or another field that the user sees, regardless of case.
	Words          []string
	Unacknowledged bool
}

// NeedsContent reports whether the filter looks at fields that a record without content does not have.
func (f *Filter) NeedsContent() bool { return len(f.Hosts)+len(f.Labels)+len(f.Words) > 0 }

// Matches reports whether the filter selects an episode.
func (f *Filter) Matches(r *records.Record) bool {
	in := func(values []string, value string) bool { return len(values) == 0 || slices.Contains(values, value) }
	return (f.Namespace == "" || f.Namespace == r.Namespace) && in(f.Integrations, r.Integration) &&
		in(f.Severities, string(Severity(r))) && in(f.Hosts, r.Alert.Hostname) &&
		(!f.Unacknowledged || r.AcknowledgedTime.IsZero()) &&
		!slices.ContainsFunc(f.Labels, func(s fields.Selector) bool { return !s.Matches(fields.Set(r.Alert.Labels)) }) &&
		f.matchesText(r)
}

// MatchesIncident reports whether the filter selects an Incident as it is now.
func (f *Filter) MatchesIncident(incident *v1alpha1.Incident) bool {
	status := &incident.Status
	r := &records.Record{
		Namespace: incident.Namespace, Integration: incident.Spec.IntegrationName, Incident: incident.Name,
		DedupKey: incident.Spec.DedupKey,
	}
	r.Alert, r.Severity = status.Alert, status.Alert.Severity
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAcknowledged); condition != nil &&
		condition.Status == metav1.ConditionTrue {
		r.AcknowledgedTime = v1alpha1.NewTimestamp(condition.LastTransitionTime.Time)
	}
	return f.Matches(r)
}

func (f *Filter) matchesText(r *records.Record) bool {
	if len(f.Words) == 0 {
		return true
	}
	texts := []string{
		r.Alert.Title, r.Namespace, r.Incident, r.Integration, r.Alert.Hostname, r.DedupKey, string(Severity(r)), r.Alert.Description,
	}
	for name, value := range r.Alert.Labels {
		texts = append(texts, name+"="+value)
	}
	all := strings.ToLower(strings.Join(texts, "\n"))
	return !slices.ContainsFunc(f.Words, func(word string) bool { return !strings.Contains(all, strings.ToLower(word)) })
}

// Severity returns the highest severity of an episode.
func Severity(r *records.Record) v1alpha1.Severity { return cmp.Or(r.HighestSeverity, r.Severity) }
