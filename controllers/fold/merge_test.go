package fold

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
)

// maxIncidentBytes is what no Incident's JSON reaches.
const maxIncidentBytes = 256 << 10

func TestMerge(t *testing.T) {
	full := func() v1alpha1.AlertContent {
		return v1alpha1.AlertContent{
			Title: "title", Description: "description", Severity: v1alpha1.SeverityError, Type: "type", Link: "link",
			Hostname: "host", Region: "region", Preset: "zabbix",
			Labels:      map[string]string{"a": `{"x":1}`, "b": "2"},
			Annotations: map[string]string{"a": "1"},
			Values:      v1alpha1.Bag{"a": json.RawMessage(`1`)},
			Custom:      v1alpha1.Bag{"a": json.RawMessage(`1`)},
			StartTime:   minuteStamp(5), EndTime: minuteStamp(6),
		}
	}
	for sentence, c := range map[string]struct {
		newer  v1alpha1.AlertContent
		change func(*v1alpha1.AlertContent)
	}{
		"absent fields stay": {v1alpha1.AlertContent{}, func(*v1alpha1.AlertContent) {}},
		"present fields replace": {
			v1alpha1.AlertContent{
				Title: "T", Description: "D", Severity: v1alpha1.SeverityInfo, Type: "Y", Link: "L", Hostname: "H", Region: "R", Preset: "P",
			},
			func(c *v1alpha1.AlertContent) {
				c.Title, c.Description, c.Severity, c.Type, c.Link, c.Hostname, c.Region, c.Preset = "T", "D", "info", "Y", "L", "H", "R", "P"
			},
		},
		"bags merge key by key, the newer value replacing the older one whole": {
			v1alpha1.AlertContent{Labels: map[string]string{"a": `{"y":2}`, "c": "null"}},
			func(c *v1alpha1.AlertContent) {
				c.Labels["a"], c.Labels["c"] = `{"y":2}`, "null"
			},
		},
		"an earlier startTime replaces": {
			v1alpha1.AlertContent{StartTime: minuteStamp(4)}, func(c *v1alpha1.AlertContent) { c.StartTime = minuteStamp(4) },
		},
		"a later startTime does not":  {v1alpha1.AlertContent{StartTime: minuteStamp(7)}, func(*v1alpha1.AlertContent) {}},
		"the newest endTime replaces": {v1alpha1.AlertContent{EndTime: minuteStamp(1)}, func(c *v1alpha1.AlertContent) { c.EndTime = minuteStamp(1) }},
		"times that nobody could read count as absent": {
			v1alpha1.AlertContent{StartTime: &v1alpha1.Timestamp{}, EndTime: &v1alpha1.Timestamp{}}, func(*v1alpha1.AlertContent) {},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			got, want := full(), full()
			mergeContent(&got, &c.newer)
			c.change(&want)
			g.Expect(got).To(Equal(want))
		})
	}
	t.Run("a bare resolve blanks nothing", func(t *testing.T) {
		bench := newBench()
		bench.fold(eventOf(1, alertOf(v1alpha1.AlertFiring, full())))
		bench.fold(eventOf(2, resolvingAlert()))
		NewWithT(t).Expect(bench.status().Alert).To(Equal(full()))
	})
	t.Run("what a resolved or acknowledged alert says is merged", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		bench.fold(eventOf(1, firingAlert()))
		bench.fold(eventOf(2, alertOf(v1alpha1.AlertAcknowledged, v1alpha1.AlertContent{Region: "eu"})))
		bench.fold(eventOf(3, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{EndTime: minuteStamp(2)})))
		g.Expect(bench.status().Alert.Region).To(Equal("eu"))
		g.Expect(bench.status().Alert.EndTime).To(Equal(minuteStamp(2)))
	})
}

