package forward

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
	"github.com/tocsin-dev/tocsin/controllers/forward/silences"
)

// silencing is the part of Alertmanager that has silences.
type silencing struct {
	mu       sync.Mutex
	now      func() time.Time
	silences []silences.Silence
	covered  []silencedAlert
	writes   int
	refuses  func(silences.Silence) bool
	answer   func(w io.Writer, path string) bool // instead of a list
}

func (a *silencing) RoundTrip(request *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	a.ServeHTTP(recorder, request)
	return recorder.Result(), nil
}

func (a *silencing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/api/v2/")
	if r.Method == http.MethodGet && a.answer != nil && a.answer(w, path) {
		return
	}
	switch {
	case r.Method == http.MethodGet && path == "silences":
		_ = json.NewEncoder(w).Encode(a.silences)
	case r.Method == http.MethodGet && path == "alerts":
		_ = json.NewEncoder(w).Encode(a.covered)
	case r.Method == http.MethodPost && path == "silences":
		var s silences.Silence
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil || !s.EndsAt.After(s.StartsAt) || s.EndsAt.Before(a.now()) ||
			s.CreatedBy == "" || s.Comment == "" {
			http.Error(w, "invalid silence", http.StatusBadRequest)
			return
		}
		a.writes++
		if a.refuses != nil && a.refuses(s) {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		if at := slices.IndexFunc(a.silences, func(old silences.Silence) bool { return old.ID == s.ID }); at >= 0 {
			a.silences[at] = s
			return
		}
		if s.StartsAt.Before(a.now()) {
			s.StartsAt = a.now()
		}
		s.ID = fmt.Sprint("id-", len(a.silences))
		a.silences = append(a.silences, s)
	case r.Method == http.MethodDelete:
		a.writes++
		for i := range a.silences {
			if a.silences[i].ID == strings.TrimPrefix(path, "silence/") {
				a.silences[i].Status = &silences.Status{State: "expired"}
				a.silences[i].EndsAt = a.silences[i].StartsAt.Add(time.Second) // the moment of the call, which is soon enough
			}
		}
	default:
		http.NotFound(w, r)
	}
}

// active returns author and comment of the silences that are not over.
func (a *silencing) active() []string {
	var active []string
	for _, s := range a.silences {
		if !s.IsOver() {
			active = append(active, s.CreatedBy+": "+s.Comment)
		}
	}
	return active
}

// silencedAlert is an alert that silences match.
type silencedAlert struct {
	Labels map[string]string `json:"labels"`
	Status struct {
		SilencedBy []string `json:"silencedBy"`
	} `json:"status"`
}

// requested returns the marker of a requested silence, as an earlier version wrote it.
func requested(key types.NamespacedName, installation string) string {
	return fmt.Sprintf("[tocsin requested %s/%s %s]", key.Namespace, key.Name, installation)
}

func matchersOf(key types.NamespacedName, cluster string) []silences.Matcher {
	return []silences.Matcher{
		{Name: "namespace", Value: key.Namespace}, {Name: "tocsin_incident", Value: key.Name}, {Name: "cluster", Value: cluster},
	}
}

// newSilences is how many silences of an Incident begin in an hour, see package silences.
const newSilences = 6

// silencerRig is an endpoint whose silences a test reconciles at times of its own.
type silencerRig struct {
	*WithT
	*cluster
	am       *silencing
	endpoint *endpoint
	target   *config.Target
	time     time.Time
	changed  []types.NamespacedName
	outcome  gomegatypes.GomegaMatcher // of poll
	poll     func()
}

func newSilenceRig(t *testing.T) *silencerRig {
	t.Helper()
	r := &silencerRig{WithT: NewWithT(t), cluster: newCluster(), am: &silencing{}, time: noon, outcome: Not(HaveOccurred())}
	r.now = func() time.Time { return r.time }
	r.am.now = r.now
	r.integrate(v1alpha1.WebhookIntegrationSpec{})
	r.target = targetOf(&config.Config{Settings: alerts.Settings{
		SilenceAcknowledged: true, ExternalLabels: map[string]string{"cluster": "prod-1"},
	}})
	r.lead()
	r.poll = func() {
		t.Helper()
		client := &alertmanager.Client{HTTP: &http.Client{Transport: r.am}, URL: r.target.URL}
		r.changed = nil
		_, err := r.endpoint.silencer.reconcile(t.Context(), requestParams{target: r.target, client: client, now: r.time, ahead: r.am.now().Sub(r.time)})
		r.Expect(err).To(r.outcome)
	}
	return r
}

// lead starts anew, as a new leader does.
func (r *silencerRig) lead() {
	r.endpoint = newEndpoint(r.term, r.target)
	changed := func(name types.NamespacedName) {
		r.changed = append(r.changed, name)
	}
	r.term.forwarder.requestFold.Store(&changed)
}

func (r *silencerRig) alert(status v1alpha1.AlertStatus, severity v1alpha1.Severity, by, comment string) types.NamespacedName {
	alert := v1alpha1.Alert{DedupKey: "k", Status: status, By: by, Comment: comment}
	alert.Severity = severity
	_, after := r.fold(alert)
	r.time = r.time.Add(time.Minute)
	return client.ObjectKeyFromObject(after)
}

func TestAcknowledgedIncidentIsSilenced(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "warning", "", "")
	r.poll()
	r.Expect(r.am.active()).To(BeEmpty())
	r.alert("acknowledged", "", "maria", "looking: into it")
	r.poll()
	mark := "[tocsin acknowledged shop/" + key.Name + " here]"
	r.Expect(r.am.active()).To(ConsistOf("maria: looking: into it " + mark))
	r.Expect(r.am.silences[0].Matchers).To(ConsistOf(
		silences.Matcher{Name: "namespace", Value: "shop"}, silences.Matcher{Name: "tocsin_incident", Value: key.Name}, silences.Matcher{Name: "cluster", Value: "prod-1"}))

	// It is renewed, also by a new leader, and never doubled.
	for range 120 {
		r.time = r.time.Add(time.Minute)
		r.endpoint.silencer.silenced = nil
		r.poll()
		r.Expect(r.am.silences).To(HaveLen(1))
		r.Expect(r.am.silences[0].EndsAt).To(BeTemporally(">", r.time))
	}
	r.Expect(r.am.writes).To(BeNumerically("<=", 1+120/5))

	// A lower severity changes nothing; a higher one ends it.
	r.alert("firing", "info", "", "")
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(1))
	r.alert("firing", "critical", "", "")
	r.poll()
	r.Expect(r.am.active()).To(BeEmpty())
}

