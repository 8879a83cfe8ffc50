package maintenance

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func stamp(text string) v1alpha1.Timestamp { return v1alpha1.Timestamp{Time: at(text)} }

func named(name string, spec v1alpha1.MaintenanceWindowSpec) v1alpha1.MaintenanceWindow {
	return v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team"}, Spec: spec}
}

func once(name, start, end string) v1alpha1.MaintenanceWindow {
	return named(name, v1alpha1.MaintenanceWindowSpec{Once: &v1alpha1.SingleOpening{StartTime: stamp(start), EndTime: stamp(end)}})
}

func recurring(name, expression, zone string, duration time.Duration) v1alpha1.MaintenanceWindow {
	return named(name, v1alpha1.MaintenanceWindowSpec{Recurring: &v1alpha1.Recurrence{
		Cron: expression, TimeZone: zone, Duration: &metav1.Duration{Duration: duration},
	}})
}

type windows = []v1alpha1.MaintenanceWindow

func TestWhetherAnIncidentIsMuted(t *testing.T) {
	warnings := once("warnings", "2026-03-01T10:00:00Z", "2026-03-01T12:00:00Z")
	warnings.Spec.Match = &v1alpha1.MaintenanceMatch{Severities: []v1alpha1.Severity{"warning", "info"}}
	database := once("database", "2026-03-01T10:00:00Z", "2026-03-01T12:00:00Z")
	database.Spec.Match = &v1alpha1.MaintenanceMatch{Labels: map[string]v1alpha1.LabelValue{"app": "db", "empty": ""}}
	empty := once("empty", "2026-03-01T10:00:00Z", "2026-03-01T12:00:00Z")
	empty.Spec.Match = &v1alpha1.MaintenanceMatch{}
	night := recurring("night", "0 22 * * *", "", 8*time.Hour)
	berlin := recurring("berlin", "30 2 * * *", "Europe/Berlin", 30*time.Minute)
	for name, test := range map[string]struct {
		windows windows
		content v1alpha1.AlertContent
		at      string
		window  string // empty: it is not muted
		until   string // empty: no end is known
	}{
		"there is no window":              {at: "2026-03-01T11:00:00Z"},
		"before the start":                {windows: windows{empty}, at: "2026-03-01T09:59:59Z"},
		"from the start on":               {windows: windows{empty}, at: "2026-03-01T10:00:00Z", window: "empty", until: "2026-03-01T12:00:00Z"},
		"not at the end":                  {windows: windows{empty}, at: "2026-03-01T12:00:00Z"},
		"another severity":                {windows: windows{warnings}, content: v1alpha1.AlertContent{Severity: "critical"}, at: "2026-03-01T11:00:00Z"},
		"the severity":                    {windows: windows{warnings}, content: v1alpha1.AlertContent{Severity: "info"}, at: "2026-03-01T11:00:00Z", window: "warnings", until: "2026-03-01T12:00:00Z"},
		"without the labels":              {windows: windows{database}, at: "2026-03-01T11:00:00Z"},
		"one label is missing":            {windows: windows{database}, content: v1alpha1.AlertContent{Labels: v1alpha1.Texts{"app": "db"}}, at: "2026-03-01T11:00:00Z"},
		"one label is different":          {windows: windows{database}, content: v1alpha1.AlertContent{Labels: v1alpha1.Texts{"app": "web", "empty": ""}}, at: "2026-03-01T11:00:00Z"},
		"all labels":                      {windows: windows{database}, content: v1alpha1.AlertContent{Labels: v1alpha1.Texts{"app": "db", "empty": "", "x": "y"}}, at: "2026-03-01T11:00:00Z", window: "database", until: "2026-03-01T12:00:00Z"},
		"a night, before":                 {windows: windows{night}, at: "2026-03-01T21:59:59Z"},
		"a night, at its start":           {windows: windows{night}, at: "2026-03-01T22:00:00Z", window: "night", until: "2026-03-02T06:00:00Z"},
		"a night, after midnight":         {windows: windows{night}, at: "2026-03-02T05:59:59Z", window: "night", until: "2026-03-02T06:00:00Z"},
		"a night, at its end":             {windows: windows{night}, at: "2026-03-02T06:00:00Z"},
		"winter time in another zone":     {windows: windows{berlin}, at: "2026-03-01T01:45:00Z", window: "berlin", until: "2026-03-01T02:00:00Z"},
		"summer time in another zone":     {windows: windows{berlin}, at: "2026-06-01T00:45:00Z", window: "berlin", until: "2026-06-01T01:00:00Z"},
		"an hour that summer time skips":  {windows: windows{berlin}, at: "2026-03-29T01:15:00Z"},
		"an hour that comes twice, first": {windows: windows{berlin}, at: "2026-10-25T00:45:00Z", window: "berlin", until: "2026-10-25T01:00:00Z"},
		"an hour that comes twice, again": {windows: windows{berlin}, at: "2026-10-25T01:45:00Z", window: "berlin", until: "2026-10-25T02:00:00Z"},
		"a window that lasts through the change to summer time": {
			windows: windows{recurring("w", "0 1 * * *", "Europe/Berlin", 2*time.Hour)}, at: "2026-03-29T01:59:00Z",
			window: "w", until: "2026-03-29T02:00:00Z"},
		"windows that overlap": {
			windows: windows{empty, once("longer", "2026-03-01T11:00:00Z", "2026-03-01T14:00:00Z")},
			at:      "2026-03-01T10:30:00Z", window: "longer", until: "2026-03-01T14:00:00Z"},
		"one within another": {
			windows: windows{once("long", "2026-03-01T09:00:00Z", "2026-03-01T14:00:00Z"), empty},
			at:      "2026-03-01T11:00:00Z", window: "long", until: "2026-03-01T14:00:00Z"},
		"one right after another": {
			windows: windows{empty, once("next", "2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z")},
			at:      "2026-03-01T10:30:00Z", window: "next", until: "2026-03-01T13:00:00Z"},
		"the next one mutes others": {
			windows: windows{empty, named("next", v1alpha1.MaintenanceWindowSpec{Match: database.Spec.Match, Once: &v1alpha1.SingleOpening{
				StartTime: stamp("2026-03-01T12:00:00Z"), EndTime: stamp("2026-03-01T13:00:00Z")}})},
			at: "2026-03-01T10:30:00Z", window: "empty", until: "2026-03-01T12:00:00Z"},
		"windows that take turns without an end": {
			windows: windows{recurring("day", "0 6 * * *", "", 12*time.Hour), recurring("night", "0 18 * * *", "", 12*time.Hour)},
			at:      "2026-03-01T11:00:00Z", window: "day"},
		"an invalid window beside a valid one": {
			windows: windows{recurring("wrong", "0 25 * * *", "", time.Hour), empty},
			at:      "2026-03-01T11:00:00Z", window: "empty", until: "2026-03-01T12:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			window, until, muted := New(test.windows...).Mutes(&test.content, at(test.at))
			g.Expect(muted).To(Equal(test.window != ""))
			g.Expect(window).To(Equal(test.window))
			if test.until == "" {
				g.Expect(until.IsZero()).To(BeTrue())
			} else {
				g.Expect(until.UTC()).To(Equal(at(test.until)))
			}
		})
	}
}

