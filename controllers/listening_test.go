package controllers

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

var (
	shop  = types.NamespacedName{Namespace: "shop", Name: "mon"}
	other = types.NamespacedName{Namespace: "other", Name: "mon"}
)

func TestListening(t *testing.T) {
	type step struct {
		at      time.Duration
		answer  bool          // of the API server
		ahead   time.Duration // of the own clock
		refused *types.NamespacedName
	}
	answer := func(at time.Duration) step { return step{at: at, answer: true} }
	refuse := func(whom *types.NamespacedName) step { return step{at: 5 * time.Second, refused: whom} }
	never := time.Duration(-1)
	for sentence, c := range map[string]struct {
		steps []step
		now   time.Duration
		from  time.Duration // never: nothing may end for its age
	}{
		"nothing was answered yet: nothing ends":               {nil, 0, never},
		"answers without a gap: since the first":               {[]step{answer(0), answer(15 * time.Second), answer(30 * time.Second)}, 31 * time.Second, 0},
		"a gap: since the first answer after it":               {[]step{answer(0), answer(16 * time.Second)}, 17 * time.Second, 16 * time.Second},
		"in the gap: nothing ends":                             {[]step{answer(0)}, 16 * time.Second, never},
		"the clock a minute ahead: it may":                     {[]step{{answer: true, ahead: time.Minute}}, 0, 0},
		"the clock two minutes ahead: nothing ends":            {[]step{{answer: true, ahead: 2 * time.Minute}}, 0, never},
		"the clock two minutes behind: nothing ends":           {[]step{{answer: true, ahead: -2 * time.Minute}}, 0, never},
		"the clock is right again: since ever":                 {[]step{{answer: true, ahead: time.Hour}, answer(5 * time.Second)}, 5 * time.Second, 0},
		"an alert of it was refused: since then":               {[]step{answer(0), refuse(&shop)}, 9 * time.Second, 5 * time.Second},
		"an alert of another integration was refused: as ever": {[]step{answer(0), refuse(&other)}, 9 * time.Second, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			clock := newFakeClock(testEpoch)
			l := newListening(clock)
			for _, step := range c.steps {
				clock.SetTime(testEpoch.Add(step.at))
				if step.answer {
					l.answered(clock.Now(), clock.Now(), clock.Now().Add(-step.ahead))
				}
				if step.refused != nil {
					l.Refused(*step.refused)
				}
			}
			from, ok := l.silentFrom(shop, testEpoch.Add(c.now))
			g.Expect(ok).To(Equal(c.from != never))
			if ok {
				g.Expect(from).To(Equal(testEpoch.Add(c.from + autoResolveGrace)))
			}
		})
	}
	t.Run("a clock that is set shows before the next answer", func(t *testing.T) {
		g := NewWithT(t)
		l := newListening(systemClock{})
		now := time.Now()
		l.answered(now, now, now)
		_, ok := l.silentFrom(shop, now.Add(time.Second))
		g.Expect(ok).To(BeTrue())
		// The monotonic clock says that a second has passed, the wall clock says that it was an hour.
		l.last = l.last.Add(-time.Second)
		l.ahead = 0
		set := now.Round(0).Add(time.Hour)
		g.Expect(l.aheadAt(set)).To(BeNumerically("~", 0, time.Second), "without a monotonic reading nothing shows")
		_, ok = l.silentFrom(shop, set)
		g.Expect(ok).To(BeFalse())
	})
	for sentence, test := range map[string]struct {
		suspended time.Duration
		heard     bool // since before
	}{
		"a machine that is suspended for seconds listens":         {5 * time.Second, true},
		"a machine that is suspended for longer has not listened": {20 * time.Second, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			l, before := newListening(systemClock{}), time.Now()
			after := suspended(before.Add(time.Second), test.suspended)
			g.Expect(after.Sub(before)).To(Equal(time.Second), "by the monotonic clock")
			g.Expect(after.Round(0).Sub(before.Round(0))).To(Equal(time.Second+test.suspended), "by the wall clock")
			l.answered(before, before, before)
			_, ok := l.silentFrom(shop, after)
			g.Expect(ok).To(Equal(test.heard))
			l.answered(after, after, after)
			g.Expect(l.since.Equal(before)).To(Equal(test.heard))
		})
	}
	t.Run("more integrations than are remembered: nobody in their namespace was silent", func(t *testing.T) {
		g := NewWithT(t)
		clock := newFakeClock(testEpoch)
		l := newListening(clock)
		l.answered(clock.Now(), clock.Now(), clock.Now())
		clock.SetTime(testEpoch.Add(10 * time.Second))
		for i := range maxRefusals + 1 {
			l.Refused(types.NamespacedName{Namespace: "n", Name: string(rune(i))})
		}
		g.Expect(len(l.refusals["n"].integrations)).To(BeNumerically("<=", maxRefusals))
		from, ok := l.silentFrom(types.NamespacedName{Namespace: "n", Name: "quiet"}, clock.Now())
		g.Expect(ok).To(BeTrue())
		g.Expect(from).To(Equal(testEpoch.Add(10*time.Second + autoResolveGrace)))
		from, _ = l.silentFrom(shop, clock.Now())
		g.Expect(from).To(Equal(testEpoch.Add(autoResolveGrace)), "no tenant defers what another one asked for")
	})
}

