package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// restarts are the times at which a canary had the watch begin again.
type restarts struct {
	began time.Time
	times []string
}

// RestartWatches implements Watches.
func (r *restarts) RestartWatches(_ client.Object, listAnew bool) {
	r.times = append(r.times, fmt.Sprint(time.Since(r.began), map[bool]string{false: " watch again", true: " list anew"}[listAnew]))
}

// schemas are Schemas with an error, or none.
type schemas struct{ error }

func (s schemas) Verdict() error { return s.error }

func newCanary(t *testing.T, config *rest.Config, namespace string) (*Canary, *restarts) {
	t.Helper()
	log := &restarts{began: time.Now()}
	c, err := NewCanary(config, CanaryOptions{
		Namespace: namespace, Health: NewIngestHealth(clock.RealClock{}), Memory: queue.NewMemory(clock.RealClock{}),
		Schemas: schemas{}, Watches: log,
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c, log
}

// canStore reports whether the Incidents of any integration may be quiet.
func (c *Canary) canStore() bool {
	_, ok := c.options.Health.QuietFrom(shop, time.Time{})
	return ok
}

func TestARealAPIServerStoresTheCanary(t *testing.T) {
	s := testsite.NewReal(t)
	c, _ := newCanary(t, s.Config, s.Namespace)
	s.Expect(c.round(s.Ctx)).To(Equal(canaryInterval))
	s.Expect(c.canStore()).To(BeTrue())
	now, ok := c.options.Health.Now()
	s.Expect(ok).To(BeTrue())
	s.Expect(now).To(BeTemporally("~", time.Now(), 5*time.Second))

	list := v1alpha1.AlertEventList{}
	s.Expect(s.Live.List(s.Ctx, &list)).To(Succeed())
	canaries := func() (own []v1alpha1.AlertEvent) {
		s.Expect(s.Live.List(s.Ctx, &list)).To(Succeed())
		for _, event := range list.Items {
			if event.Namespace == s.Namespace {
				own = append(own, event)
			}
		}
		return own
	}
	s.Expect(canaries()).To(ConsistOf(And(
		HaveField("Name", HavePrefix("tocsin-canary-")), HaveField("UID", c.stored.UID),
		HaveField("Labels", HaveKeyWithValue("velero.io/exclude-from-backup", "true")))))
	s.Expect(s.EventNames()).To(BeEmpty(), "no alert of anybody waits")

	s.Expect(c.round(s.Ctx)).To(Equal(canaryInterval), "that it exists is an answer")
	s.Expect(canaries()).To(HaveLen(1), "there is no leader")
	another, _ := newCanary(t, s.Config, s.Namespace)
	s.Expect(another.round(s.Ctx)).To(Equal(canaryInterval))
	s.Expect(canaries()).To(HaveLen(2), "each process has its own")
}

// answers returns an API server that answers with each of these in turn, and then with the last one again.
func answers(t *testing.T, all ...func(http.ResponseWriter)) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/tocsin.dev/v1alpha1/namespaces/own/alertevents" {
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		answer := all[0]
		if len(all) > 1 {
			all = all[1:]
		}
		answer(w)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// created is the answer that a canary was stored with this resourceVersion.
func created(version int) func(http.ResponseWriter) {
	return answer(http.StatusCreated, 0, metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("uid-", version)), ResourceVersion: strconv.Itoa(version)},
	})
}

func answer(code int, ahead time.Duration, body any) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", time.Now().Add(-ahead).UTC().Format(http.TimeFormat))
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
}

