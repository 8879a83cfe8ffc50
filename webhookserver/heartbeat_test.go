package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// newBeatingBench has an integration with heartbeats of every kind.
func newBeatingBench() *bench {
	b := newBench()
	w := integration("team-a", "prometheus")
	w.Spec.Heartbeats = []v1alpha1.Heartbeat{
		beatEvery("any", time.Minute, nil),
		beatEvery("watchdog", time.Minute, &v1alpha1.HeartbeatMatch{DedupKey: "wd"}),
		beatEvery("backup", time.Hour, &v1alpha1.HeartbeatMatch{Ping: true}),
		beatEvery("sync", time.Hour, &v1alpha1.HeartbeatMatch{Ping: true}),
	}
	b.tokens.set(w)
	return b
}

func beatEvery(name string, interval time.Duration, match *v1alpha1.HeartbeatMatch) v1alpha1.Heartbeat {
	return v1alpha1.Heartbeat{Name: name, Interval: &metav1.Duration{Duration: interval}, Match: match}
}

// heard are the heartbeats that the bench has reported, failures with an exclamation mark.
func (b *bench) heard() string {
	var names []string
	for _, signal := range b.reports.signals {
		name := signal.heartbeat
		if signal.failed {
			name += "!"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func by(method string) func(*http.Request) { return func(r *http.Request) { r.Method = method } }

func TestPings(t *testing.T) {
	for _, test := range []struct {
		method, path string
		status       int
		heard        string
	}{
		{http.MethodGet, "backup", 200, "backup any"},
		{http.MethodHead, "backup", 200, "backup any"},
		{http.MethodPost, "sync/", 200, "sync any"},
		{http.MethodGet, "backup/0", 200, "backup any"},
		{http.MethodGet, "backup?status=ok&msg=OK&ping=12", 200, "backup any"},
		{http.MethodGet, "backup/1", 202, "backup! any"},
		{http.MethodGet, "backup/255", 202, "backup! any"},
		{http.MethodPost, "backup?status=failed", 202, "backup! any"},
		{http.MethodGet, "backup?status=down", 202, "backup! any"},
		{http.MethodGet, "backup/0?status=failed", 202, "backup! any"},
		{http.MethodGet, "backup/1?dryRun=true", 200, ""},
		{http.MethodGet, "backup?dryRun=1", 200, ""},
		{http.MethodGet, "backup/256", 400, ""},
		{http.MethodGet, "backup/-1", 400, ""},
		{http.MethodGet, "backup/x", 400, ""},
		{http.MethodGet, "backup/1/2", 404, ""},
		{http.MethodGet, "backup?status=maybe", 400, ""},
		{http.MethodGet, "backup?status=%25RESULT%25", 400, ""},
		{http.MethodGet, "backup?status=%RESULT%", 400, ""},
		{http.MethodGet, "backup?status=failed;msg=1", 202, "backup! any"},
		{http.MethodGet, "backup?exit=1", 400, ""},
		{http.MethodGet, "backup?Status=failed", 400, ""},
		{http.MethodGet, "backup?rid=7d2e&status=ok", 200, "backup any"},
		{http.MethodGet, "backup?status=ok&status=failed", 400, ""},
		{http.MethodGet, "backup?status=up&status=ok", 200, "backup any"},
		{http.MethodGet, "backup?%73tatus=%66ailed&msg=%", 202, "backup! any"},
		{http.MethodGet, "backup?dry-run=1", 400, ""},
		{http.MethodGet, "backups", 404, ""},
		{http.MethodGet, "watchdog", 404, ""},
		{http.MethodGet, "any", 404, ""},
		{http.MethodPut, "backup", 405, ""},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			g, b := NewWithT(t), newBeatingBench()
			response := b.post(testPath+"/heartbeat/"+test.path, "", by(test.method))
			g.Expect(response.StatusCode).To(Equal(test.status))
			g.Expect(b.heard()).To(Equal(test.heard))
			g.Expect(b.store.Stored()).To(BeEmpty())
		})
	}
}

// TestPingsOfOpsgenie are those of its Heartbeat API, whose answers its clients read.
func TestPingsOfOpsgenie(t *testing.T) {
	for _, test := range []struct {
		method, path  string
		status        int
		heard, answer string
	}{
		{http.MethodGet, "/v2/heartbeats/backup/ping", 202, "backup any", `"result":"PONG - Heartbeat received"`},
		{http.MethodPost, "/v2/heartbeats/backup/ping", 202, "backup any", `"requestId":`},
		{http.MethodPut, "/v2/heartbeats/backup/ping", 202, "backup any", `"took":`},
		{http.MethodPatch, "/v2/heartbeats/backup/ping", 202, "backup any", "PONG"},
		{http.MethodGet, "/v2/heartbeats/backup/ping?dryRun=true", 200, "", "dryRun"},
		{http.MethodGet, "/v2/heartbeats/backups/ping", 404, "", `"message":`},
		{http.MethodGet, "/v2/heartbeats/backup/enable", 404, "", ""},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			g, b := NewWithT(t), newBeatingBench()
			response := b.post(testPath+test.path, "", by(test.method))
			body, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.StatusCode).To(Equal(test.status), string(body))
			g.Expect(string(body)).To(ContainSubstring(test.answer))
			g.Expect(b.heard()).To(Equal(test.heard))
		})
	}
}