// Openings that begin before the time are skipped, also the one that is open; all others come.
func TestSkippedOpenings(t *testing.T) {
	g := NewWithT(t)
	night := recurring("night", "0 22 * * *", "", 8*time.Hour)
	for skipUntil, want := range map[string]struct{ open, next string }{
		"2026-03-01T22:00:00Z":   {open: "2026-03-02T06:00:00Z", next: "2026-03-02T06:00:00Z"}, // it begins then
		"2026-03-01T22:00:00.5Z": {next: "2026-03-02T22:00:00Z"},
		"2026-03-01T23:00:00Z":   {next: "2026-03-02T22:00:00Z"},
		"2026-03-02T22:00:01Z":   {next: "2026-03-03T22:00:00Z"},
		"9999-12-31T00:00:00Z":   {next: "9999-12-31T22:00:00Z"},
	} {
		night.Spec.Recurring.SkipUntil = &v1alpha1.Timestamp{Time: at(skipUntil)}
		plan, now := New(night), at("2026-03-01T23:30:00Z")
		g.Expect(plan).To(HaveLen(1))
		open := ""
		for _, opening := range plan.Open(now) {
			open = opening.Until.UTC().Format(time.RFC3339)
		}
		g.Expect(open).To(Equal(want.open), skipUntil)
		g.Expect(plan.Next(now).UTC()).To(Equal(at(want.next)), skipUntil)
		_, _, muted := plan.Mutes(&v1alpha1.AlertContent{}, at("2026-03-05T23:00:00Z"))
		g.Expect(muted).To(Equal(skipUntil[0] == '2'), skipUntil)
	}
}

