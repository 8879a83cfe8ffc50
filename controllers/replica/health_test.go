package replica

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/hack/lib/wallclock"
)

func TestMain(m *testing.M) { testsite.Main(m) }

// testEpoch is when the tests begin.
var testEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var (
	shop      = types.NamespacedName{Namespace: "shop", Name: "mon"}
	neighbour = types.NamespacedName{Namespace: "shop", Name: "other"}
	other     = types.NamespacedName{Namespace: "other", Name: "mon"}
)

func TestIngestHealth(t *testing.T) {
	type step struct {
		at     time.Duration
		answer bool          // of the API server
		ahead  time.Duration // of the own clock
		missed *types.NamespacedName
	}
	answer := func(at time.Duration) step { return step{at: at, answer: true} }
	miss := func(whom *types.NamespacedName) step { return step{at: 5 * time.Second, missed: whom} }
	never := time.Duration(-1)
	for sentence, c := range map[string]struct {
		steps []step
		now   time.Duration
		from  time.Duration // by the API server's clock; never: no time-based resolve is safe
	}{
		"nothing was answered yet: nothing ends":        {nil, 0, never},
		"answers without a gap: since the first":        {[]step{answer(0), answer(15 * time.Second), answer(30 * time.Second)}, 31 * time.Second, 0},
		"a gap: since the first answer after it":        {[]step{answer(0), answer(16 * time.Second)}, 17 * time.Second, 16 * time.Second},
		"just no gap yet: since the first answer":       {[]step{answer(0)}, 15 * time.Second, 0},
		"in the gap: nothing ends":                      {[]step{answer(0)}, 16 * time.Second, never},
		"the clock an hour ahead: by the API server's":  {[]step{{answer: true, ahead: time.Hour}}, time.Second, -time.Hour + time.Second},
		"the clock an hour behind: by the API server's": {[]step{{answer: true, ahead: -time.Hour}}, time.Second, time.Hour},
		"it stays an hour ahead: since the first answer": {
			[]step{{answer: true, ahead: time.Hour}, {at: 9 * time.Second, answer: true, ahead: time.Hour}}, 10 * time.Second, -time.Hour + time.Second,
		},
		"the API server's clock is set: since then":           {[]step{answer(0), {at: 5 * time.Second, answer: true, ahead: -time.Hour}}, 9 * time.Second, time.Hour + 5*time.Second},
		"it is set by as little as may differ: as ever":       {[]step{answer(0), {at: 5 * time.Second, answer: true, ahead: -time.Minute}}, 9 * time.Second, time.Minute},
		"an alert of it was missed: since then":               {[]step{answer(0), miss(&shop)}, 9 * time.Second, 5 * time.Second},
		"an alert of another integration was missed: as ever": {[]step{answer(0), miss(&other)}, 9 * time.Second, 0},
		"an alert of one beside it was missed: as ever":       {[]step{answer(0), miss(&neighbour)}, 9 * time.Second, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			now := clocktesting.NewFakePassiveClock(testEpoch)
			l := NewIngestHealth(now)
			for _, step := range c.steps {
				now.SetTime(testEpoch.Add(step.at))
				if step.answer {
					l.Answered(now.Now(), now.Now(), now.Now().Add(-step.ahead))
				}
				if step.missed != nil {
					l.Missed(*step.missed)
				}
			}
			now.SetTime(testEpoch.Add(c.now))
			from, ok := l.QuietFrom(shop, time.Time{})
			g.Expect(ok).To(Equal(c.from != never))
			if ok {
				g.Expect(from).To(Equal(testEpoch.Add(c.from + Grace)))
			}
		})
	}
	for sentence, c := range map[string]struct{ ahead, reported, now, from time.Duration }{
		"another replica reports a missed alert: since then": {0, 5 * time.Second, 9 * time.Second, 5 * time.Second},
		"by the API server's clock, not the own one":         {50 * time.Second, 5 * time.Second, 69 * time.Second, 5 * time.Second},
		"a report from the future tells of now":              {0, time.Hour, 9 * time.Second, 9 * time.Second},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			now := clocktesting.NewFakePassiveClock(testEpoch)
			l := NewIngestHealth(now)
			l.Answered(now.Now(), now.Now(), now.Now().Add(-c.ahead))
			now.SetTime(testEpoch.Add(c.now))
			l.last = now.Now()
			from, ok := l.QuietFrom(shop, testEpoch.Add(c.reported))
			g.Expect(ok).To(BeTrue())
			g.Expect(from).To(Equal(testEpoch.Add(c.from + Grace)))
		})
	}
	for sentence, test := range map[string]struct {
		suspended time.Duration
		healthy   bool // since before
	}{
		"a machine that is suspended for seconds can store": {5 * time.Second, true},
		"one that is suspended for longer could not":        {20 * time.Second, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			now := &fixedClock{time.Now()}
			l, before := NewIngestHealth(now), now.Now()
			after := suspended(before.Add(time.Second), test.suspended)
			g.Expect(after.Sub(before)).To(Equal(time.Second), "by the monotonic clock")
			g.Expect(after.Round(0).Sub(before.Round(0))).To(Equal(time.Second+test.suspended), "by the wall clock")
			l.Answered(before, before, before)
			now.Time = after
			_, ok := l.QuietFrom(shop, time.Time{})
			g.Expect(ok).To(Equal(test.healthy))
			l.Answered(after, after, after)
			g.Expect(l.since.Equal(before)).To(Equal(test.healthy))
		})
	}
}