// An Alertmanager with a clock of its own silences at once, for as long as it is told again.
func TestAcknowledgedIncidentIsSilencedByAnotherClock(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			r := newSilenceRig(t)
			r.am.now = func() time.Time { return r.time.Add(ahead) }
			r.alert("firing", "", "", "")
			r.alert("acknowledged", "", "maria", "")
			for range 60 {
				r.poll()
				r.Expect(r.am.silences).To(HaveLen(1))
				r.Expect(r.am.silences[0].StartsAt).NotTo(BeTemporally(">", r.am.now()))
				r.time = r.time.Add(time.Minute)
				r.Expect(r.am.silences[0].EndsAt).To(BeTemporally(">", r.am.now()))
			}
			r.Expect(r.am.writes).To(BeNumerically("<=", 1+60/5))
			r.alert("resolved", "", "", "")
			r.poll()
			r.Expect(r.am.active()).To(BeEmpty())
		})
	}
}

func TestAnAcknowledgementSilencesNoHigherSeverity(t *testing.T) {
	note := func(r *silencerRig) { r.alert("noted", "", "maria", "still looking") }
	flap := func(r *silencerRig) { r.alert("firing", "info", "", ""); r.alert("firing", "warning", "", "") }
	for name, c := range map[string]struct{ before, after func(*silencerRig) }{
		"critical after many notes":           {note, nil},
		"critical after flapping":             {flap, nil},
		"critical before many notes":          {nil, note},
		"critical after and before many more": {flap, note},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSilenceRig(t)
			often := func(act func(*silencerRig)) {
				for range v1alpha1.MaxTimeline {
					if act != nil {
						act(r)
					}
				}
			}
			r.alert("firing", "warning", "", "")
			r.alert("acknowledged", "", "maria", "")
			often(c.before)
			r.poll()
			r.Expect(r.am.active()).To(HaveLen(1))
			r.alert("firing", "critical", "", "")
			often(c.after)
			r.poll()
			r.Expect(r.am.active()).To(BeEmpty())
			r.alert("acknowledged", "", "alex", "")
			r.poll()
			r.Expect(r.am.active()).To(HaveLen(1), "it was acknowledged at critical")
		})
	}
}

