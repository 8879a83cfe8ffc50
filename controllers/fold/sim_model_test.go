package fold

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// simModel knows the truth: it never forgets which events were written into which Incident. From that
// history it works out, each time anew and from the beginning, what the Incident has to look like.
type simModel struct {
	autoResolve time.Duration
	window      time.Duration // for late firings
	keys        map[string]v1alpha1.IncidentSpec
	lives       map[types.UID]*simLife
	unmatched   map[string]bool // "event/incident": let go for want of an Incident
	cluster     *simCluster
}

// originals are the events as they were created, without second copies: the truth knows neither these nor updates.
func (m *simModel) originals(events []*v1alpha1.AlertEvent) []*v1alpha1.AlertEvent {
	var originals []*v1alpha1.AlertEvent
	for _, event := range events {
		if m.cluster.firstOf(event) == nil {
			originals = append(originals, m.cluster.find(event.UID))
		}
	}
	return originals
}

// simLife is one Incident object, from its creation until a user deletes it.
type simLife struct {
	name    string
	history []simMoment
	seen    map[types.UID]bool
}

// simMoment is an event that was written, or a glance at the clock.
type simMoment struct {
	event *v1alpha1.AlertEvent
	clock time.Time

	quietFrom time.Time // since then
	mayEnd    bool      // for its age
}

// simView is what model and Incident have to agree on.
type simView struct {
	State                              v1alpha1.IncidentState
	Acknowledged, Reason               string
	Count, EpisodeCount, Episode       int64
	Start, Opened, Resolved, Last      string
	Title, Description, Severity, Type string
	Labels                             map[string]string
	StartTime, EndTime                 string
	Timeline                           []string
	Digest                             string
}

// wrote takes note of a status write that had these events to go by, and these that were settled before.
func (m *simModel) wrote(incident *v1alpha1.Incident, view, before []*v1alpha1.AlertEvent, now simMoment) {
	life := m.lives[incident.UID]
	if life == nil {
		life = &simLife{name: incident.Name, seen: map[types.UID]bool{}}
		m.lives[incident.UID] = life
		for _, event := range m.originals(before) {
			life.seen[event.UID] = true
		}
	}
	view = m.originals(view)
	slices.SortFunc(view, func(a, b *v1alpha1.AlertEvent) int { return commitNumber(a) - commitNumber(b) })
	for _, event := range view {
		if life.seen[event.UID] {
			continue
		}
		life.seen[event.UID] = true
		life.history = append(life.history, simMoment{event: event})
	}
	life.history = append(life.history, now)
}

// mayGo reports whether every alert of an event is accounted for.
func (m *simModel) mayGo(event *v1alpha1.AlertEvent) error {
	for _, name := range incidentsOf(event) {
		settled := m.isSettled(event, name)
		for i := range event.Alerts {
			alert := &event.Alerts[i]
			if event.IncidentNameFor(alert) == name && !settled && m.fits(event, alert, name) {
				return fmt.Errorf("%s is deleted, and alert %d of it is in no Incident", event.UID, i)
			}
		}
	}
	return nil
}

// isSettled reports whether the alerts that an event, or the first copy of it, has for an Incident are accounted for: folded,
// or let go.
func (m *simModel) isSettled(event *v1alpha1.AlertEvent, name string) bool {
	uid := event.UID
	if first := m.cluster.firstOf(event); first != nil {
		uid = first.UID
	}
	if m.unmatched[string(uid)+"/"+name] {
		return true
	}
	for _, life := range m.lives {
		if life.name == name && life.seen[uid] {
			return true
		}
	}
	return false
}

func (m *simModel) fits(event *v1alpha1.AlertEvent, alert *v1alpha1.Alert, name string) bool {
	spec := m.keys[name]
	return (event.Spec.IntegrationName == "" || event.Spec.IntegrationName == spec.IntegrationName) &&
		(alert.DedupKey == "" || alert.DedupKey == spec.DedupKey)
}

// replay tells the whole history of an Incident from its beginning.
func (m *simModel) replay(life *simLife) simView {
	r := simReplay{view: simView{Acknowledged: "False"}, digest: new(big.Int), window: m.window}
	for _, moment := range life.history {
		if moment.event == nil {
			quiet := r.last
			if moment.quietFrom.After(quiet) {
				quiet = moment.quietFrom
			}
			due := quiet.Add(m.autoResolve)
			if r.view.State == "Open" && m.autoResolve > 0 && moment.mayEnd && !moment.clock.Before(due) {
				r.end(moment.clock, "AutoResolved")
			}
			continue
		}
		for i := range moment.event.Alerts {
			alert := &moment.event.Alerts[i]
			if moment.event.IncidentNameFor(alert) == life.name && m.fits(moment.event, alert, life.name) {
				r.tell(moment.event, alert, i)
			}
		}
	}
	return r.done(m.keys[life.name].IntegrationName)
}

