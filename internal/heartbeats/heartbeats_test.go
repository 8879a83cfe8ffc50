package heartbeats

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const berlin = "Europe/Berlin"

// at returns a time of 2026, in UTC.
func at(month time.Month, day, hour, minute int) time.Time {
	return time.Date(2026, month, day, hour, minute, 0, 0, time.UTC)
}

func stamp(t time.Time) *v1alpha1.Timestamp { return new(v1alpha1.NewTimestamp(t)) }

func length(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// nightly returns a heartbeat that is expected at three o'clock UTC, and was heard on the night before March 3rd.
func nightly() *v1alpha1.Heartbeat {
	h := &v1alpha1.Heartbeat{}
	h.Spec.Schedule = &v1alpha1.HeartbeatSchedule{Cron: "0 3 * * *"}
	h.Spec.Grace, h.Spec.MaxDuration = length(30*time.Minute), length(2*time.Hour)
	h.Status.LastSignalTime, h.Status.LastStartTime = stamp(at(3, 2, 4, 30)), stamp(at(3, 2, 3, 0))
	return h
}

func TestARunHasItsOwnTime(t *testing.T) {
	for sentence, test := range map[string]struct {
		start time.Time // zero: that of the night before
		due   time.Time
		runs  bool
	}{
		"no start":                             {due: at(3, 3, 3, 30)},
		"a start at its time":                  {at(3, 3, 3, 0), at(3, 3, 5, 0), true},
		"a start at the last moment":           {at(3, 3, 3, 29), at(3, 3, 5, 29), true},
		"a start that is late":                 {at(3, 3, 3, 30), at(3, 3, 3, 30), false},
		"a start right after the last success": {at(3, 2, 5, 0), at(3, 2, 7, 0), true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, h := NewWithT(t), nightly()
			if !test.start.IsZero() {
				h.Status.LastStartTime = stamp(test.start)
			}
			e, ok, err := Of(h)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(ok).To(BeTrue())
			g.Expect(e.Due).To(BeTemporally("==", test.due))
			g.Expect(e.Started.IsZero()).To(Equal(!test.runs))
		})
	}
}

func TestWhatIsExpectedOfAHeartbeatThatWasNeverHeard(t *testing.T) {
	g, h := NewWithT(t), nightly()
	h.Status = v1alpha1.HeartbeatStatus{ObservedTime: stamp(at(3, 2, 12, 0))}
	_, ok, _ := Of(h)
	g.Expect(ok).To(BeFalse(), "it waits for its first signal")
	h.Spec.Required = true
	e, ok, _ := Of(h)
	g.Expect(ok).To(BeTrue())
	g.Expect(e.Due).To(BeTemporally("==", at(3, 3, 3, 30)))
	h.Spec.Suspend = true
	_, ok, _ = Of(h)
	g.Expect(ok).To(BeFalse())
	h.Spec.Schedule.TimeZone = "Europe/Nowhere"
	_, _, err := Of(h)
	g.Expect(err).To(HaveOccurred())
}

// A break postpones what it may have kept from being delivered, and nothing else.
func TestABreakPostpones(t *testing.T) {
	every := func(period time.Duration) *v1alpha1.Heartbeat {
		h := &v1alpha1.Heartbeat{}
		h.Spec.Every, h.Spec.Grace = length(period), length(0)
		h.Status.LastSignalTime = stamp(at(3, 2, 4, 30))
		return h
	}
	started := nightly()
	started.Status.LastStartTime = stamp(at(3, 3, 3, 0))
	heard := at(3, 2, 4, 30)
	const week = 168 * time.Hour
	for sentence, test := range map[string]struct {
		heartbeat         *v1alpha1.Heartbeat
		quietFrom, missed time.Time
	}{
		"without a break": {every(6 * time.Minute), heard.Add(-time.Hour), heard.Add(6 * time.Minute)},
		"a break that ended before the signal was due":   {every(6 * time.Minute), heard.Add(time.Minute), heard.Add(7 * time.Minute)},
		"a break that ended after the signal was due":    {every(6 * time.Minute), heard.Add(time.Hour), heard.Add(66 * time.Minute)},
		"a week, and a break on the first day":           {every(week), heard.Add(24 * time.Hour), heard.Add(week + 24*time.Hour)},
		"a week, and a restart every day":                {every(week), heard.Add(2*week - 6*time.Hour), heard.Add(2 * week)},
		"a week, and a restart when it has passed twice": {every(week), heard.Add(2*week + time.Hour), heard.Add(2*week + 7*time.Hour)},

		"a schedule, and a break in the evening":         {nightly(), at(3, 2, 20, 0), at(3, 3, 3, 30)},
		"a schedule, and a break until shortly before":   {nightly(), at(3, 3, 2, 59), at(3, 3, 3, 30)},
		"a schedule, and a break at its time":            {nightly(), at(3, 3, 3, 10), at(3, 4, 3, 30)},
		"a schedule, and a break after it":               {nightly(), at(3, 3, 4, 10), at(3, 4, 3, 30)},
		"a schedule, and breaks on both nights":          {nightly(), at(3, 4, 3, 10), at(3, 4, 9, 10)},
		"a run, and a break before it":                   {started, at(3, 3, 2, 0), at(3, 3, 5, 0)},
		"a run, whose end may have been lost in a break": {started, at(3, 3, 4, 0), at(3, 3, 6, 0)},
	} {
		t.Run(sentence, func(t *testing.T) {
			e, ok, err := Of(test.heartbeat)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(ok).To(BeTrue())
			NewWithT(t).Expect(e.Deadline(test.heartbeat, test.quietFrom)).To(BeTemporally("==", test.missed))
		})
	}
}

