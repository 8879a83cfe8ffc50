package payload_test

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestTimesAreReadAs(t *testing.T) {
	for name, test := range map[string]struct{ value, want string }{
		"RFC 3339":                              {`"2024-01-15T10:30:00Z"`, "2024-01-15T10:30:00.000000Z"},
		"RFC 3339 with an offset":               {`"2024-01-15T10:30:00+05:30"`, "2024-01-15T05:00:00.000000Z"},
		"RFC 3339 with nanoseconds, cut":        {`"2024-01-15T10:30:00.123456999Z"`, "2024-01-15T10:30:00.123456Z"},
		"a comma before the fraction":           {`"2024-01-15T10:30:00,5Z"`, "2024-01-15T10:30:00.500000Z"},
		"an offset without a colon":             {`"2024-01-15T10:30:00+0000"`, "2024-01-15T10:30:00.000000Z"},
		"an offset of hours":                    {`"2024-01-15T10:30:00-08"`, "2024-01-15T18:30:00.000000Z"},
		"a space for the T":                     {`"2024-01-15 10:30:00Z"`, "2024-01-15T10:30:00.000000Z"},
		"a space for the T and a colonless one": {`"2024-01-15 10:30:00.25+0100"`, "2024-01-15T09:30:00.250000Z"},
		"a space before the offset too":         {`"2024-01-15 10:30:00 +01:00"`, "2024-01-15T09:30:00.000000Z"},
		"the name of UTC":                       {`"2024-01-15 10:30:00 UTC"`, "2024-01-15T10:30:00.000000Z"},
		"lower-case letters":                    {`"2024-01-15t10:30:00z"`, "2024-01-15T10:30:00.000000Z"},
		"no seconds":                            {`"2024-01-15T10:30Z"`, "2024-01-15T10:30:00.000000Z"},
		"spaces around it":                      {`" 2024-01-15T10:30:00Z\n"`, "2024-01-15T10:30:00.000000Z"},
		"Go's way to print":                     {`"2024-01-15 10:30:00.5 +0100 CET"`, "2024-01-15T09:30:00.500000Z"},
		"an e-mail's date":                      {`"Mon, 15 Jan 2024 10:30:00 +0100"`, "2024-01-15T09:30:00.000000Z"},
		"a date with a day of one digit":        {`"Sun, 1 Mar 2026 11:40:00 GMT"`, "2026-03-01T11:40:00.000000Z"},
		"HTTP's date":                           {`"Mon, 15 Jan 2024 10:30:00 GMT"`, "2024-01-15T10:30:00.000000Z"},
		"Unix seconds":                          {`1705314600`, "2024-01-15T10:30:00.000000Z"},
		"Unix seconds in a string":              {`"1705314600"`, "2024-01-15T10:30:00.000000Z"},
		"Unix seconds with a fraction":          {`1705314600.123456`, "2024-01-15T10:30:00.123456Z"},
		"Unix seconds with an exponent":         {`1.7053146e9`, "2024-01-15T10:30:00.000000Z"},
		"Unix milliseconds":                     {`1705314600123`, "2024-01-15T10:30:00.123000Z"},
		"Unix milliseconds with a fraction":     {`1705314600123.5`, "2024-01-15T10:30:00.123500Z"},
		"Unix microseconds":                     {`1705314600123456`, "2024-01-15T10:30:00.123456Z"},
		"Unix nanoseconds":                      {`1705314600123456789`, "2024-01-15T10:30:00.123456Z"},
		"the last year that can be written":     {`"9999-12-31T23:59:59.9999999Z"`, "9999-12-31T23:59:59.999999Z"},
	} {
		read := example{
			payload: `{"starts_at":` + test.value + `}`,
			alert:   `{"status":"firing","startTime":"` + test.want + `"}`,
		}
		if test.want > "2024-01-15T12:05:00.123456Z" { // more than five minutes after the receipt
			read.warnings = []string{"starts_at"}
		}
		check(t, map[string]example{name: read})
	}
}