// TestAStubReadsNoAlerts has an integration that has no place in the cache: nobody knows its mapping, keys and heartbeats.
func TestAStubReadsNoAlerts(t *testing.T) {
	for sentence, test := range map[string]struct {
		path, token string
		suspend     bool
		status      int
		reasons     []string
	}{
		"a post":                    {status: 503, reasons: []string{v1alpha1.ReasonIntegrationsTooLarge}},
		"a dry run":                 {path: "?dryRun=true", status: 503, reasons: []string{v1alpha1.ReasonIntegrationsTooLarge}},
		"a ping":                    {path: "/heartbeat/backup", status: 503, reasons: []string{v1alpha1.ReasonIntegrationsTooLarge}},
		"a post with another token": {token: "wrong", status: 401},
		"a post to a suspended one": {suspend: true, status: 403, reasons: []string{"Suspended"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, b := NewWithT(t), newBeatingBench()
			w := b.tokens.tagged(testToken).DeepCopy()
			w.Spec.Suspend = test.suspend
			integrations.MakeStub(w, true)
			b.tokens.set(w)
			response := b.post(testPath+test.token+test.path, firing)
			g.Expect(response.StatusCode).To(Equal(test.status))
			g.Expect(b.reports.reasons).To(Equal(test.reasons))
			g.Expect(b.heard()).To(BeEmpty())
			g.Expect(b.store.Stored()).To(BeEmpty())
			if test.status == http.StatusServiceUnavailable {
				g.Expect(decode[problemBody](g, response).kind()).To(Equal("integrations-too-large"))
				g.Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
				g.Expect(b.reports.unavailable).To(HaveLen(1), "no Incident of it ends for want of alerts")
			}
		})
	}
}

func TestAnAlertThatNeedsANewIncidentIsASignalAtTheLimit(t *testing.T) {
	g, b := NewWithT(t), newBeatingBench()
	b.limitIncidents(4, "another")
	g.Expect(b.post(testPath, `{"dedup_key":"new"}`).StatusCode).To(Equal(http.StatusServiceUnavailable))
	g.Expect(b.heard()).To(Equal("any"), "the sender is alive, and its alert does not count as missed")
}

