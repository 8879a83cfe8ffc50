package heartbeat

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// eachMinute is a heartbeat that is pinged every minute.
func eachMinute() *v1alpha1.Heartbeat {
	h := &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "beat"}}
	h.Spec = v1alpha1.HeartbeatSpec{IntegrationName: "prometheus", Every: &metav1.Duration{Duration: time.Minute}}
	return h
}

// A signal that comes while others are written leaves nothing behind that is written again and again.
func TestASignalComesDuringAWrite(t *testing.T) {
	var times heardTimes
	g, h := NewWithT(t), eachMinute()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	times.hear(Signal{Heartbeat: h, Kind: v1alpha1.SignalStart, Time: now})
	was := times
	_, failure, _ := was.mergeInto(h, now)
	times.hear(Signal{Heartbeat: h, Kind: v1alpha1.SignalSuccess, Time: now.Add(time.Second)})
	times.subtract(was, failure)
	g.Expect(times.started).To(BeZero())
	g.Expect(times.heard).To(Equal(now.Add(time.Second)))
}

func TestAFailureThatWaitedIsListedAtItsTime(t *testing.T) {
	g, h := NewWithT(t), eachMinute()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h.Status.LastDuration = &metav1.Duration{Duration: time.Second}
	take(&h.Status, v1alpha1.HeartbeatSignal{Time: v1alpha1.NewTimestamp(now), Kind: v1alpha1.SignalSuccess})
	waited := heardTimes{heard: now.Add(-time.Minute), failed: now.Add(-time.Minute)}
	_, _, changed := waited.mergeInto(h, now)
	g.Expect(changed).To(BeTrue())
	g.Expect(h.Status.Signals).To(HaveLen(2))
	g.Expect(h.Status.Signals[0].Kind).To(Equal(v1alpha1.SignalSuccess))
	g.Expect(h.Status.LastSignalTime.Time).To(Equal(now))
}

func TestASignalIsMergedIntoTheStatus(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) *v1alpha1.Timestamp {
		return new(v1alpha1.NewTimestamp(now.Add(time.Duration(s) * time.Second)))
	}
	heard := heardTimes{heard: now.Add(-2 * time.Second)}
	for sentence, test := range map[string]struct {
		known, want *v1alpha1.Timestamp
		changed     bool
		due         time.Time
	}{
		"a later one is there":     {at(-1), at(-1), false, now.Add(19 * time.Second)},
		"one of a wrong clock":     {at(1000), at(-2), true, time.Time{}},
		"the first one":            {nil, at(-2), true, time.Time{}},
		"an earlier one is there":  {at(-12), at(-2), true, now.Add(8 * time.Second)},
		"one long before is there": {at(-1000), at(-2), true, now.Add(-980 * time.Second)},
	} {
		g, h := NewWithT(t), eachMinute()
		h.Status.LastSignalTime = test.known
		due, failure, changed := heard.mergeInto(h, now)
		g.Expect(changed).To(Equal(test.changed), sentence)
		g.Expect(due).To(Equal(test.due), sentence)
		g.Expect(failure).To(BeZero(), sentence)
		g.Expect(h.Status.LastSignalTime).To(Equal(test.want), sentence)
	}
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
			g, before, h := NewWithT(t), test.status, eachMinute()
			h.Status = *before.DeepCopy()
			status := &h.Status
			_, failure, changed := test.heard.mergeInto(h, now)
			failed := !failure.IsZero()
			g.Expect(status.HasFailed()).To(Equal(test.fails))
			for _, earlier := range []*v1alpha1.Timestamp{before.FailedTime, before.MissedTime, before.AlertTime} {
				if failed && earlier != nil {
					g.Expect(status.FailedTime.After(earlier.Time)).To(BeTrue(), "the leader finds what is new by the time")
				}
			}
			_, _, again := test.heard.mergeInto(h, now)
			g.Expect(changed && again && !failed).To(BeFalse())
		})
	}
}
