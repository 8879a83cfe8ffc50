package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/silences"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// alertmanagers is how many Alertmanagers there are in a story that forwards.
const alertmanagers = 2

// forwardingFile is the file that names the Alertmanagers, which all worlds share.
var forwardingFile = sync.OnceValues(func() (string, error) {
	file, err := os.CreateTemp("", "tocsin-forwarding-*.yaml")
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString("silence_acknowledged: true\nassignee_label: true\nalertmanagers:\n")
	for i := range alertmanagers {
		fmt.Fprintf(&text, "- url: http://%s\n", alertmanagerAddress(i))
	}
	_, err = file.WriteString(text.String())
	return file.Name(), errors.Join(err, file.Close())
})

func alertmanagerAddress(i int) string { return fmt.Sprintf("10.0.1.%d:9093", i+1) }

// fakeAlertmanager is one in memory: it has the alerts and silences that were posted to it.
type fakeAlertmanager struct {
	listener *listener
	server   *http.Server

	// changed is told which Incidents fired before and after a post. Nil: nobody is.
	changed func(before, after map[types.NamespacedName]toldOf)

	mu       sync.Mutex
	broken   brokenness
	alerts   map[string]alerts.Alert // by their labels
	silences []*silences.Silence
	ids      int
}

// brokenness is how an Alertmanager fails, if it does.
type brokenness string

const (
	works        brokenness = ""
	isAway       brokenness = "is away"
	answers503   brokenness = "answers 503"
	neverAnswers brokenness = "never answers"
)

// breakAlertmanager has an Alertmanager fail for a while, and may have it forget everything.
type breakAlertmanager struct {
	which   int
	how     brokenness
	forgets bool
	d       time.Duration
}

func (o breakAlertmanager) do(w *world) {
	if len(w.alertmanagers) == 0 {
		return
	}
	a := w.alertmanagers[o.which]
	a.fail(o.how, o.forgets)
	w.later(o.d, func() { a.fail(works, false) })
}

func newFakeAlertmanager() *fakeAlertmanager {
	a := &fakeAlertmanager{listener: newListener(), alerts: map[string]alerts.Alert{}}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	go func() { _ = a.server.Serve(a.listener) }()
	return a
}

func (a *fakeAlertmanager) fail(how brokenness, forgets bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = how
	if forgets {
		clear(a.alerts)
		a.silences = nil
	}
}

func (a *fakeAlertmanager) state() brokenness {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.broken
}

// DialContext implements alertmanager.Dialer for the replicas of the world.
func (w *world) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	for i, a := range w.alertmanagers {
		if address == alertmanagerAddress(i) && a.state() != isAway {
			return a.listener.dial(ctx, network, address)
		}
	}
	return nil, errNobodyListens
}

// ServeHTTP implements http.Handler.
func (a *fakeAlertmanager) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch a.state() {
	case works:
	case neverAnswers:
		select {
		case <-q.Context().Done():
		case <-a.listener.closed:
		}
		return
	default:
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var answer any
	var err error
	switch id, isSilence := strings.CutPrefix(q.URL.Path, "/api/v2/silence/"); {
	case isSilence && q.Method == http.MethodDelete:
		a.expire(id)
	case q.URL.Path == "/api/v2/silences" && q.Method == http.MethodPost:
		posted := &silences.Silence{}
		if err = json.NewDecoder(q.Body).Decode(posted); err == nil {
			answer = map[string]string{"silenceID": a.silence(posted)}
		}
	case q.URL.Path == "/api/v2/silences":
		answer = a.listSilences()
	case q.Method == http.MethodPost:
		var posted []alerts.Alert
		if err = json.NewDecoder(q.Body).Decode(&posted); err == nil {
			a.take(posted)
		}
	default:
		answer = a.listAlerts(q.URL.Query().Get("silenced") == "true")
	}
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case answer != nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}
}

func (a *fakeAlertmanager) take(posted []alerts.Alert) {
	before := a.tell()
	for _, alert := range posted {
		a.alerts[fmt.Sprint(alert.Labels)] = alert // fmt sorts the keys
	}
	if a.changed != nil {
		a.changed(before, a.tell())
	}
}

