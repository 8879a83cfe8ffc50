package silences

import (
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Matching finds the silence that matches each Incident for the longest time. Add all alerts first: they have
// the IDs of silences.
type Matching struct {
	external     *url.URL                          // of the Alertmanager; nil: no silence has a link
	installation string                            // of this Tocsin
	incidents    map[string][]types.NamespacedName // by the ID of a silence

	Longest map[types.NamespacedName]v1alpha1.Silence // the silences that were found, by Incident
}

// NewMatching returns a Matching without alerts, for an Alertmanager that people reach by an external URL; nil if there is none.
func NewMatching(external *url.URL, installation string) *Matching {
	return &Matching{
		external: external, installation: installation,
		incidents: map[string][]types.NamespacedName{}, Longest: map[types.NamespacedName]v1alpha1.Silence{},
	}
}

// AddAlert adds the IDs of the silences that match an Incident's alert.
func (m *Matching) AddAlert(incident types.NamespacedName, ids []string) {
	for _, id := range ids[:min(len(ids), maxSilencesOfAlert)] {
		if len(id) <= maxID && !slices.Contains(m.incidents[id], incident) {
			m.incidents[id] = append(m.incidents[id], incident)
		}
	}
}

// AddSilence adds a silence. Those for acknowledgements do not count: the condition Acknowledged has these, unless they are of
// another Tocsin, or of one that was here before.
func (m *Matching) AddSilence(s *Silence) {
	incidents := m.incidents[s.ID]
	mark, before, marked := markerOf(s.Comment)
	if len(incidents) == 0 || marked && mark.kind == kindAcknowledged && mark.installation == m.installation {
		return
	}
	comment := s.Comment
	if marked {
		comment = before
	}
	matching := v1alpha1.Silence{
		EndTime: v1alpha1.NewTimestamp(s.EndsAt.Truncate(time.Second)),
		By:      plaintext.ShortName(s.CreatedBy), Comment: plaintext.ShortComment(comment),
		ID: s.ID, Link: m.linkTo(s.ID),
	}
	for _, key := range incidents {
		// Of silences that end at the same time, the same one counts in whatever order they come: each change is a write.
		known := m.Longest[key]
		if later := matching.EndTime.Compare(known.EndTime.Time); later > 0 || later == 0 && matching.ID < known.ID {
			m.Longest[key] = matching
		}
	}
}

// linkTo returns the address of a silence in Alertmanager's web interface.
func (m *Matching) linkTo(id string) string {
	if m.external == nil {
		return ""
	}
	link := m.external.JoinPath("/")
	link.Fragment = "/silences/" + id
	return link.String()
}
