package payload_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// accepted are bodies that hold one JSON object, of the kinds that break readers.
var accepted = map[string]string{
	"an empty object":                      `{}`,
	"spaces around the object":             " \r\n\t{ \"a\" : 1 } \n",
	"a byte order mark":                    "\uFEFF{\"title\":\"a\"}",
	"every kind of value":                  `{"a":[1,-2.5,"x",true,false,null,{},[]],"b":{"c":{"d":[[[]]]}}}`,
	"an empty key":                         `{"":1,"labels":{"":"empty","a":{"":{"":null}}},"custom":{"":2}}`,
	"duplicate keys":                       `{"title":"a","title":"b","labels":{"x":1},"labels":{"y":2,"y":3}}`,
	"keys that differ in case":             `{"Title":"A","title":"a","TITLE":"B","labels":{"K":1,"k":2}}`,
	"keys that Kubernetes uses":            `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"},"labels":{"metadata":{"managedFields":[]}}}`,
	"keys with dots and slashes":           `{"labels":{"app.kubernetes.io/name":"x","a/b/c":1,"..":2,"$ref":"#/x","x-kubernetes-foo":true}}`,
	"nulls everywhere":                     `{"title":null,"status":null,"labels":{"a":null,"b":[null],"c":{"d":null}},"custom":null,"x":null}`,
	"blank strings everywhere":             `{"title":" ","severity":"","status":"\t","labels":" ","custom":"","starts_at":"","dedup_key":"\u0000 "}`,
	"empty bags":                           `{"labels":{},"annotations":{},"values":{},"custom":{}}`,
	"bags that are not objects":            `{"labels":[1],"annotations":"a","values":3,"custom":[{"a":1}]}`,
	"objects where text belongs":           `{"title":{"a":1},"description":[],"severity":{},"status":{"s":1},"dedup_key":[1],"starts_at":{},"ends_at":[]}`,
	"numbers where text belongs":           `{"title":12345,"description":12345.0,"severity":1,"status":0,"dedup_key":9007199254740993,"link":1e5}`,
	"booleans where text belongs":          `{"title":true,"severity":false,"status":true,"dedup_key":false,"starts_at":true,"ends_at":false}`,
	"integers at the edges of int64":       `{"values":{"a":9223372036854775807,"b":-9223372036854775808,"c":9223372036854775808,"d":-9223372036854775809}}`,
	"integers beyond float64's precision":  `{"values":{"a":9007199254740993,"b":9007199254740993.0,"c":18446744073709551615,"d":12345678901234567890123}}`,
	"numbers beyond float64":               `{"values":{"a":1e400,"b":-1e400,"c":1e-400,"d":0e400,"e":1e99999999999999999999,"f":0e99999999999999999999}}`,
	"numbers at the edges of float64":      `{"values":{"a":1.7976931348623157e308,"b":5e-324,"c":2.2250738585072014e-308,"d":4.9e-324}}`,
	"numbers that are spelt another way":   `{"values":{"a":1.0,"b":1e3,"c":1E+2,"d":-0,"e":-0.0,"f":0.10,"g":1e20,"h":1e21,"i":1e-7,"j":100e-2}}`,
	"escapes":                              `{"title":"\u0041\"\\\/\b\f\n\r\t","labels":{"\u0000\u0001\b\f":"\u0000\u001b[31m\u007f\u0085"}}`,
	"characters that HTML and scripts use": `{"labels":{"<a&b>":"<script>&amp;\u2028\u2029</script>"},"title":"<b>&\u2028"}`,
	"a surrogate pair":                     `{"title":"\ud83d\ude00","labels":{"\ud83d\ude00":"😀"}}`,
	"lone surrogates":                      `{"title":"a\ud800b","description":"\udc00","labels":{"\ud83dx":"\ude00\ud83d"},"x":"\ud800\ud800\udc00"}`,
	"noncharacters":                        `{"title":"\uffff\ufffe\ufdd0","labels":{"a":"\uffff\ud83f\udfff"}}`,
	"bytes that are not UTF-8":             "{\"title\":\"a\xffb\",\"k\xc3\":\"\xed\xa0\x80\xc0\xaf\",\"labels\":{\"\xfe\":\"\xf4\x90\x80\x80\"}}",
	"bidirectional control characters":     `{"title":"a\u202eb\u2066c\u200f","hostname":"h\u061cost","labels":{"\u202e":"\u2069"}}`,
	"control characters":                   `{"title":"a\u0000b\u001b[31mc\nd","description":"a\r\nb\rc\u0085d\te\u0007","dedup_key":"k\u0000\n","link":"h\u0008"}`,
	"only control characters":              `{"title":"\u0000\u202e","description":"\u0007\n","dedup_key":"\u0001 \u0002","hostname":"\u200e"}`,
	"custom and top-level keys collide":    `{"a":1,"b":2,"a_2":3,"custom":{"a":9,"b":2,"severity":1,"labels":2},"severity":"odd","labels":7}`,
	"Unix times":                           `{"starts_at":1705314600,"ends_at":1705314660123}`,
	"odd times":                            `{"starts_at":"9999-12-31T23:59:59-14:00","ends_at":"0001-01-01T00:00:00+14:00"}`,
	"the last second of year 9999":         `{"starts_at":"9999-12-31T23:59:59.9999999Z","ends_at":"0002-01-01T00:00:00Z"}`,
	"64 levels":                            strings.Repeat(`{"a":`, 63) + `[]` + strings.Repeat(`}`, 63),
	"brackets in a string":                 `{"title":"` + strings.Repeat(`[{\"`, 100) + `"}`,
	"every text too long":                  everyTextTooLong(),
	"a bag too large":                      `{"labels":{"big":"` + strings.Repeat("<", 60_000) + `","small":1},"custom":{"c":"` + strings.Repeat("x", 60_000) + `"}}`,
	"ten thousand entries":                 `{"values":{` + entries(10_000, `"%":1e999`) + `}}`,
	"a very long number":                   `{"n":` + strings.Repeat("9", 250_000) + `,"starts_at":` + strings.Repeat("1", 250_000) + `}`,
	"a very long string of digits":         `{"a":"` + strings.Repeat("9", 150_000) + `","title":"` + strings.Repeat("-", 250_000) + `"}`,
	"many numbers that become strings":     `{"a":[` + strings.Repeat("1e999,", 40_000) + `1]}`,
	"many control characters":              `{"dedup_key":"` + strings.Repeat(`\u202e\n`, 20_000) + `k"}`,
	"a name wanted over and over":          `{` + entries(8_000, `"a_%":1`) + `,"custom":{` + entries(8_000, `"a_%":2`) + `}}`,
	"a thousand top-level keys":            `{` + entries(1_000, `"%":"<&>"`) + `}`,
}