func TestAFailedPingIsAnsweredWhenTheStatusSaysSo(t *testing.T) {
	g, b := NewWithT(t), newBeatingBench()
	now := time.Now().Add(-20 * time.Second) // the clock of the process is ahead of it
	b.options.APITime = func() time.Time { return now }
	g.Expect(b.post(testPath+"/heartbeat/backup/3", "").StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(b.reports.signals[0]).To(Equal(signal{heartbeat: "backup", time: now, failed: true, exit: 3}))
	b.reports.failureError = errors.New("away")
	response := b.post(testPath+"/heartbeat/backup/3", "")
	g.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	g.Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
	g.Expect(b.reports.unavailable).To(HaveLen(1), "the leader measures no quiet meanwhile")
}

func TestAnUnknownHeartbeatListsTheOthers(t *testing.T) {
	g, b := NewWithT(t), newBeatingBench()
	answer := decode[problemBody](g, b.post(testPath+"/heartbeat/back-up", "", by(http.MethodGet)))
	g.Expect(answer.kind()).To(Equal("unknown-heartbeat"))
	g.Expect(answer.Detail).To(Equal("The integration has these heartbeats with match.ping: backup, sync."))
	g.Expect(b.reports.reasons).To(Equal([]string{"UnknownHeartbeat"}))
	g.Expect(b.post(eventsPath+"/tocsin_0_0/heartbeat/backup", "").StatusCode).To(Equal(http.StatusUnauthorized))
	g.Expect(b.post(eventsPath+"/heartbeat/backup", "", with("Authorization", "Bearer "+testToken)).StatusCode).To(Equal(http.StatusOK))
}

func TestAlertsAreSignals(t *testing.T) {
	for sentence, test := range map[string]struct{ body, heard, answer string }{
		"any request":            {`{"title":"a","dedup_key":"k"}`, "any", `"status":"firing"`},
		"the watchdog":           {`{"title":"Watchdog","dedup_key":"wd"}`, "any watchdog", `{"dedup_key":"wd","dropped":true,"heartbeat":"watchdog"}`},
		"the watchdog, resolved": {`{"title":"Watchdog","dedup_key":"wd","status":"resolved"}`, "any", `"status":"resolved"`},
		"nothing that is valid":  {`{`, "", `malformed-json`},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, b := NewWithT(t), newBeatingBench()
			body := textOf(g, b.post(testPath, test.body))
			g.Expect(body).To(ContainSubstring(test.answer))
			g.Expect(b.heard()).To(Equal(test.heard))
			stored := 0
			if strings.Contains(test.answer, `"status"`) {
				stored = 1
			}
			g.Expect(b.store.Stored()).To(HaveLen(stored))
		})
	}
	g, b := NewWithT(t), newBeatingBench()
	b.post(testPath+"?dryRun=true", firing)
	g.Expect(b.heard()).To(BeEmpty())
	batch := with("Content-Type", "application/cloudevents-batch+json")
	response := b.post(testPath, "["+ce(`, "data": {"title": "Watchdog", "dedup_key": "wd"}`)+", 7]", batch)
	g.Expect(response.StatusCode).To(Equal(http.StatusBadRequest))
	g.Expect(b.heard()).To(Equal("watchdog"), "the valid part of a batch")
}

func textOf(g *WithT, response *http.Response) string {
	var text strings.Builder
	g.Expect(response.Write(&text)).To(Succeed())
	return text.String()
}

// beating is an integration in a store, and two replicas that hear its heartbeat.
type beating struct {
	*WithT
	t        *testing.T
	client   client.Client
	now      time.Time
	replicas [2]*statusReporter
}

func newBeating(t *testing.T) *beating {
	t.Helper()
	s := &beating{WithT: NewWithT(t), t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	w := integration("team-a", "prometheus")
	w.Spec.Heartbeats = []v1alpha1.Heartbeat{beatEvery("beat", 3*time.Minute, nil), beatEvery("other", time.Hour, nil)}
	s.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(w).WithStatusSubresource(w).Build()
	for i := range s.replicas {
		s.replicas[i] = newReporter(s.client, nil, logr.Discard())
		s.replicas[i].now = func() time.Time { return s.now }
	}
	return s
}

func (s *beating) get() *v1alpha1.WebhookIntegration {
	w := &v1alpha1.WebhookIntegration{}
	s.Expect(s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "team-a", Name: "prometheus"}, w)).To(Succeed())
	return w
}

