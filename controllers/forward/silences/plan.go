package silences

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// MaxCalls is how many calls are made at a time, and maxUnwanted bounds the silences to end that are remembered while a list
	// is read.
	MaxCalls    = 200
	maxUnwanted = 10 * MaxCalls

	// Alertmanager keeps a silence for days after its end, and an ended one cannot begin again. maxNewSilences bounds how many
	// silences of an Incident begin within newSilencesWindow, and maxNamespaceSilences those of a namespace that Alertmanager keeps.
	// Beyond it the Incident is not silenced.
	maxNewSilences       = 6
	newSilencesWindow    = time.Hour
	maxNamespaceSilences = 20_000

	// acknowledgedSilence is how long the silence of an acknowledged Incident lasts; it is renewed when half of it has
	// passed.
	acknowledgedSilence = 10 * time.Minute

	// startsBefore is how long before now a silence is posted to begin. Alertmanager has it begin at once, also if its clock is
	// behind.
	startsBefore = 7 * 24 * time.Hour

	// maxSilencesOfAlert bounds the silences of one alert that are looked at, and maxID the IDs, which are UUIDs.
	maxSilencesOfAlert = 8
	maxID              = 64
)

// Plan compares the silences that exist, one after another, with those that are wanted, by marker. It leaves alone those of
// others, those of another installation, and such as have other matchers.
type Plan struct {
	target       *alerts.Target
	installation string
	now          time.Time
	ahead        time.Duration                 // how far the Alertmanager's clock is ahead of that
	unread       map[types.NamespacedName]bool // the Incidents that cannot be read: their silences stay as they are

	wanted map[marker]*comparison
	kept   map[string]int // how many silences Alertmanager keeps of the namespaces that want any
	calls  []Call
}

// comparison is a wanted silence beside those that exist for it.
type comparison struct {
	silence    Silence
	kept       string    // the ID of the one that stays; empty: none exists
	keptStart  time.Time // when that begins
	isOutdated bool      // it is to be updated
	ended      bool      // somebody has ended it in Alertmanager
	begun      int       // how many began lately
}

// update returns the one that stays, as it is wanted.
func (c *comparison) update() *Silence {
	update := c.silence
	update.ID, update.StartsAt = c.kept, c.keptStart
	return &update
}

// Call creates a silence, updates one, or ends one.
type Call struct {
	Incident types.NamespacedName
	Set      Silence
	Expire   string // the ID, if it is to end; if Set has one as well, it is first updated
}

// NewPlan returns a plan for one Alertmanager, whose clock is ahead of now. installation identifies this Tocsin in the markers of
// its silences.
func NewPlan(target *alerts.Target, installation string, now time.Time, ahead time.Duration) *Plan {
	return &Plan{
		target: target, installation: installation, now: now, ahead: ahead, unread: map[types.NamespacedName]bool{},
		wanted: map[marker]*comparison{}, kept: map[string]int{},
	}
}

// Want adds the silences that an Incident is to have. Without its integration, its alerts fire on until they expire, and it has
// those that it had: it may be created again.
func (p *Plan) Want(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration) {
	if integration != nil && p.target.ExcludesIncident(incident, integration) != nil {
		return
	}
	status, key := &incident.Status, types.NamespacedName{Namespace: incident.Namespace, Name: incident.Name}
	if request := status.Silence; request != nil && request.EndTime.After(p.now) {
		p.add(kindRequested, key, plaintext.ShortMessage(request.By), plaintext.ShortMessage(request.Comment), request.EndTime.Time)
	}
	if p.target.SilenceAcknowledged && fold.StaysAcknowledged(status) {
		until := p.now.Add(acknowledgedSilence)
		if expires := status.Acknowledgement.ExpirationTime; expires != nil && expires.Before(until) {
			until = expires.Time
		}
		if until.After(p.now) {
			until = until.Add(max(0, p.ahead)) // Alertmanager rejects what has ended by its clock
			p.add(kindAcknowledged, key, fold.AcknowledgedBy(status), status.Acknowledgement.Comment, until)
		}
	}
}

// Leave leaves the silences of an Incident as they are, since it cannot be read.
func (p *Plan) Leave(incident types.NamespacedName) { p.unread[incident] = true }

func (p *Plan) add(kind string, key types.NamespacedName, by, comment string, until time.Time) {
	mark := marker{kind, key, p.installation}
	text := mark.String()
	if kind == kindRequested {
		text = mark.of(until.UTC().Format(time.RFC3339Nano))
	}
	p.kept[key.Namespace] += 0
	p.wanted[mark] = &comparison{silence: Silence{
		Matchers: matchersOf(key, p.target.Settings), StartsAt: p.now.Add(-startsBefore).UTC(), EndsAt: until.UTC(),
		CreatedBy: cmp.Or(by, "tocsin"), Comment: strings.TrimPrefix(comment+" "+text, " "),
	}}
}