// silence creates or changes a silence, and returns its ID.
func (a *fakeAlertmanager) silence(posted *silences.Silence) string {
	a.silences = slices.DeleteFunc(a.silences, func(s *silences.Silence) bool { return s.ID == posted.ID })
	if posted.ID == "" {
		a.ids++
		posted.ID = fmt.Sprint("silence-", a.ids)
	}
	a.silences = append(a.silences, posted)
	return posted.ID
}

func (a *fakeAlertmanager) expire(id string) {
	for _, s := range a.silences {
		if s.ID == id {
			s.EndsAt = time.Now()
		}
	}
}

func (a *fakeAlertmanager) listSilences() []*silences.Silence {
	list := []*silences.Silence{}
	for _, s := range a.silences {
		listed := *s
		listed.Status = &silences.Status{State: "active"}
		if !time.Now().Before(s.EndsAt) {
			listed.Status.State = "expired"
		}
		list = append(list, &listed)
	}
	return list
}

type listedAlert struct {
	Labels map[string]string `json:"labels"`
	Status struct {
		SilencedBy []string `json:"silencedBy"`
	} `json:"status"`
}

func (a *fakeAlertmanager) listAlerts(onlySilenced bool) []listedAlert {
	list := []listedAlert{}
	for _, alert := range a.alerts {
		listed := listedAlert{Labels: alert.Labels}
		for _, s := range a.silences {
			if time.Now().Before(s.EndsAt) && matches(s, alert.Labels) {
				listed.Status.SilencedBy = append(listed.Status.SilencedBy, s.ID)
			}
		}
		if time.Now().Before(alert.EndsAt) && (!onlySilenced || len(listed.Status.SilencedBy) > 0) {
			list = append(list, listed)
		}
	}
	return list
}

// matches reports whether a silence of Tocsin, whose matchers are all for equality, matches labels.
func matches(s *silences.Silence, labels map[string]string) bool {
	return !slices.ContainsFunc(s.Matchers, func(m silences.Matcher) bool { return labels[m.Name] != m.Value })
}

type toldOf struct {
	severity v1alpha1.Severity // of the alert that fires; empty: none does
	firing   int               // how many alerts fire
	silenced bool
}

// told returns what the Alertmanager knows of the Incidents that fire.
func (a *fakeAlertmanager) told() map[types.NamespacedName]toldOf {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tell()
}

func (a *fakeAlertmanager) tell() map[types.NamespacedName]toldOf {
	told := map[types.NamespacedName]toldOf{}
	for _, alert := range a.listAlerts(false) {
		key, severity := alerts.IncidentOf(alert.Labels)
		was := told[key]
		told[key] = toldOf{severity, was.firing + 1, was.silenced || len(alert.Status.SilencedBy) > 0}
	}
	return told
}

// toldTime is how long after a change every Alertmanager knows of it, when nothing is wrong.
const toldTime = 10 * time.Second

// judgeForwarding finds what an Alertmanager does not know, or knows wrongly, at the end of a story.
func (w *world) judgeForwarding() (found oracle.Findings) {
	if w.pager != nil {
		return nil // it judges what is kept back
	}
	lately := toldTime
	if w.story.hasClocks() {
		lately += serverJump
	}
	var told []map[types.NamespacedName]toldOf
	for _, a := range w.alertmanagers {
		told = append(told, a.told())
	}
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	mutes := w.judge.mutes
	for key, incident := range mutes.incidents {
		integration := types.NamespacedName{Namespace: key.Namespace, Name: integrationName}
		// A leader that comes after a deletion does not know what was posted of the former Incident: that expires.
		if incident == nil || mutes.deleted[key] || w.story.stays(key.Namespace) || !incident.DeletionTimestamp.IsZero() ||
			mutes.integrations[integration] == nil || changedWithin(incident, lately) {
			continue
		}
		isSilenced := false
		for i := range told {
			isSilenced = isSilenced || told[i][key].silenced
			w.judgeTold(i, key, told[i][key], &incident.Status, &found)
		}
		w.judgeSilenced(key, &incident.Status, isSilenced, &found)
	}
	return found
}