// hear has a replica hear the heartbeat, and both write what is due. It returns when it was last heard by the status.
func (s *beating) hear(replica int, after time.Duration) time.Duration {
	s.now = s.now.Add(after)
	w := s.get()
	s.replicas[replica].reportSignals(w, []signal{{heartbeat: "beat", time: s.now}})
	return s.flush(0)
}

// flush has both replicas write what is due after a while. It returns how long ago the heartbeat was heard by the status.
func (s *beating) flush(after time.Duration) time.Duration {
	s.now = s.now.Add(after)
	for _, r := range s.replicas {
		r.writeAll(s.t.Context(), false)
	}
	status := v1alpha1.FindHeartbeat(s.get().Status.Heartbeats, "beat")
	s.Expect(status).NotTo(BeNil())
	return s.now.Sub(status.LastSignalTime.Time)
}

func TestSignalsAreWrittenEveryThirdOfTheInterval(t *testing.T) {
	s := newBeating(t)
	s.Expect(s.hear(0, 0)).To(BeZero(), "the first one at once")
	s.Expect(s.hear(0, 10*time.Second)).To(Equal(10 * time.Second))
	s.Expect(s.hear(1, 10*time.Second)).To(Equal(20 * time.Second))
	s.Expect(s.flush(39 * time.Second)).To(Equal(59 * time.Second))
	s.Expect(s.flush(time.Second)).To(Equal(50*time.Second), "the last one of each replica is written without another")
	s.Expect(s.flush(9 * time.Second)).To(Equal(59 * time.Second))
	s.Expect(s.flush(time.Second)).To(Equal(50 * time.Second))
	s.Expect(s.replicas[0].pending).To(BeEmpty(), "it has nothing newer")
	s.Expect(s.replicas[1].pending).To(BeEmpty())
	s.Expect(s.hear(0, time.Minute)).To(BeZero())
	version := s.get().ResourceVersion
	s.hear(1, time.Second)
	s.Expect(s.get().ResourceVersion).To(Equal(version))
	s.replicas[1].writeAll(t.Context(), true)
	s.Expect(s.flush(0)).To(BeZero(), "as at the end of the process")
}

func TestASignalThatEndsAnIncidentIsWrittenAtOnce(t *testing.T) {
	s := newBeating(t)
	s.hear(0, 0)
	w := s.get()
	w.Status.Heartbeats[0].AlertTime, w.Status.Heartbeats[0].AlertStatus = w.Status.Heartbeats[0].LastSignalTime, v1alpha1.AlertFiring
	s.Expect(s.client.Status().Update(t.Context(), w)).To(Succeed())
	s.Expect(s.hear(0, time.Second)).To(BeZero())
	w = s.get()
	w.Status.Heartbeats[0].AlertStatus = v1alpha1.AlertResolved
	s.Expect(s.client.Status().Update(t.Context(), w)).To(Succeed())
	s.Expect(s.hear(0, time.Second)).To(Equal(time.Second))

	w = s.get()
	w.Status.Heartbeats[0].MissedTime = w.Status.Heartbeats[0].LastSignalTime
	s.Expect(s.client.Status().Update(t.Context(), w)).To(Succeed())
	s.Expect(s.hear(0, time.Second)).To(BeZero())
	s.Expect(s.get().Status.Heartbeats[0].MissedTime).NotTo(BeNil(), "only the leader ends that")
}

func TestSignalsWaitForTheAPIServer(t *testing.T) {
	s := newBeating(t)
	s.hear(0, 0)
	working := s.client
	r := s.replicas[0]
	r.client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{SubResourcePatch: func(
		context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption,
	) error {
		return errors.New("away")
	}})
	s.Expect(s.hear(0, 10*time.Minute)).To(Equal(10 * time.Minute))
	r.client = working
	s.Expect(s.flush(reportPause)).To(Equal(reportPause))
	s.Expect(r.pending).To(BeEmpty())

	s.Expect(s.client.Delete(t.Context(), s.get())).To(Succeed())
	r.reportSignals(integration("team-a", "prometheus"), []signal{{heartbeat: "beat", time: s.now}})
	r.writeAll(t.Context(), false)
	s.Expect(r.pending).To(BeEmpty(), "the integration is gone")
}

