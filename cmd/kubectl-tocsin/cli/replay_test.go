package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver"
)

// kept is a captured request with a body.
func kept(body string) v1alpha1.CapturedRequest {
	var text bytes.Buffer
	zip := gzip.NewWriter(&text)
	_, _ = fmt.Fprintf(zip, "POST /api/v1/events/webhook HTTP/1.1\r\nHost: tocsin\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	_ = zip.Close()
	return v1alpha1.CapturedRequest{
		Time: v1alpha1.NewTimestamp(time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)), Code: 202,
		Content: base64.StdEncoding.EncodeToString(text.Bytes()),
	}
}

func reading(fields v1alpha1.MappingFields) *v1alpha1.WebhookIntegration {
	w := &v1alpha1.WebhookIntegration{}
	w.Namespace, w.Name = "shop", "disks"
	w.Spec.Preset, w.Spec.Mapping = "none", &v1alpha1.Mapping{Fields: fields}
	return w
}

func TestDifferences(t *testing.T) {
	current := v1alpha1.MappingFields{Title: `alert.name`, DedupKey: `alert.?id`}
	for name, test := range map[string]struct {
		body     string
		proposed func(*v1alpha1.WebhookIntegration)
		want     string // empty: no difference
	}{
		"nothing changes":          {`{"name":"a","id":"1"}`, func(*v1alpha1.WebhookIntegration) {}, ""},
		"generated keys are alike": {`[{"name":"a"},{"name":"b"}]`, func(*v1alpha1.WebhookIntegration) {}, ""},
		"suspended, which is no matter of the mapping": {`{"name":"a","id":"1"}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Suspend = true }, ""},
		"another severity": {`{"name":"a","id":"1"}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Mapping.Fields.Severity = `"critical"` },
			"- firing        warning   1                         a\n+ firing        critical  1                         a\n"},
		"a default severity": {`{"name":"a","id":"1"}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Defaults = &v1alpha1.AlertDefaults{Severity: "info"} },
			"- firing        warning   1                         a\n+ firing        info      1                         a\n"},
		"a key of its own": {`{"name":"a","id":"1"}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Mapping.Fields.DedupKey = `"x/" + alert.name` },
			"- firing        warning   1                         a\n+ firing        warning   x/a                       a\n"},
		"a resolve": {`{"name":"a","id":"1"}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Mapping.Fields.Status = `"resolved"` },
			"- firing        warning   1                         a\n+ resolved      -         1                         a\n"},
		"a drop": {`{"name":"a","id":"1"}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Mapping.Drop = `alert.name == "a"` },
			"- firing        warning   1                         a\n+ dropped       the drop expression matched: alert.name == \"a\"\n"},
		"another field": {`{"name":"a","id":"1"}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Mapping.Fields.Region = `"eu"` },
			"  firing        warning   1                         a\n    differs in region\n"},
		"an expression that fails": {`{"name":"a","id":"1"}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Mapping.Fields.Region = `alert.zone` },
			"+ failed        region: no such key: zone\n"},
		"more alerts": {`{"name":"a","id":"1","list":[{"name":"b","id":"2"},{"name":"c","id":"3"}]}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Mapping.Alerts = `payload.list` },
			"- firing        warning   1                         a\n+ firing        warning   2                         b\n" +
				"+ firing        warning   3                         c\n"},
		"one of two alerts": {`[{"name":"a","id":"1"},{"name":"b","id":"2"}]`,
			func(w *v1alpha1.WebhookIntegration) {
				w.Spec.Mapping.Fields.Title = `alert.id == "1" ? alert.name : "other"`
			},
			"- firing        warning   2                         b\n+ firing        warning   2                         other\n"},
		"the same alert twice": {`{"name":"a","id":"1"}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Mapping.Alerts = `[payload, payload]` },
			"  2 alerts instead of 1, some of them alike\n"},
		"what is rejected in both": {`{"name":`, func(w *v1alpha1.WebhookIntegration) { w.Spec.Mapping.Fields.Region = `"eu"` }, ""},
		"texts of an attacker": {`{"name":"\u001b[2J\u202eevil\nline","id":"\u001b]0;x\u0007"}`,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Mapping.Fields.Severity = `"critical"` }, "*"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before, after := reading(current), reading(current)
			test.proposed(after)
			capture := &v1alpha1.RequestCapture{}
			capture.Spec.Requests = []v1alpha1.CapturedRequest{kept(test.body)}
			r := newReplay(t.Context(), capture, webhookserver.Reader{WebhookIntegration: before}, after)
			g.Expect(r.Differing).To(Equal(map[bool]int{true: 1}[test.want != ""]))
			var printed bytes.Buffer
			s := &screen{out: &printed}
			s.printDifference(r.Requests[0].Current, r.Requests[0].Proposed)
			if test.want == "*" {
				g.Expect(printed.String()).To(MatchRegexp(`^- [^\x00-\x09\x0b-\x1f\x{202e}]*\n\+ [^\x00-\x09\x0b-\x1f\x{202e}]*\n$`))
			} else if test.want != "" {
				g.Expect(printed.String()).To(HaveSuffix(test.want))
			}
		})
	}
}