// suspended returns the time at which a machine goes on that was suspended for d at t: only the wall clock shows it.
func suspended(t time.Time, d time.Duration) time.Time {
	later := t.Add(d)
	monotonic := reflect.ValueOf(&later).Elem().FieldByName("ext")
	reflect.NewAt(monotonic.Type(), monotonic.Addr().UnsafePointer()).Elem().SetInt(monotonic.Int() - int64(d))
	return later
}

func TestTheProbe(t *testing.T) {
	t.Run("a real API server answers it and stores nothing", func(t *testing.T) {
		s := newSite(t)
		l, err := newProbing(controlPlane(t), []string{s.namespace}, nil)
		s.Expect(err).NotTo(HaveOccurred())
		l.probe(s.ctx)
		_, ok := l.silentFrom(shop, time.Now())
		s.Expect(ok).To(BeTrue())
		s.Expect(s.eventNames()).To(BeEmpty())
		server, err := l.prober.ask(s.ctx)
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(server).To(BeTemporally("~", time.Now(), 5*time.Second))
	})
	for sentence, c := range map[string]struct {
		code  int
		ahead time.Duration // of the own clock
		ok    bool
	}{
		"created":                          {http.StatusCreated, 0, true},
		"refused by a quota":               {http.StatusForbidden, 0, true},
		"the token expired":                {http.StatusUnauthorized, 0, false},
		"too many requests":                {http.StatusTooManyRequests, 0, false},
		"an internal error":                {http.StatusInternalServerError, 0, false},
		"the clock is an hour ahead":       {http.StatusCreated, time.Hour, false},
		"the clock is five minutes behind": {http.StatusCreated, -5 * time.Minute, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/apis/tocsin.dev/v1alpha1/namespaces/default/alertevents" || r.URL.Query().Get("dryRun") != "All" {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				w.Header().Set("Date", time.Now().Add(-c.ahead).UTC().Format(http.TimeFormat))
				w.WriteHeader(c.code)
			}))
			defer server.Close()
			l, err := newProbing(&rest.Config{Host: server.URL}, nil, nil)
			g.Expect(err).NotTo(HaveOccurred())
			l.probe(t.Context())
			_, ok := l.silentFrom(shop, time.Now())
			g.Expect(ok).To(Equal(c.ok))
			now, ok := l.Now()
			g.Expect(ok).To(BeTrue(), "any answer tells the time")
			g.Expect(now).To(BeTemporally("~", time.Now().Add(-c.ahead), 2*time.Second))
		})
	}
	for sentence, hangs := range map[string]bool{"is away": false, "hangs": true} {
		t.Run("an admission webhook of the namespace "+sentence+": the time is known", func(t *testing.T) {
			s := newSite(t)
			s.refuseProbes(t, hangs)
			l, err := newProbing(controlPlane(t), []string{s.namespace}, nil)
			s.Expect(err).NotTo(HaveOccurred())
			s.Eventually(func() error {
				_, err := l.prober.ask(s.ctx)
				return err
			}, "30s").Should(HaveOccurred(), "the API server knows the webhook")
			s.Eventually(func() bool { // an API server that gives up may close the connection instead
				l.probe(s.ctx)
				_, ok := l.Now()
				return ok
			}, "60s").Should(BeTrue())
			_, ok := l.silentFrom(shop, time.Now())
			s.Expect(ok).To(BeFalse(), "no alert can be stored")
			now, _ := l.Now()
			s.Expect(now).To(BeTemporally("~", time.Now(), 5*time.Second))
		})
	}
	t.Run("it goes on until it is stopped", func(t *testing.T) {
		g := NewWithT(t)
		var asked atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
		defer server.Close()
		l, err := newProbing(&rest.Config{Host: server.URL}, nil, nil)
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Start(ctx) }()
		g.Eventually(asked.Load).Should(BeNumerically(">=", 1))
		cancel()
		g.Eventually(ended).Should(Receive(BeNil()))
		g.Expect(l.NeedLeaderElection()).To(BeFalse())
	})
}

