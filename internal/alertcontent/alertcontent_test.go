package alertcontent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
)

var apiClient client.Client

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(config *rest.Config) {
		apiClient = must(client.New(config, client.Options{Scheme: testenv.Scheme()}))
	}))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func bagOf(text string) v1alpha1.Bag {
	var bag v1alpha1.Bag
	if err := json.Unmarshal([]byte(text), &bag); err != nil {
		panic(err)
	}
	return bag
}

func TestMergeBags(t *testing.T) {
	for name, test := range map[string]struct{ older, newer, want string }{
		"a new key is added":                 {`{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`},
		"the newer value replaces it whole":  {`{"a":{"x":1}}`, `{"a":{"y":2}}`, `{"a":{"y":2}}`},
		"a null is a value":                  {`{"a":1}`, `{"a":null}`, `{"a":null}`},
		"keys are compared with their case":  {`{"a":1}`, `{"A":2}`, `{"a":1,"A":2}`},
		"an empty bag changes nothing":       {`{"a":1}`, `{}`, `{"a":1}`},
		"an absent bag changes nothing":      {`{"a":1}`, `null`, `{"a":1}`},
		"into an empty bag":                  {`{}`, `{"a":1}`, `{"a":1}`},
		"into an absent bag":                 {`null`, `{"a":1}`, `{"a":1}`},
		"two absent bags make an absent one": {`null`, `null`, `null`},
		"the empty key is a key":             {`{"":1}`, `{"":2}`, `{"":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			older, newer := bagOf(test.older), bagOf(test.newer)
			g.Expect(alertcontent.Merge(older, newer)).To(Equal(bagOf(test.want)))
			g.Expect(older).To(Equal(bagOf(test.older)), "the older bag is as it was")
			g.Expect(newer).To(Equal(bagOf(test.newer)), "the newer bag is as it was")
		})
	}
}

func TestTrimTo(t *testing.T) {
	big := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n) + `"`) }
	content := func() v1alpha1.AlertContent {
		return v1alpha1.AlertContent{
			Title:  "kept",
			Labels: map[string]string{"small": "1", "big": strings.Repeat("x", 500)},
			Custom: v1alpha1.Bag{"bigger": big(900), "biggest": big(5000)},
		}
	}
	for name, test := range map[string]struct {
		limit int
		want  []string
	}{
		"what fits is left alone":              {10_000, nil},
		"the largest goes first":               {5000, []string{"custom.biggest"}},
		"then the next, and they are sorted":   {1500, []string{"custom.bigger", "custom.biggest"}},
		"then those of the other bags":         {600, []string{"custom.bigger", "custom.biggest", "labels.big"}},
		"strings stay even if that is too big": {0, []string{"custom.bigger", "custom.biggest", "labels.big", "labels.small"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			trimmed, original := content(), content()
			labels, custom := trimmed.Labels, trimmed.Custom
			g.Expect(alertcontent.TrimTo(&trimmed, test.limit)).To(Equal(test.want))
			g.Expect(trimmed.Title).To(Equal("kept"))
			for _, name := range test.want {
				bag, key, _ := strings.Cut(name, ".")
				g.Expect(testenv.Bags(&trimmed)[bag]).NotTo(HaveKey(key))
			}
			g.Expect(labels).To(Equal(original.Labels), "the bag it had is as it was")
			g.Expect(custom).To(Equal(original.Custom), "the bag it had is as it was")
		})
	}
}

func TestTrimToDropsEqualsByName(t *testing.T) {
	g := NewWithT(t)
	same := json.RawMessage(`"` + strings.Repeat("x", 400) + `"`)
	for range 20 {
		content := v1alpha1.AlertContent{Values: v1alpha1.Bag{"a": same, "b": same, "c": same}}
		g.Expect(alertcontent.TrimTo(&content, 1400)).To(Equal([]string{"values.a"}))
	}
}

// anyText generates strings with all that JSON escapes, and bytes that are no UTF-8.
func anyText() *rapid.Generator[string] {
	awkward := rapid.SampledFrom([]string{
		"<", ">", "&", `"`, `\`, "/", "\n", "\t", "\r", "\b", "\f", "\x00", "\x1f", "\x7f", "\u0080", "\u2028", "\u2029",
		"\ufeff", "\ufffd", "\xff", "\xe2\x80", "é", "語", "🔥", "a",
	})
	return rapid.Custom(func(t *rapid.T) string {
		once := strings.Join(rapid.SliceOfN(awkward, 0, 8).Draw(t, "characters"), "")
		return strings.Repeat(once, rapid.SampledFrom([]int{1, 1, 100}).Draw(t, "times"))
	})
}

// anyNumber generates JSON numbers that the API server writes in another way than they came.
func anyNumber() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{
			"0", "-0", "-0.0", "1.0", "1e20", "1E20", "1e+20", "-1e20", "1e21", "1e-6", "1e-7", "1.5e300", "5e-324", "0.1",
			"9223372036854775807", "-9223372036854775808", "9223372036854775808", "99999999999999999999", "1e0", "123456789e12",
			"-1.2345678901234567e-308", "-1.2345678901234567e-6", "0.00000000000000000000000001", "100000000000000000000000.0",
		}),
		rapid.Map(rapid.Float64(), func(f float64) string { return fmt.Sprintf("%e", f) }),
		rapid.Map(rapid.Float64Range(-1e25, 1e25), func(f float64) string { return fmt.Sprintf("%.3f", f) }),
		rapid.Map(rapid.Int64(), func(i int64) string { return fmt.Sprint(i) }),
	)
}

// anyJSON generates JSON texts.
func anyJSON(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kinds := []string{"text", "escaped", "number", "word"}
		if depth > 0 {
			kinds = append(kinds, "list", "object")
		}
		switch rapid.SampledFrom(kinds).Draw(t, "kind") {
		case "text":
			return string(must(json.Marshal(anyText().Draw(t, "text"))))
		case "escaped": // as other encoders write it
			var b bytes.Buffer
			encoder := json.NewEncoder(&b)
			encoder.SetEscapeHTML(false)
			_ = encoder.Encode(anyText().Draw(t, "text"))
			return strings.ReplaceAll(strings.TrimSpace(b.String()), `\u2028`, "\u2028")
		case "number":
			return anyNumber().Draw(t, "number")
		case "list":
			one := anyJSON(depth-1).Draw(t, "element")
			many := slices.Repeat([]string{one}, rapid.SampledFrom([]int{0, 1, 50}).Draw(t, "elements"))
			return "[" + strings.Join(many, " ,") + "]"
		case "object":
			key := must(json.Marshal(anyText().Draw(t, "key")))
			return fmt.Sprintf("{%s:%s}", key, anyJSON(depth-1).Draw(t, "value"))
		}
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	})
}

// anyContent generates the content of an alert.
func anyContent(t *rapid.T) v1alpha1.AlertContent {
	cut := func(label string, most int) string {
		text := []rune(anyText().Draw(t, label))
		return string(text[:min(len(text), most)])
	}
	content := v1alpha1.AlertContent{
		Title: cut("title", 1024), Description: cut("description", 16384), Type: cut("type", 1024), Link: cut("link", 2048),
		Hostname: cut("hostname", 1024), Region: cut("region", 1024), Severity: v1alpha1.SeverityCritical,
		Origins: strings.Repeat("k", v1alpha1.MaxOriginsChars),
	}
	starts := v1alpha1.NewTimestamp(time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "startTime"), 1000))
	content.StartTime, content.EndTime = &starts, &starts
	key := func() string { return strings.ToValidUTF8(anyText().Draw(t, "key"), "?") } // two that are no text may become one
	for _, texts := range []*v1alpha1.Texts{&content.Labels, &content.Annotations} {
		*texts = v1alpha1.Texts{}
		for range rapid.IntRange(0, 3).Draw(t, "texts") {
			(*texts)[key()] = anyText().Draw(t, "text")
		}
	}
	for _, bag := range []*v1alpha1.Bag{&content.Values, &content.Custom} {
		*bag = v1alpha1.Bag{}
		for range rapid.IntRange(0, 3).Draw(t, "values") {
			(*bag)[key()] = json.RawMessage(anyJSON(2).Draw(t, "value"))
		}
	}
	return content
}

func TestSizeIsNeverLessThanTheEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := anyContent(t)
		if size, encoded := alertcontent.Size(&content), len(must(json.Marshal(content))); size < encoded {
			t.Fatalf("Size is %d, the encoding has %d bytes", size, encoded)
		}
	})
}

func TestSizeOfWorstTexts(t *testing.T) {
	for name, test := range map[string]struct{ text string }{
		"ampersands":             {"&"},
		"control characters":     {"\x01"},
		"quotes":                 {`"`},
		"line separators":        {"\u2028"},
		"bytes that are no text": {"\xff"},
		"ordinary text":          {"a"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			text := strings.Repeat(test.text, 16384)
			content := v1alpha1.AlertContent{Description: text, Custom: v1alpha1.Bag{text: must(json.Marshal(text))}}
			encoded := len(must(json.Marshal(content)))
			g.Expect(alertcontent.Size(&content)).To(And(BeNumerically(">=", encoded), BeNumerically("<", encoded*5/2+600)))
		})
	}
}

// The API server reads a bag's numbers and writes them anew: its copy must not be larger than we reckon.
func TestSizeIsNeverLessThanWhatIsStored(t *testing.T) {
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: testenv.Namespace(t, apiClient), Name: "test-aaaaaaaaaaaaaaaaaaaaaaaaaa"},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "test", DedupKey: "a"},
	}
	NewWithT(t).Expect(apiClient.Create(t.Context(), incident)).To(Succeed())
	rapid.Check(t, func(t *rapid.T) {
		content := anyContent(t)
		alertcontent.TrimTo(&content, 32<<10)
		incident.Status.Alert = *content.DeepCopy()
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Incident"))
		if err := errors.Join(
			apiClient.Status().Update(context.Background(), incident),
			apiClient.Get(context.Background(), client.ObjectKeyFromObject(incident), stored),
		); err != nil {
			t.Fatal(err)
		}
		encoded := must(json.Marshal(stored.Object["status"].(map[string]any)["alert"]))
		if size := alertcontent.Size(&content); size < len(encoded) {
			t.Fatalf("Size is %d, stored are %d bytes: %.200s", size, len(encoded), encoded)
		}
	})
}

func TestTrimToReachesTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		content := anyContent(t)
		strings := content
		strings.Labels, strings.Annotations, strings.Values, strings.Custom = nil, nil, nil, nil
		limit := rapid.IntRange(0, 2*alertcontent.Size(&content)).Draw(t, "limit")
		before := map[string]v1alpha1.Bag{}
		for name, bag := range testenv.Bags(&content) {
			before[name] = maps.Clone(bag)
		}
		fitted := alertcontent.Size(&content) <= limit
		dropped := alertcontent.TrimTo(&content, limit)
		g.Expect(dropped == nil).To(Equal(fitted || len(dropped) == 0))
		g.Expect(alertcontent.Size(&content)).To(BeNumerically("<=", max(limit, alertcontent.Size(&strings))))
		g.Expect(slices.IsSorted(dropped)).To(BeTrue())
		left := len(dropped)
		for name, bag := range testenv.Bags(&content) {
			left += len(bag)
			for key, value := range bag {
				g.Expect(value).To(Equal(before[name][key]))
			}
			left -= len(before[name])
		}
		g.Expect(left).To(BeZero(), "what is not named as dropped is still there")
	})
}
