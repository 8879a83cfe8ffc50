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
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
	"github.com/tocsin-dev/tocsin/webhookserver/heartbeat"
)

// listedSignals is how many a status has.
const listedSignals = 10

// newBeatingBench has an integration with heartbeats of every kind.
func newBeatingBench() *bench {
	b := newBench()
	for _, h := range []*v1alpha1.Heartbeat{
		beatEvery("any", time.Minute, &v1alpha1.HeartbeatMatch{AnyRequest: true}),
		beatEvery("watchdog", time.Minute, &v1alpha1.HeartbeatMatch{DedupKey: "wd"}),
		beatEvery("backup", time.Hour, nil),
		beatEvery("sync", time.Hour, nil),
	} {
		b.beats.Set(h)
	}
	return b
}

// beatEvery is a heartbeat of the integration of the bench.
func beatEvery(name string, every time.Duration, match *v1alpha1.HeartbeatMatch) *v1alpha1.Heartbeat {
	h := &v1alpha1.Heartbeat{}
	h.Namespace, h.Name = "team-a", name
	h.Spec = v1alpha1.HeartbeatSpec{IntegrationName: "prometheus", Every: &metav1.Duration{Duration: every}, Match: match}
	return h
}

// heard are the heartbeats that the bench has reported, failures with an exclamation mark, and starts with a greater-than sign.
func (b *bench) heard() string {
	var names []string
	for _, signal := range b.reports.signals {
		name := signal.Heartbeat.Name
		switch signal.Kind {
		case v1alpha1.SignalFailure:
			name += "!"
		case v1alpha1.SignalStart:
			name += ">"
		case v1alpha1.SignalSuccess:
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
		{http.MethodGet, "backup/start", 200, "backup> any"},
		{http.MethodPost, "backup/start/", 200, "backup> any"},
		{http.MethodGet, "backup/start?rid=7d2e", 200, "backup> any"},
		{http.MethodGet, "backup/start?status=ok", 400, ""},
		{http.MethodGet, "backup/start/1", 404, ""},
		{http.MethodGet, "backup/stop", 400, ""},
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
	b.options.Health = timeFunc(func() time.Time { return now })
	g.Expect(b.post(testPath+"/heartbeat/backup/3", "").StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(b.reports.signals[0]).To(Equal(
		heartbeat.Signal{Heartbeat: b.reports.signals[0].Heartbeat, Kind: v1alpha1.SignalFailure, Time: now, Exit: 3}))
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
	g.Expect(answer.Detail).To(Equal("These Heartbeats of the integration are pinged: backup, sync."))
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

// beating is a heartbeat in a store, and two replicas that hear it.
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
	h := beatEvery("beat", 3*time.Minute, nil)
	s.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(h).WithStatusSubresource(h).Build()
	for i := range s.replicas {
		s.replicas[i] = newReporter(s.client, nil, logr.Discard())
		s.replicas[i].health = timeFunc(func() time.Time { return s.now })
	}
	return s
}

func (s *beating) get() *v1alpha1.Heartbeat {
	h := &v1alpha1.Heartbeat{}
	s.Expect(s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "team-a", Name: "beat"}, h)).To(Succeed())
	return h
}

// edit changes the status as the leader does.
func (s *beating) edit(change func(status *v1alpha1.HeartbeatStatus)) {
	h := s.get()
	change(&h.Status)
	s.Expect(s.client.Status().Update(s.t.Context(), h)).To(Succeed())
}

// says returns a signal that comes now.
func (s *beating) says(cached *v1alpha1.Heartbeat, kind v1alpha1.SignalKind) heartbeat.Signal {
	return heartbeat.Signal{Heartbeat: cached, Kind: kind, Time: s.now}
}

// hear has a replica hear the heartbeat, and both write what is due. It returns when it was last heard by the status.
func (s *beating) hear(replica int, after time.Duration) time.Duration {
	s.now = s.now.Add(after)
	s.replicas[replica].addReport(s.says(s.get(), v1alpha1.SignalSuccess))
	return s.flush(0)
}

// flush has both replicas write what is due after a while. It returns how long ago the heartbeat was heard by the status.
func (s *beating) flush(after time.Duration) time.Duration {
	s.now = s.now.Add(after)
	for _, r := range s.replicas {
		r.writeAll(s.t.Context(), false)
	}
	return s.now.Sub(s.get().Status.LastSignalTime.Time)
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
	s.edit(func(status *v1alpha1.HeartbeatStatus) {
		status.AlertTime, status.AlertStatus = status.LastSignalTime, v1alpha1.AlertFiring
	})
	s.Expect(s.hear(0, time.Second)).To(BeZero())
	s.edit(func(status *v1alpha1.HeartbeatStatus) { status.AlertStatus = v1alpha1.AlertResolved })
	s.Expect(s.hear(0, time.Second)).To(Equal(time.Second))

	s.edit(func(status *v1alpha1.HeartbeatStatus) { status.MissedTime = status.LastSignalTime })
	s.Expect(s.hear(0, time.Second)).To(BeZero())
	s.Expect(s.get().Status.MissedTime).NotTo(BeNil(), "only the leader ends that")
}

// A start and its end come to different replicas. Both are written soon, or the leader would find it too long.
func TestAStartAndItsEnd(t *testing.T) {
	s := newBeating(t)
	say := func(replica int, after time.Duration, kind v1alpha1.SignalKind, exit int64) *v1alpha1.HeartbeatStatus {
		s.now = s.now.Add(after)
		if kind == v1alpha1.SignalFailure {
			s.Expect(s.fail(s.replicas[replica], s.get(), exit)).To(Succeed())
		} else {
			s.replicas[replica].addReport(s.says(s.get(), kind))
		}
		for _, r := range s.replicas {
			r.writeAll(t.Context(), false)
		}
		return &s.get().Status
	}
	status := say(0, 0, v1alpha1.SignalStart, 0)
	s.Expect(status.LastStartTime.Time).To(BeTemporally("==", s.now))
	s.Expect(status.LastSignalTime).To(BeNil(), "a start is no sign that all is well")
	status = say(1, 10*time.Second, v1alpha1.SignalSuccess, 0)
	s.Expect(status.LastDuration.Duration).To(Equal(10 * time.Second))
	s.Expect(status.NextDueTime.Time).To(BeTemporally("==", s.now.Add(3*time.Minute+36*time.Second)))
	status = say(1, 5*time.Second, v1alpha1.SignalStart, 0)
	s.Expect(heartbeats.IsRunning(status)).To(BeFalse())
	s.flush(feature.Recheck - 5*time.Second)
	s.Expect(heartbeats.IsRunning(&s.get().Status)).To(BeTrue())
	status = say(0, 75*time.Second, v1alpha1.SignalFailure, 3)
	s.Expect(status.LastDuration.Duration).To(Equal(90 * time.Second))
	status = say(0, 10*time.Second, v1alpha1.SignalSuccess, 0)
	s.Expect(status.LastDuration).To(BeNil(), "it had no start")

	var list []string
	for _, signal := range status.Signals {
		text := string(signal.Kind)
		if signal.ExitCode != nil {
			text += fmt.Sprint(" ", *signal.ExitCode)
		}
		if signal.Duration != nil {
			text += " " + signal.Duration.Duration.String()
		}
		list = append(list, text)
	}
	s.Expect(list).To(Equal([]string{"Success", "Failure 3 1m30s", "Start", "Success 10s", "Start"}), "the newest first")
	for range 10 {
		say(0, time.Hour, v1alpha1.SignalSuccess, 0)
	}
	s.Expect(s.get().Status.Signals).To(HaveLen(listedSignals))

	t.Log("the clock of the one that hears the start is a second ahead")
	s.now = s.now.Add(time.Minute + time.Second)
	s.replicas[0].addReport(s.says(s.get(), v1alpha1.SignalStart))
	s.replicas[0].writeAll(t.Context(), false)
	status = say(1, -500*time.Millisecond, v1alpha1.SignalSuccess, 0)
	s.Expect(heartbeats.IsRunning(status)).To(BeTrue())
	s.flush(feature.Recheck + time.Second)
	s.Expect(heartbeats.IsRunning(&s.get().Status)).To(BeFalse(), "it has ended")

	t.Log("one replica hears both before it can write either")
	s.now = s.now.Add(time.Second)
	s.replicas[0].addReport(s.says(s.get(), v1alpha1.SignalStart))
	s.now = s.now.Add(time.Second)
	status = say(0, 0, v1alpha1.SignalSuccess, 0)
	s.Expect(status.LastDuration.Duration).To(Equal(time.Second))
}

// One replica holds a start back, and another one its success, which knows of no start. Both are written before the leader would find
// that the shortest run takes too long.
func TestAShortRunOverTwoReplicasIsKnownInTime(t *testing.T) {
	s := newBeating(t)
	h := s.get()
	h.Spec.Every, h.Spec.MaxDuration = &metav1.Duration{Duration: 24 * time.Hour}, &metav1.Duration{Duration: time.Minute}
	s.Expect(s.client.Update(t.Context(), h)).To(Succeed())
	s.hear(0, 0)
	cached := s.get()
	s.now = s.now.Add(5 * time.Second)
	start := s.now
	s.replicas[0].addReport(s.says(cached, v1alpha1.SignalStart))
	s.now = s.now.Add(time.Second)
	s.replicas[1].addReport(s.says(cached, v1alpha1.SignalSuccess))
	known := false
	for s.now.Before(start.Add(time.Minute - 10*time.Second)) {
		s.flush(time.Second)
		known = known || heartbeats.IsRunning(&s.get().Status)
	}
	s.Expect(known).To(BeTrue())
	s.Expect(heartbeats.IsRunning(&s.get().Status)).To(BeFalse())
}

// Whatever a sender says each second for ten minutes: it costs a write every third of the interval, and the more often if it starts.
func TestManySignalsAreWrittenNowAndThen(t *testing.T) {
	start, success := v1alpha1.SignalStart, v1alpha1.SignalSuccess
	short := func(h *v1alpha1.Heartbeat) { h.Spec.MaxDuration = &metav1.Duration{Duration: time.Minute} }
	for sentence, test := range map[string]struct {
		kinds  []v1alpha1.SignalKind
		change func(*v1alpha1.Heartbeat)
		writes int
	}{
		"successes":         {[]v1alpha1.SignalKind{success}, func(*v1alpha1.Heartbeat) {}, 11},
		"starts":            {[]v1alpha1.SignalKind{start}, func(*v1alpha1.Heartbeat) {}, 31},
		"starts that count": {[]v1alpha1.SignalKind{start}, short, 31},
		"both":              {[]v1alpha1.SignalKind{start, success}, func(*v1alpha1.Heartbeat) {}, 32},
		"both, which count": {[]v1alpha1.SignalKind{start, success}, short, 32},
		"with an invalid schedule": {[]v1alpha1.SignalKind{success}, func(h *v1alpha1.Heartbeat) {
			h.Spec.Every, h.Spec.Schedule = nil, &v1alpha1.HeartbeatSchedule{Cron: "0 0 30 2 *"}
		}, 31},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newBeating(t)
			h := s.get()
			test.change(h)
			s.Expect(s.client.Update(t.Context(), h)).To(Succeed())
			writes, version := 0, s.get().ResourceVersion
			for n := range 600 {
				s.now = s.now.Add(time.Second)
				s.replicas[n/2%2].addReport(s.says(s.get(), test.kinds[n%len(test.kinds)]))
				for _, r := range s.replicas {
					r.writeAll(t.Context(), false)
				}
				if now := s.get().ResourceVersion; now != version {
					version = now
					writes++
				}
			}
			s.Expect(writes).To(And(BeNumerically("<=", test.writes), BeNumerically(">", 9)))
		})
	}
}