// refuseProbes makes the API server ask a webhook about each AlertEvent of the namespace. Nothing listens at its address, or it
// accepts connections and says nothing.
func (s *site) refuseProbes(t *testing.T, hangs bool) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.Expect(err).NotTo(HaveOccurred())
	address := listener.Addr().String()
	if hangs {
		t.Cleanup(func() { _ = listener.Close() })
	} else {
		s.Expect(listener.Close()).To(Succeed())
	}
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "away.example.com", AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address)},
			FailurePolicy:     new(admissionregistrationv1.Fail),
			SideEffects:       new(admissionregistrationv1.SideEffectClassNone),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"alertevents"},
				},
			}},
		}},
	}
	s.Expect(s.live.Create(s.ctx, configuration)).To(Succeed())
	t.Cleanup(func() { _ = s.live.Delete(context.Background(), configuration) })
}

// listen gives the site's folder a Listening that the test controls.
func (s *site) listen() *Listening {
	l := newListening(s.clock)
	s.incidents.listening = l
	return l
}

// answer is one of the API server, with its clock behind the own one.
func (s *site) answer(l *Listening, ahead time.Duration) {
	now := s.clock.Now()
	l.answered(now, now, now.Add(-ahead))
}

func TestSilenceIsMeasuredOnlyWhileWeListen(t *testing.T) {
	minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }
	opened := func(t *testing.T) (*site, *Listening) {
		t.Helper()
		s := newSite(t)
		l := s.listen()
		s.integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
			spec.AutoResolveAfter = &metav1.Duration{Duration: time.Minute}
		})
		s.answer(l, 0)
		l.since = l.since.Add(-time.Hour)
		s.postFiring("disk")
		s.Expect(s.fold("disk").RequeueAfter).To(Equal(time.Minute))
		s.release()
		return s, l
	}
	state := func(s *site) v1alpha1.IncidentState {
		s.fold("disk")
		return s.incident("disk").Status.State
	}
	later := func(s *site, d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

	t.Run("listening all the while, it resolves", func(t *testing.T) {
		s, l := opened(t)
		later(s, time.Minute)
		s.answer(l, 0)
		l.since = l.since.Add(-minutes(10))
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("the API server was away: it resolves after grace and autoResolveAfter", func(t *testing.T) {
		s, l := opened(t)
		later(s, minutes(10))
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen), "nothing is known")
		s.Expect(s.fold("disk").RequeueAfter).To(Equal(untrustedRetry))
		s.answer(l, 0)
		s.Expect(s.fold("disk").RequeueAfter).To(Equal(autoResolveGrace + time.Minute))
		for range 10 {
			later(s, 11*time.Second)
			s.answer(l, 0)
		}
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen))
		later(s, 10*time.Second)
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("an alert of the integration was refused: it does not resolve", func(t *testing.T) {
		s, l := opened(t)
		l.Refused(types.NamespacedName{Namespace: s.namespace, Name: integrationName})
		later(s, time.Minute)
		s.answer(l, 0)
		l.since = l.since.Add(-minutes(10))
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen))
	})
	t.Run("the clock is wrong: nothing resolves", func(t *testing.T) {
		s, l := opened(t)
		later(s, time.Hour)
		s.answer(l, time.Hour)
		l.since = time.Time{}
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen))
	})
	t.Run("the clock is wrong: nothing is deleted", func(t *testing.T) {
		s, l := opened(t)
		s.post(s.alert(v1alpha1.AlertResolved, "disk"))
		s.fold("disk")
		s.release()
		later(s, 365*day)
		s.answer(l, 365*day)
		s.fold("disk")
		s.incident("disk")
		s.answer(l, 0)
		s.fold("disk")
		s.Expect(s.incidentNames()).To(BeEmpty())
	})
	t.Run("an alert is stored and not seen: nothing resolves", func(t *testing.T) {
		s, l := opened(t)
		later(s, time.Minute)
		s.answer(l, 0)
		l.since = l.since.Add(-minutes(10))
		event := s.postFiring("disk")
		s.cache.hidden[event.UID] = true
		s.Expect(s.fold("disk").RequeueAfter).To(Equal(writeInterval))
		s.Expect(s.incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
		s.cache.hidden[event.UID] = false
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen))
	})
	t.Run("a replica whose clock is an hour behind received the alert: it is no hour of silence", func(t *testing.T) {
		s, l := opened(t)
		later(s, 30*time.Second)
		s.answer(l, 0)
		l.since = l.since.Add(-minutes(10))
		event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{
			IntegrationName: integrationName, ReceivedTime: v1alpha1.NewTimestamp(s.clock.Now().Add(-time.Hour)),
			Alerts: []v1alpha1.Alert{s.alert(v1alpha1.AlertFiring, "cpu")},
		}}
		event.Namespace, event.GenerateName = s.namespace, "behind-"
		s.Expect(s.live.Create(s.ctx, event)).To(Succeed())
		s.created[event.UID] = metav1.NewTime(s.clock.Now())
		s.fold("cpu")
		s.Expect(s.incident("cpu").Status.LastAlertTime.Time).To(BeTemporally(">=", s.clock.Now().Add(-fold.MaxClockDifference-time.Second)))
	})
}