// Compare plans what to do about a silence that exists.
func (p *Plan) Compare(s *Silence) {
	mark, _, ok := markerOf(s.Comment)
	if !ok || !p.owns(s, mark) || p.unread[mark.key] {
		return
	}
	if _, wants := p.kept[mark.key.Namespace]; wants {
		p.kept[mark.key.Namespace]++
	}
	want := p.wanted[mark]
	if want != nil && p.now.Add(p.ahead).Sub(s.StartsAt) < newSilencesWindow {
		want.begun++
	}
	switch {
	case s.IsOver():
		if want != nil && mark.kind == kindRequested && wasEnded(s, &want.silence) {
			want.ended = true
		}
	case want == nil || want.kept != "" && want.kept < s.ID:
		p.end(mark, s)
	default:
		// Two entries of the configuration may lead to one Alertmanager, which lists its silences in any order: both have to
		// keep the same one, or each ends that of the other.
		if want.kept != "" {
			p.end(mark, want.update())
		}
		want.kept, want.keptStart, want.isOutdated = s.ID, s.StartsAt, p.isOutdated(s, &want.silence, mark.kind)
	}
}

// end plans the end of a silence. Before it, the comment of one that was requested loses the request: an Incident that is
// excluded for a while wants the same one afterwards, and wasEnded would tell that a person has ended it.
func (p *Plan) end(mark marker, s *Silence) {
	if len(p.calls) >= len(p.wanted)+maxUnwanted {
		return
	}
	call := Call{Incident: mark.key, Expire: s.ID}
	if _, text, _ := markerOf(s.Comment); !strings.HasSuffix(s.Comment, mark.String()) {
		call.Set = Silence{
			ID: s.ID, Matchers: matchersOf(mark.key, p.target.Settings), StartsAt: s.StartsAt, EndsAt: s.EndsAt,
			CreatedBy: cmp.Or(plaintext.ShortMessage(s.CreatedBy), "tocsin"),
			Comment:   strings.TrimPrefix(plaintext.ShortMessage(text)+" "+mark.String(), " "),
		}
	}
	p.calls = append(p.calls, call)
}

// wasEnded reports whether somebody ended a requested silence before its time. The comment names the request, unless Tocsin has
// ended it. An end that has come by itself leaves endsAt as it is.
func wasEnded(s, want *Silence) bool {
	return s.Comment == want.Comment && want.EndsAt.Sub(s.EndsAt) > time.Second
}

// owns reports whether this installation created the silence.
func (p *Plan) owns(s *Silence, m marker) bool {
	return m.installation == p.installation && len(s.ID) <= maxID && s.hasMatchers(matchersOf(m.key, p.target.Settings))
}

// isOutdated reports whether a silence is to be updated. That of an acknowledgement is renewed when half of it has passed, and
// shortened at once.
func (p *Plan) isOutdated(s, want *Silence, kind string) bool {
	longer := want.EndsAt.Sub(s.EndsAt)
	outdated := longer.Abs() > time.Second // Alertmanager keeps milliseconds
	if kind == kindAcknowledged && longer > 0 {
		outdated = outdated && s.EndsAt.Sub(p.now.Add(max(0, p.ahead))) < acknowledgedSilence/2
	}
	return outdated || s.Comment != want.Comment || s.CreatedBy != want.CreatedBy
}

// Calls plans the silences that do not exist or are outdated, and returns all calls. Namespaces take turns. Within one the order
// is random, so that calls that fail each time do not keep others from being made.
func (p *Plan) Calls() []Call {
	for mark, want := range p.wanted {
		namespace := mark.key.Namespace
		if want.isOutdated {
			p.calls = append(p.calls, Call{Incident: mark.key, Set: *want.update()})
		}
		if want.kept != "" || want.ended || want.begun >= maxNewSilences || p.kept[namespace] >= maxNamespaceSilences {
			continue
		}
		p.kept[namespace]++
		p.calls = append(p.calls, Call{Incident: mark.key, Set: want.silence})
	}
	rand.Shuffle(len(p.calls), func(i, j int) { p.calls[i], p.calls[j] = p.calls[j], p.calls[i] })
	return fair.InTurns(p.calls, func(call Call) string { return call.Incident.Namespace })
}

// EndedRequests returns the endTime of each request whose silence somebody has ended in Alertmanager.
func (p *Plan) EndedRequests() map[types.NamespacedName]time.Time {
	ended := map[types.NamespacedName]time.Time{}
	for mark, want := range p.wanted {
		if want.ended && want.kept == "" { // else Tocsin has ended a second one
			ended[mark.key] = want.silence.EndsAt
		}
	}
	return ended
}
