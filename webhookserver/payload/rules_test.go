package payload_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestEveryFieldIsOptionalAndKeysMatchCaseSensitively(t *testing.T) {
	check(t, map[string]example{
		"an empty object is a firing alert that says nothing": {
			payload: `{}`,
			alert:   `{"status":"firing"}`,
		},
		"every field has its place": {
			payload: `{"title":"T","description":"D","severity":"error","type":"Y","link":"L","hostname":"H","region":"R",
				"labels":{"a":1},"annotations":{"b":[2]},"values":{"c":3.5},"custom":{"d":{"e":null}},"status":"firing",
				"dedup_key":"K","starts_at":"2024-01-15T10:30:00Z","ends_at":"2024-01-15T10:31:00Z","expires_at":1705314720}`,
			alert: `{"title":"T","description":"D","severity":"error","type":"Y","link":"L","hostname":"H","region":"R",
				"labels":{"a":"1"},"annotations":{"b":"[2]"},"values":{"c":3.5},"custom":{"d":{"e":null}},"status":"firing",
				"dedupKey":"K","startTime":"2024-01-15T10:30:00.000000Z","endTime":"2024-01-15T10:31:00.000000Z",
				"expiryTime":"2024-01-15T10:32:00.000000Z"}`,
		},
		"a key in another case is an unknown key": {
			payload: `{"Title":"T","STATUS":"resolved","dedupKey":"K"}`,
			alert:   `{"status":"firing","custom":{"Title":"T","STATUS":"resolved","dedupKey":"K"}}`,
		},
		"title, type and severity stay absent, for the integration's defaults to fill": {
			payload: `{"description":"first\nsecond"}`,
			alert:   `{"status":"firing","description":"first\nsecond"}`,
		},
	})
}

func TestAliases(t *testing.T) {
	check(t, map[string]example{
		"subject is the title, message the description, priority the severity": {
			payload: `{"subject":"S","message":"M","priority":"P1"}`,
			alert:   `{"status":"firing","title":"S","description":"M","severity":"critical"}`,
		},
		"a usable canonical value wins, and the alias that lost is kept in custom and named in the warnings": {
			payload: `{"subject":"S","title":"T","message":"M","description":"D","priority":"P1","severity":"info"}`,
			alert: `{"status":"firing","title":"T","description":"D","severity":"info",
				"custom":{"subject":"S","message":"M","priority":"P1"}}`,
			warnings: []string{"subject", "message", "priority"},
		},
		"an alias that says the same as the canonical value is no loss": {
			payload: `{"title":"T","subject":"T"}`,
			alert:   `{"status":"firing","title":"T"}`,
		},
		"an alias that lost gives way to an entry of custom": {
			payload:  `{"title":"T","subject":"S","custom":{"subject":"C"}}`,
			alert:    `{"status":"firing","title":"T","custom":{"subject":"C","subject_2":"S"}}`,
			warnings: []string{"subject", "subject"},
		},
		"a canonical value that is null or blank leaves the field to the alias": {
			payload: `{"title":null,"subject":"S","description":" \n","message":"M","severity":"","priority":"high"}`,
			alert:   `{"status":"firing","title":"S","description":"M","severity":"error"}`,
		},
		"a canonical value of control characters alone leaves the field to the alias": {
			payload: `{"title":"\u0000\u202e","subject":"S"}`,
			alert:   `{"status":"firing","title":"S"}`,
		},
		"a canonical value that is an object leaves the field to the alias and is kept in custom": {
			payload:  `{"title":{"text":"T"},"subject":"S"}`,
			alert:    `{"status":"firing","title":"S","custom":{"title":{"text":"T"}}}`,
			warnings: []string{"title"},
		},
		"an unknown severity leaves the field to the priority and is kept in custom": {
			payload:  `{"severity":"odd","priority":"P2"}`,
			alert:    `{"status":"firing","severity":"error","custom":{"severity":"odd"}}`,
			warnings: []string{"severity"},
		},
		"an alias that is an object is kept in custom under the canonical name": {
			payload:  `{"message":{"text":"M"},"description":"D"}`,
			alert:    `{"status":"firing","description":"D","custom":{"description":{"text":"M"}}}`,
			warnings: []string{"message"},
		},
		"an alias that is null or blank is no loss": {
			payload: `{"title":"T","subject":null,"description":"D","message":""}`,
			alert:   `{"status":"firing","title":"T","description":"D"}`,
		},
	})
}