// The example in docs/mapping.md prints what the page says.
func TestTheExampleOfAReplay(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile("../../../docs/mapping.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, section, _ := strings.Cut(string(page), "\n## Try a mapping on real requests\n")
	block := func(language string) string {
		return regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(section)[1]
	}
	current := &v1alpha1.WebhookIntegration{}
	g.Expect(yaml.UnmarshalStrict([]byte(block("yaml")), current)).To(Succeed())
	current.Namespace = "shop"
	proposed := current.DeepCopy()
	proposed.Spec.Mapping.Fields.DedupKey, proposed.Spec.Mapping.Fields.Status = `alert.check + "/" + alert.host`, `alert.phase`
	capture := &v1alpha1.RequestCapture{}
	capture.Spec.Requests = []v1alpha1.CapturedRequest{
		kept(`{"check":"disk","host":"db-1","severity":"critical","phase":"firing"}`),
		kept(`{"check":"disk","host":"db-2","severity":"critical","phase":"resolved"}`),
		kept(`{`),
	}
	capture.Spec.Requests[1].Time = v1alpha1.NewTimestamp(capture.Spec.Requests[1].Time.Add(5 * time.Minute))
	want := block("console")
	for i := range capture.Spec.Requests {
		at := capture.Spec.Requests[i].Time.Time
		want = strings.ReplaceAll(want, at.Format(localTime), at.Local().Format(localTime))
	}
	var printed bytes.Buffer
	p := newPlugin(genericiooptions.NewTestIOStreamsDiscard())
	p.screen = &screen{out: &printed}
	(&explainOptions{plugin: p}).printReplay(newReplay(t.Context(), capture, webhookserver.Reader{WebhookIntegration: current}, proposed))
	g.Expect("$ kubectl tocsin explain --replay -f new.yaml\n" + printed.String()).To(Equal(want))
}

// Bodies of some presets may be larger than those of others: a change of the preset may have the server reject them.
func TestAChangeThatRejectsLargeBodies(t *testing.T) {
	ofSize := func(bytes int) string {
		return `{"version":"4","groupKey":"{}","receiver":"tocsin","status":"firing","alerts":[{"status":"firing","fingerprint":"a",` +
			`"labels":{"alertname":"Disk"}` + strings.Repeat(" ", bytes) + `}]}`
	}
	large, huge := ofSize(300<<10), ofSize(3<<20)
	of := func(preset string, own *v1alpha1.Mapping) *v1alpha1.WebhookIntegration {
		w := reading(v1alpha1.MappingFields{})
		w.Spec.Preset, w.Spec.Mapping = preset, own
		return w
	}
	own := &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: `"x"`}}
	for sentence, test := range map[string]struct {
		body             string
		code             int64
		before, after    *v1alpha1.WebhookIntegration
		current, changed string
	}{
		"from a preset with large bodies to one without":              {large, 202, of("alertmanager", nil), of("", own), "firing", "rejected"},
		"of a preset that is recognized":                              {large, 202, of("", nil), of("none", own), "firing", "rejected"},
		"from one without to one with them, by a larger limit":        {large, 202, of("", own), of("alertmanager", nil), "firing", "firing"},
		"within one without them, by a larger limit":                  {large, 202, of("", own), of("none", own), "firing", "firing"},
		"a body that is large even for the preset, by a larger limit": {huge, 202, of("alertmanager", nil), of("", own), "firing", "firing"},
		"a body that was rejected as too large":                       {large, 413, of("", own), of("alertmanager", nil), "rejected", "firing"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			capture := &v1alpha1.RequestCapture{}
			capture.Spec.Requests = []v1alpha1.CapturedRequest{kept(test.body)}
			capture.Spec.Requests[0].Code = test.code
			r := newReplay(t.Context(), capture, webhookserver.Reader{WebhookIntegration: test.before}, test.after)
			g.Expect(r.Requests[0].Current).To(HaveExactElements(HaveField("Effect", test.current)))
			g.Expect(r.Requests[0].Proposed).To(HaveExactElements(HaveField("Effect", test.changed)))
		})
	}
}

func TestWithoutACapturedRequest(t *testing.T) {
	g := NewWithT(t)
	c, w := &cluster{WithWatch: &actServer{}, namespace: "shop"}, reading(v1alpha1.MappingFields{})
	_, err := c.captured(t.Context(), w)
	g.Expect(err).To(MatchError(ContainSubstring("captures no requests: set spec.capture")))
	w.Spec.Capture = &v1alpha1.Capture{Payloads: 5}
	_, err = c.captured(t.Context(), w)
	g.Expect(err).To(MatchError(ContainSubstring("unless 16 integrations of the namespace or 256 in all are captured already, " +
		"as a Kubernetes Event CaptureFailed")))
}

func TestARequestThatCannotBeReadIsNoDifference(t *testing.T) {
	g := NewWithT(t)
	capture := &v1alpha1.RequestCapture{}
	capture.Spec.Requests = []v1alpha1.CapturedRequest{{Code: 202, Content: "AAAA"}, kept(`{"name":"a"}`)}
	w := reading(v1alpha1.MappingFields{Title: `alert.name`})
	r := newReplay(t.Context(), capture, webhookserver.Reader{WebhookIntegration: w}, w)
	g.Expect(r.Differing).To(BeZero())
	g.Expect(r.Requests[0].Error).To(HavePrefix("decompressing the request: "))
	g.Expect(r.Requests[1].Current).To(HaveLen(1))
}
