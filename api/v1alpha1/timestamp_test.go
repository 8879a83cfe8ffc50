package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

func TestTimestampJSON(t *testing.T) {
	for name, test := range map[string]struct{ in, out string }{
		"whole seconds gain microseconds":      {`"2026-05-04T10:00:00Z"`, `"2026-05-04T10:00:00.000000Z"`},
		"nanoseconds are cut":                  {`"2026-05-04T10:00:00.123456999Z"`, `"2026-05-04T10:00:00.123456Z"`},
		"an offset becomes UTC":                {`"2026-05-04T10:00:00+02:00"`, `"2026-05-04T08:00:00.000000Z"`},
		"the year 9999 does not become 10000":  {`"9999-12-31T23:59:59-23:00"`, `"9999-12-31T23:59:59.999999Z"`},
		"the year 100 does not become 99":      {`"0100-01-01T00:00:00+23:00"`, `"0100-01-01T00:00:00.000000Z"`},
		"Go's zero time is none":               {`"0001-01-01T00:00:00Z"`, `null`},
		"the year 0 is none":                   {`"0000-01-01T00:00:00Z"`, `null`},
		"null is none":                         {`null`, `null`},
		"a leap second is none":                {`"2026-05-04T23:59:60Z"`, `null`},
		"an unreadable time is none, no error": {`"yesterday"`, `null`},
		"a number is none, no error":           {`1777888800`, `null`},
		"an object is none, no error":          {`{"a":1}`, `null`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			stamp := v1alpha1.NewTimestamp(time.Now())
			g.Expect(json.Unmarshal([]byte(test.in), &stamp)).To(Succeed())
			g.Expect(json.Marshal(stamp)).To(BeEquivalentTo(test.out))
			g.Expect(stamp.IsZero()).To(Equal(test.out == "null"))
		})
	}
}

func TestZeroTimestampsAreOmitted(t *testing.T) {
	g := NewWithT(t)
	content := v1alpha1.AlertContent{StartTime: &v1alpha1.Timestamp{}, EndTime: nil}
	g.Expect(json.Marshal(content)).To(BeEquivalentTo(`{}`), "a null would be rejected, the object with it")
}

func TestTimestampDeepCopy(t *testing.T) {
	g := NewWithT(t)
	stamp := v1alpha1.NewTimestamp(time.Now())
	g.Expect(stamp.DeepCopy()).To(HaveValue(Equal(stamp)))
	g.Expect((*v1alpha1.Timestamp)(nil).DeepCopy()).To(BeNil())
}

// anyTime generates times from long before the year 0 to long after the year 9999.
func anyTime(t *rapid.T) time.Time {
	zone := time.FixedZone("", 60*rapid.IntRange(-24*60+1, 24*60-1).Draw(t, "offset in minutes"))
	seconds := rapid.OneOf(rapid.Int64Range(-70e9, 260e9), rapid.Int64Range(0, math.MaxUint32)).Draw(t, "seconds")
	return time.Unix(seconds, rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).In(zone)
}

func TestTimestampRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		moment := anyTime(t)
		stamp := v1alpha1.NewTimestamp(moment)
		var read v1alpha1.Timestamp
		g.Expect(json.Unmarshal(must(json.Marshal(stamp)), &read)).To(Succeed())
		g.Expect(read).To(Equal(stamp))
		g.Expect(must(json.Marshal(v1alpha1.Timestamp{Time: moment}))).To(Equal(must(json.Marshal(stamp))),
			"a Timestamp that was not made by NewTimestamp is written alike")
		if year := moment.UTC().Year(); year >= 100 && year <= 9999 {
			g.Expect(stamp.Time).To(Equal(moment.UTC().Truncate(time.Microsecond)))
		}
	})
}