func TestOtherTopLevelKeysAreKeptInCustom(t *testing.T) {
	check(t, map[string]example{
		"the values are untouched": {
			payload: `{"a":"\u0000 x ","b":[1,{"c":null}],"d":null,"e":"","":1.5}`,
			alert:   `{"status":"firing","custom":{"a":"\u0000 x ","b":[1,{"c":null}],"d":null,"e":"","":1.5}}`,
		},
		"the payload's own custom object is the same bag": {
			payload: `{"a":1,"custom":{"b":2,"title":"x"}}`,
			alert:   `{"status":"firing","custom":{"a":1,"b":2,"title":"x"}}`,
		},
		"a name that custom has already gets a number": {
			payload:  `{"a":1,"a_2":2,"custom":{"a":3}}`,
			alert:    `{"status":"firing","custom":{"a":3,"a_2":2,"a_3":1}}`,
			warnings: []string{"a"},
		},
		"a value that custom has already under the same name is kept once": {
			payload: `{"a":{"x":1.0,"y":2},"custom":{"a":{"y":2,"x":1}}}`,
			alert:   `{"status":"firing","custom":{"a":{"x":1,"y":2}}}`,
		},
		"what a field could not take does not replace an entry of custom": {
			payload:  `{"severity":"odd","labels":7,"custom":{"severity":1,"labels":2}}`,
			alert:    `{"status":"firing","custom":{"severity":1,"severity_2":"odd","labels":2,"labels_2":7}}`,
			warnings: []string{"severity", "labels", "labels", "severity"},
		},
	})
}

func TestNullsAndBlanks(t *testing.T) {
	check(t, map[string]example{
		"null in a listed field counts as absent": {
			payload: `{"title":null,"description":null,"severity":null,"type":null,"link":null,"hostname":null,"region":null,
				"labels":null,"annotations":null,"values":null,"custom":null,"status":null,"dedup_key":null,"starts_at":null,
				"ends_at":null,"subject":null,"message":null,"priority":null}`,
			alert: `{"status":"firing"}`,
		},
		"a blank string in a listed field counts as absent": {
			payload: `{"title":"","description":" \n","severity":"","type":"\t","link":"","hostname":" ","region":"",
				"labels":"","annotations":" ","values":"","custom":"","status":" ","dedup_key":" ","starts_at":"","ends_at":" ",
				"subject":"","message":"","priority":" "}`,
			alert: `{"status":"firing"}`,
		},
		"null in the bags stays null, and is no label or annotation": {
			payload: `{"labels":{"a":null,"t":true},"annotations":{"b":[null],"n":null},"values":{"c":{"d":null}},"custom":{"e":null}}`,
			alert: `{"status":"firing","labels":{"t":"true"},"annotations":{"b":"[null]"},"values":{"c":{"d":null}},
				"custom":{"e":null}}`,
		},
	})
}