func TestAResolveDoesNotRewriteTheProblem(t *testing.T) {
	problem := v1alpha1.AlertContent{
		Title: "Disk full", Description: "/var is at 99 %", Severity: v1alpha1.SeverityCritical, Type: "disk",
		Annotations: map[string]string{"used": "99"},
	}
	for sentence, c := range map[string]struct {
		resolve v1alpha1.AlertContent
		want    func(*v1alpha1.AlertContent)
	}{
		"its texts go to custom, its severity nowhere": {
			v1alpha1.AlertContent{Title: "[RESOLVED] Disk full", Description: "all is well", Severity: v1alpha1.SeverityInfo},
			func(c *v1alpha1.AlertContent) {
				c.Custom = v1alpha1.Bag{"resolved_title": json.RawMessage(`"[RESOLVED] Disk full"`), "resolved_description": json.RawMessage(`"all is well"`)}
			},
		},
		"what says the same is not kept twice": {
			v1alpha1.AlertContent{Title: "Disk full", Description: "/var is at 99 %"}, func(*v1alpha1.AlertContent) {},
		},
		"everything else replaces": {
			v1alpha1.AlertContent{Link: "L", Hostname: "H", Region: "R", Annotations: map[string]string{"used": "12"}, EndTime: minuteStamp(2)},
			func(c *v1alpha1.AlertContent) {
				c.Link, c.Hostname, c.Region, c.EndTime, c.Annotations["used"] = "L", "H", "R", minuteStamp(2), "12"
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			bench := newBench()
			bench.fold(eventOf(1, alertOf(v1alpha1.AlertFiring, *problem.DeepCopy())))
			bench.fold(eventOf(2, alertOf(v1alpha1.AlertResolved, c.resolve)))
			want := *problem.DeepCopy()
			c.want(&want)
			NewWithT(t).Expect(bench.status().Alert).To(Equal(want))
			NewWithT(t).Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
		})
	}
}

func TestDefaults(t *testing.T) {
	defaults := &v1alpha1.AlertDefaults{
		Severity: v1alpha1.SeverityError, Type: "probe", Title: "Probe failed",
		Labels: map[string]v1alpha1.LabelValue{"team": `a<"b"`, "site": "x"},
	}
	team := `a<"b"`
	site := "x"
	for sentence, c := range map[string]struct {
		alerts   []v1alpha1.AlertContent // all firing
		defaults *v1alpha1.AlertDefaults
		want     v1alpha1.AlertContent
	}{
		"nothing said and no defaults": {
			alerts: []v1alpha1.AlertContent{{}},
			want:   v1alpha1.AlertContent{Title: "Alert from mon", Severity: v1alpha1.SeverityWarning, Type: "webhook"},
		},
		"the integration's defaults": {
			alerts: []v1alpha1.AlertContent{{}}, defaults: defaults,
			want: v1alpha1.AlertContent{
				Title: "Probe failed", Severity: v1alpha1.SeverityError, Type: "probe", Labels: map[string]string{"team": team, "site": site},
			},
		},
		"the first line of the description comes before the default title": {
			alerts: []v1alpha1.AlertContent{{Description: "\n  \n \tDisk  full\r\non db-1"}}, defaults: &v1alpha1.AlertDefaults{Title: "no"},
			want: v1alpha1.AlertContent{
				Title: "Disk full", Description: "\n  \n \tDisk  full\r\non db-1", Severity: v1alpha1.SeverityWarning, Type: "webhook",
			},
		},
		"what an alert says wins, and a label of its own too": {
			alerts: []v1alpha1.AlertContent{{
				Title: "t", Severity: v1alpha1.SeverityInfo, Type: "y", Labels: map[string]string{"team": "1"},
			}},
			defaults: defaults,
			want: v1alpha1.AlertContent{
				Title: "t", Severity: v1alpha1.SeverityInfo, Type: "y", Labels: map[string]string{"team": "1", "site": site},
			},
		},
		"a bare repeat blanks nothing and falls back to nothing": {
			alerts: []v1alpha1.AlertContent{{Title: "t", Severity: v1alpha1.SeverityCritical, Type: "y"}, {}}, defaults: defaults,
			want: v1alpha1.AlertContent{
				Title: "t", Severity: v1alpha1.SeverityCritical, Type: "y", Labels: map[string]string{"team": team, "site": site},
			},
		},
		"filled values stay when a later alert leaves the field absent, and go when it has one": {
			alerts: []v1alpha1.AlertContent{{}, {Description: "later"}, {Severity: v1alpha1.SeverityCritical}},
			want: v1alpha1.AlertContent{
				Title: "Alert from mon", Description: "later", Severity: v1alpha1.SeverityCritical, Type: "webhook",
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			bench := newBench()
			for i, content := range c.alerts {
				event := eventOf(i+1, alertOf(v1alpha1.AlertFiring, content))
				event.Spec.Defaults = c.defaults
				bench.fold(event)
			}
			NewWithT(t).Expect(bench.status().Alert).To(Equal(c.want))
		})
	}
}