func TestTimesThatCannotBeRead(t *testing.T) {
	for name, value := range map[string]string{
		"a word":                         `"yesterday"`,
		"a time without a zone":          `"2024-01-15T10:30:00"`,
		"a time with an ambiguous zone":  `"2024-01-15 10:30:00 EST"`,
		"a date":                         `"2024-01-15"`,
		"a day that does not exist":      `"2024-02-30T10:30:00Z"`,
		"a date as a number":             `20240115`,
		"a date and time as a number":    `20240115103000`,
		"a duration":                     `60`,
		"a negative number":              `-1705314600`,
		"a number too large":             `1e300`,
		"a year that cannot be written":  `"9999-12-31T23:59:59-14:00"`,
		"a boolean":                      `true`,
		"a template that was not filled": `"{{ .StartTime }}"`,
	} {
		check(t, map[string]example{
			name + " is kept in custom and the time of receipt counts": {
				payload:  `{"starts_at":` + value + `}`,
				alert:    `{"status":"firing","startTime":"2024-01-15T12:00:00.123456Z","custom":{"starts_at":` + value + `}}`,
				warnings: []string{"starts_at"},
			},
		})
	}
	check(t, map[string]example{
		"a firing that begins five minutes after its receipt is not warned of": {
			payload: `{"starts_at":"2024-01-15T12:05:00Z"}`,
			alert:   `{"status":"firing","startTime":"2024-01-15T12:05:00.000000Z"}`,
		},
		"nor is a resolve, whose end counts": {
			payload: `{"status":"resolved","dedup_key":"k","starts_at":"2024-01-15T13:00:00Z","ends_at":"2024-01-15T13:00:01Z"}`,
			alert:   `{"status":"resolved","dedupKey":"k","startTime":"2024-01-15T13:00:00.000000Z","endTime":"2024-01-15T13:00:01.000000Z"}`,
		},
		"an object counts as unreadable too": {
			payload:  `{"starts_at":{"sec":1}}`,
			alert:    `{"status":"firing","startTime":"2024-01-15T12:00:00.123456Z","custom":{"starts_at":{"sec":1}}}`,
			warnings: []string{"starts_at"},
		},
		"an unreadable end of a resolved alert is the time of receipt": {
			payload: `{"status":"resolved","dedup_key":"k","ends_at":"just now"}`,
			alert: `{"status":"resolved","dedupKey":"k","endTime":"2024-01-15T12:00:00.123456Z",
				"custom":{"ends_at":"just now"}}`,
			warnings: []string{"ends_at"},
		},
		"an unreadable end of a firing alert is no end": {
			payload:  `{"ends_at":"never"}`,
			alert:    `{"status":"firing","custom":{"ends_at":"never"}}`,
			warnings: []string{"ends_at"},
		},
	})
}

func TestExpiry(t *testing.T) {
	check(t, map[string]example{
		"a firing alert has one, whatever its end and its start": {
			payload: `{"expires_at":"2024-01-15T10:34:00+0000","starts_at":"2024-01-15T11:00:00Z"}`,
			alert:   `{"status":"firing","startTime":"2024-01-15T11:00:00.000000Z","expiryTime":"2024-01-15T10:34:00.000000Z"}`,
		},
		"a resolved alert has none": {
			payload: `{"status":"resolved","dedup_key":"k","expires_at":"2024-01-15T10:34:00Z"}`,
			alert:   `{"status":"resolved","dedupKey":"k"}`,
		},
		"the zero time is none": {
			payload: `{"expires_at":"0001-01-01T00:00:00Z"}`,
			alert:   `{"status":"firing"}`,
		},
		"an unreadable one is kept in custom, and the alert has none": {
			payload:  `{"expires_at":"soon"}`,
			alert:    `{"status":"firing","custom":{"expires_at":"soon"}}`,
			warnings: []string{"expires_at"},
		},
	})
}

func TestTimesThatCountAsAbsent(t *testing.T) {
	for _, value := range []string{`"0001-01-01T00:00:00Z"`, `"0001-01-01T00:00:00+01:00"`, `"0001-01-01 00:00:00 +0000 UTC"`, `0`, `"0"`} {
		check(t, map[string]example{
			value + " counts as absent": {
				payload: `{"starts_at":` + value + `,"ends_at":` + value + `}`,
				alert:   `{"status":"firing"}`,
			},
		})
	}
}

func TestAnEndBeforeTheStart(t *testing.T) {
	check(t, map[string]example{
		"it is dropped with a warning": {
			payload:  `{"starts_at":"2024-01-15T10:30:00Z","ends_at":"2024-01-15T10:29:59Z"}`,
			alert:    `{"status":"firing","startTime":"2024-01-15T10:30:00.000000Z"}`,
			warnings: []string{"ends_at"},
		},
		"an end that equals the start stays": {
			payload: `{"starts_at":"2024-01-15T10:30:00Z","ends_at":"2024-01-15T11:30:00+01:00"}`,
			alert:   `{"status":"firing","startTime":"2024-01-15T10:30:00.000000Z","endTime":"2024-01-15T10:30:00.000000Z"}`,
		},
		"a start that is the time of receipt for want of a better one gives way to the end": {
			payload:  `{"starts_at":"?","ends_at":"2024-01-15T10:30:00Z"}`,
			alert:    `{"status":"firing","endTime":"2024-01-15T10:30:00.000000Z","custom":{"starts_at":"?"}}`,
			warnings: []string{"starts_at"},
		},
	})
}

func TestTheClockIsTheCallers(t *testing.T) {
	g := NewWithT(t)
	one, _ := read(t, `{"starts_at":"?"}`)
	g.Expect(one.StartTime.Time).To(BeTemporally("~", received, 1000))
}
