package mapping_test

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// TestFunctions evaluates expressions over alert = the payload; the result is as JSON, or in part the warning.
func TestFunctions(t *testing.T) {
	const body = `{"n": null, "e": "", "b": "  ", "t": "text", "i": 5, "f": 1.5, "big": 12345678901234567890, "yes": true,
"l": [], "m": {}, "list": [3, 1, 2], "tags": "env:prod, role:db,odd, :x",
"named": [{"name": "a", "value": 1}, {"name": "b", "value": "x"}, {"name": "a", "value": 2}, {"other": 1}, 5],
"mixed": {"A": 1, "a": 2, "B": {"C": 3}}, "json": "{\"x\": [1, 2.50, 12345678901234567890]}", "dep": {"z": 1, "y": 2, "x": 3}}`
	for expression, expected := range map[string]string{
		`firstNonEmpty([alert.n, alert.e, alert.b, alert.l, alert.m, alert.?missing, alert.t, alert.i])`: `"text"`,
		`firstNonEmpty([alert.n, alert.?missing])`:                                                       `null`,
		`firstNonEmpty([])`:                                                                 `null`,
		`firstNonEmpty([?alert.?missing, alert.i])`:                                         `5`,
		`firstNonEmpty(alert.list)`:                                                         `3`,
		`parseJSON(alert.json)`:                                                             `{"x":[1,2.5,"12345678901234567890"]}`,
		`parseJSON(alert.json).x[1]`:                                                        `2.5`,
		`parseJSON("[1,2]").map(x, x + 1)`:                                                  `[2,3]`,
		`parseJSON("{")`:                                                                    "error: parseJSON: malformed JSON at byte 1",
		`hash(["ab", "c"]) == hash(["a", "bc"])`:                                            `false`,
		`hash(["ab", 5, true, null, alert.?missing])`:                                       `"751af6d3316353da4ddd94dfb7fcede0"`,
		`hash(alert.list) == hash([3, 1, 2])`:                                               `true`,
		`hash([alert.mixed]) == hash([alert.dep])`:                                          `false`,
		`hash([alert.list]) == hash(alert.list)`:                                            `false`,
		`hash([["a", "b"]]) == hash([["a"], "b"])`:                                          `false`,
		`hash([alert.dep]) == hash([{"x": "3", "z": 1, "y": 2}])`:                           `true`,
		`hash([alert.dep]) == hash(["x", 3, "y", 2, "z", 1])`:                               `false`,
		`hash([{"a": "b"}, "c"]) == hash([{"a": "b", "c": ""}])`:                            `false`,
		`timestampFromUnix(1772362800)`:                                                     `"2026-03-01T11:00:00Z"`,
		`timestampFromUnix(1772362800123)`:                                                  `"2026-03-01T11:00:00.123Z"`,
		`timestampFromUnix("1772362800.5")`:                                                 `"2026-03-01T11:00:00.5Z"`,
		`timestampFromUnix(5)`:                                                              `error: timestampFromUnix: "5" is not a Unix time`,
		`merge([alert.mixed, null, alert.?missing, {"A": 5}])`:                              `{"A":5,"B":{"C":3},"a":2}`,
		`merge([alert.list])`:                                                               "error: merge: element 0 is not a map",
		`pairs(alert.tags, ",", ":")`:                                                       `{"env":"prod","odd":"","role":"db"}`,
		`pairs(alert.tags, "", ":")`:                                                        "error: pairs: a separator is empty",
		`mapFromList(alert.named, "name", "value")`:                                         `{"a":[1,2],"b":"x"}`,
		`mapFromList([["a", 1], ["a", 1], ["b"], 3], "0", "1")`:                             `{"a":1}`,
		`mapFromList(alert.?missing, "a", "b")`:                                             `{}`,
		`withoutEmpty({"b": "", "a": "x", "n": null, "zero": 0, "l": []})`:                  `{"a":"x","l":[],"zero":0}`,
		`withoutEmpty(alert.?missing)`:                                                      `{}`,
		`labelsText({"job": "node", "instance": "db-1", "pod": "", "l": []})`:               `"{instance=\"db-1\", job=\"node\"}"`,
		`[labelsText({}), labelsText({"a": ""}), labelsText(alert.t)]`:                      `["","",""]`,
		`pairs("a:1,b:2,a:3,a:1", ",", ":")`:                                                `{"a":["1","3"],"b":"2"}`,
		`pairs(alert.list, ",", ":")`:                                                       `{}`,
		`[alert.t, alert.i, alert.f, alert.yes, alert.n, alert.l, alert.m].map(v, text(v))`: `["text","5","1.5","true","","",""]`,
		`text(alert.?missing.?deeper)`:                                                      `""`,
		`[alert.?n, alert.?missing, alert.?e, alert.?m].map(v, present(v))`:                 `[false,false,true,true]`,
		`[alert.list, alert.?missing, alert.n, alert.t].map(v, elements(v))`:                `[[3,1,2],[],[],[]]`,
		`discardDefault(alert.i, 5)`:                                                        `{}`,
		`[withoutPort("db-1:9100"), withoutPort("[::1]:9100"), withoutPort("db-1")]`:        `["db-1","::1","db-1"]`,
		`["::1", "http://a:80", "a/b:80", ":80", "a:", "a:http"].map(a, withoutPort(a))`:    `["::1","http://a:80","a/b:80",":80","a:","a:http"]`,
		`["node-4.187c3f0a51b2c0ff", "web.5d7c", "a.b.internal"].map(n, eventObject(n))`:    `["node-4","web.5d7c","a.b.internal"]`,
		`withoutPort(alert.i)`:                                                              "error: ",
		`discard([alert.t, alert.?missing])`:                                                `{}`,
		`alert.dep.map(k, k)`:                                                               `["x","y","z"]`,
		`alert.dep.transformMapEntry(k, v, {k + "1": v})`:                                   `{"x1":3,"y1":2,"z1":1}`,
		`alert.dep.transformList(k, v, k + string(v))`:                                      `["x3","y2","z1"]`,
		`alert.mixed`:               `{"A":1,"B":{"C":3},"a":2}`,
		`alert.?mixed.?B.C`:         `3`,
		`alert.t.find("[a-e]x")`:    `"ex"`,
		`alert.t.matches("^t.*t$")`: `true`,
		`alert.t.replace("t", "T").upperAscii().split("E")`:                                 `["T","XT"]`,
		`["a", "b"].join("-")`:                                                              `"a-b"`,
		`["https://a.example:8443/x?y=z", "tcp://db-1:5432", "a b", ""].map(u, urlHost(u))`: `["a.example","db-1","",""]`,
		`["ab", "cd"].map(t, t.find("[a-c]"))`:                                              `["a","c"]`,
		`[[1], [2, [3]]].flatten()`:                                                         `[1,2,[3]]`,
		`{"b": 1, "a": 2}.map(k, k)`:                                                        `["a","b"]`,
		`{1: "x", "1": "y"}.map(k, type(k) == int)`:                                         `[true,false]`,
		`{1: "x", "1": "y"}`:                                                                `{"1":"y"}`,
		`[alert.i, alert.f, alert.yes, alert.n, alert.t]`:                                   `[5,1.5,true,null,"text"]`,
		`alert.big`:         `"12345678901234567890"`,
		`[alert.big]`:       `["12345678901234567890"]`,
		`[1.0 / 0.0]`:       `["+Inf"]`,
		`[duration("90s")]`: `["1m30s"]`,
		`[b"\xff"]`:         `["/w=="]`,
		`[type(1)]`:         `["int"]`,
		`alert.i / 0`:       "error: division by zero",
		`alert.t.nothing`:   "error: no such key: nothing",
		`alert.list.key`:    "error: ",
		`alert.list[7]`:     "error: ",
	} {
		t.Run(expression, func(t *testing.T) {
			g := NewWithT(t)
			program, err := mapping.Compile("", parsed(t, "fields: {custom: "+quoted(`{"r": `+expression+`}`)+"}"))
			want, isError := strings.CutPrefix(expected, "error: ")
			if err != nil && isError { // it fails whatever is sent
				g.Expect(err).To(MatchError(ContainSubstring(want)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			alert := readBody(t, program, body, nil).Alerts[0]
			failed := ""
			for _, w := range alert.Warnings {
				if w.Field == "custom" {
					failed = w.Detail
				}
			}
			if isError {
				g.Expect(failed).To(ContainSubstring(want))
				g.Expect(failed).NotTo(BeEmpty())
				return
			}
			g.Expect(failed).To(BeEmpty())
			encoded, err := json.Marshal(alert.Custom["r"])
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(encoded)).To(Equal(expected))
		})
	}
}