// TestContentWithTooManyKeys merges alerts that each have other keys, and as many as they may.
func TestContentWithTooManyKeys(t *testing.T) {
	keys := func(from int) v1alpha1.AlertContent {
		bag := v1alpha1.Bag{}
		for i := range alertcontent.MaxKeys {
			bag[strconv.Itoa(from+i)] = json.RawMessage("0")
		}
		return v1alpha1.AlertContent{Custom: bag, Description: strings.Repeat("x", 16000)}
	}
	g, bench := NewWithT(t), newBench()
	same := slices.Repeat([]v1alpha1.Alert{alertOf(v1alpha1.AlertFiring, keys(0))}, 20) // together, larger than they may be
	bench.fold(eventOf(0, same...))
	g.Expect(bench.status().Timeline).To(HaveLen(1), "as many as they may be are not too many")
	for n := range 3 {
		bench.fold(eventOf(n+1, alertOf(v1alpha1.AlertFiring, keys(1000*n))))
		g.Expect(alertcontent.Keys(&bench.status().Alert)).To(BeNumerically("<=", alertcontent.MaxKeys))
	}
	g.Expect(bench.status().Alert.Custom).To(HaveKey("2000"), "those of the newest alert")
	g.Expect(bench.status().Timeline).To(ContainElement(HaveField("Type", v1alpha1.TransitionContentReplaced)))

	bench = newBench()
	event := eventOf(1, alertOf(v1alpha1.AlertFiring, keys(0)))
	event.Spec.Defaults = &v1alpha1.AlertDefaults{Labels: map[string]v1alpha1.LabelValue{"team": "a"}}
	bench.fold(event)
	g.Expect(bench.status().Alert.Custom).To(HaveKey(alertcontent.JSONKey))
	g.Expect(bench.status().Alert.Labels).To(HaveKey("team"), "the smaller bag stays")
}

