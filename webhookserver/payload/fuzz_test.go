package payload_test

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// FuzzParse feeds bodies to the whole path: a body is refused with an error of ours, or is read as an
// alert that can be stored.
func FuzzParse(f *testing.F) {
	for _, bodies := range []map[string]string{accepted, flawed, refused, senderFiles(f)} {
		for _, name := range slices.Sorted(maps.Keys(bodies)) {
			if body := bodies[name]; len(body) < 4_000 { // longer ones only make it slow
				f.Add([]byte(body))
			}
		}
	}
	f.Add(typicalPayload(f))
	f.Fuzz(func(t *testing.T, body []byte) {
		if form, ok := payload.FromForm(body); ok {
			body = form
		}
		object, first, err := payload.Parse(body)
		if err != nil {
			checkRefusal(t, body, err)
			return
		}
		tells := slices.ContainsFunc(first, func(w payload.Warning) bool { return strings.HasPrefix(w.Detail, "the body is not valid JSON") })
		if json.Valid(trimMark(body)) == tells {
			t.Fatalf("of a body that is JSON or not, Parse says: %v", first)
		}
		before := clone(object)
		alert, _, second := payload.Read(object, received)
		if err := violation(&alert, slices.Concat(first, second)[:min(32, len(first)+len(second))]); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(object, before) {
			t.Fatal("the payload was changed")
		}
		if values, ok := object["values"].(map[string]any); ok {
			for key, value := range values {
				number, isNumber := value.(json.Number)
				stored, isStored := alert.Values[key]
				if !isNumber || !isStored {
					continue
				}
				if err := numberViolation(string(number), stored); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// trimMark is a body without a byte order mark.
func trimMark(body []byte) []byte {
	if len(body) >= 3 && string(body[:3]) == "\uFEFF" {
		return body[3:]
	}
	return body
}

// checkRefusal sees that a refused body deserves it, and that the error says where.
func checkRefusal(t *testing.T, body []byte, err error) {
	t.Helper()
	var syntax *payload.SyntaxError
	switch {
	case errors.As(err, &syntax):
		if json.Valid(trimMark(body)) {
			t.Fatalf("valid JSON is refused: %v", err)
		}
		if syntax.Offset < 1 || syntax.Offset > int64(len(body)) {
			t.Fatalf("offset %d in %d bytes", syntax.Offset, len(body))
		}
		if !isPrintable(syntax.Error(), "") {
			t.Fatalf("error %q", syntax.Error())
		}
	case errors.Is(err, payload.ErrEmpty), errors.Is(err, payload.ErrTooDeep):
	case errors.Is(err, payload.ErrNotObject): // also with flaws
	default:
		t.Fatalf("an error of its own kind: %v", err)
	}
}