func TestValuesOfAnotherType(t *testing.T) {
	check(t, map[string]example{
		"a number in a field for text becomes its literal": {
			payload: `{"title":12345,"description":9007199254740993,"type":12345.0,"link":1e5,"hostname":-0,"region":1.50,
				"dedup_key":18446744073709551617}`,
			alert: `{"status":"firing","title":"12345","description":"9007199254740993","type":"12345.0","link":"1e5",
				"hostname":"-0","region":"1.50","dedupKey":"18446744073709551617"}`,
		},
		"a boolean in a field for text becomes its literal": {
			payload: `{"title":true,"dedup_key":false}`,
			alert:   `{"status":"firing","title":"true","dedupKey":"false"}`,
		},
		"an object or array in a field for text moves to custom under the field's name": {
			payload: `{"title":{"a":1},"description":[1],"type":{},"link":[],"hostname":{"b":2},"region":[2],"dedup_key":{"c":3}}`,
			alert: `{"status":"firing","custom":{"title":{"a":1},"description":[1],"type":{},"link":[],"hostname":{"b":2},
				"region":[2],"dedup_key":{"c":3}}}`,
			warnings: []string{"title", "description", "type", "link", "hostname", "region", "dedup_key"},
		},
		"a bag that is not an object moves to custom under the field's name": {
			payload:  `{"labels":["a"],"annotations":"text","values":7,"custom":true}`,
			alert:    `{"status":"firing","custom":{"labels":["a"],"annotations":"text","values":7,"custom":true}}`,
			warnings: []string{"labels", "annotations", "values", "custom"},
		},
		"a severity or status that is an object moves to custom, and the alert fires": {
			payload:  `{"severity":{"name":"critical"},"status":{"text":"reachable"}}`,
			alert:    `{"status":"firing","custom":{"severity":{"name":"critical"},"status":{"text":"reachable"}}}`,
			warnings: []string{"severity", "status"},
		},
		"unacknowledged is no status of a sender: the problem may be one that nobody has acknowledged": {
			payload:  `{"status":"unacknowledged"}`,
			alert:    `{"status":"firing","custom":{"status":"unacknowledged"}}`,
			warnings: []string{"status"},
		},
	})
}

func TestDedupKey(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 65)
	check(t, map[string]example{
		"it is kept as it is up to 1,024 bytes": {
			payload: `{"dedup_key":"` + long[:1024] + `"}`,
			alert:   `{"status":"firing","dedupKey":"` + long[:1024] + `"}`,
		},
		"over 1,024 bytes it becomes a readable prefix and the hash of the whole": {
			payload: `{"dedup_key":"` + long + `"}`,
			alert: `{"status":"firing","dedupKey":"` + long[:256] +
				`-4a9aebbd652576f6788bfc29373f4b9d726c5148f3b76e300e76ea6e0728b61c"}`,
			warnings: []string{"dedup_key"},
		},
		"the prefix ends between two characters": {
			payload: `{"dedup_key":"x` + strings.Repeat("é", 512) + `"}`,
			alert: `{"status":"firing","dedupKey":"x` + strings.Repeat("é", 127) +
				`-65eade89afe411ebcb116d6b855441635b8023172b5d7367a509f81c66690db6"}`,
			warnings: []string{"dedup_key"},
		},
		"control characters and the spaces around it are no part of it": {
			payload: `{"dedup_key":" web-01/\u0000cpu\n"}`,
			alert:   `{"status":"firing","dedupKey":"web-01/cpu"}`,
		},
		"a key of blanks and control characters alone counts as absent": {
			payload: `{"dedup_key":"\u0001 \n\u202e"}`,
			alert:   `{"status":"firing"}`,
		},
		"resolved without it is accepted, with a warning that it matches nothing": {
			payload:  `{"status":"resolved"}`,
			alert:    `{"status":"resolved"}`,
			warnings: []string{"dedup_key"},
		},
		"acknowledged without it is accepted, with a warning that it matches nothing": {
			payload:  `{"status":"acknowledged","dedup_key":"\u0000"}`,
			alert:    `{"status":"acknowledged"}`,
			warnings: []string{"dedup_key"},
		},
	})
}

func TestLongDedupKeysStayEqualOrDifferent(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("x", 2000)
	one, _ := read(t, `{"dedup_key":"`+long+`1"}`)
	same, _ := read(t, `{"dedup_key":"`+long+`1"}`)
	other, _ := read(t, `{"dedup_key":"`+long+`2"}`)
	g.Expect(same.DedupKey).To(Equal(one.DedupKey))
	g.Expect(other.DedupKey).NotTo(Equal(one.DedupKey))

	again, warnings := read(t, `{"dedup_key":"`+one.DedupKey+`"}`)
	g.Expect(again.DedupKey).To(Equal(one.DedupKey), "the key of the response works too")
	g.Expect(warnings).To(BeEmpty())
}