func TestContentTooLarge(t *testing.T) {
	value := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n) + `"`) }
	with := func(key string, n int) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Custom: v1alpha1.Bag{key: value(n)}})
	}
	t.Run("the newest alert's bags replace the merged ones, and the timeline says so", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		first := with("a", 100<<10)
		first.Labels = map[string]string{"old": "1"}
		second := eventOf(2, with("b", 100<<10))
		second.Spec.Defaults = &v1alpha1.AlertDefaults{Labels: map[string]v1alpha1.LabelValue{"team": "ops"}}
		bench.fold(eventOf(1, first))
		p := bench.fold(second)
		g.Expect(bench.status().Alert.Custom).To(HaveLen(1))
		g.Expect(bench.status().Alert.Custom).To(HaveKey("b"))
		g.Expect(bench.status().Alert.Labels).To(BeEquivalentTo(map[string]string{"team": "ops"}))
		g.Expect(p.Transitions).To(Equal([]v1alpha1.Transition{{
			Type: v1alpha1.TransitionContentReplaced, Time: *minuteStamp(2),
			Message: "The merged content was too large; the newest alert's bags replaced the older ones",
		}}))
		p = bench.fold(eventOf(3, with("c", 100<<10)))
		g.Expect(p.Transitions).To(BeEmpty(), "a sender who does it every time does not fill the timeline")
	})
	t.Run("the largest entries go when that is not enough, and are named", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		big := with("small", 10)
		big.Annotations = map[string]string{"huge": strings.Repeat("x", 1<<20)}
		p := bench.fold(eventOf(1, big))
		g.Expect(bench.status().Alert.Annotations).To(BeEmpty())
		g.Expect(bench.status().Alert.Custom).To(HaveKey("small"))
		g.Expect(p.Transitions).To(HaveExactElements(HaveField("Type", v1alpha1.TransitionOpened), And(
			HaveField("Type", v1alpha1.TransitionContentReplaced), HaveField("Message", ContainSubstring("dropped annotations.huge")),
		)), "it is of the episode that begins, which the archive describes from its opening on")
	})
	t.Run("what the operator adds to an alert counts", func(t *testing.T) {
		nearly := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: "Disk full"})
		for sentence, c := range map[string]struct {
			below int // so many bytes below the limit
			add   func(*v1alpha1.AlertEvent)
		}{
			"the integration's labels": {8000, func(event *v1alpha1.AlertEvent) {
				event.Spec.Defaults = &v1alpha1.AlertDefaults{Labels: map[string]v1alpha1.LabelValue{}}
				for i := range 64 {
					event.Spec.Defaults.Labels[fmt.Sprint("label-", i)] = v1alpha1.LabelValue(strings.Repeat("x", 256))
				}
			}},
			"a title of the description": {700, func(event *v1alpha1.AlertEvent) {
				event.Alerts[0].Title, event.Alerts[0].Description = "", strings.Repeat("x", maxTitleChars)
			}},
		} {
			event := eventOf(1, nearly)
			c.add(event)
			large := alertcontent.MaxBytes - c.below - alertcontent.Size(&event.Alerts[0].AlertContent)
			event.Alerts[0].Custom = v1alpha1.Bag{"large": value(large)}
			bench := newBench()
			bench.fold(event)
			g := NewWithT(t)
			g.Expect(alertcontent.Size(&bench.status().Alert)).To(BeNumerically("<=", alertcontent.MaxBytes), sentence)
			g.Expect(bench.status().Timeline).To(ContainElement(HaveField("Type", v1alpha1.TransitionContentReplaced)), sentence)
		}
	})
	t.Run("an alert without bags does not blank those there are more than it must", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		bench.fold(eventOf(1, with("a", 100<<10), with("b", 70<<10)))
		bench.fold(eventOf(2, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Description: strings.Repeat("d", 16000)})))
		g.Expect(bench.status().Alert.Custom).To(HaveLen(1))
		g.Expect(bench.status().Alert.Custom).To(HaveKey("b"))
	})
}

// worstText draws a text of at most max characters that is long in JSON.
func worstText(t *rapid.T, name string, limit int) string {
	unit := rapid.SampledFrom([]string{"x", "<", "\"", "\x01", "ü", "😀", "\u2028", "word "}).Draw(t, name)
	n := rapid.SampledFrom([]int{0, 1, limit / 2, limit}).Draw(t, name+" length")
	return strings.Repeat(unit, n/utf8.RuneCountInString(unit))
}

func worstTexts(t *rapid.T, name string, sizes []int) map[string]string {
	texts := map[string]string{}
	for range rapid.IntRange(0, 3).Draw(t, name+" entries") {
		key := worstText(t, name+" key", 2000) + fmt.Sprint(rapid.IntRange(0, 9).Draw(t, name+" number"))
		texts[key] = worstText(t, name, rapid.SampledFrom(sizes).Draw(t, name+" size"))
	}
	return texts
}

func worstBag(t *rapid.T, name string, sizes []int) v1alpha1.Bag {
	bag := v1alpha1.Bag{}
	for range rapid.IntRange(0, 3).Draw(t, name+" entries") {
		text, _ := json.Marshal(worstText(t, name, rapid.SampledFrom(sizes).Draw(t, name+" size")))
		bag[worstText(t, name+" key", 2000)+fmt.Sprint(rapid.IntRange(0, 9).Draw(t, name+" number"))] = text
	}
	return bag
}

