package mapping_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// stopWithin is how much processor time a hostile mapping or payload may take, after decoding. BenchmarkHostile
// holds the limit of 50 ms; what is not stopped takes seconds, and a busy machine must not look like that.
const stopWithin = 10 * 50 * time.Millisecond

// bodyLimit is the server's default limit of a body.
const bodyLimit = 256 << 10

// hostileCase is a mapping or a payload that would take long.
type hostileCase struct{ mapping, body string }

// hostileCases are the hostile mappings and payloads, by what they do.
func hostileCases() map[string]hostileCase {
	large := object(strings.Repeat("a", bodyLimit-100))
	words := object(strings.Repeat("ab ", bodyLimit/3-100))
	numbers := `{"list": [` + sequence(bodyLimit/7-10, func(i int) string { return fmt.Sprint(100_000 + i) }) + `]}`
	same := `{"list": [` + sequence(bodyLimit/2-10, func(int) string { return "1" }) + `]}`
	wide := `{` + sequence(bodyLimit/14, func(i int) string { return fmt.Sprintf(`"k%d":1`, 100_000+i) }) + `}`
	deep := `{"text": "{\"a\":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}", "list": [1,2,3]}`
	many := `{"text": "` + strings.Repeat("x ", 60_000) + `", "list": [` + sequence(500, func(int) string { return "{}" }) + `]}`
	everyField := func(expression string) string {
		text := "fields:\n"
		for _, name := range []string{"title", "description", "severity", "status", "dedupKey", "link", "hostname", "region",
			"startTime", "endTime", "expiryTime", "type", "labels", "annotations", "values", "custom"} {
			text += fmt.Sprintf("  %s: %s\n", name, quoted("dyn("+expression+")"))
		}
		return text
	}
	// often evaluates an expression many times.
	often := func(expression string) string {
		return ten + ".map(i, " + ten + ".map(j, " + ten + ".map(k, " + ten + ".map(l, " + expression + "))))"
	}
	discards := everyField(`discard([PATHS])`)
	for field := range 16 { // each has paths of its own
		paths := sequence(120, func(i int) string { return fmt.Sprintf(`alert.k%d`, 100_000+120*field+i) })
		discards = strings.Replace(discards, "PATHS", paths, 1)
	}
	return map[string]hostileCase{
		"loops within loops": {everyField(
			`[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, ` +
				`[1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, a+b+c+d+e+f > 0))))))`), large},
		"loops over a large list":        {everyField(`alert.list.map(a, alert.list.map(b, a + b))`), numbers},
		"a loop over a large object":     {everyField(`alert.map(k, alert.map(l, k + l))`), wide},
		"comparing large values":         {everyField(`alert.list.all(a, alert == payload)`), numbers},
		"comparing large lists":          {everyField(`alert.list.filter(a, alert.list == payload.list)`), same},
		"looking for each in all":        {everyField(`alert.list.filter(a, a in alert.list)`), numbers},
		"a text that grows":              {everyField(`[1,2,3,4,5,6,7,8,9].map(i, alert.text + alert.text + alert.text)`), large},
		"adding a text to itself":        {everyField(strings.TrimSuffix(strings.Repeat("alert.text + ", 60), " + ")), large},
		"replacing each by all":          {everyField(`alert.text.replace("a", alert.text)`), large},
		"replacing between all":          {everyField(`alert.text.replace("", alert.text)`), large},
		"replacing again and again":      {everyField("alert.text" + strings.Repeat(`.replace("a", "aaaaaaaaaa")`, 50)), large},
		"joining with a large text":      {everyField(`alert.list.map(n, string(n)).join(string(payload.list))`), same},
		"joining large texts":            {everyField(`[alert.text, alert.text, alert.text, alert.text].join(alert.text)`), large},
		"splitting into letters":         {everyField(`alert.text.split("").map(c, alert.text.split(""))`), large},
		"a costly regular expression":    {everyField(`alert.text.matches("(a|aa|aaa){1,300}(b|c)$") ? "x" : "y"`), large},
		"many regular expressions":       {everyField(strings.TrimSuffix(strings.Repeat(`alert.text.matches("^(a*)*b$") || `, 50), " || ") + ` ? "x" : "y"`), object(strings.Repeat("a", 20_000))},
		"containing a part":              {everyField(often(`alert.text.contains(alert.part)`)), `{"text":"` + strings.Repeat("a", bodyLimit/2) + `","part":"` + strings.Repeat("a", bodyLimit/2-100) + `b"}`},
		"one key of many in a loop":      {everyField(often(`alert.exists(k, true)`)), wide},
		"one entry of many in a loop":    {everyField(often(`alert.exists(k, v, true)`)), wide},
		"numbers of large texts":         {everyField(often(`double(alert.text)`)), object(strings.Repeat("1", bodyLimit-100))},
		"many literals in a loop":        {everyField(often(`[i` + strings.Repeat(",1", 900) + `]`)), large},
		"parsing in a loop":              {everyField(`payload.list.map(a, parseJSON(payload.text))`), deep},
		"parsing what takes much memory": {everyField(`parseJSON(alert.text)`), object("[" + sequence(20_000, func(int) string { return `{"":0}` }) + "]")},
		"merging in a loop":              {everyField(often(`merge([alert, alert, alert])`)), wide},
		"hashing in a loop":              {everyField(often(`hash([alert.text, alert.text])`)), large},
		"pairs in a loop":                {everyField(often(`pairs(alert.text, " ", "b")`)), words},
		"upper case in a loop":           {everyField(often(`alert.text.upperAscii()`)), large},
		"sizes in a loop":                {everyField(often(`size(alert.text)`)), large},
		"comparing texts in a loop":      {everyField(often(`alert.text == payload.text`)), large},
		"starting in a loop":             {everyField(often(`alert.text.startsWith(payload.text)`)), large},
		"addresses in a loop":            {everyField(often(`urlHost("http://" + alert.text)`)), large},
		"presence in a loop":             {everyField(often(`present(alert)`)), wide},
		"no text in a loop":              {everyField(often(`text(alert)`)), wide},
		"discarding many entries":        {discards, wide},
		"discarding in a loop":           {everyField(often(`discardDefault(alert, 1)`)), wide},
		"times of objects in a loop":     {everyField(often(`timestampFromUnix(alert)`)), wide},
		"elements in a loop":             {everyField(often(`elements(alert.list)`)), same},
		"flattening":                     {everyField(`alert.list.map(i, alert.list).flatten()`), same},
		"reading a list of many lists":   {everyField(strings.TrimSuffix(strings.Repeat("alert.list + ", 50), " + ") + `.map(i, i)`), numbers},
		"a large key in a loop":          {everyField(often(`alert[?alert.text]`)), large},
		"maps with a large key":          {everyField(often(`{alert.text: 1}`)), large},
		"hosts of large texts":           {everyField(often(`urlHost(alert.text)`)), large},
		"a mapped text as large as all":  {everyField(often(`alert.text`)), large},
		"the payload as each alert":      {"alerts: " + quoted("dyn("+often("payload")+").flatten().flatten().flatten()") + "\n" + everyField(`payload.text`), large},
		"alerts of large parts":          {"alerts: payload.list.map(i, payload.list)\n" + everyField(`alert`), numbers},
		"a large text for each alert":    {"alerts: payload.list\n" + everyField(`payload.text`), many},
		"a blank text for each alert": {"alerts: payload.list\n" + everyField(`firstNonEmpty([`+strings.Repeat("payload.text, ", 100)+`"x"])`),
			`{"text": "` + strings.Repeat(" ", 200_000) + `", "list": [` + sequence(500, func(int) string { return "{}" }) + `]}`},
		"a loop for each alert":        {"alerts: payload.list\n" + everyField(`payload.list.map(a, payload.list.map(b, "x").join()).join()`), many},
		"a payload around many alerts": {"alerts: payload.list", many},
		"a wide alert as each bag":     {everyField(`alert`), wide},
		"a wide alert looked up":       {everyField(`alert.transformMapEntry(k, v, {k: alert[k]})`), wide},
		"a wide payload looked up": {"alerts: payload.list\n" + everyField(`payload.transformMapEntry(k, v, {k: payload[k]})`),
			`{` + sequence(bodyLimit/15, func(i int) string { return fmt.Sprintf(`"k%d":1`, 100_000+i) }) + `,"list":[` + sequence(500, func(int) string { return "{}" }) + `]}`},
	}
}

