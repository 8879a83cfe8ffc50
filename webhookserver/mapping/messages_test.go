package mapping_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// TestMistakesAreSentences lists mistakes that are known before a payload comes, and what is said about each.
func TestMistakesAreSentences(t *testing.T) {
	for expression, expected := range map[string]string{
		`alrt.title`:                         `column 1: there is no variable "alrt"; there are alert, payload, headers and received`,
		`alert.title.nofunc()`:               `column 19: there is no function "nofunc" with these arguments`,
		`alert.title.toUpper()`:              `column 20: there is no function "toUpper" with these arguments; there is upperAscii`,
		`toString(alert.n)`:                  `column 9: there is no function "toString" with these arguments; there is string`,
		`foo(1)`:                             `column 4: there is no function "foo" with these arguments`,
		`"a" + 1`:                            `column 5: the operator + does not accept (string, int), expected (string, string)`,
		`!"a"`:                               `column 1: the operator ! does not accept (string), expected (bool)`,
		`alert.x ? "a" : 1`:                  `column 9: both branches of "? :" need one type; their types are string, int`,
		`alert.title.startsWith(1)`:          `column 23: the function startsWith does not accept dyn.(int), expected string.(string)`,
		`hash("x")`:                          `column 5: the function hash does not accept (string), expected (list(dyn))`,
		`size(alert.title).foo`:              `column 18: a value of type int has no fields`,
		`headers.x.y`:                        `column 10: a value of type string has no fields`,
		`alert.title == "x" && "y"`:          `column 23: its type is string, expected bool`,
		`alert.a == ("b"`:                    `column 16: a ")" is missing`,
		`alert.`:                             `column 7: unexpected '.'`,
		`'unclosed`:                          `column 1: unexpected ''unclosed'`,
		`alert?.x`:                           `column 9: the expression is incomplete`,
		`alert.title = "x"`:                  `column 13: unexpected '= '`,
		`if (a) b`:                           `column 1: reserved identifier: if`,
		`has(alert)`:                         `column 5: invalid argument to has() macro`,
		`[alert.x]`:                          `column 1: it evaluates to list(dyn), expected a text, a number, true or false, or a time`,
		`timestamp("x")`:                     `column 10: this string cannot be converted to Timestamp`,
		`int("x") + int(alert.n)`:            `column 4: this string cannot be converted to int`,
		`string(1/0)`:                        `column 7: division by zero`,
		`alert.x == ["a"][3] ? "b" : "c"`:    `column 17: index out of bounds: 3`,
		`alert.x.exists(y, y == {"a": 1}.b)`: `column 32: no such key: b`,
		`string(parseJSON("{").x)`:           `column 7: parseJSON: malformed JSON at byte 1: unexpected end of JSON input`,
		`[1, "a"].join(",")`:                 `column 14: join(list, string) is not possible with values of these types`,
		`alert.title.matches("(")`:           "column 21: the regular expression is not valid: error parsing regexp: missing closing ): `(`",
		`alert.title.find(alert.x)`:          `column 23: the regular expression must be a literal`,
	} {
		t.Run(expression, func(t *testing.T) {
			_, err := mapping.Compile("", parsed(t, fmt.Sprintf("{fields: {title: %q}}", expression)))
			NewWithT(t).Expect(err).To(MatchError("spec.mapping.fields.title: line 1, " + expected))
		})
	}
}

// TestConstantsThatMayFailAreNoMistakes has parts that would fail and are not evaluated.
func TestConstantsThatMayFailAreNoMistakes(t *testing.T) {
	for _, expression := range []string{
		`false ? string(1/0) : "a"`, `["a"][?3].orValue("b")`, `alert.x.startsWith("a") || true ? "a" : "b"`,
		`{"a": "b"}[alert.x]`, `firstNonEmpty([alert.?x, "-"])`,
	} {
		_, err := mapping.Compile("", parsed(t, fmt.Sprintf("{fields: {title: %q}}", expression)))
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), expression)
	}
}

// TestKeysOfEveryType looks up values of every type of JSON in maps and lists.
func TestKeysOfEveryType(t *testing.T) {
	body := `{"i": 3, "f": 3.0, "h": 3.5, "s": "k", "b": true, "n": null, "l": [1], "o": {"k": "v"}, "list": ["a", "b", "c", "d"]}`
	for expression, expected := range map[string]string{
		`{3: "int"}[?alert.i].orValue("none")`:             "int",
		`{3: "int"}[alert.i]`:                              "int",
		`{3: "int"}[?alert.f].orValue("none")`:             "int",
		`{3: "int"}[?alert.h].orValue("none")`:             "none",
		`{3: "int"}[?alert.s].orValue("none")`:             "none",
		`{3: "int"}[?alert.n].orValue("none")`:             "none",
		`{3: "int"}[?alert.?gone.orValue(3)].orValue("n")`: "int",
		`{3: "int"}[?alert.?i].orValue("none")`:            "int",
		`{3: "int"}[?alert.?gone].orValue("none")`:         "none",
		`{"k": "text"}[?alert.?s].orValue("none")`:         "text",
		`alert.o[?alert.?s].orValue("none")`:               "v",
		`{"k": "text"}[?alert.n].orValue("none")`:          "none",
		`{true: "bool"}[?alert.b].orValue("none")`:         "bool",
		`alert.o[?alert.n].orValue("none")`:                "none",
		`alert.list[?alert.i].orValue("none")`:             "d",
		`{3: "int"}[alert.n]`:                              "a value of type null_type cannot be a key",
		`{3: "int"}[?alert.l].orValue("none")`:             "none",
		`{3: "int"}[?alert.o].orValue("none")`:             "none",
	} {
		t.Run(expression, func(t *testing.T) {
			program, err := mapping.Compile("", parsed(t, fmt.Sprintf("{fields: {title: %q}}", expression)))
			g := NewWithT(t)
			g.Expect(err).NotTo(HaveOccurred())
			result := readBody(t, program, body, nil)
			if len(result.Failures) > 0 {
				g.Expect(result.Failures[0].Message).To(Equal(expected))
				return
			}
			g.Expect(result.Alerts[0].Title).To(Equal(expected))
		})
	}
}

// TestTheHiddenHeadersAreThoseOfTheGuide reads every header that the guide lists, and others with similar names.
func TestTheHiddenHeadersAreThoseOfTheGuide(t *testing.T) {
	g := NewWithT(t)
	guide, err := os.ReadFile("../../docs/mapping.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, text, _ := strings.Cut(string(guide), "because what an expression gives is stored:\n")
	text, _, _ = strings.Cut(text, ".\n")
	headers := http.Header{}
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		headers.Set(match[1], "secret")
	}
	g.Expect(headers).To(HaveLen(mapping.HiddenHeaders()))
	headers.Set("X-Event-Key", "deploy")
	headers.Set("X-Hub-Signature-256", "sha256=00")
	program := compiled(t, `{fields: {values: headers}}`)
	values := readBody(t, program, `{}`, headers).Alerts[0].Values
	g.Expect(slices.Sorted(maps.Keys(values))).To(Equal([]string{"x-event-key", "x-hub-signature-256"}))
}