// flawed are bodies that hold no JSON, but are read with a warning.
var flawed = map[string]string{
	"a trailing comma":          `{"a":1,}`,
	"a raw newline in a string": "{\"a\":\"b\nc\"}",
	"a raw NUL in a string":     "{\"a\":\"\x00\"}",
	"a bad escape":              `{"a":"\x41"}`,
}

// refused are bodies that hold no JSON object.
var refused = map[string]string{
	"nothing":                    ``,
	"only spaces":                " \n\t\r ",
	"only a byte order mark":     "\uFEFF",
	"null":                       `null`,
	"an array":                   `[{"title":"a"}]`,
	"a string":                   `"{}"`,
	"a number":                   `1`,
	"plain text":                 `CPU is high`,
	"XML":                        `<alert/>`,
	"a truncated object":         `{"title":"a"`,
	"a truncated string":         `{"title":"a`,
	"a truncated escape":         `{"title":"\u00`,
	"a truncated literal":        `{"a":tru`,
	"a truncated number":         `{"a":-}`,
	"a lone brace":               `{`,
	"trailing data":              `{} {}`,
	"a trailing brace":           `{}}`,
	"a trailing NUL":             "{}\x00",
	"a missing comma":            `{"a":1 "b":2}`,
	"a missing colon":            `{"a" 1}`,
	"a key that is no string":    `{1:2}`,
	"single quotes":              `{'a':1}`,
	"a comment":                  `{/* a */}`,
	"NaN":                        `{"a":NaN}`,
	"Infinity":                   `{"a":-Infinity}`,
	"a hexadecimal number":       `{"a":0x10}`,
	"a leading zero":             `{"a":01}`,
	"a leading plus":             `{"a":+1}`,
	"a point without digits":     `{"a":1.}`,
	"an exponent without digits": `{"a":1e}`,
	"UTF-16":                     "\xff\xfe{\x00}\x00",
	"65 levels":                  strings.Repeat(`{"a":`, 64) + `[]` + strings.Repeat(`}`, 64),
	"a million open brackets":    strings.Repeat(`[`, 1_000_000),
	"many open objects":          strings.Repeat(`{"":`, 100_000),
}

func everyTextTooLong() string {
	var b strings.Builder
	b.WriteString(`{"labels":{"a":"` + strings.Repeat("&", 1000) + `"}`)
	for _, field := range []string{"title", "description", "severity", "type", "link", "hostname", "region", "status", "dedup_key"} {
		b.WriteString(`,"` + field + `":"` + strings.Repeat("<ö😀", 6_000) + `"`)
	}
	b.WriteString(`}`)
	return b.String()
}

// entries are n copies of an entry, with a number for each %.
func entries(n int, entry string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(entry, "%", strconv.Itoa(i))
	}
	return strings.Join(all, ",")
}

// senderFiles are what monitoring tools send, by the names of their files.
func senderFiles(tb testing.TB) map[string]string {
	tb.Helper()
	paths, err := filepath.Glob("testdata/senders/*.json")
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no payloads of senders: %v", err)
	}
	files := map[string]string{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		files[filepath.Base(path)] = string(content)
	}
	return files
}