// simTold is one alert of the current episode.
type simTold struct {
	event *v1alpha1.AlertEvent
	alert *v1alpha1.Alert
}

type simReplay struct {
	view             simView
	episode          []simTold
	opened, resolved time.Time
	last             time.Time
	newest           int
	digest           *big.Int
	window           time.Duration // for late firings
}

func (r *simReplay) tell(event *v1alpha1.AlertEvent, alert *v1alpha1.Alert, index int) {
	if r.view.State == "" && alert.Status != "firing" {
		return
	}
	late := commitNumber(event) < r.newest
	r.newest = max(r.newest, commitNumber(event))
	when := simReceived(event)
	noted := alert.Status == "noted"
	if heard := simHeard(event); !noted && (r.last.IsZero() || heard.After(r.last)) {
		r.last = heard
	}
	id := alert.ID
	if id == "" {
		id = string(event.UID) + "/" + strconv.Itoa(index)
	}
	sum := sha256.Sum256([]byte(id))
	r.digest.Add(r.digest, new(big.Int).SetBytes(sum[:16]))
	if !noted {
		r.view.Count++
		r.view.EpisodeCount++
	}
	defer func() {
		if noted && alert.Comment != "" {
			r.log("Noted", when)
		}
	}()

	open, firing := r.view.State == "Open", alert.Status == "firing"
	switch {
	case late || !open && !firing && r.view.State != "":
	case open && alert.Status == "resolved" && r.stale(alert):
	case !open && (r.view.State == "" || !r.over(alert, when)):
		kind := "Reopened"
		if r.view.State == "" {
			kind = "Opened"
		}
		r.view.State, r.view.Reason, r.view.Acknowledged = "Open", "Firing", "False"
		r.view.Episode++
		r.view.EpisodeCount = 1
		r.opened, r.resolved, r.episode = when, time.Time{}, []simTold{{event, alert}}
		r.log(kind, when)
	case !open:
	default:
		before := r.severity()
		r.episode = append(r.episode, simTold{event, alert})
		if alert.Status == "resolved" {
			r.end(when, "ResolvedByAlert")
			return
		}
		if r.severity() != before {
			r.log("SeverityChanged", when)
		}
		if alert.Status == "acknowledged" && r.view.Acknowledged == "False" {
			r.view.Acknowledged = "True"
			r.log("Acknowledged", when)
		}
		if alert.Status == "unacknowledged" && r.view.Acknowledged == "True" {
			r.view.Acknowledged = "False"
			r.log("Unacknowledged", when)
		}
	}
}

func (r *simReplay) end(when time.Time, reason string) {
	r.view.State, r.view.Reason, r.resolved = "Resolved", reason, when
	r.log("Resolved", when)
}

func (r *simReplay) log(kind string, when time.Time) {
	r.view.Timeline = append(r.view.Timeline, kind+" "+simTime(when))
	if len(r.view.Timeline) > 20 {
		r.view.Timeline = r.view.Timeline[1:]
	}
}

// start is the earliest beginning of the episode's alerts.
func (r *simReplay) start() time.Time {
	var earliest time.Time
	for _, told := range r.episode {
		t := simReceived(told.event)
		if told.alert.StartTime != nil {
			t = told.alert.StartTime.Time
		}
		if earliest.IsZero() || t.Before(earliest) {
			earliest = t
		}
	}
	return earliest
}

// said is the earliest startTime and the newest endTime of the episode's alerts.
func (r *simReplay) said() (startTime, endTime *time.Time) {
	for _, told := range r.episode {
		if t := told.alert.StartTime; t != nil && (startTime == nil || t.Before(*startTime)) {
			startTime = &t.Time
		}
		if t := told.alert.EndTime; t != nil {
			endTime = &t.Time
		}
	}
	return startTime, endTime
}

// latest is the newest value of a field that is there; a resolve does not count.
func (r *simReplay) latest(field func(*v1alpha1.Alert) string) string {
	for _, told := range slices.Backward(r.episode) {
		if value := field(told.alert); value != "" && told.alert.Status != v1alpha1.AlertResolved {
			return value
		}
	}
	return ""
}