// A signal may wait while the integration loses its place in the cache, which then knows none of its heartbeats.
func TestASignalOfAStubIsWritten(t *testing.T) {
	s := newBeating(t)
	s.replicas[0].client = interceptor.NewClient(s.client.(client.WithWatch), interceptor.Funcs{Get: func(
		ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
	) error {
		return testsite.Stubs{Reader: c}.Get(ctx, key, object, options...)
	}})
	s.replicas[0].reportSignals(s.get(), []signal{{heartbeat: "beat", time: s.now}})
	s.replicas[0].writeAll(t.Context(), true)
	s.Expect(s.get().Status.Heartbeats).To(HaveLen(1))
	s.Expect(s.get().Status.Heartbeats[0].LastSignalTime).NotTo(BeNil())
}

func TestTheIntervalOfAPendingSignalChanges(t *testing.T) {
	s := newBeating(t)
	s.hear(0, 0)
	w := s.get()
	w.Spec.Heartbeats[0].Interval = &metav1.Duration{Duration: 720 * time.Hour}
	s.replicas[0].reportSignals(w, []signal{{heartbeat: "beat", time: s.now.Add(time.Second)}})
	s.Expect(s.flush(time.Hour)).To(Equal(time.Hour - time.Second))
}

// manyHeartbeats are 10,000 heartbeats, twenty to an integration, all of which have just been heard.
func manyHeartbeats(now time.Time) []*v1alpha1.WebhookIntegration {
	const integrations, each = 500, 20
	all, heard := make([]*v1alpha1.WebhookIntegration, integrations), v1alpha1.NewTimestamp(now)
	for i := range all {
		all[i] = integration("team", fmt.Sprint("integration-", i))
		for k := range each {
			name := fmt.Sprint("heartbeat-", k)
			all[i].Spec.Heartbeats = append(all[i].Spec.Heartbeats, beatEvery(name, 15*time.Minute, &v1alpha1.HeartbeatMatch{Ping: true}))
			all[i].Status.Heartbeats = append(all[i].Status.Heartbeats, v1alpha1.HeartbeatStatus{
				Name: name, ObservedTime: heard.DeepCopy(), LastSignalTime: heard.DeepCopy(),
			})
		}
	}
	return all
}

// All are pinged every minute. The memory is that of a replica, with the integrations in its cache, and the bound that of the
// project's goals.
func TestWhatTenThousandHeartbeatsCost(t *testing.T) {
	g := NewWithT(t)
	heap := func() float64 {
		goruntime.GC()
		var stats goruntime.MemStats
		goruntime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc) / (1 << 20)
	}
	before := heap()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	all := manyHeartbeats(now)
	r := newReporter(nil, nil, logr.Discard())
	r.now = func() time.Time { return now }
	ping := func() {
		for _, w := range all {
			for i := range w.Spec.Heartbeats {
				r.reportSignals(w, []signal{{heartbeat: w.Spec.Heartbeats[i].Name, time: now}})
			}
		}
	}
	ping()
	took := heap() - before
	t.Logf("%.1f MiB", took)
	g.Expect(took).To(BeNumerically("<", 32))

	all, r = all[:50], newReporter(nil, nil, logr.Discard()) // the store is slow
	r.now = func() time.Time { return now }
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	store := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(all[0])
	for _, w := range all {
		store.WithObjects(w.DeepCopy())
	}
	var writes atomic.Int64
	working := store.Build()
	r.live = working
	r.client = interceptor.NewClient(working, interceptor.Funcs{SubResourcePatch: func(
		ctx context.Context, c client.Client, kind string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
	) error {
		writes.Add(1)
		return c.SubResource(kind).Patch(ctx, object, patch, options...)
	}})
	const thirds = 2
	for range thirds * 5 { // minutes
		now = now.Add(time.Minute)
		ping()
		r.writeAll(t.Context(), false)
	}
	g.Expect(writes.Load()).To(BeNumerically("==", thirds*len(all)), "one write for all heartbeats of an integration")
}