func TestResolveEndsTheSilenceOfAnAcknowledgement(t *testing.T) {
	r := newSilenceRig(t)
	r.alert("firing", "", "", "")
	r.alert("acknowledged", "", "maria", "")
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(1))
	r.alert("resolved", "", "", "")
	r.poll()
	r.Expect(r.am.active()).To(BeEmpty())
	r.alert("firing", "", "", "")
	r.poll()
	r.Expect(r.am.active()).To(BeEmpty(), "the next episode is not acknowledged")
	r.target.SilenceAcknowledged = false
	r.alert("acknowledged", "", "maria", "")
	r.poll()
	r.Expect(r.am.active()).To(BeEmpty(), "it is off by default")
}

func TestRequestedSilence(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	until := v1alpha1.NewTimestamp(r.time.Add(2 * time.Hour))
	r.edit(key, func(s *v1alpha1.IncidentStatus) {
		s.Silence = &v1alpha1.Silence{EndTime: until, By: "maria", Comment: "planned"}
	})
	r.poll()
	r.Expect(r.am.active()).To(ConsistOf("maria: planned [tocsin requested shop/" + key.Name + " 2026-05-04T14:01:00Z here]"))
	r.poll()
	r.Expect(r.am.writes).To(Equal(1))
	r.Expect(r.am.silences[0].EndsAt).To(BeTemporally("==", until.Time))
	r.edit(key, func(s *v1alpha1.IncidentStatus) { s.Silence = nil })
	r.poll()
	r.Expect(r.am.active()).To(BeEmpty())
}

// GitOps tools delete an integration and create it again. Its alerts fire on meanwhile, and so do not page.
func TestSilencesStayWhileAnIntegrationIsAbsent(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	r.alert("acknowledged", "", "maria", "")
	r.edit(key, func(s *v1alpha1.IncidentStatus) {
		s.Silence = &v1alpha1.Silence{EndTime: v1alpha1.NewTimestamp(r.time.Add(2 * time.Hour)), By: "maria", Comment: "planned"}
	})
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(2))
	r.disintegrate()
	for range 20 {
		r.time = r.time.Add(time.Minute)
		r.poll()
		r.Expect(r.am.active()).To(HaveLen(2))
	}
	r.integrate(v1alpha1.WebhookIntegrationSpec{})
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(2))
}

// An alert that ends under a silence is not notified about, so its end is posted again once the silence has ended.
func TestResolveEndsARequestedSilence(t *testing.T) {
	r := newSilenceRig(t)
	s := newPoster(r.term, "am", "am")
	r.term.endpoints.members["am"] = r.endpoint
	r.endpoint.posters.members["am"] = s
	key := r.alert("firing", "", "", "")
	r.request(key, time.Hour)
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(1))
	r.alert("resolved", "", "", "")
	r.poll()
	r.Expect(r.am.active()).To(BeEmpty())
	posted, _, ok := s.schedule.changed.next()
	r.Expect(ok).To(BeTrue())
	r.Expect(posted).To(Equal(key))
}