// What the sender of a deleted heartbeat has said is not for another one of its name.
func TestAHeartbeatIsDefinedAnew(t *testing.T) {
	s := newBeating(t)
	s.hear(0, 0)
	s.replicas[0].addReport(s.says(s.get(), v1alpha1.SignalSuccess))
	s.now = s.now.Add(time.Minute)
	h := s.get()
	s.Expect(s.client.Delete(t.Context(), h)).To(Succeed())
	h.ResourceVersion, h.UID, h.Status = "", "other", v1alpha1.HeartbeatStatus{}
	s.Expect(s.client.Create(t.Context(), h)).To(Succeed())
	s.replicas[0].writeAll(t.Context(), true)
	s.Expect(s.get().Status.LastSignalTime).To(BeNil())
	s.Expect(s.replicas[0].pending).To(BeEmpty())
	s.Expect(s.hear(0, 0)).To(BeZero())
}

// TestABusySenderHasEachSecondWritten has each of its requests be a signal of a heartbeat that is missed.
func TestABusySenderHasEachSecondWritten(t *testing.T) {
	s := newBeating(t)
	s.edit(func(status *v1alpha1.HeartbeatStatus) { status.MissedTime = new(v1alpha1.NewTimestamp(s.now)) })
	writes := 0
	r := s.replicas[0]
	r.client = interceptor.NewClient(s.client.(client.WithWatch), interceptor.Funcs{SubResourcePatch: func(
		ctx context.Context, c client.Client, subresource string, object client.Object, patch client.Patch,
		options ...client.SubResourcePatchOption,
	) error {
		writes++
		return c.SubResource(subresource).Patch(ctx, object, patch, options...)
	}})
	for range 50 {
		s.hear(0, 100*time.Millisecond)
	}
	s.Expect(writes).To(Equal(5), "in five seconds")
	s.Expect(s.flush(reportPause)).To(Equal(reportPause), "the last one as well")
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
	s.now = s.now.Add(reportPause)
	r.addReport(s.says(beatEvery("beat", time.Minute, nil), v1alpha1.SignalSuccess))
	r.writeAll(t.Context(), false)
	s.Expect(r.pending).To(BeEmpty(), "the heartbeat is gone")
}