// judgeSilenced finds a condition Silenced that is not true.
func (w *world) judgeSilenced(
	key types.NamespacedName, status *v1alpha1.IncidentStatus, isSilenced bool, found *oracle.Findings,
) {
	is := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSilenced)
	// The silence of an acknowledgement is no news.
	if wantTold(status) != "" && is != isSilenced && status.Acknowledgement == nil && !endsSilence(status) &&
		!w.story.hasClocks() && !w.story.loses("maintenancewindows") {
		found.Add("W: %s has the condition Silenced: %v, and an Alertmanager silences it: %v", key, is, isSilenced)
	}
}

// judgeTold finds what an Alertmanager does not know of an Incident, or knows wrongly.
func (w *world) judgeTold(
	alertmanager int, key types.NamespacedName, knows toldOf, status *v1alpha1.IncidentStatus, found *oracle.Findings,
) {
	want, covered := wantTold(status), isAcknowledged(status) || isToBeSilenced(status)
	switch {
	case !w.story.Elect && w.story.loses("incidents"): // each leader posts what it knows
	case knows.severity != want || knows.firing > 1:
		found.Add("W: Alertmanager %d has %d alerts of %s with severity %q, and the Incident is %s with %q",
			alertmanager, knows.firing, key, knows.severity, status.State, want)
	case want != "" && knows.silenced && !covered && has[removeLease](w.story):
		// Its UID names the installation, which leaves the silences of another one alone: they end by themselves.
	case endsSilence(status): // it may be over already, or not yet
	// A silence ends by the clock of a leader; leaders that know of different windows set and end it in turn.
	case want != "" && knows.silenced != covered && !w.story.hasClocks() && !w.story.loses("maintenancewindows"):
		found.Add("W: Alertmanager %d has a silence of %s: %v, which is acknowledged, or is to be silenced: %v",
			alertmanager, key, knows.silenced, covered)
	}
}

// judgeBeginnings judges what an Alertmanager was told that it did not know before.
func (w *world) judgeBeginnings(before, after map[types.NamespacedName]toldOf) {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	mutes := w.judge.mutes
	for key := range after {
		if before[key].firing == 0 {
			mutes.holds.judgeBeginning(key, mutes.incidents[key], mutes.deleted[key], time.Now(), mutes.found)
		}
	}
}

// isToBeSilenced reports whether a user has requested a silence that is not over.
func isToBeSilenced(status *v1alpha1.IncidentStatus) bool {
	return status.Silence != nil && status.Silence.EndTime.After(time.Now())
}

// endsSilence reports whether the silence that a user has requested ends about now.
func endsSilence(status *v1alpha1.IncidentStatus) bool {
	return status.Silence != nil && time.Until(status.Silence.EndTime.Time).Abs() < 2*toldTime
}

// isAcknowledged reports whether an Incident is acknowledged at its severity, for some time still.
func isAcknowledged(status *v1alpha1.IncidentStatus) bool {
	given, severities := status.Acknowledgement, v1alpha1.Severities()
	return given != nil && slices.Index(severities, given.Severity) <= slices.Index(severities, status.Alert.Severity) &&
		(given.ExpirationTime == nil || given.ExpirationTime.After(time.Now()))
}

// wantTold returns the severity with which an Incident is to fire; empty if it is not.
func wantTold(status *v1alpha1.IncidentStatus) v1alpha1.Severity {
	switch {
	case status.State != v1alpha1.IncidentOpen:
		return ""
	case status.Mute != nil:
		return status.Mute.ForwardedSeverity
	case status.Episode != nil && status.Episode.ForwardTime != nil && time.Now().Before(status.Episode.ForwardTime.Time) &&
		(status.Forwarding == nil || status.Forwarding.Severity == ""): // what an Alertmanager has accepted is held back no more
		return ""
	default:
		return status.Alert.Severity
	}
}

// changedWithin reports whether an Incident has changed so lately that an Alertmanager need not know of it.
func changedWithin(incident *v1alpha1.Incident, d time.Duration) bool {
	status := &incident.Status
	since := time.Now().Add(-d)
	if status.Episode != nil && status.Episode.ForwardTime != nil && status.Episode.ForwardTime.After(since) {
		return !status.Episode.ForwardTime.After(time.Now())
	}
	return slices.ContainsFunc(status.Timeline, func(entry v1alpha1.Transition) bool { return entry.Time.After(since) })
}