func TestASilenceThatSomebodyEndsIsNotMadeAgain(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	r.term.endpoints.members["am"] = r.endpoint
	r.term.forwarder.term.Store(r.term)
	ended := func() time.Time {
		rule, _ := r.term.forwarder.RuleFor(types.NamespacedName{Namespace: key.Namespace, Name: key.Name}).(silences.Rule)
		return rule.Ended
	}
	first := r.request(key, time.Hour)
	r.poll()
	r.Expect(ended()).To(BeZero())
	expire(t, r.am, "id-0")
	r.poll()
	r.Expect(r.changed).To(ConsistOf(key))
	r.Expect(ended()).To(BeTemporally("==", first))
	r.lead() // a new leader knows it as well
	r.term.endpoints.members["am"] = r.endpoint
	r.poll()
	r.Expect(ended()).To(BeTemporally("==", first))
	r.Expect(r.am.active()).To(BeEmpty())
	r.poll()
	r.Expect(r.changed).To(BeEmpty(), "it is no news any more")

	second := r.request(key, 3*time.Hour)
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(1), "a new request has a silence of its own")
	r.Expect(ended()).To(BeZero())
	third := r.request(key, 2*time.Hour)
	r.poll()
	r.Expect(r.am.silences).To(HaveLen(2), "it is changed, not replaced")
	r.Expect(r.am.silences[1].Comment).To(And(ContainSubstring(third.Format(time.RFC3339Nano)), Not(ContainSubstring(second.Format(time.RFC3339Nano)))))
	expire(t, r.am, "id-1")
	r.poll()
	r.Expect(ended()).To(BeTemporally("==", third))
}

// Only a person's end of a silence ends the request.
func TestASilenceThatTocsinHasEndedIsMadeAgain(t *testing.T) {
	never := v1alpha1.WebhookIntegrationSpec{Forward: v1alpha1.ForwardNever}
	for sentence, away := range map[string]func(r *silencerRig, key types.NamespacedName){
		"for an Incident that was excluded for a while": func(r *silencerRig, _ types.NamespacedName) {
			r.integrate(never)
			r.poll()
			r.Expect(r.am.active()).To(BeEmpty())
			r.integrate(v1alpha1.WebhookIntegrationSpec{})
		},
		"for one that was, if one of two had ended before": func(r *silencerRig, _ types.NamespacedName) {
			copied := r.am.silences[0]
			copied.ID = "id-1"
			r.am.silences = append(r.am.silences, copied)
			r.poll()
			r.integrate(never)
			r.poll()
			r.Expect(r.am.active()).To(BeEmpty())
			r.integrate(v1alpha1.WebhookIntegrationSpec{})
		},
		"for a request that was withdrawn and made again": func(r *silencerRig, key types.NamespacedName) {
			request := r.objects[key].Status.Silence
			r.edit(key, func(s *v1alpha1.IncidentStatus) { s.Silence = nil })
			r.poll()
			r.Expect(r.am.active()).To(BeEmpty())
			r.edit(key, func(s *v1alpha1.IncidentStatus) { s.Silence = request })
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newSilenceRig(t)
			key := r.alert("firing", "", "", "")
			r.request(key, time.Hour)
			r.poll()
			silenced := r.am.active()
			r.Expect(silenced).To(HaveLen(1))
			away(r, key)
			r.lead()
			r.poll()
			r.Expect(r.endpoint.silencer.ended).To(BeEmpty())
			r.Expect(r.am.active()).To(Equal(silenced))
		})
	}
}

// A leader that was frozen may not know what its successor wants.
func TestNoSilenceIsMadeAfterTheLease(t *testing.T) {
	r := newSilenceRig(t)
	r.request(r.alert("firing", "", "", ""), time.Hour)
	r.term.lease = &endingLease{ended: true}
	r.outcome = MatchError(errNoClock)
	r.poll()
	r.Expect(r.am.writes).To(BeZero())
}