// TestMoreThanIsRememberedHasNotBeenQuiet has so many integrations miss alerts that they are forgotten.
func TestMoreThanIsRememberedHasNotBeenQuiet(t *testing.T) {
	inOneNamespace := func(n int) types.NamespacedName {
		return types.NamespacedName{Namespace: shop.Namespace, Name: strconv.Itoa(n)}
	}
	inMany := func(n int) types.NamespacedName {
		return types.NamespacedName{Namespace: strconv.Itoa(n), Name: shop.Name}
	}
	for sentence, test := range map[string]struct {
		remembered int
		nth        func(int) types.NamespacedName
		others     time.Duration // from when those of another namespace are quiet at the end
	}{
		"integrations of a namespace concern that only":   {maxMissed, inOneNamespace, 0},
		"as many namespaces as no tenant has concern all": {maxMissingNamespaces, inMany, 9 * time.Second},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			now := clocktesting.NewFakePassiveClock(testEpoch)
			h := NewIngestHealth(now)
			h.Answered(now.Now(), now.Now(), now.Now())
			quietFrom := func(integration types.NamespacedName) time.Duration {
				from, ok := h.QuietFrom(integration, time.Time{})
				g.Expect(ok).To(BeTrue())
				return from.Sub(testEpoch) - Grace
			}
			for _, step := range []struct {
				first, last int // who miss an alert
				from        time.Duration
			}{
				{0, test.remembered - 1, 0},
				{0, 0, 0}, // is known already
				{test.remembered, test.remembered, 9 * time.Second},
				{test.remembered + 1, test.remembered + 1, 9 * time.Second},
			} {
				now.SetTime(now.Now().Add(3 * time.Second))
				for n := step.first; n <= step.last; n++ {
					h.Missed(test.nth(n))
				}
				g.Expect(quietFrom(shop)).To(Equal(step.from), "after %d", step.last)
				g.Expect(len(h.missed)).To(BeNumerically("<=", maxMissingNamespaces))
				for _, own := range h.missed {
					g.Expect(len(own.integrations)).To(BeNumerically("<=", maxMissed))
				}
			}
			g.Expect(quietFrom(other)).To(Equal(test.others))
		})
	}
}

// TestTheClockIsWrongWhenItDiffersByMoreThanAMinute tells each change once: it is logged.
func TestTheClockIsWrongWhenItDiffersByMoreThanAMinute(t *testing.T) {
	h := NewIngestHealth(clocktesting.NewFakePassiveClock(testEpoch))
	for _, step := range []struct {
		state          string
		ahead          time.Duration
		wrong, changed bool
	}{
		{"right from the start", 0, false, false},
		{"ahead by as much as may be", time.Minute, false, false},
		{"ahead", time.Minute + time.Second, true, true},
		{"further ahead", time.Hour, true, false},
		{"behind", -time.Minute - time.Second, true, false},
		{"behind by as much as may be", -time.Minute, false, true},
		{"right again", 0, false, false},
	} {
		g := NewWithT(t)
		date := testEpoch.Add(-step.ahead)
		if step.ahead > 0 {
			date = date.Add(-time.Second) // the time that an answer tells is cut to seconds
		}
		ahead, wrong, changed := h.tell(testEpoch, testEpoch, date)
		g.Expect(ahead).To(Equal(step.ahead), step.state)
		g.Expect(wrong).To(Equal(step.wrong), step.state)
		g.Expect(changed).To(Equal(step.changed), step.state)
	}
}

// fixedClock shows a time with its reading of the monotonic clock.
type fixedClock struct{ time.Time }

func (c *fixedClock) Now() time.Time { return c.Time }

