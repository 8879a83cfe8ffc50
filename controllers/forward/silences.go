package forward

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
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

type marker struct {
	kind         string
	key          incidentKey
	installation string
}

// String implements fmt.Stringer.
func (m marker) String() string { return m.of("") }

// of returns the marker of the silence for one request, which tells it from those for earlier requests.
func (m marker) of(request string) string {
	return fmt.Sprintf("[tocsin %s %s/%s %s]", m.kind, m.key.namespace, m.key.name, strings.TrimSpace(request+" "+m.installation))
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
	m.key.namespace, m.key.name, _ = strings.Cut(words[2], "/")
	return m, strings.TrimSpace(comment[:at]), comment[at:] == m.of(request)
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

func (s *silence) isOver() bool { return s.Status != nil && s.Status.State == "expired" }

// silencePlan compares the silences that exist, one after another, with those that are wanted, by marker. It leaves alone those
// of others, those of another installation, and such as have other matchers.
type silencePlan struct {
	target       *target
	installation string
	now          time.Time
	wanted       map[marker]silence
	unknown      map[incidentKey]bool // the Incidents that cannot be read: their silences stay as they are

	found map[marker]bool // which of the wanted ones exist
	ended map[marker]bool // which of the wanted ones somebody has ended in Alertmanager
	begun map[marker]int  // how many of them began lately
	kept  map[string]int  // how many silences Alertmanager keeps of the namespaces that want any
	calls []silenceCall
}

// silenceCall creates a silence, updates one, or ends one.
type silenceCall struct {
	key    incidentKey
	set    silence
	expire string // the ID, if it is to end
}

func newSilencePlan(t *target, installation string, now time.Time) *silencePlan {
	return &silencePlan{
		target: t, installation: installation, now: now, wanted: map[marker]silence{}, unknown: map[incidentKey]bool{},
		found: map[marker]bool{}, ended: map[marker]bool{}, begun: map[marker]int{}, kept: map[string]int{},
	}
}

// see plans what to do about a silence that exists.
func (p *silencePlan) see(s *silence) {
	mark, _, ok := markerOf(s.Comment)
	if !ok || !p.owns(s, mark) || p.unknown[mark.key] {
		return
	}
	namespace := mark.key.namespace
	want, needed := p.wanted[mark]
	if _, wants := p.kept[namespace]; wants {
		p.kept[namespace]++
	}
	if needed && p.now.Sub(s.StartsAt) < newSilencesWindow {
		p.begun[mark]++
	}
	switch {
	case s.isOver():
		if needed && mark.kind == kindRequested && wasEnded(s, &want) {
			p.ended[mark] = true
		}
	case !needed || p.found[mark]:
		if len(p.calls) < len(p.wanted)+maxUnwanted {
			p.calls = append(p.calls, silenceCall{key: mark.key, expire: s.ID})
		}
	default:
		p.found[mark] = true
		if p.isOutdated(s, &want, mark.kind) {
			want.ID, want.StartsAt = s.ID, s.StartsAt
			p.calls = append(p.calls, silenceCall{key: mark.key, set: want})
		}
	}
}

// wasEnded reports whether somebody ended a requested silence before its time. Tocsin ends no silence that it wants, and the
// comment names the request. An end that has come by itself leaves endsAt as it is.
func wasEnded(s, want *silence) bool {
	return s.Comment == want.Comment && want.EndsAt.Sub(s.EndsAt) > time.Second
}

// owns reports whether this installation created the silence.
func (p *silencePlan) owns(s *silence, m marker) bool {
	return m.installation == p.installation && len(s.ID) <= maxSilenceID && s.hasMatchers(matchersOf(m.key, p.target.config))
}

// isOutdated reports whether a silence is to be updated. That of an acknowledgement is renewed when half of it has passed.
func (p *silencePlan) isOutdated(s, want *silence, kind string) bool {
	outdated := s.EndsAt.Sub(want.EndsAt).Abs() > time.Second // Alertmanager keeps milliseconds
	if kind == kindAcknowledged {
		outdated = s.EndsAt.Sub(p.now) < acknowledgedSilence/2
	}
	return outdated || s.Comment != want.Comment || s.CreatedBy != want.CreatedBy
}

// want adds the silences that an Incident is to have. Without its integration, its alerts fire on until they expire, and it has
// those that it had: it may be created again.
func (p *silencePlan) want(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration) {
	if integration != nil && p.target.skipsIncident(incident, integration) != "" {
		return
	}
	status, key := &incident.Status, keyOf(incident)
	if request := status.Silence; request != nil && request.EndTime.After(p.now) {
		p.add(kindRequested, key, plaintext.ShortMessage(request.By), plaintext.ShortMessage(request.Comment), request.EndTime.Time)
	}
	if p.target.config.SilenceAcknowledged && fold.StaysAcknowledged(status) {
		p.add(kindAcknowledged, key, fold.AcknowledgedBy(status), status.Acknowledgement.Comment, p.now.Add(acknowledgedSilence))
	}
}

func (p *silencePlan) add(kind string, key incidentKey, by, comment string, until time.Time) {
	mark := marker{kind, key, p.installation}
	text := mark.String()
	if kind == kindRequested {
		text = mark.of(until.UTC().Format(time.RFC3339Nano))
	}
	p.kept[key.namespace] += 0
	p.wanted[mark] = silence{
		Matchers: matchersOf(key, p.target.config), StartsAt: p.now.UTC(), EndsAt: until.UTC(),
		CreatedBy: cmp.Or(by, "tocsin"), Comment: strings.TrimPrefix(comment+" "+text, " "),
	}
}

// finish plans the silences that do not exist, and returns all calls. Namespaces take turns. Within one the order is random, so
// that calls that fail each time do not keep others from being made.
func (p *silencePlan) finish() []silenceCall {
	for mark, want := range p.wanted {
		namespace := mark.key.namespace
		if p.found[mark] || p.ended[mark] || p.begun[mark] >= maxNewSilences || p.kept[namespace] >= maxNamespaceSilences {
			continue
		}
		p.kept[namespace]++
		p.calls = append(p.calls, silenceCall{key: mark.key, set: want})
	}
	rand.Shuffle(len(p.calls), func(i, j int) { p.calls[i], p.calls[j] = p.calls[j], p.calls[i] })
	return fair.InTurns(p.calls, func(call silenceCall) string { return call.key.namespace })
}

// endedRequests returns the endTime of each request whose silence somebody has ended in Alertmanager.
func (p *silencePlan) endedRequests() map[incidentKey]time.Time {
	ended := map[incidentKey]time.Time{}
	for mark := range p.ended {
		if !p.found[mark] { // else Tocsin has ended a second one
			ended[mark.key] = p.wanted[mark].EndsAt
		}
	}
	return ended
}

// coverage is which silences cover Incidents.
type coverage struct {
	by      map[string][]incidentKey // the Incidents, by the ID of a silence
	longest map[incidentKey]v1alpha1.Silence
}

// add notes the silences of an Incident's alert.
func (c *coverage) add(key incidentKey, ids []string) {
	for _, id := range ids[:min(len(ids), maxSilencesOfAlert)] {
		if len(id) <= maxSilenceID && !slices.Contains(c.by[id], key) {
			c.by[id] = append(c.by[id], key)
		}
	}
}

// see notes for each Incident the silence that covers it for the longest time, except those for acknowledgements: the condition
// Acknowledged tells of these.
func (c *coverage) see(s *silence) {
	incidents := c.by[s.ID]
	mark, before, own := markerOf(s.Comment)
	if len(incidents) == 0 || own && mark.kind == kindAcknowledged {
		return
	}
	comment := s.Comment
	if own {
		comment = before
	}
	covering := v1alpha1.Silence{
		EndTime: v1alpha1.NewTimestamp(s.EndsAt.Truncate(time.Second)),
		By:      plaintext.ShortName(s.CreatedBy), Comment: plaintext.ShortComment(comment),
	}
	for _, key := range incidents {
		if s.EndsAt.After(c.longest[key].EndTime.Time) {
			c.longest[key] = covering
		}
	}
}