// Two entries of the configuration lead to members of one cluster, which share their silences and list them in different orders.
func TestTwoEntriesForOneClusterKeepOneSilence(t *testing.T) {
	for _, smallest := range []string{"of the first", "of the second"} {
		t.Run("the silence "+smallest, func(t *testing.T) {
			r := newSilenceRig(t)
			key := r.alert("firing", "", "", "")
			until := r.request(key, time.Hour)
			own, other := r.endpoint, newEndpoint(r.term, r.target)
			r.poll()
			copied := r.am.silences[0] // made at the same moment by the other one
			copied.ID = map[string]string{"of the first": "id-1", "of the second": "id-"}[smallest]
			r.am.silences = append(r.am.silences, copied)
			for range 4 {
				for _, r.endpoint = range []*endpoint{own, other} {
					r.poll()
					slices.Reverse(r.am.silences)
					r.Expect(r.am.active()).To(HaveLen(1))
					r.Expect(r.endpoint.silencer.ended).To(BeEmpty(), "a person has ended none")
				}
			}
			r.Expect(r.am.writes).To(Equal(3), "one is made, and one of two loses its request and is ended")
			kept := r.am.silences[slices.IndexFunc(r.am.silences, func(s silences.Silence) bool { return !s.IsOver() })]
			r.Expect(kept.ID).To(Equal(map[string]string{"of the first": "id-0", "of the second": "id-"}[smallest]))
			for _, r.endpoint = range []*endpoint{own, other} {
				expire(t, r.am, kept.ID)
				r.poll()
				r.Expect(r.endpoint.silencer.ended[key]).To(BeTemporally("==", until), "now a person has")
			}
		})
	}
}

// A silence whose time is up by a clock of Alertmanager that is ahead was ended by nobody.
func TestASilenceThatRanOutWasEndedByNobody(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	r.request(key, time.Hour)
	r.poll()
	r.am.silences[0].Status = &silences.Status{State: "expired"}
	r.poll()
	r.Expect(r.endpoint.silencer.ended).To(BeEmpty())
}

// A version before this one wrote markers without the request.
func TestTheSilenceOfAnEarlierVersionIsUpdated(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	until := r.request(key, time.Hour)
	old := requested(key, "here")
	r.am.silences = []silences.Silence{{
		ID: "id", CreatedBy: "maria", Comment: old, StartsAt: noon, EndsAt: until, Matchers: matchersOf(key, "prod-1"),
	}}
	r.poll()
	r.Expect(r.am.silences).To(HaveLen(1))
	r.Expect(r.am.active()).To(ConsistOf(HaveSuffix(until.Format(time.RFC3339Nano) + " here]")))
}

// request has a silence requested for an Incident, and returns its end.
func (r *silencerRig) request(key types.NamespacedName, length time.Duration) time.Time {
	until := v1alpha1.NewTimestamp(r.time.Add(length))
	r.edit(key, func(s *v1alpha1.IncidentStatus) { s.Silence = &v1alpha1.Silence{EndTime: until, By: "maria"} })
	return until.Time
}

// expire ends a silence as somebody does in Alertmanager.
func expire(t *testing.T, am *silencing, id string) {
	t.Helper()
	am.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodDelete, "/api/v2/silence/"+id, nil))
}

// Silences of people, of other clusters, and such as only look like Tocsin's are left alone.
func TestForeignSilencesStay(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	mark, no := requested(key, "here"), false
	for _, s := range []silences.Silence{
		{Comment: "mine", Matchers: matchersOf(key, "prod-1")},
		{Comment: mark, Matchers: matchersOf(key, "other")},
		{Comment: mark, Matchers: []silences.Matcher{{Name: "namespace", Value: ".*", IsRegex: true}, {Name: "a", Value: "b"}, {Name: "c", Value: "d"}}},
		{Comment: mark, Matchers: []silences.Matcher{{Name: "namespace", Value: "shop", IsEqual: &no}, {Name: "tocsin_incident", Value: key.Name}, {Name: "cluster", Value: "prod-1"}}},
		{Comment: requested(key, "elsewhere"), Matchers: matchersOf(key, "prod-1")},
		{Comment: "[tocsin requested " + key.Namespace + "/" + key.Name + "]", Matchers: matchersOf(key, "prod-1")},
		{Comment: "[tocsin nonsense]", Matchers: matchersOf(key, "prod-1")},
	} {
		s.ID, s.CreatedBy, s.EndsAt = fmt.Sprint(len(r.am.silences)), "somebody", noon.Add(time.Hour)
		r.am.silences = append(r.am.silences, s)
	}
	r.poll()
	r.Expect(r.am.writes).To(BeZero())
}

