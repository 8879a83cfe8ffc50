package payload_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// Templates that people write by hand break JSON in a few ways that leave no doubt. All others are errors.
func TestFlawsOfTemplates(t *testing.T) {
	const control, backslash, comma = "a control character in a string", "a backslash that escapes nothing", "a comma before a closing bracket"
	for body, test := range map[string]struct {
		means string // as JSON; empty: it is an error
		warns []string
	}{
		"{\"title\":\"Shop is down\",\"description\":\"Server DOWN\nping: 10ms\n\tstatus: offline\"}": {
			`{"title":"Shop is down","description":"Server DOWN\nping: 10ms\n\tstatus: offline"}`,
			[]string{"at byte 51, " + control + ", such as a line feed, was read as if it were escaped, and so were 2 more"}},
		`{"title":"DISK CRITICAL - C:\ 3% free","dedup_key":"disk-c"}`: {
			`{"title":"DISK CRITICAL - C:\\ 3% free","dedup_key":"disk-c"}`, []string{"at byte 29, " + backslash}},
		`{"path":"C:\users\d\u12"}`:       {`{"path":"C:\\users\\d\\u12"}`, []string{backslash + " was read as itself, and so were 2 more"}},
		`{"a":[1,2, ],"b":{"c":1,},}`:     {`{"a":[1,2],"b":{"c":1}}`, []string{"at byte 12, " + comma + " was left out, and so were 2 more"}},
		"\uFEFF{\"a\":1,}":                {`{"a":1}`, []string{"at byte 11, " + comma}},
		"{\"a\":\"\x00\",\"b\":\"\\ \",}": {`{"a":"\u0000","b":"\\ "}`, []string{control, backslash, comma}},
		`{"a":"b\\","c":"\"d"}`:           {`{"a":"b\\","c":"\"d"}`, nil},
		`{"a":"x,}"}`:                     {`{"a":"x,}"}`, nil},

		`{"title":"a "quoted" word"}`:         {},
		`{"title":"C:\","status":"resolved"}`: {}, // the backslash escapes the quotation mark
		`{'title':'single'}`:                  {},
		`{"a":1,,}`:                           {},
		`{,}`:                                 {},
		`[,]`:                                 {},
		`{"a":,}`:                             {},
		`{"a":1} {"b":2}`:                     {},
		`{"a":1 // comment` + "\n}":           {},
		"{\"a\":\"" + strings.Repeat("\x01", 20_000) + "\"}": {}, // it would grow too much
	} {
		value, warnings, err := payload.ParseAny([]byte(body))
		g := NewWithT(t)
		if test.means == "" {
			if err == nil {
				t.Errorf("%.60q is read as %v", body, value)
			}
			continue
		}
		g.Expect(err).NotTo(HaveOccurred(), body)
		text, err := json.Marshal(value)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(text)).To(MatchJSON(test.means), body)
		g.Expect(warnings).To(HaveLen(len(test.warns)), body)
		for i, warning := range warnings {
			g.Expect(warning.Detail).To(ContainSubstring(test.warns[i]), body)
		}
	}
}

// The error of a body that cannot be mended is about the body as it is.
func TestTheOffsetIsThatOfTheBody(t *testing.T) {
	g := NewWithT(t)
	_, _, err := payload.ParseAny([]byte("{\"a\":\"\n\n\n\",\"b\":x}"))
	g.Expect(err).To(MatchError(HavePrefix("malformed JSON at byte 7:")))
}

// What is JSON is read as encoding/json does, and mending changes no key and no value of what has flaws.
func TestFlawsChangeNoValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.String())).Draw(t, "object")
		strict, err := json.Marshal(object)
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		want, warnings, err := payload.ParseAny(strict)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(warnings).To(BeEmpty())
		flawed := bytes.ReplaceAll(strict, []byte("]"), []byte(",]"))
		if bytes.Contains(strict, []byte("[]")) || bytes.ContainsAny(bytes.ReplaceAll(strict, []byte(`],"`), nil), "]") && anyHas(object, "]") {
			return // a comma in an empty list, or in a text
		}
		for escaped, raw := range map[string]string{`\n`: "\n", `\t`: "\t", `\r`: "\r"} {
			if !bytes.Contains(strict, []byte(`\\`)) {
				flawed = bytes.ReplaceAll(flawed, []byte(escaped), []byte(raw))
			}
		}
		value, _, err := payload.ParseAny(flawed)
		g.Expect(err).NotTo(HaveOccurred(), "%q", flawed)
		g.Expect(value).To(Equal(want))
	})
}

// anyHas reports whether a key or a text has a part.
func anyHas(object map[string][]string, part string) bool {
	for key, texts := range object {
		if strings.Contains(key+strings.Join(texts, ""), part) {
			return true
		}
	}
	return false
}

func TestBodiesOfLines(t *testing.T) {
	for body, list := range map[string]string{
		"{\"a\":1}\n{\"a\":2}\n":           `[{"a":1},{"a":2}]`,
		"\uFEFF{\"a\":1}\r\n\r\n{\"a\":2}": `[{"a":1},{"a":2}]`,
		"":                                 "[]",
		"[1\n2]":                           "[1\n2]", // with a comma between the lines, it would be a list
		"{\"a\":1}\n{\"a\":":               "{\"a\":1}\n{\"a\":",
	} {
		NewWithT(t).Expect(string(payload.FromLines([]byte(body)))).To(Equal(list), body)
	}
}