func TestIncidentSizeIsBounded(t *testing.T) {
	// Whatever the API server lets in, in whatever order: the Incident stays small enough to be stored.
	rapid.Check(t, func(t *rapid.T) {
		key := strings.Repeat(rapid.SampledFrom([]string{"k", "\x01", "<", "😀"}).Draw(t, "key"), 1024)
		name := v1alpha1.IncidentName(testIntegration, key)
		bench := newBench()
		for n := range rapid.IntRange(1, 4).Draw(t, "folds") {
			var events []*v1alpha1.AlertEvent
			count, sizes := 140, []int{10, 500} // many small events, or few large ones
			if rapid.IntRange(0, 3).Draw(t, "few") > 0 {
				count, sizes = rapid.IntRange(1, 3).Draw(t, "events"), []int{10, 1000, 60000, 300000}
			}
			alert := v1alpha1.Alert{
				IncidentName: name, DedupKey: key,
				Status: rapid.SampledFrom([]v1alpha1.AlertStatus{"firing", "firing", "resolved", "acknowledged"}).Draw(t, "status"),
				AlertContent: v1alpha1.AlertContent{
					Title: worstText(t, "title", 1024), Description: worstText(t, "description", 16384), Type: worstText(t, "type", 1024),
					Link: worstText(t, "link", 2048), Hostname: worstText(t, "hostname", 1024), Region: worstText(t, "region", 1024),
					Severity: rapid.SampledFrom([]v1alpha1.Severity{"", "critical", "info"}).Draw(t, "severity"),
					Labels:   worstTexts(t, "labels", sizes), Annotations: worstTexts(t, "annotations", sizes),
					Values: worstBag(t, "values", sizes), Custom: worstBag(t, "custom", sizes),
				},
			}
			for i := range count {
				event := eventOf(1000*n+i, alert)
				event.UID = types.UID(fmt.Sprintf("%036d", 1000*n+i))
				event.Name = fmt.Sprintf("%0253d", 1000*n+i)
				if i%2 == 1 {
					event.Alerts[0].Status = v1alpha1.AlertResolved
				}
				events = append(events, event)
			}
			in := bench.input(events...)
			in.Name = name
			p := Decide(in)
			bench.incident = &v1alpha1.Incident{Spec: v1alpha1.IncidentSpec{IntegrationName: testIntegration, DedupKey: key}, Status: p.Status}
			checkBounds(t, bench.incident)
		}
	})
}

func checkBounds(t *rapid.T, incident *v1alpha1.Incident) {
	stored := incident.DeepCopy()
	stored.Name = strings.Repeat("n", 253)
	stored.ManagedFields = []metav1.ManagedFieldsEntry{{
		FieldsV1: metav1.NewFieldsV1(`"` + strings.Repeat("f", 4096) + `"`), // more than one manager writes of a status
	}}
	encoded, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	s := incident.Status
	if len(encoded) >= maxIncidentBytes || alertcontent.Size(&s.Alert) > alertcontent.MaxBytes {
		t.Fatalf("%d bytes, the content %d", len(encoded), alertcontent.Size(&s.Alert))
	}
	if len(s.Timeline) > v1alpha1.MaxTimeline || len(s.Ledger.Events) > v1alpha1.MaxLedger {
		t.Fatalf("%d entries in the timeline, %d in the ledger", len(s.Timeline), len(s.Ledger.Events))
	}
	for _, entry := range s.Timeline {
		if utf8.RuneCountInString(entry.Message) > 256 {
			t.Fatalf("a message of %d characters", utf8.RuneCountInString(entry.Message))
		}
	}
	if utf8.RuneCountInString(s.Alert.Title) > 1024 {
		t.Fatalf("a title of %d characters", utf8.RuneCountInString(s.Alert.Title))
	}
}