func TestTimestampAdmission(t *testing.T) {
	const refused = "refused"
	namespace := testenv.Namespace(t, apiClient)
	for in, want := range map[string]string{
		"2026-05-04T10:00:00Z":            "2026-05-04T10:00:00Z",
		"2026-05-04T10:00:00.1Z":          "2026-05-04T10:00:00.1Z",
		"2026-05-04T10:00:00.123456Z":     "2026-05-04T10:00:00.123456Z",
		"2026-05-04T10:00:00.123456789Z":  "2026-05-04T10:00:00.123456Z",
		"2026-05-04T10:00:00+02:00":       "2026-05-04T08:00:00Z",
		"2026-05-04T10:00:00-23:59":       "2026-05-05T09:59:00Z",
		"2026-05-04T10:00:00-00:00":       "2026-05-04T10:00:00Z",
		"2024-02-29T10:00:00Z":            "2024-02-29T10:00:00Z",
		"0100-01-01T00:00:00Z":            "0100-01-01T00:00:00Z",
		"9999-12-31T23:59:59Z":            "9999-12-31T23:59:59Z",
		"9999-12-31T23:59:59.999999999Z":  "9999-12-31T23:59:59.999999Z",
		"2026-05-04t10:00:00Z":            refused,
		"2026-05-04T10:00:00z":            refused,
		"2026-05-04 10:00:00Z":            refused,
		"2026-05-04T10:00:00":             refused,
		"2026-05-04":                      refused,
		"2026-05-04T23:59:60Z":            refused,
		"2026-05-04T24:00:00Z":            refused,
		"2026-05-04T10:00:00+24:00":       refused,
		"2026-05-04T10:00:00+99:99":       refused,
		"2026-05-04T10:00:00+0200":        refused,
		"2026-05-04T10:00:00,5Z":          refused,
		"2026-05-04T10:00:00.1234567890Z": refused,
		"2026-05-04T10:00:00Zt":           refused,
		"2025-02-29T10:00:00Z":            refused,
		"2026-13-01T10:00:00Z":            refused,
		"0000-01-01T00:00:00Z":            refused,
		"0001-01-01T00:00:00Z":            refused,
		"12026-05-04T10:00:00Z":           refused,
		"٢٠٢٦-05-04T10:00:00Z":            refused,
		"":                                refused,
	} {
		t.Run(in, func(t *testing.T) {
			g := NewWithT(t)
			created, err := postText(namespace, "AlertEvent",
				`{"report":{"status":"resolved","incidentName":"a"},"receivedTime":"`+in+`"}`)
			if want == refused {
				g.Expect(err).To(MatchError(ContainSubstring("spec.receivedTime in body")))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			event := typed(t, created, &v1alpha1.AlertEvent{})
			g.Expect(event.Spec.ReceivedTime.Time).To(Equal(must(time.Parse(time.RFC3339, want)).UTC()))
		})
	}
}

// Whatever time a sender or a clock gives, NewTimestamp makes one that the API server accepts.
func TestEveryTimestampIsAccepted(t *testing.T) {
	incident := newIncident(t, testenv.Namespace(t, apiClient), "prometheus", "times")
	rapid.Check(t, func(rt *rapid.T) {
		for range 8 {
			starts := v1alpha1.NewTimestamp(anyTime(rt))
			incident.Status = v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, Alert: v1alpha1.AlertContent{
				StartTime: &starts, EndTime: &v1alpha1.Timestamp{Time: anyTime(rt)},
			}}
			for range v1alpha1.MaxTimeline {
				incident.Status.Timeline = append(incident.Status.Timeline, v1alpha1.Transition{
					Type: v1alpha1.TransitionOpened, Time: v1alpha1.NewTimestamp(anyTime(rt).AddDate(3000, 0, 0)),
				})
			}
			if err := apiClient.Status().Update(t.Context(), incident); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// Whatever text the API server takes for a time, Go reads as the same time.
func TestEveryAcceptedTimeIsRead(t *testing.T) {
	namespace := testenv.Namespace(t, apiClient)
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		text := []byte(anyTime(rt).Format(time.RFC3339Nano))
		for range rapid.IntRange(0, 2).Draw(rt, "changes") {
			at := rapid.IntRange(0, len(text)-1).Draw(rt, "at")
			text[at] = rapid.SampledFrom([]byte("0123456789-+:.,TZtz ")).Draw(rt, "byte")
		}
		created, err := postText(namespace, "AlertEvent",
			fmt.Sprintf(`{"report":{"status":"resolved","incidentName":"a"},"receivedTime":%q}`, text))
		if err != nil {
			return
		}
		accepted++
		want, err := time.Parse(time.RFC3339, string(text))
		if err != nil {
			rt.Fatalf("%q is accepted", text)
		}
		event := typed(t, created, &v1alpha1.AlertEvent{})
		if got := event.Spec.ReceivedTime; got != v1alpha1.NewTimestamp(want) {
			rt.Fatalf("%q is read as %v", text, got)
		}
	})
	if accepted == 0 {
		t.Error("nothing was accepted")
	}
}