// Alertmanager keeps an ended silence for days, and it cannot begin again.
func TestAcknowledgingInTurnsMakesFewSilences(t *testing.T) {
	r := newSilenceRig(t)
	r.alert("firing", "", "", "")
	began := r.time
	for r.time.Before(began.Add(4 * time.Hour)) {
		r.alert("acknowledged", "", "maria", "")
		r.poll()
		r.alert("unacknowledged", "", "maria", "")
		r.poll()
		r.Expect(r.am.active()).To(BeEmpty())
	}
	r.Expect(len(r.am.silences)).To(BeNumerically("<=", 5*newSilences))
	r.Expect(len(r.am.silences)).To(BeNumerically(">=", 4*newSilences))
	r.time = r.time.Add(time.Hour)
	r.alert("acknowledged", "", "maria", "")
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(1))
}

// A call that fails each time, and an Incident that cannot be read, concern no other.
func TestOneFailureDoesNotEndTheRound(t *testing.T) {
	r := newSilenceRig(t)
	request := func(key types.NamespacedName) {
		r.edit(key, func(s *v1alpha1.IncidentStatus) {
			s.Silence = &v1alpha1.Silence{EndTime: v1alpha1.NewTimestamp(noon.Add(100 * time.Hour)), By: "maria"}
		})
	}
	var keys []types.NamespacedName
	for i := range 10 {
		_, after := r.fold(v1alpha1.Alert{DedupKey: fmt.Sprint(i), Status: v1alpha1.AlertFiring})
		keys = append(keys, client.ObjectKeyFromObject(after))
		request(client.ObjectKeyFromObject(after))
	}
	r.am.refuses = func(s silences.Silence) bool { return s.Matchers[1].Value == keys[0].Name }
	r.outcome = MatchError(ContainSubstring("403"))
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(9))
	r.am.refuses = nil
	r.unreadable = keys[1]
	ended := r.objects[keys[1]].DeepCopy()
	ended.ResourceVersion = "1000"
	r.term.incidentGone(ended)
	r.outcome = MatchError(ContainSubstring(keys[1].Name))
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(10), "nothing is known about it, so nothing changes")
	r.unreadable, r.outcome = types.NamespacedName{}, Not(HaveOccurred())
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(10))
}

// An Alertmanager that refuses everything is not asked for each silence.
func TestFailuresInARowEndTheRound(t *testing.T) {
	r := newSilenceRig(t)
	for i := range 100 {
		_, after := r.fold(v1alpha1.Alert{DedupKey: fmt.Sprint(i), Status: v1alpha1.AlertFiring})
		r.edit(client.ObjectKeyFromObject(after), func(s *v1alpha1.IncidentStatus) {
			s.Silence = &v1alpha1.Silence{EndTime: v1alpha1.NewTimestamp(noon.Add(time.Hour))}
		})
	}
	r.am.refuses = func(silences.Silence) bool { return true }
	r.outcome = HaveOccurred()
	r.poll()
	r.Expect(r.am.writes).To(Equal(maxSilenceFailures))
}

// A Tocsin has no silences, and that is no failure. Another 404 is.
func TestATocsinHasNoSilences(t *testing.T) {
	r := newSilenceRig(t)
	_, after := r.fold(v1alpha1.Alert{DedupKey: "k", Status: v1alpha1.AlertFiring})
	r.edit(client.ObjectKeyFromObject(after), func(s *v1alpha1.IncidentStatus) {
		s.Silence = &v1alpha1.Silence{EndTime: v1alpha1.NewTimestamp(noon.Add(time.Hour))}
	})
	body := `{"type":"tag:tocsin.dev,2026:not-found","title":"Not found","status":404}`
	r.am.answer = func(to io.Writer, path string) bool {
		w, ok := to.(http.ResponseWriter)
		if ok && path == "silences" {
			http.Error(w, body, http.StatusNotFound)
		}
		return path == "silences"
	}
	r.poll()
	r.Expect(r.am.writes).To(BeZero())
	body, r.outcome = "404 page not found", MatchError(ContainSubstring("404"))
	r.poll()
}