func TestTheIntervalOfAPendingSignalChanges(t *testing.T) {
	s := newBeating(t)
	s.hear(0, 0)
	h := s.get()
	h.Spec.Every = &metav1.Duration{Duration: 720 * time.Hour}
	s.now = s.now.Add(time.Second)
	s.replicas[0].addReport(s.says(h, v1alpha1.SignalSuccess))
	s.now = s.now.Add(-time.Second)
	s.Expect(s.flush(time.Hour)).To(Equal(time.Hour - time.Second))
}

// manyHeartbeats are 10,000 heartbeats, all of which have just been heard, with all that the status of one has after a while.
func manyHeartbeats(now time.Time) (all []*v1alpha1.Heartbeat) {
	heard := v1alpha1.NewTimestamp(now)
	for n := range 10_000 {
		h := beatEvery(fmt.Sprint("heartbeat-", n), 15*time.Minute, nil)
		h.Spec.IntegrationName = fmt.Sprint("integration-", n/20)
		h.Status = v1alpha1.HeartbeatStatus{
			ObservedTime: heard.DeepCopy(), LastSignalTime: heard.DeepCopy(), NextDueTime: heard.DeepCopy(), AlertTime: heard.DeepCopy(),
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionHeard, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHeard, Message: "Signals come in time.",
				LastTransitionTime: metav1.NewTime(now),
			}},
		}
		for range listedSignals {
			h.Status.Signals = append(h.Status.Signals, v1alpha1.HeartbeatSignal{Time: heard, Kind: v1alpha1.SignalSuccess})
		}
		all = append(all, h)
	}
	return all
}

