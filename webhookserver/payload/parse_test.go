package payload_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

func TestParseAcceptsObjects(t *testing.T) {
	for name, body := range accepted {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object, _, err := payload.Parse([]byte(body))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(object).NotTo(BeNil())
		})
	}
}

func TestParseRefusesEverythingElse(t *testing.T) {
	for name, body := range refused {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object, warnings, err := payload.Parse([]byte(body))
			g.Expect(err).To(HaveOccurred())
			g.Expect(object).To(BeNil())
			g.Expect(warnings).To(BeEmpty())
			g.Expect(plaintext.SanitizeLine(err.Error())).To(Equal(err.Error()), "fit to be printed")
		})
	}
}

func TestParseWarnsOfFlaws(t *testing.T) {
	for name, body := range flawed {
		_, warnings, err := payload.Parse([]byte(body))
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred(), name)
		g.Expect(warnings).To(ContainElement(HaveField("Detail", HavePrefix("the body is not valid JSON: at byte "))), name)
	}
}

func TestParseTellsWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		want error
	}{
		"an empty body":             {"", payload.ErrEmpty},
		"a blank body":              {" \n", payload.ErrEmpty},
		"a lone byte order mark":    {"\uFEFF", payload.ErrEmpty},
		"an array":                  {"[]", payload.ErrNotObject},
		"null":                      {"null", payload.ErrNotObject},
		"65 levels":                 {refused["65 levels"], payload.ErrTooDeep},
		"65 levels of arrays":       {strings.Repeat("[", 65), payload.ErrTooDeep},
		"brackets without any end":  {refused["a million open brackets"], payload.ErrTooDeep},
		"depth behind wide objects": {`{"a":` + strings.Repeat(`[{},{"b":`, 40), payload.ErrTooDeep},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, _, err := payload.Parse([]byte(test.body))
			g.Expect(errors.Is(err, test.want)).To(BeTrue(), "%v", err)
		})
	}
}

func TestParseTellsWhereTheJSONIsMalformed(t *testing.T) {
	for name, test := range map[string]struct {
		body   string
		offset int64
	}{
		"a wrong byte is counted":                  {`{"a":1,"}`, 9},
		"a truncated body is counted whole":        {`{"a":1`, 6},
		"so is a truncated string":                 {`{"a":"b`, 7},
		"trailing data is wrong at its first byte": {`{"a":1} x`, 9},
		"a second object is trailing data":         {`{} {}`, 4},
		"a byte order mark is counted":             {"\uFEFF{]", 5},
		"text is wrong from its first byte":        {`CPU`, 1},
		"far into a large body":                    {`{"a":"` + strings.Repeat("x", 100_000) + `"!`, 100_008},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, _, err := payload.Parse([]byte(test.body))
			var syntax *payload.SyntaxError
			g.Expect(errors.As(err, &syntax)).To(BeTrue(), "%v", err)
			g.Expect(syntax.Offset).To(Equal(test.offset), "%v", err)
			g.Expect(syntax.Detail).NotTo(BeEmpty())
		})
	}
}

func TestParseKeepsEveryDigit(t *testing.T) {
	g := NewWithT(t)
	object, warnings, err := payload.Parse([]byte(`{"a":[9007199254740993,1e400,1.50]}`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(BeEmpty())
	g.Expect(object).To(Equal(map[string]any{
		"a": []any{json.Number("9007199254740993"), json.Number("1e400"), json.Number("1.50")},
	}))
}

func TestParseWarnsOfWhatIsNotUTF8(t *testing.T) {
	for name, test := range map[string]struct {
		body     string
		warnings int
	}{
		"UTF-8":                                     {`{"a":"ö😀"}`, 0},
		"U+FFFD itself":                             {"{\"a\":\"\uFFFD\\ufffd\"}", 0},
		"a byte that is not UTF-8":                  {"{\"a\":\"\xff\"}", 1},
		"such bytes in a key":                       {"{\"\xc3\":1}", 1},
		"a surrogate written in UTF-8":              {"{\"a\":\"\xed\xa0\x80\"}", 1},
		"a surrogate pair":                          {`{"a":"\uD83D\uDE00"}`, 0},
		"a high surrogate before another character": {`{"a":"\ud83dx"}`, 1},
		"a high surrogate before another escape":    {`{"a":"\ud83d\n"}`, 1},
		"a high surrogate at the end":               {`{"a":"\ud83d"}`, 1},
		"a low surrogate first":                     {`{"a":"\ude00\ud83d"}`, 1},
		"two high surrogates and a low one":         {`{"a":"\ud83d\ud83d\ude00"}`, 1},
		"an escaped backslash before a u":           {`{"a":"\\ud83d"}`, 0},
		"both":                                      {"{\"a\":\"\xff\\ud83d\"}", 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, warnings, err := payload.Parse([]byte(test.body))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(warnings).To(HaveLen(test.warnings))
		})
	}
}