// Thousands of silenced alerts make an answer of 40 MB.
func TestAnyNumberOfSilencedAlertsIsRead(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	filler := strings.Repeat("x", 20<<10)
	r.am.answer = func(w io.Writer, path string) bool {
		if path == "alerts" {
			_, _ = io.WriteString(w, "[")
			for i := range 2000 {
				_, _ = fmt.Fprintf(w, `{"annotations":{"description":%q},"labels":{"namespace":"gone","tocsin_incident":"%d"},"status":{"silencedBy":["id"]}},`, filler, i)
			}
			_, _ = fmt.Fprintf(w, `{"labels":{"namespace":"shop","tocsin_incident":%q},"status":{"silencedBy":["id"]}}]`, key.Name)
		}
		return path == "alerts"
	}
	r.am.silences = []silences.Silence{{ID: "id", CreatedBy: "maria", Comment: "x", EndsAt: noon.Add(time.Hour)}}
	r.poll()
	r.Expect(r.endpoint.silencer.silenced).To(HaveLen(1))
	r.Expect(r.endpoint.silencer.silenced).To(HaveKeyWithValue(key, v1alpha1.Silence{ID: "id", By: "maria", Comment: "x", EndTime: v1alpha1.NewTimestamp(noon.Add(time.Hour))}))
}

// Two installations share an Alertmanager, and have the same external labels.
func TestInstallationsLeaveEachOthersSilencesAlone(t *testing.T) {
	one, two := newSilenceRig(t), newSilenceRig(t)
	two.am, two.id = one.am, "elsewhere"
	two.lead()
	one.alert("firing", "", "", "")
	one.alert("acknowledged", "", "maria", "")
	for range 3 {
		one.poll()
		two.poll() // which has no such Incident
	}
	one.Expect(one.am.active()).To(HaveLen(1))
	one.Expect(one.am.writes).To(Equal(1))

	two.alert("firing", "", "", "") // the same name
	two.alert("acknowledged", "", "maria", "")
	two.poll()
	two.Expect(one.am.active()).To(HaveLen(2))
	one.alert("resolved", "", "", "")
	one.poll()
	two.Expect(one.am.active()).To(ConsistOf(HaveSuffix("elsewhere]")))
}

func TestCoveringSilencesAreAnnouncedWhenTheyChange(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	r.edit(key, func(s *v1alpha1.IncidentStatus) {
		s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.ConditionSilenced})
	})
	r.poll()
	r.Expect(r.changed).To(ConsistOf(key), "a new leader checks what the last one wrote")
	r.poll()
	r.Expect(r.changed).To(BeEmpty())
	alert := silencedAlert{Labels: map[string]string{"namespace": "shop", "tocsin_incident": key.Name}}
	alert.Status.SilencedBy = []string{"short", "long", "own", "gone"}
	r.am.covered = []silencedAlert{alert}
	r.am.silences = []silences.Silence{
		{ID: "short", CreatedBy: "a", Comment: "x", EndsAt: noon.Add(time.Hour)},
		{ID: "long", CreatedBy: "b", Comment: "y", EndsAt: noon.Add(2 * time.Hour)},
		{ID: "own", CreatedBy: "c", Comment: "[tocsin acknowledged shop/" + key.Name + " here]", EndsAt: noon.Add(3 * time.Hour)},
	}
	r.poll()
	r.Expect(r.changed).To(ConsistOf(key))
	r.Expect(r.endpoint.silencer.silenced).To(HaveKeyWithValue(key, v1alpha1.Silence{
		ID: "long", By: "b", Comment: "y", EndTime: v1alpha1.NewTimestamp(noon.Add(2 * time.Hour)),
	}))
	r.poll()
	r.Expect(r.changed).To(BeEmpty(), "no write for a poll without news")
	r.am.covered = nil
	r.poll()
	r.Expect(r.changed).To(ConsistOf(key))
	r.Expect(r.endpoint.silencer.silenced).To(BeEmpty())
}

// Without --alertmanager-config, requests for silences say that the forwarding is off.
func TestARuleOfNoForwarderIsDisabled(t *testing.T) {
	g, key := NewWithT(t), types.NamespacedName{Namespace: namespace, Name: "a"}
	g.Expect((*Forwarder)(nil).RuleFor(key)).To(Equal(silences.Rule{Disabled: true}))
	g.Expect(New(Options{}, nil, nil, logr.Discard()).RuleFor(key)).To(Equal(silences.Rule{}), "nothing is known before a term")
}