func TestMergedSignals(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) *v1alpha1.Timestamp {
		return new(v1alpha1.NewTimestamp(now.Add(time.Duration(s) * time.Second)))
	}
	w := integration("team-a", "prometheus")
	w.Spec.Heartbeats = []v1alpha1.Heartbeat{beatEvery("old", time.Minute, nil), beatEvery("future", time.Minute, nil), beatEvery("new", time.Minute, nil)}
	w.Status.Heartbeats = []v1alpha1.HeartbeatStatus{
		{Name: "removed", MissedTime: at(-5)}, {Name: "old", LastSignalTime: at(-1)}, {Name: "future", LastSignalTime: at(1000)},
	}
	heard := heardTimes{heard: now.Add(-2 * time.Second)}
	updated, due, failures, changed := merge(
		w, map[string]heardTimes{"old": heard, "future": heard, "new": heard, "unknown": heard}, now)
	NewWithT(t).Expect(changed).To(BeTrue())
	NewWithT(t).Expect(due).To(BeZero(), "one has none in the status")
	NewWithT(t).Expect(failures).To(BeEmpty())
	NewWithT(t).Expect(updated).To(Equal([]v1alpha1.HeartbeatStatus{
		{Name: "removed", MissedTime: at(-5)}, {Name: "old", LastSignalTime: at(-1)},
		{Name: "future", LastSignalTime: at(-2)}, {Name: "new", LastSignalTime: at(-2)},
	}))
}

// The time of the API server is known to a second, and replicas hold signals back.
func TestASignalEndsAFailureOnlyIfItCameLater(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	stamp := func(ms int) *v1alpha1.Timestamp { return new(v1alpha1.NewTimestamp(at(ms))) }
	for sentence, test := range map[string]struct {
		status v1alpha1.HeartbeatStatus
		heard  heardTimes
		fails  bool
	}{
		"a failure": {heard: heardTimes{heard: at(0), failed: at(0)}, fails: true},
		"a failure after a success, to the same replica":         {heard: heardTimes{heard: at(10), failed: at(10)}, fails: true},
		"a success after a failure, to the same replica":         {heard: heardTimes{heard: at(10), failed: at(0)}},
		"a failure after a success that seems to be later":       {v1alpha1.HeartbeatStatus{LastSignalTime: stamp(900)}, heardTimes{heard: at(0), failed: at(0)}, true},
		"a failure that waited while the heartbeat was heard":    {v1alpha1.HeartbeatStatus{LastSignalTime: stamp(9000)}, heardTimes{heard: at(0), failed: at(0)}, false},
		"a success of before the failure that seems to be later": {v1alpha1.HeartbeatStatus{LastSignalTime: stamp(0), FailedTime: stamp(0)}, heardTimes{heard: at(900)}, true},
		"a success of after the failure that seems to be earlier": {
			v1alpha1.HeartbeatStatus{LastSignalTime: stamp(0), FailedTime: stamp(0)}, heardTimes{heard: at(-900), after: at(0)}, false},
		"a success after a failure of another replica that was not known": {
			v1alpha1.HeartbeatStatus{LastSignalTime: stamp(0), FailedTime: stamp(0)}, heardTimes{heard: at(2001)}, false},
		"a success that knew only an earlier failure": {
			v1alpha1.HeartbeatStatus{LastSignalTime: stamp(0), FailedTime: stamp(0)}, heardTimes{heard: at(500), after: at(-100)}, true},
		"a failure after the heartbeat was missed": {
			v1alpha1.HeartbeatStatus{LastSignalTime: stamp(-9e6), MissedTime: stamp(500), AlertTime: stamp(500)},
			heardTimes{heard: at(0), failed: at(0)}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, before := NewWithT(t), test.status
			status := *before.DeepCopy()
			changed, failed := test.heard.mergeInto(&status, now)
			g.Expect(status.HasFailed()).To(Equal(test.fails))
			for _, earlier := range []*v1alpha1.Timestamp{before.FailedTime, before.MissedTime, before.AlertTime} {
				if failed && earlier != nil {
					g.Expect(status.FailedTime.After(earlier.Time)).To(BeTrue(), "the leader finds what is new by the time")
				}
			}
			again, _ := test.heard.mergeInto(&status, now)
			g.Expect(changed && again && !failed).To(BeFalse())
		})
	}
}