func (r *simReplay) severity() string {
	said := r.latest(func(a *v1alpha1.Alert) string { return string(a.Severity) })
	if said == "" && len(r.episode) > 0 && r.episode[0].event.Spec.Defaults != nil {
		said = string(r.episode[0].event.Spec.Defaults.Severity)
	}
	if said == "" {
		said = "warning"
	}
	return said
}

func (r *simReplay) done(integration string) simView {
	v := r.view
	v.Start, v.Opened, v.Resolved, v.Last = simTime(r.start()), simTime(r.opened), simTime(r.resolved), simTime(r.last)
	v.Severity = r.severity()
	v.Title = r.latest(func(a *v1alpha1.Alert) string { return a.Title })
	if v.Title == "" && len(r.episode) > 0 {
		v.Title = r.episode[0].alert.Description
	}
	if v.Title == "" {
		v.Title = "Alert from " + integration
	}
	v.Description = r.latest(func(a *v1alpha1.Alert) string { return a.Description })
	v.Type = "webhook"
	v.Labels = map[string]string{}
	for _, told := range r.episode {
		if told.event.Spec.Defaults == nil {
			continue
		}
		for key, value := range told.event.Spec.Defaults.Labels {
			if _, ok := v.Labels[key]; !ok {
				v.Labels[key] = string(value)
			}
		}
	}
	for _, told := range r.episode {
		maps.Copy(v.Labels, told.alert.Labels)
	}
	startTime, endTime := r.said()
	v.StartTime, v.EndTime = simTimeOf(startTime), simTimeOf(endTime)
	sum := new(big.Int).Mod(r.digest, new(big.Int).Lsh(big.NewInt(1), 128))
	v.Digest = fmt.Sprintf("%032x", sum)
	return v
}

// simViewOf reads the same from a stored Incident.
func simViewOf(incident *v1alpha1.Incident) simView {
	s := incident.Status
	v := simView{
		State: s.State, Count: s.AlertCount, EpisodeCount: s.Episode.AlertCount, Episode: s.Episode.Number,
		Start: simTime(s.Episode.StartTime.Time), Opened: simTime(s.OpenedTime.Time), Last: simTime(s.LastAlertTime.Time),
		Title: s.Alert.Title, Description: s.Alert.Description, Severity: string(s.Alert.Severity), Type: s.Alert.Type,
		Labels: map[string]string{}, Digest: s.Ledger.Digest,
	}
	if s.ResolvedTime != nil {
		v.Resolved = simTime(s.ResolvedTime.Time)
	}
	if s.Alert.StartTime != nil {
		v.StartTime = simTime(s.Alert.StartTime.Time)
	}
	if s.Alert.EndTime != nil {
		v.EndTime = simTime(s.Alert.EndTime.Time)
	}
	for _, condition := range s.Conditions {
		switch condition.Type {
		case v1alpha1.ConditionResolved:
			v.Reason = condition.Reason
		case v1alpha1.ConditionAcknowledged:
			v.Acknowledged = string(condition.Status)
		}
	}
	maps.Copy(v.Labels, s.Alert.Labels)
	for _, entry := range s.Timeline {
		v.Timeline = append(v.Timeline, string(entry.Type)+" "+simTime(entry.Time.Time))
	}
	return v
}

// compare says where a stored Incident and the truth differ.
func (m *simModel) compare(incident *v1alpha1.Incident) error {
	want, got := reflect.ValueOf(m.replay(m.lives[incident.UID])), reflect.ValueOf(simViewOf(incident))
	var differences []string
	for i := range want.NumField() {
		if !reflect.DeepEqual(want.Field(i).Interface(), got.Field(i).Interface()) {
			differences = append(differences, fmt.Sprintf("%s is %v and has to be %v",
				want.Type().Field(i).Name, got.Field(i).Interface(), want.Field(i).Interface()))
		}
	}
	if len(differences) > 0 {
		return fmt.Errorf("incident %s: %s", incident.Name, strings.Join(differences, "; "))
	}
	return nil
}

func commitNumber(event *v1alpha1.AlertEvent) int {
	n, err := strconv.Atoi(event.ResourceVersion)
	if err != nil {
		panic(err)
	}
	return n
}

func simTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func simTimeOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return simTime(*t)
}