// TestHostile stops whatever takes long, by the count of its cost.
func TestHostile(t *testing.T) {
	for name, test := range hostileCases() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(len(test.body)).To(BeNumerically("<=", bodyLimit))
			mapped, plain := test.times(t, stopWithin)
			t.Logf("%s over %s without a mapping", mapped-plain, plain)
			g.Expect(mapped - plain).To(BeNumerically("<", stopWithin))
		})
	}
}

// BenchmarkHostile gives the processor time, over that of the same payload without a mapping, of the hostile
// mapping or payload that takes the longest: it is to stay within 50 ms.
func BenchmarkHostile(b *testing.B) {
	cases := hostileCases()
	for b.Loop() {
		longest, worst := time.Duration(0), ""
		for name, test := range cases {
			if mapped, plain := test.times(b, 5*time.Millisecond); mapped-plain > longest {
				longest, worst = mapped-plain, name
			}
		}
		b.ReportMetric(float64(longest.Microseconds())/1000, "worst-ms")
		b.Logf("the longest is %q", worst)
	}
}

// times are how long a case takes, with its mapping and without one. A run that is this quick is not repeated.
func (c hostileCase) times(tb testing.TB, quick time.Duration) (mapped, plain time.Duration) {
	tb.Helper()
	value, _, err := payload.ParseAny([]byte(c.body))
	if err != nil {
		tb.Fatal(err)
	}
	return quickest(tb, compiled(tb, c.mapping), value, quick), quickest(tb, compiled(tb, "{}"), value, quick)
}

// quickest is the processor time of the quickest of several runs, or of the first quick one: other processes do not count, and
// what takes long takes long each time.
func quickest(tb testing.TB, program *mapping.Program, value any, quick time.Duration) time.Duration {
	tb.Helper()
	best := time.Hour
	for range 5 {
		began := processorTime(tb)
		if _, err := program.Alerts(value, nil, received); err != nil {
			tb.Fatal(err)
		}
		if best = min(best, processorTime(tb)-began); best < quick {
			break
		}
	}
	return best
}

// processorTime is what the process has used so far.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func object(text string) string {
	encoded, _ := json.Marshal(map[string]string{"text": text})
	return string(encoded)
}

func sequence(n int, element func(int) string) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = element(i)
	}
	return strings.Join(elements, ",")
}

func quoted(s string) string {
	encoded, _ := json.Marshal(s)
	return string(encoded)
}