func TestWhatTheAnswerToACanaryTells(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, message string) metav1.Status {
		return metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: code, Reason: reason, Message: message,
		}
	}
	denial := func(code int32, reason metav1.StatusReason) metav1.Status { // a webhook chooses both
		return status(code, reason, `admission webhook "x" denied the request: no`)
	}
	for sentence, c := range map[string]struct {
		code     int
		ahead    time.Duration // of the own clock
		body     any
		canStore bool
		denied   bool
		next     time.Duration
	}{
		"stored":                  {http.StatusCreated, 0, metav1.PartialObjectMetadata{}, true, false, canaryInterval},
		"it exists":               {http.StatusConflict, 0, metav1.Status{Reason: metav1.StatusReasonAlreadyExists}, true, false, canaryRetry},
		"denied by a quota":       {http.StatusForbidden, 0, status(403, metav1.StatusReasonForbidden, "exceeded quota: few, requested: x"), true, true, canaryInterval},
		"the token expired":       {http.StatusUnauthorized, 0, nil, false, false, canaryRetry},
		"too many requests":       {http.StatusTooManyRequests, 0, nil, false, false, canaryRetry},
		"an internal error":       {http.StatusInternalServerError, 0, nil, false, false, canaryRetry},
		"denied as unauthorized":  {http.StatusUnauthorized, 0, denial(401, metav1.StatusReasonUnauthorized), true, true, canaryInterval},
		"denied as an error":      {http.StatusInternalServerError, 0, denial(500, metav1.StatusReasonInternalError), true, true, canaryInterval},
		"denied as too many":      {http.StatusTooManyRequests, 0, denial(429, metav1.StatusReasonTooManyRequests), true, true, canaryInterval},
		"denied as if it existed": {http.StatusConflict, 0, denial(409, metav1.StatusReasonAlreadyExists), true, true, canaryInterval},
		"a webhook is away":       {http.StatusInternalServerError, 0, status(500, metav1.StatusReasonInternalError, `failed calling webhook "x": no route`), false, true, canaryInterval},
		"an hour ahead":           {http.StatusCreated, time.Hour, metav1.PartialObjectMetadata{}, true, false, canaryInterval},
		"five minutes behind":     {http.StatusCreated, -5 * time.Minute, metav1.PartialObjectMetadata{}, true, false, canaryInterval},
		"no answer of its own":    {http.StatusBadGateway, 0, "<html>", false, false, canaryRetry},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			canary, _ := newCanary(t, answers(t, answer(c.code, c.ahead, c.body)), "own")
			g.Expect(canary.round(t.Context())).To(Equal(c.next))
			g.Expect(canary.canStore()).To(Equal(c.canStore))
			g.Expect(canary.denied.Load() == 1).To(Equal(c.denied))
			now, ok := canary.options.Health.Now()
			g.Expect(ok).To(BeTrue(), "any answer tells the time")
			g.Expect(now).To(BeTemporally("~", time.Now().Add(-c.ahead), 2*time.Second))
		})
	}
}

// TestADeadConnectionFailsOneCanary: over HTTP/2, which keeps a connection that has died for up to 45 s, the leader would lose the lease.
func TestADeadConnectionFailsOneCanary(t *testing.T) {
	g := NewWithT(t)
	connections := map[string]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		if len(connections) == 1 {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		created(1)(w)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c, _ := newCanary(t, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "own")
	g.Expect(c.round(t.Context())).To(Equal(canaryRetry))
	g.Expect(c.round(t.Context())).To(Equal(canaryInterval))
}

func TestAWebhookOfTheOwnNamespaceLeavesTheTime(t *testing.T) {
	for sentence, hangs := range map[string]bool{"is away": false, "hangs": true} {
		t.Run("that "+sentence, func(t *testing.T) {
			s := testsite.NewReal(t)
			denyCanaries(t, s, hangs)
			c, _ := newCanary(t, s.Config, s.Namespace)
			s.Eventually(func() (failures []string) { // the API server knows the webhook; one that gives up may close the connection instead
				c.rename()
				if _, server, err := c.create(s.Ctx); !server.IsZero() && err != nil {
					failures = append(failures, err.Error())
				}
				return failures
			}, "60s").ShouldNot(BeEmpty())
			s.Eventually(func() bool {
				_, err := c.round(s.Ctx)
				s.Expect(err).NotTo(HaveOccurred())
				_, ok := c.options.Health.Now()
				return ok
			}, "60s").Should(BeTrue())
			s.Expect(c.canStore()).To(BeFalse())
			s.Expect(c.denied.Load() > 0).To(Equal(!hangs), "no other replica could do better")
			now, _ := c.options.Health.Now()
			s.Expect(now).To(BeTemporally("~", time.Now(), 5*time.Second))
		})
	}
}

func TestAStoreThatGoesBackEndsTheProcess(t *testing.T) {
	g := NewWithT(t)
	away := answer(http.StatusServiceUnavailable, 0, nil)
	c, _ := newCanary(t, answers(t, created(9), created(10), away, created(100), created(99)), "own")
	for range 4 {
		_, err := c.round(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(c.Start(t.Context())).To(MatchError(ContainSubstring("from resourceVersion 100 to 99: it was restored from a backup")))
}

// TestACanaryOfABackupHidesNoRestore restores a canary of the same name: none can be stored under it, so nothing tells the version.
func TestACanaryOfABackupHidesNoRestore(t *testing.T) {
	g := NewWithT(t)
	exists := answer(http.StatusConflict, 0, metav1.Status{Reason: metav1.StatusReasonAlreadyExists})
	c, _ := newCanary(t, answers(t, created(100), exists, created(50)), "own")
	g.Expect(c.round(t.Context())).To(Equal(canaryInterval))
	name := c.name
	c.options.Memory.NoteShown(c.shown(), false)
	c.options.Memory.NoteDeleted(c.shown())
	g.Expect(c.round(t.Context())).To(Equal(canaryRetry))
	g.Expect(c.name).NotTo(Equal(name))
	_, err := c.round(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("restored from a backup")))
}

// shown returns the stored canary as the watch shows it.
func (c *Canary) shown() *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: c.stored.Namespace, Name: c.stored.Name, UID: c.stored.UID}}
}