// fail returns how a replica answers a ping that reports a failure.
func (s *beating) fail(r *statusReporter, cached *v1alpha1.WebhookIntegration, exit int64) error {
	answered := make(chan error, 1)
	go func() {
		answered <- r.writeFailure(s.t.Context(), cached, signal{heartbeat: "beat", time: s.now, failed: true, exit: exit})
	}()
	s.Eventually(func() bool {
		r.writeAll(s.t.Context(), false)
		return len(answered) > 0
	}).Should(BeTrue())
	return <-answered
}

func TestAFailureForWhichTheStatusHasNoPlaceIsNotAccepted(t *testing.T) {
	s := newBeating(t)
	r := s.replicas[0]
	w := s.get()
	for i := range maxHeartbeatStatuses {
		w.Status.Heartbeats = append(w.Status.Heartbeats, v1alpha1.HeartbeatStatus{Name: fmt.Sprint("removed-", i)})
	}
	s.Expect(s.client.Status().Update(t.Context(), w)).To(Succeed())
	s.Expect(s.fail(r, s.get(), 0)).To(MatchError(ContainSubstring("no place")))
	s.Expect(r.pending).To(BeEmpty(), "the sender pings again")

	w = s.get()
	w.Status.Heartbeats = w.Status.Heartbeats[:1]
	s.Expect(s.client.Status().Update(t.Context(), w)).To(Succeed())
	s.Expect(s.fail(r, s.get(), 0)).To(Succeed())
	s.Expect(v1alpha1.FindHeartbeat(s.get().Status.Heartbeats, "beat").HasFailed()).To(BeTrue())
}

// A sender waits for each answer before it sends the next ping.
func TestTheLastPingOfASenderCounts(t *testing.T) {
	s := newBeating(t)
	r := s.replicas[0]
	cached := s.get() // and stays so: the cache lags
	ping := func(failed bool) bool {
		if failed {
			s.Expect(s.fail(r, cached, 7)).To(Succeed())
		} else {
			r.reportSignals(cached, []signal{{heartbeat: "beat", time: s.now}})
			r.writeAll(t.Context(), false)
		}
		return v1alpha1.FindHeartbeat(s.get().Status.Heartbeats, "beat").HasFailed()
	}
	for range 3 {
		s.Expect(ping(false)).To(BeFalse())
		s.Expect(ping(true)).To(BeTrue(), "in the same microsecond")
		s.Expect(ping(true)).To(BeTrue())
		s.Expect(ping(false)).To(BeFalse())
		s.now = s.now.Add(-100 * time.Millisecond) // it is known to a second
	}
	status := v1alpha1.FindHeartbeat(s.get().Status.Heartbeats, "beat")
	s.Expect(*status.ExitCode).To(BeEquivalentTo(7))
	s.flush(signalRecheck + time.Second)
	s.Expect(r.pending).To(BeEmpty(), "the cache knows the failure now")

	t.Log("without the API server the sender has to try again")
	working := r.client
	r.client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{SubResourcePatch: func(
		context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption,
	) error {
		return errors.New("away")
	}})
	s.Expect(s.fail(r, s.get(), 0)).To(MatchError("away"))
	r.client = working
	s.flush(reportPause)
	s.Expect(v1alpha1.FindHeartbeat(s.get().Status.Heartbeats, "beat").HasFailed()).To(BeTrue(), "it is written nevertheless")
}