func TestInvalidWindows(t *testing.T) {
	empty, nightly := once("w", "2026-03-01T10:00:00Z", "2026-03-01T12:00:00Z"), recurring("w", "@daily", "", time.Hour)
	for name, test := range map[string]struct {
		window v1alpha1.MaintenanceWindow
		err    string // empty: it is valid
	}{
		"a name for a schedule":          {recurring("w", "@daily", "", time.Hour), ""},
		"names of days":                  {recurring("w", "0 2 * JAN-MAR Mon-Fri", "America/New_York", time.Hour), ""},
		"a leap day":                     {recurring("w", "0 0 29 2 *", "", time.Hour), ""},
		"an interval":                    {recurring("w", "@every 5m", "", time.Hour), `"@every 5m" is not a cron expression`},
		"a time zone in the schedule":    {recurring("w", "TZ=UTC 0 2 * * *", "", time.Hour), "is not a cron expression"},
		"a time zone and nothing else":   {recurring("w", "TZ=", "", time.Hour), "is not a cron expression"},
		"a minute that does not exist":   {recurring("w", "60 2 * * *", "", time.Hour), `"60 2 * * *" is not a cron expression`},
		"seconds":                        {recurring("w", "0 0 2 * * *", "", time.Hour), "is not a cron expression"},
		"a day that does not exist":      {recurring("w", "0 0 30 2 *", "", time.Hour), "names no day that exists"},
		"an unknown time zone":           {recurring("w", "0 2 * * *", "Europe/Atlantis", time.Hour), `timeZone "Europe/Atlantis" is not in the IANA database`},
		"the time zone of the process":   {recurring("w", "0 2 * * *", "Local", time.Hour), `timeZone "Local" is not in the IANA database`},
		"a path":                         {recurring("w", "0 2 * * *", "../../etc/passwd", time.Hour), "is not in the IANA database"},
		"longer than its period":         {recurring("w", "0 2 * * *", "", 25*time.Hour), "the window never closes: it is open for 25h0m0s"},
		"as long as its period":          {recurring("w", "0 2 * * *", "", 24*time.Hour), "never closes"},
		"sometimes longer":               {recurring("w", "0 2 1,2 * *", "", 25*time.Hour), ""},
		"no duration":                    {recurring("w", "@daily", "", 0), "the cron expression needs a duration"},
		"neither a schedule nor an end":  {named("w", v1alpha1.MaintenanceWindowSpec{}), "needs an endTime after its startTime, or a cron expression"},
		"both":                           {named("w", v1alpha1.MaintenanceWindowSpec{Once: empty.Spec.Once, Recurring: nightly.Spec.Recurring}), "has once and recurring"},
		"an end that is not after start": {once("w", "2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z"), "needs an endTime after its startTime"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Compile(&test.window)
			if test.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.err)))
			g.Expect(New(test.window).Open(at("2026-03-01T02:30:00Z"))).To(BeEmpty())
		})
	}
}

