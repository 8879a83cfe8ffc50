package forward

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// silencing is the part of Alertmanager that has silences.
type silencing struct {
	mu       sync.Mutex
	silences []silence
	covered  []silencedAlert
	writes   int
	refuses  func(silence) bool
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
		var s silence
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil || !s.EndsAt.After(s.StartsAt) || s.CreatedBy == "" || s.Comment == "" {
			http.Error(w, "invalid silence", http.StatusBadRequest)
			return
		}
		a.writes++
		if a.refuses != nil && a.refuses(s) {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		if at := slices.IndexFunc(a.silences, func(old silence) bool { return old.ID == s.ID }); at >= 0 {
			a.silences[at] = s
			return
		}
		s.ID = fmt.Sprint("id-", len(a.silences))
		a.silences = append(a.silences, s)
	case r.Method == http.MethodDelete:
		a.writes++
		for i := range a.silences {
			if a.silences[i].ID == strings.TrimPrefix(path, "silence/") {
				a.silences[i].Status = &struct {
					State string `json:"state"`
				}{"expired"}
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
		if !s.isOver() {
			active = append(active, s.CreatedBy+": "+s.Comment)
		}
	}
	return active
}

// silenceRig is an endpoint whose silences a test reconciles at times of its own.
type silenceRig struct {
	*WithT
	*cluster
	am       *silencing
	endpoint *endpoint
	target   *target
	time     time.Time
	changed  []incidentKey
	outcome  types.GomegaMatcher // of poll
	poll     func()
}

func newSilenceRig(t *testing.T) *silenceRig {
	t.Helper()
	r := &silenceRig{WithT: NewWithT(t), cluster: newCluster(), am: &silencing{}, time: noon, outcome: Not(HaveOccurred())}
	r.now = func() time.Time { return r.time }
	r.integrate(v1alpha1.WebhookIntegrationSpec{})
	r.target = targetOf(&Config{SilenceAcknowledged: true, ExternalLabels: map[string]string{"cluster": "prod-1"}})
	r.lead()
	r.poll = func() {
		t.Helper()
		client := &httpClient{http: &http.Client{Transport: r.am}, base: r.target.url}
		r.changed = nil
		_, err := r.endpoint.reconcileSilences(t.Context(), r.target, client, r.time)
		r.Expect(err).To(r.outcome)
	}
	return r
}

// lead starts anew, as a new leader does.
func (r *silenceRig) lead() {
	r.endpoint = newEndpoint(r.term, r.target)
	changed := func(name k8stypes.NamespacedName) {
		r.changed = append(r.changed, incidentKey{name.Namespace, name.Name})
	}
	r.term.forwarder.changed.Store(&changed)
}

func (r *silenceRig) alert(status v1alpha1.AlertStatus, severity v1alpha1.Severity, by, comment string) incidentKey {
	alert := v1alpha1.Alert{DedupKey: "k", Status: status, By: by, Comment: comment}
	alert.Severity = severity
	_, after := r.fold(alert)
	r.time = r.time.Add(time.Minute)
	return keyOf(after)
}

func TestAcknowledgedIncidentIsSilenced(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "warning", "", "")
	r.poll()
	r.Expect(r.am.active()).To(BeEmpty())
	r.alert("acknowledged", "", "maria", "looking: into it")
	r.poll()
	mark := "[tocsin acknowledged shop/" + key.name + " here]"
	r.Expect(r.am.active()).To(ConsistOf("maria: looking: into it " + mark))
	r.Expect(r.am.silences[0].Matchers).To(ConsistOf(
		matcher{Name: "namespace", Value: "shop"}, matcher{Name: "tocsin_incident", Value: key.name}, matcher{Name: "cluster", Value: "prod-1"}))

	// It is renewed, also by a new leader, and never doubled.
	for range 120 {
		r.time = r.time.Add(time.Minute)
		r.endpoint.covered = nil
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

func TestAnAcknowledgementSilencesNoHigherSeverity(t *testing.T) {
	note := func(r *silenceRig) { r.alert("noted", "", "maria", "still looking") }
	flap := func(r *silenceRig) { r.alert("firing", "info", "", ""); r.alert("firing", "warning", "", "") }
	for name, c := range map[string]struct{ before, after func(*silenceRig) }{
		"critical after many notes":           {note, nil},
		"critical after flapping":             {flap, nil},
		"critical before many notes":          {nil, note},
		"critical after and before many more": {flap, note},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSilenceRig(t)
			often := func(act func(*silenceRig)) {
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
	r.target.config.SilenceAcknowledged = false
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
	r.Expect(r.am.active()).To(ConsistOf("maria: planned [tocsin requested shop/" + key.name + " 2026-05-04T14:01:00Z here]"))
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
	s := newSender(r.term, "am", "am")
	r.term.endpoints.members["am"] = r.endpoint
	r.endpoint.senders.members["am"] = s
	key := r.alert("firing", "", "", "")
	r.request(key, time.Hour)
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(1))
	r.alert("resolved", "", "", "")
	r.poll()
	r.Expect(r.am.active()).To(BeEmpty())
	posted, _, ok := s.queue.next()
	r.Expect(ok).To(BeTrue())
	r.Expect(posted).To(Equal(key))
}

func TestASilenceThatSomebodyEndsIsNotMadeAgain(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	r.term.endpoints.members["am"] = r.endpoint
	r.term.forwarder.term.Store(r.term)
	ended := func() time.Time {
		return r.term.forwarder.Silencing(k8stypes.NamespacedName{Namespace: key.namespace, Name: key.name}).Ended
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

// A silence whose time is up by a clock of Alertmanager that is ahead was ended by nobody.
func TestASilenceThatRanOutWasEndedByNobody(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	r.request(key, time.Hour)
	r.poll()
	r.am.silences[0].Status = &struct {
		State string `json:"state"`
	}{"expired"}
	r.poll()
	r.Expect(r.endpoint.ended).To(BeEmpty())
}

// A version before this one wrote markers without the request.
func TestTheSilenceOfAnEarlierVersionIsUpdated(t *testing.T) {
	r := newSilenceRig(t)
	key := r.alert("firing", "", "", "")
	until := r.request(key, time.Hour)
	old := marker{kindRequested, key, "here"}.String()
	r.am.silences = []silence{{
		ID: "id", CreatedBy: "maria", Comment: old, StartsAt: noon, EndsAt: until, Matchers: matchersOf(key, r.target.config),
	}}
	r.poll()
	r.Expect(r.am.silences).To(HaveLen(1))
	r.Expect(r.am.active()).To(ConsistOf(HaveSuffix(until.Format(time.RFC3339Nano) + " here]")))
}

// request has a silence requested for an Incident, and returns its end.
func (r *silenceRig) request(key incidentKey, length time.Duration) time.Time {
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
	mark, no := marker{kindRequested, key, "here"}.String(), false
	for _, s := range []silence{
		{Comment: "mine", Matchers: matchersOf(key, r.target.config)},
		{Comment: mark, Matchers: matchersOf(key, &Config{ExternalLabels: map[string]string{"cluster": "other"}})},
		{Comment: mark, Matchers: []matcher{{Name: "namespace", Value: ".*", IsRegex: true}, {Name: "a", Value: "b"}, {Name: "c", Value: "d"}}},
		{Comment: mark, Matchers: []matcher{{Name: "namespace", Value: "shop", IsEqual: &no}, {Name: "tocsin_incident", Value: key.name}, {Name: "cluster", Value: "prod-1"}}},
		{Comment: marker{kindRequested, key, "elsewhere"}.String(), Matchers: matchersOf(key, r.target.config)},
		{Comment: "[tocsin requested " + key.namespace + "/" + key.name + "]", Matchers: matchersOf(key, r.target.config)},
		{Comment: "[tocsin nonsense]", Matchers: matchersOf(key, r.target.config)},
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
	r.Expect(len(r.am.silences)).To(BeNumerically("<=", 5*maxNewSilences))
	r.Expect(len(r.am.silences)).To(BeNumerically(">=", 4*maxNewSilences))
	r.time = r.time.Add(newSilencesWindow)
	r.alert("acknowledged", "", "maria", "")
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(1))
}

func TestTheSilencesOfANamespaceAreBounded(t *testing.T) {
	g := NewWithT(t)
	plan := newSilencePlan(targetOf(&Config{}), "here", noon)
	add := func(namespace string) silence {
		key := incidentKey{namespace, "new"}
		plan.add(kindRequested, key, "maria", "", noon.Add(time.Hour))
		return plan.wanted[marker{kindRequested, key, "here"}]
	}
	add("full")
	wanted := add("other")
	for i := range maxNamespaceSilences {
		key := incidentKey{"full", fmt.Sprint(i)}
		s := silence{ID: "x", Matchers: matchersOf(key, plan.target.config), Comment: marker{kindRequested, key, "here"}.String()}
		s.Status = &struct {
			State string `json:"state"`
		}{"expired"}
		plan.see(&s)
	}
	g.Expect(plan.finish()).To(ConsistOf(silenceCall{key: incidentKey{"other", "new"}, set: wanted}))
}

func TestNamespacesTakeTurnsAtSilences(t *testing.T) {
	g := NewWithT(t)
	plan := newSilencePlan(targetOf(&Config{}), "here", noon)
	for i := range 10_000 {
		key := incidentKey{"storm", fmt.Sprint(i)}
		s := silence{ID: fmt.Sprint(i), Matchers: matchersOf(key, plan.target.config), Comment: marker{kindRequested, key, "here"}.String()}
		plan.see(&s)
	}
	plan.add(kindRequested, incidentKey{"calm", "x"}, "maria", "", noon.Add(time.Hour))
	calls := plan.finish()
	g.Expect(len(calls)).To(And(BeNumerically(">", maxSilenceCalls), BeNumerically("<=", maxUnwanted+2)))
	g.Expect([]string{calls[0].key.namespace, calls[1].key.namespace}).To(ContainElement("calm"))
}

// A call that fails each time, and an Incident that cannot be read, concern no other.
func TestOneFailureDoesNotEndTheRound(t *testing.T) {
	r := newSilenceRig(t)
	request := func(key incidentKey) {
		r.edit(key, func(s *v1alpha1.IncidentStatus) {
			s.Silence = &v1alpha1.Silence{EndTime: v1alpha1.NewTimestamp(noon.Add(100 * time.Hour)), By: "maria"}
		})
	}
	var keys []incidentKey
	for i := range 10 {
		_, after := r.fold(v1alpha1.Alert{DedupKey: fmt.Sprint(i), Status: v1alpha1.AlertFiring})
		keys = append(keys, keyOf(after))
		request(keyOf(after))
	}
	r.am.refuses = func(s silence) bool { return s.Matchers[1].Value == keys[0].name }
	r.outcome = MatchError(ContainSubstring("403"))
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(9))
	r.am.refuses = nil
	r.unreadable = keys[1]
	ended := r.objects[keys[1]].DeepCopy()
	ended.ResourceVersion = "1000"
	r.term.incidentGone(ended)
	r.outcome = MatchError(ContainSubstring(keys[1].name))
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(10), "nothing is known about it, so nothing changes")
	r.unreadable, r.outcome = incidentKey{}, Not(HaveOccurred())
	r.poll()
	r.Expect(r.am.active()).To(HaveLen(10))
}

// An Alertmanager that refuses everything is not asked for each silence.
func TestFailuresInARowEndTheRound(t *testing.T) {
	r := newSilenceRig(t)
	for i := range 100 {
		_, after := r.fold(v1alpha1.Alert{DedupKey: fmt.Sprint(i), Status: v1alpha1.AlertFiring})
		r.edit(keyOf(after), func(s *v1alpha1.IncidentStatus) {
			s.Silence = &v1alpha1.Silence{EndTime: v1alpha1.NewTimestamp(noon.Add(time.Hour))}
		})
	}
	r.am.refuses = func(silence) bool { return true }
	r.outcome = HaveOccurred()
	r.poll()
	r.Expect(r.am.writes).To(Equal(maxSilenceFailures))
}

// A Tocsin has no silences, and that is no failure. Another 404 is.
func TestATocsinHasNoSilences(t *testing.T) {
	r := newSilenceRig(t)
	_, after := r.fold(v1alpha1.Alert{DedupKey: "k", Status: v1alpha1.AlertFiring})
	r.edit(keyOf(after), func(s *v1alpha1.IncidentStatus) {
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
			_, _ = fmt.Fprintf(w, `{"labels":{"namespace":"shop","tocsin_incident":%q},"status":{"silencedBy":["id"]}}]`, key.name)
		}
		return path == "alerts"
	}
	r.am.silences = []silence{{ID: "id", CreatedBy: "maria", Comment: "x", EndsAt: noon.Add(time.Hour)}}
	r.poll()
	r.Expect(r.endpoint.covered).To(HaveLen(1))
	r.Expect(r.endpoint.covered).To(HaveKeyWithValue(key, v1alpha1.Silence{By: "maria", Comment: "x", EndTime: v1alpha1.NewTimestamp(noon.Add(time.Hour))}))
}

// An Alertmanager that lies takes time, and no memory.
func TestListsThatLieTakeNoMemory(t *testing.T) {
	for name, c := range map[string]struct {
		start, element string
		err            OmegaMatcher
	}{
		"nothing":                     {"[ ", "{},", MatchError(ContainSubstring("EOF"))},
		"silences that are not known": {"[ ", `{"id":"` + strings.Repeat("x", 1000) + `","matchers":[{},{},{},{}]},`, MatchError(ContainSubstring("EOF"))},
		"an endless element":          {`[ {"comment":"`, "x", MatchError(ContainSubstring("too large"))},
		"an endless space":            {"[", " ", MatchError(ContainSubstring("too large"))},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			const size = 8 << 20
			stream := roundTrip(func(*http.Request) (*http.Response, error) {
				body := io.MultiReader(strings.NewReader(c.start), strings.NewReader(strings.Repeat(c.element, size/len(c.element))))
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
			})
			target := targetOf(&Config{})
			client := &httpClient{http: &http.Client{Transport: stream}, base: target.url}
			plan, covers := newSilencePlan(target, "here", noon), &coverage{}
			var before, now runtime.MemStats
			largest, n := uint64(0), 0
			err := list(t.Context(), client, "silences", nil, func(s *silence) {
				if n == 0 {
					runtime.GC()
					runtime.ReadMemStats(&before)
				}
				if n++; n%1000 == 0 && n < 4000 {
					runtime.GC()
					runtime.ReadMemStats(&now)
					largest = max(largest, now.HeapAlloc)
				}
				plan.see(s)
				covers.see(s)
			})
			g.Expect(err).To(c.err)
			g.Expect(largest).To(BeNumerically("<", before.HeapAlloc+4<<20))
		})
	}
}

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

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
	alert := silencedAlert{Labels: map[string]string{"namespace": "shop", "tocsin_incident": key.name}}
	alert.Status.SilencedBy = []string{"short", "long", "own", "gone"}
	r.am.covered = []silencedAlert{alert}
	r.am.silences = []silence{
		{ID: "short", CreatedBy: "a", Comment: "x", EndsAt: noon.Add(time.Hour)},
		{ID: "long", CreatedBy: "b", Comment: "y", EndsAt: noon.Add(2 * time.Hour)},
		{ID: "own", CreatedBy: "c", Comment: marker{kindAcknowledged, key, "here"}.String(), EndsAt: noon.Add(3 * time.Hour)},
	}
	r.poll()
	r.Expect(r.changed).To(ConsistOf(key))
	r.Expect(r.endpoint.covered).To(HaveKeyWithValue(key, v1alpha1.Silence{By: "b", Comment: "y", EndTime: v1alpha1.NewTimestamp(noon.Add(2 * time.Hour))}))
	r.poll()
	r.Expect(r.changed).To(BeEmpty(), "no write for a poll without news")
	r.am.covered = nil
	r.poll()
	r.Expect(r.changed).To(ConsistOf(key))
	r.Expect(r.endpoint.covered).To(BeEmpty())
}