// suspended returns the time at which a machine goes on that was suspended for d at t: only the wall clock shows it.
func suspended(t time.Time, d time.Duration) time.Time {
	later := t.Add(d)
	monotonic := reflect.ValueOf(&later).Elem().FieldByName("ext")
	reflect.NewAt(monotonic.Type(), monotonic.Addr().UnsafePointer()).Elem().SetInt(monotonic.Int() - int64(d))
	return later
}

// A time that is kept while the own clock is wrong is compared with one after the clock was set. By readings of the monotonic
// clock, which are corrected like the rest, one would be an hour after the other.
func TestTheTimeOfTheAPIServerIsThatOfItsWallClock(t *testing.T) {
	g := NewWithT(t)
	h := NewIngestHealth(clock.RealClock{})
	_, ok := h.Now()
	g.Expect(ok).To(BeFalse())
	before := h.APITime()
	g.Expect(before).To(BeTemporally("~", time.Now(), 10*time.Second))
	g.Expect(before).To(Equal(before.Round(0)), "until the API server has answered")
	now := time.Now()
	h.Answered(now, now, now.Add(time.Hour))
	after := h.APITime()
	g.Expect(after).To(Equal(after.Round(0)))
	g.Expect(after).To(BeTemporally("~", now.Add(time.Hour), 10*time.Second))
}

// TestAClockThatIsSetRight has a process begin, and refuse an alert, while its clock is an hour ahead. Quiet is measured by the
// clock of the API server all the while, but not between the change of the own one and the next answer.
func TestAClockThatIsSetRight(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		g := NewWithT(t)
		own := &wallclock.Clock{}
		h := NewIngestHealth(own)
		own.Set(ahead)
		began := time.Now()
		quiet := func() {
			for _, integration := range []types.NamespacedName{shop, other} {
				from, ok := h.QuietFrom(integration, time.Time{})
				g.Expect(ok).To(BeTrue())
				g.Expect(from).To(Equal(from.Round(0)))
				g.Expect(from).To(BeTemporally("~", began.Add(Grace), 10*time.Second), "%s", ahead)
			}
		}
		h.Answered(own.Now(), own.Now(), time.Now().Round(0))
		h.Missed(shop)
		quiet()
		own.Set(0)
		_, ok := h.QuietFrom(shop, time.Time{})
		g.Expect(ok).To(BeFalse())
		g.Expect(h.APITime()).To(BeTemporally("~", time.Now(), 10*time.Second))
		h.Answered(own.Now(), own.Now(), time.Now().Round(0))
		quiet()
	}
}

// TestAClockThatIsSetALittle goes on: the clocks of nodes are corrected all the time.
func TestAClockThatIsSetALittle(t *testing.T) {
	for sentence, test := range map[string]struct {
		ahead   time.Duration
		healthy bool
	}{
		"ahead by as much as may be":  {time.Minute, true},
		"behind by as much as may be": {-time.Minute, true},
		"further ahead":               {time.Minute + time.Second, false},
		"further behind":              {-time.Minute - time.Second, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			own := &wallclock.Clock{}
			h := NewIngestHealth(own)
			now := own.Now()
			h.Answered(now, now, now.Round(0))
			h.last = now.Add(time.Hour) // as if it went on answering
			own.Set(test.ahead)
			_, ok := h.QuietFrom(shop, time.Time{})
			NewWithT(t).Expect(ok).To(Equal(test.healthy))
		})
	}
}

// TestAClockThatIsSetDuringARequest tells no wrong time: the answer took as long as the monotonic clock says.
func TestAClockThatIsSetDuringARequest(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		g := NewWithT(t)
		own := &wallclock.Clock{}
		h := NewIngestHealth(own)
		sent := own.Now()
		own.Set(ahead)
		h.Answered(sent, own.Now(), time.Now().Round(0))
		g.Expect(h.APITime()).To(BeTemporally("~", time.Now(), 10*time.Second), "%s", ahead)
	}
}

func TestAReplicaIsCutOffWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	g := NewWithT(t)
	now := clocktesting.NewFakePassiveClock(testEpoch)
	h := NewIngestHealth(now)
	g.Expect(h.IsCutOff()).To(BeFalse(), "the caches have just been synced, and no canary was sent yet")
	h.Answered(now.Now(), now.Now(), now.Now())
	for _, step := range []struct {
		at     time.Duration
		cutOff bool
	}{{maxGap, false}, {maxGap + time.Second, true}} {
		now.SetTime(testEpoch.Add(step.at))
		g.Expect(h.IsCutOff()).To(Equal(step.cutOff), "%s after the last answer", step.at)
	}
	h.tell(now.Now(), now.Now(), now.Now())
	g.Expect(h.IsCutOff()).To(BeFalse(), "it answers, though it can store nothing")
}