func TestWhichIntegrationsAWindowIsFor(t *testing.T) {
	g := NewWithT(t)
	covers := func(selection *v1alpha1.IntegrationSelection) (names []string) {
		window := once("w", "2026-03-01T10:00:00Z", "2026-03-01T12:00:00Z")
		window.Spec.Integrations = selection
		for name, labels := range map[string]map[string]string{
			"plain": nil, "storage": {"team": "storage"}, "web": {"team": "web", "tier": ""},
		} {
			integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
			if New(window).Of(integration) != nil {
				names = append(names, name)
			}
		}
		return names
	}
	selector := func(labels map[string]v1alpha1.IntegrationLabel) *v1alpha1.IntegrationSelection {
		return &v1alpha1.IntegrationSelection{Selector: &v1alpha1.IntegrationSelector{MatchLabels: labels}}
	}
	g.Expect(covers(nil)).To(ConsistOf("plain", "storage", "web"))
	g.Expect(covers(&v1alpha1.IntegrationSelection{Names: []string{"web", "gone"}})).To(ConsistOf("web"))
	g.Expect(covers(selector(map[string]v1alpha1.IntegrationLabel{"team": "storage"}))).To(ConsistOf("storage"))
	g.Expect(covers(selector(map[string]v1alpha1.IntegrationLabel{"tier": ""}))).To(ConsistOf("web"))
	g.Expect(covers(selector(map[string]v1alpha1.IntegrationLabel{"team": "web", "tier": "1"}))).To(BeEmpty())
	g.Expect(covers(selector(nil))).To(BeEmpty(), "the schema allows none of these, and they select nothing")
	g.Expect(covers(&v1alpha1.IntegrationSelection{})).To(BeEmpty())
}

// The plan of a namespace follows its windows, and stays the same when nothing but their status changes.
func TestWindowsAreKeptByNamespace(t *testing.T) {
	g, all := NewWithT(t), NewWindows()
	shop := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "shop"}}
	names := func() (names []string) {
		for _, w := range all.Of(shop) {
			names = append(names, w.Name)
		}
		return names
	}
	b := once("b", "2026-03-01T10:00:00Z", "2026-03-01T12:00:00Z")
	a, c, other := recurring("a", "@daily", "", time.Hour), b, b
	c.Name, other.Namespace = "c", "other"
	for _, w := range []v1alpha1.MaintenanceWindow{b, c, a, other} {
		all.Set(&w)
	}
	g.Expect(names()).To(Equal([]string{"a", "b", "c"}))
	now, _ := all.All()
	g.Expect(now).To(HaveLen(2))

	before := all.In("team")
	told := *a.DeepCopy()
	told.Status.Integrations = "all"
	all.Set(&told)
	g.Expect(&all.In("team")[0]).To(BeIdenticalTo(&before[0]), "the plan is the same")
	wrong := *a.DeepCopy()
	wrong.Spec.Recurring.Cron = "60 * * * *"
	all.Set(&wrong)
	g.Expect(names()).To(Equal([]string{"b", "c"}), "one that is invalid mutes nothing")
	g.Expect(before).To(HaveLen(3), "a plan never changes")
	all.Set(&a)
	all.Remove(&b)
	all.Remove(&b)
	g.Expect(names()).To(Equal([]string{"a", "c"}))
	all.Remove(&a)
	all.Remove(&c)
	now, gone := all.All()
	g.Expect(now).To(HaveLen(1))
	g.Expect(gone["team"]).To(HaveLen(4), "replaced or removed since the last call")
	g.Expect(all.Of(nil)).To(BeNil())
}

// A replica that does not lead asks for none of them.
func TestFewWindowsThatAreGoneAreRemembered(t *testing.T) {
	g, all := NewWithT(t), NewWindows()
	comeAndGo := func(namespaces, windows int) (remembered int) {
		for i := range namespaces * windows {
			window := once("db", "2026-03-01T10:00:00Z", "2026-03-01T12:00:00Z")
			window.Namespace = fmt.Sprint("team-", i%namespaces)
			all.Set(&window)
			all.Remove(&window)
		}
		for _, gone := range all.gone {
			remembered += len(gone)
		}
		return remembered
	}
	g.Expect(comeAndGo(maxAllGone/maxGone, 10*maxGone)).To(Equal(maxAllGone/maxGone*maxGone), "those of a few namespaces")
	g.Expect(comeAndGo(3*maxAllGone+1, 1)).To(And(BeNumerically(">", 0), BeNumerically("<=", maxAllGone)))
	_, gone := all.All()
	g.Expect(gone).NotTo(BeEmpty())
	g.Expect(comeAndGo(1, 1)).To(Equal(1))
}