// On 25 October 2026, clocks in Berlin show 02:00 to 03:00 twice; on 29 March they do not show it.
func TestScheduleOfALocalTime(t *testing.T) {
	for sentence, test := range map[string]struct {
		cron, zone string
		at, next   time.Time
	}{
		"a signal up to 30 s early counts":    {"0 3 * * *", "", at(3, 3, 3, 0).Add(-30 * time.Second), at(3, 4, 3, 0)},
		"one that is earlier does not":        {"0 3 * * *", "", at(3, 3, 3, 0).Add(-31 * time.Second), at(3, 3, 3, 0)},
		"the first of two times in autumn":    {"17 2 * * *", berlin, at(10, 24, 0, 20), at(10, 25, 0, 17)},
		"the second one is not expected":      {"17 2 * * *", berlin, at(10, 25, 0, 20), at(10, 26, 1, 17)},
		"an hour without a time in spring":    {"17 2 * * *", berlin, at(3, 28, 1, 20), at(3, 30, 0, 17)},
		"half an hour, on Lord Howe Island":   {"45 1 * * *", "Australia/Lord_Howe", at(4, 4, 14, 50), at(4, 5, 15, 15)},
		"by the minute, once an hour is lost": {"*/30 * * * *", berlin, at(10, 25, 0, 30), at(10, 25, 2, 0)},
	} {
		t.Run(sentence, func(t *testing.T) {
			h := &v1alpha1.Heartbeat{}
			h.Spec.Schedule = &v1alpha1.HeartbeatSchedule{Cron: test.cron, TimeZone: test.zone}
			next, err := After(h, test.at)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(next).To(BeTemporally("==", test.next))
		})
	}
}

func TestIndex(t *testing.T) {
	g, x := NewWithT(t), NewIndex()
	of := func(name, integration string) *v1alpha1.Heartbeat {
		h := &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		h.Spec.IntegrationName = integration
		return h
	}
	a, b, newer := of("a", "jobs"), of("b", "jobs"), of("a", "jobs")
	x.Set(b)
	x.Set(a)
	jobs := IntegrationOf(a)
	before := x.Of(jobs)
	g.Expect(before).To(HaveExactElements(BeIdenticalTo(a), BeIdenticalTo(b)))
	x.Set(newer)
	g.Expect(x.Of(jobs)).To(HaveExactElements(BeIdenticalTo(newer), BeIdenticalTo(b)))
	g.Expect(before).To(HaveExactElements(BeIdenticalTo(a), BeIdenticalTo(b)), "who reads a list keeps it")
	x.Remove(b)
	x.Remove(newer)
	x.Remove(of("c", "jobs"))
	g.Expect(x.Of(jobs)).To(BeEmpty())
	g.Expect(x.all).To(BeEmpty())
}

func TestWhatWatchesALink(t *testing.T) {
	g := NewWithT(t)
	for sentence, test := range map[string]struct {
		change func(*v1alpha1.HeartbeatSpec)
		want   bool
	}{
		"any request, often enough": {func(*v1alpha1.HeartbeatSpec) {}, true},
		"pings":                     {func(s *v1alpha1.HeartbeatSpec) { s.Match = nil }, false},
		"too slow":                  {func(s *v1alpha1.HeartbeatSpec) { s.Every = length(5 * time.Minute) }, false},
		"too patient":               {func(s *v1alpha1.HeartbeatSpec) { s.Grace = length(2 * time.Minute) }, false},
		"suspended":                 {func(s *v1alpha1.HeartbeatSpec) { s.Suspend = true }, false},
		"a schedule": {func(s *v1alpha1.HeartbeatSpec) {
			s.Every, s.Schedule = nil, &v1alpha1.HeartbeatSchedule{Cron: "* * * * *"}
		}, false},
	} {
		h := &v1alpha1.Heartbeat{Spec: v1alpha1.HeartbeatSpec{
			Every: length(4 * time.Minute), Match: &v1alpha1.HeartbeatMatch{AnyRequest: true},
		}}
		test.change(&h.Spec)
		g.Expect(WatchesLink(h)).To(Equal(test.want), sentence)
	}
}

func TestTheCacheKeepsOfTheMetadataOnlyWhoseLinkItIs(t *testing.T) {
	g := NewWithT(t)
	h := &v1alpha1.Heartbeat{}
	h.Labels = map[string]string{v1alpha1.LinkLabel: strings.Repeat("x", 63), "other": "y"}
	h.Annotations = map[string]string{"a": "b"}
	h.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	for range 2 { // an informer may do it twice
		_, err := Condense(h)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(h.Labels).To(Equal(map[string]string{v1alpha1.LinkLabel: ""}))
		g.Expect(h.Annotations).To(BeEmpty())
		g.Expect(h.ManagedFields).To(BeEmpty())
	}
}