func TestTextThatIsPrinted(t *testing.T) {
	check(t, map[string]example{
		"C0, C1 and bidirectional control characters are stripped": {
			payload: `{"title":"a\u0000b\u001b[31mc\u007f\u0085d\u009be\u202ef\u2066g\u200eh\u061ci","hostname":"h\u0007",
				"region":"\u2069r","type":"\u0001t","link":"https://\u202dx"}`,
			alert: `{"status":"firing","title":"ab[31mc defghi","hostname":"h","region":"r","type":"t","link":"https://x"}`,
		},
		"line breaks and tabs in a text of one line become spaces": {
			payload: `{"title":"a\nb\tc\r\nd\u2028e"}`,
			alert:   `{"status":"firing","title":"a b c  d e"}`,
		},
		"line breaks and tabs in the description stay": {
			payload: `{"description":"a\r\nb\rc\u2029d\n\n\te\u0000\u202e"}`,
			alert:   `{"status":"firing","description":"a\nb\nc\nd\n\n\te"}`,
		},
		"in the bags they stay, as JSON spells them": {
			payload: `{"labels":{"a\u0000":"\u001b\u202e"},"x":"\u0007"}`,
			alert:   `{"status":"firing","labels":{"a\u0000":"\u001b\u202e"},"custom":{"x":"\u0007"}}`,
		},
		"invalid UTF-8 becomes U+FFFD": {
			payload:  "{\"title\":\"a\xffb\",\"labels\":{\"k\xfe\":\"\xc3\"}}",
			alert:    `{"status":"firing","title":"a\ufffdb","labels":{"k\ufffd":"\ufffd"}}`,
			warnings: []string{""},
		},
		"half a surrogate pair becomes U+FFFD": {
			payload:  `{"title":"a\ud83db","labels":{"\ude00":"\ud83d\ud83d\ude00"}}`,
			alert:    `{"status":"firing","title":"a\ufffdb","labels":{"\ufffd":"\ufffd😀"}}`,
			warnings: []string{""},
		},
		"a whole surrogate pair is a character": {
			payload: `{"title":"\ud83d\ude00 \\ud83d \uFFFD"}`,
			alert:   `{"status":"firing","title":"😀 \\ud83d \ufffd"}`,
		},
	})
}

func TestDuplicateKeys(t *testing.T) {
	check(t, map[string]example{
		"the last one wins": {
			payload: `{"title":"a","title":"b","labels":{"x":1},"labels":{"y":1,"y":2},"z":1,"z":2}`,
			alert:   `{"status":"firing","title":"b","labels":{"y":"2"},"custom":{"z":2}}`,
		},
		"a last one that is null makes the field absent": {
			payload: `{"title":"a","title":null,"subject":"s"}`,
			alert:   `{"status":"firing","title":"s"}`,
		},
	})
}

func TestTextsAreCutToTheirBounds(t *testing.T) {
	for field, limit := range map[string]int{
		"title": 1024, "type": 1024, "hostname": 1024, "region": 1024, "link": 2048, "description": 16384,
	} {
		name := field + " is cut after its characters, not its bytes, with an ellipsis"
		fits, long := strings.Repeat("ö", limit), strings.Repeat("ö", limit+1)
		check(t, map[string]example{
			field + " fits": {
				payload: `{"` + field + `":"` + fits + `"}`,
				alert:   `{"status":"firing","` + field + `":"` + fits + `"}`,
			},
			name: {
				payload:  `{"` + field + `":"` + long + `"}`,
				alert:    `{"status":"firing","` + field + `":"` + fits[:2*(limit-1)] + `…"}`,
				warnings: []string{field},
			},
		})
	}
}