// Property: a plan mutes in the union of its openings, its end is the first moment at which it mutes no longer, and nothing changes
// before Next.
func TestAPlanIsTheUnionOfItsWindows(t *testing.T) {
	zones := []string{"", "Europe/Berlin", "America/St_Johns", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu"}
	schedules := []string{
		"0 2 * * *", "30 2 * * 0", "*/20 1-4 * * *", "0 0 1 * *", "0 0 * * 1", "59 23 31 12 *", "15 3 29 2 *", "@hourly", "@weekly",
		"0 0 13 * FRI",
	}
	begin := at("2025-12-01T00:00:00Z")
	rapid.Check(t, func(t *rapid.T) {
		var list windows
		minutes := func(most int, label string) time.Duration {
			return time.Duration(rapid.IntRange(1, most).Draw(t, label)) * time.Minute
		}
		for range rapid.IntRange(1, 4).Draw(t, "windows") {
			if rapid.Bool().Draw(t, "recurring") {
				list = append(list, recurring("w", rapid.SampledFrom(schedules).Draw(t, "schedule"),
					rapid.SampledFrom(zones).Draw(t, "zone"), minutes(50*60, "duration")))
			} else {
				start := begin.Add(minutes(500*24*60, "start"))
				list = append(list, named("w", v1alpha1.MaintenanceWindowSpec{Once: &v1alpha1.SingleOpening{
					StartTime: v1alpha1.Timestamp{Time: start}, EndTime: v1alpha1.Timestamp{Time: start.Add(minutes(31*24*60, "lasts"))},
				}}))
			}
		}
		p, now := New(list...), begin.Add(minutes(500*24*60, "now")).Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "ns")))
		muted := func(at time.Time) bool {
			_, _, muted := p.Mutes(&v1alpha1.AlertContent{}, at)
			return muted
		}
		if rapid.Bool().Draw(t, "earlier") { // what was computed ahead changes nothing
			p.Next(now.Add(-minutes(40*24*60, "before")))
		}
		if rapid.Bool().Draw(t, "later") {
			p.Next(now.Add(minutes(40*24*60, "after")))
		}
		_, until, is := p.Mutes(&v1alpha1.AlertContent{}, now)
		if is != (len(p.Open(now)) > 0) {
			t.Fatalf("muted: %v, open: %v", is, p.Open(now))
		}
		if is && !until.IsZero() && (muted(until) || !muted(until.Add(-1)) || !until.After(now)) {
			t.Fatalf("muted until %s, at %s", until, now)
		}
		next := p.Next(now)
		if next.IsZero() {
			return
		}
		if !next.After(now) {
			t.Fatalf("the next change after %s is %s", now, next)
		}
		between := now.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(now))-1).Draw(t, "between")))
		if muted(between) != is {
			t.Fatalf("muted at %s: %v, and at %s: %v", now, is, between, !is)
		}
	})
}

func BenchmarkMutes(b *testing.B) {
	var list windows
	for range 500 {
		list = append(list, recurring("w", "0 0 29 2 *", "Europe/Berlin", 168*time.Hour))
	}
	p, content, now := New(list...), &v1alpha1.AlertContent{}, at("2024-03-01T00:00:00Z")
	for b.Loop() {
		p.Mutes(content, now)
	}
}

func BenchmarkNew(b *testing.B) {
	var list windows
	for range 500 {
		list = append(list, recurring("w", "* * * * *", "Europe/Berlin", 168*time.Hour))
	}
	for b.Loop() {
		New(list...)
	}
}