func TestAProcessWhoseCheckFailsStoresNoCanary(t *testing.T) {
	g := NewWithT(t)
	c, _ := newCanary(t, answers(t, created(1), answer(http.StatusTeapot, 0, nil)), "own")
	g.Expect(c.round(t.Context())).To(Equal(canaryInterval))
	before, _ := c.options.Health.QuietFrom(shop, time.Time{})
	c.options.Schemas = schemas{errors.New("older definitions")}
	g.Expect(c.round(t.Context())).To(Equal(checkInterval))
	g.Expect(c.canStore()).To(BeFalse(), "it listens to nobody")
	g.Expect(c.denied.Load()).To(BeZero(), "it has sent nothing")
	c.options.Schemas = schemas{}
	g.Expect(c.round(t.Context())).To(Equal(canaryInterval))
	after, ok := c.options.Health.QuietFrom(shop, time.Time{})
	g.Expect(ok).To(BeTrue())
	g.Expect(after).To(BeTemporally(">", before), "quiet starts anew")
}

// TestAWatchThatDoesNotShowTheCanaryBeginsAgain looks at the watch each second.
func TestAWatchThatDoesNotShowTheCanaryBeginsAgain(t *testing.T) {
	for sentence, test := range map[string]struct {
		leads        bool
		since        time.Duration // when it begins to lead
		shown, ended time.Duration // zero: never
		want         []string
	}{
		"a follower whose watch shows it":         {shown: time.Second},
		"a follower whose watch shows it late":    {shown: 15 * time.Second, want: []string{"10s watch again"}},
		"a follower whose watch has stalled":      {want: []string{"10s watch again", "20s list anew"}},
		"a leader whose watch shows its end":      {leads: true, shown: time.Second, ended: 9 * time.Second},
		"a leader whose watch shows no end":       {leads: true, shown: time.Second, want: []string{"10s watch again", "20s list anew"}},
		"a leader whose watch shows its end late": {leads: true, shown: time.Second, ended: 12 * time.Second, want: []string{"10s watch again"}},
		"a leader that began after it was shown": {
			leads: true, since: 5 * time.Second, shown: time.Second, want: []string{"15s watch again", "25s list anew"},
		},
		"a leader whose watch shows both in a bulk": {leads: true, shown: 8 * time.Second, ended: 8 * time.Second},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, log := newCanary(t, &rest.Config{Host: "http://127.0.0.1:1"}, "own")
				c.stored = queue.Ref{NamespacedName: types.NamespacedName{Namespace: "own", Name: c.name}, UID: "uid"}
				c.storedAt = time.Now()
				if test.leads {
					c.led.Store(new(time.Now().Add(test.since)))
				}
				event := c.shown()
				for at := time.Duration(0); at < time.Minute; at += time.Second {
					if test.shown > 0 && at == test.shown {
						c.options.Memory.NoteShown(event, false)
					}
					if test.ended > 0 && at == test.ended {
						c.options.Memory.NoteDeleted(event)
					}
					c.watchOver(time.Now())
					time.Sleep(time.Second)
				}
				NewWithT(t).Expect(log.times).To(HaveExactElements(test.want))
			})
		})
	}
}

func TestALeaderThatSeesNoCanaryEndGivesTheLeaseUp(t *testing.T) {
	for sentence, test := range map[string]struct {
		ends, denials time.Duration // how often; zero: never
		until         time.Duration // when they stop
		fails         time.Duration // zero: it does not
	}{
		"none ends from the start":         {fails: 30 * time.Second},
		"they end":                         {ends: 10 * time.Second, until: time.Hour},
		"they no longer end":               {ends: 10 * time.Second, until: 55 * time.Second, fails: 80 * time.Second},
		"the cluster denies them":          {denials: 10 * time.Second, until: time.Hour},
		"the cluster has ceased to do so":  {denials: 10 * time.Second, until: 15 * time.Second, fails: 40 * time.Second},
		"some end while it denies others":  {ends: 10 * time.Second, denials: 10 * time.Second, until: time.Hour},
		"they end as slowly as is allowed": {ends: 29 * time.Second, until: time.Hour},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				c, _ := newCanary(t, &rest.Config{Host: "http://127.0.0.1:1"}, "own")
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				every := func(interval time.Duration, do func(n int)) {
					for n := 1; interval > 0 && time.Duration(n)*interval <= test.until && ctx.Err() == nil; n++ {
						time.Sleep(interval)
						do(n)
					}
				}
				go every(test.ends, func(n int) {
					event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: c.name, UID: types.UID(strconv.Itoa(n))}}
					c.options.Memory.NoteShown(event, false)
					c.options.Memory.NoteDeleted(event)
				})
				go every(test.denials, func(int) { c.denied.Add(1) })
				began := time.Now()
				err := c.Lead(ctx)
				defer time.Sleep(time.Hour)
				defer cancel()
				if test.fails == 0 {
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(time.Since(began)).To(Equal(10 * time.Minute))
					return
				}
				g.Expect(err).To(MatchError(ContainSubstring("cannot fold")))
				g.Expect(time.Since(began)).To(BeNumerically("~", test.fails, time.Second))
			})
		})
	}
}

func TestALeaderKnowsSinceWhenItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c, _ := newCanary(t, &rest.Config{Host: "http://127.0.0.1:1"}, "own")
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		ended := make(chan error)
		go func() { ended <- c.Lead(ctx) }()
		synctest.Wait()
		g.Expect(c.led.Load()).To(HaveValue(Equal(began)))
		g.Expect(<-ended).To(Succeed())
		g.Expect(c.led.Load()).To(BeNil())
	})
}

func TestTheWatchHasTimeToShowEachCanary(t *testing.T) {
	g := NewWithT(t)
	c, log := newCanary(t, answers(t, created(1), created(2)), "own")
	for n := 1; n <= 2; n++ {
		c.stored = queue.Ref{} // as if the last one had ended
		g.Expect(c.round(t.Context())).To(Equal(canaryInterval))
		c.watchOver(time.Now())
		g.Expect(log.times).To(HaveLen(n - 1))
		c.watchOver(time.Now().Add(canaryInterval))
		g.Expect(log.times).To(HaveLen(n))
	}
}

func TestACanaryReadsTheDatesOfItsOwnAnswersOnly(t *testing.T) {
	g := NewWithT(t)
	abort := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	config := answers(t, created(1), abort)
	c, _ := newCanary(t, config, "own")
	g.Expect(config.WrapTransport).To(BeNil(), "other clients have the configuration as well")
	g.Expect(c.round(t.Context())).To(Equal(canaryInterval))
	told := c.options.Health.told
	g.Expect(c.round(t.Context())).To(Equal(canaryRetry))
	g.Expect(c.options.Health.told).To(Equal(told), "an attempt without an answer tells no time")
}

func TestDenialsAndAWrongClockAreLoggedWhenTheyBeginAndEnd(t *testing.T) {
	stored := func(ahead time.Duration) func(http.ResponseWriter) {
		return answer(http.StatusCreated, ahead, metav1.PartialObjectMetadata{})
	}
	denied := answer(http.StatusForbidden, 0, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "exceeded quota",
	})
	steps := []struct {
		answer func(http.ResponseWriter)
		ahead  time.Duration
		logs   string // empty: nothing
	}{
		{answer: stored(0)},
		{answer: denied, logs: "The cluster denies the canary"},
		{answer: denied},
		{answer: stored(0), logs: "The cluster no longer denies the canary"},
		{answer: stored(0)},
		{answer: stored(time.Hour), ahead: time.Hour, logs: "The clock differs"},
		{answer: stored(time.Hour), ahead: time.Hour},
		{answer: stored(0), logs: "The clock agrees"},
		{answer: stored(0)},
	}
	var all []func(http.ResponseWriter)
	for _, step := range steps {
		all = append(all, step.answer)
	}
	c, _ := newCanary(t, answers(t, all...), "own")
	for n, step := range steps {
		g := NewWithT(t)
		var lines []string
		logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		_, err := c.round(log.IntoContext(t.Context(), logger))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(testutil.ToFloat64(clockOffset)).To(BeNumerically("~", step.ahead.Seconds(), 2), "step %d", n)
		if step.logs == "" {
			g.Expect(lines).To(BeEmpty(), "step %d", n)
			continue
		}
		g.Expect(lines).To(ConsistOf(ContainSubstring(step.logs)), "step %d", n)
	}
}

// denyCanaries makes the API server ask a webhook about each AlertEvent of the namespace. Nothing listens at its address, or it
// accepts connections and says nothing.
func denyCanaries(t *testing.T, s *testsite.Site, hangs bool) {
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
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "away.example.com", AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address)},
			FailurePolicy:     new(admissionregistrationv1.Fail),
			SideEffects:       new(admissionregistrationv1.SideEffectClassNone),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"alertevents"},
				},
			}},
		}},
	}
	s.Expect(s.Live.Create(s.Ctx, configuration)).To(Succeed())
	t.Cleanup(func() { _ = s.Live.Delete(context.Background(), configuration) })
}