// All are pinged every minute. The memory is that of a replica, with the heartbeats in its cache and its index, and the bound that
// of the project's goals.
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
	all, index := manyHeartbeats(now), heartbeats.NewIndex()
	for _, h := range all {
		index.Set(h)
	}
	r := newReporter(nil, nil, logr.Discard())
	r.health = timeFunc(func() time.Time { return now })
	ping := func() {
		for _, h := range all {
			r.addReport(heartbeat.Signal{Heartbeat: h, Kind: v1alpha1.SignalSuccess, Time: now})
		}
	}
	ping()
	took := heap() - before
	t.Logf("%.1f MiB", took)
	g.Expect(took).To(BeNumerically("<", 32))

	all, r = all[:50], newReporter(nil, nil, logr.Discard()) // the store is slow
	r.health = timeFunc(func() time.Time { return now })
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	store := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(all[0])
	for _, h := range all {
		store.WithObjects(h.DeepCopy())
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
	g.Expect(writes.Load()).To(BeNumerically("==", thirds*len(all)), "one write in a third of the time")
}

// fail returns how a replica answers a ping that reports a failure.
func (s *beating) fail(r *statusReporter, cached *v1alpha1.Heartbeat, exit int64) error {
	answered := make(chan error, 1)
	failed := s.says(cached, v1alpha1.SignalFailure)
	failed.Exit = exit
	go func() { answered <- r.writeReport(s.t.Context(), failed) }()
	s.Eventually(func() bool {
		r.writeAll(s.t.Context(), false)
		return len(answered) > 0
	}).Should(BeTrue())
	return <-answered
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
			r.addReport(s.says(cached, v1alpha1.SignalSuccess))
			s.flush(reportPause)
		}
		return s.get().Status.HasFailed()
	}
	for range 3 {
		s.Expect(ping(false)).To(BeFalse())
		s.Expect(ping(true)).To(BeTrue(), "in the same microsecond")
		s.Expect(ping(true)).To(BeTrue())
		s.Expect(ping(false)).To(BeFalse())
		s.now = s.now.Add(-2*reportPause - 100*time.Millisecond) // it is known to a second
	}
	s.Expect(*s.get().Status.ExitCode).To(BeEquivalentTo(7))
	s.flush(2 * feature.Recheck)
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
	s.Expect(s.get().Status.HasFailed()).To(BeTrue(), "it is written nevertheless")
}
