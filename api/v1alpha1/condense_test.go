package v1alpha1

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// anyAlertEvent generates AlertEvents of all kinds that Condense treats differently.
func anyAlertEvent() *rapid.Generator[*AlertEvent] {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	times := rapid.SampledFrom([]time.Duration{0, time.Second, -time.Minute, -time.Hour})
	texts := rapid.SampledFrom([]string{"", "!", "!reason", "no gzip", strings.Repeat("A", 1000)})
	pairs := rapid.MapOf(rapid.SampledFrom([]string{
		RestoreLabel, ExcludeFromBackupLabel, TraceparentAnnotation, RetryAnnotation, SettledAnnotation,
		"tocsin.dev/restored", "tocsin.dev/condensed-bytes", "example.com/a",
	}), rapid.SampledFrom([]string{"", "true", "7", strings.Repeat("v", 600)}))
	managed := rapid.Custom(func(t *rapid.T) metav1.ManagedFieldsEntry {
		entry := metav1.ManagedFieldsEntry{
			Manager:  rapid.SampledFrom([]string{"", FieldManager, "velero-server"}).Draw(t, "manager"),
			FieldsV1: metav1.NewFieldsV1(`{}`),
		}
		if rapid.Bool().Draw(t, "has a time") {
			entry.Time = &metav1.Time{Time: created.Add(times.Draw(t, "managed at"))}
		}
		return entry
	})
	return rapid.Custom(func(t *rapid.T) *AlertEvent {
		event := &AlertEvent{ObjectMeta: metav1.ObjectMeta{
			Name:   rapid.SampledFrom([]string{"01a1ffa9-c360-72bb-b2de-ae677b9a4f82", "key-abc", "by-hand"}).Draw(t, "name"),
			Labels: pairs.Draw(t, "labels"), Annotations: pairs.Draw(t, "annotations"), CreationTimestamp: metav1.NewTime(created),
			ManagedFields: rapid.SliceOfN(managed, 0, 3).Draw(t, "managed fields"),
		}}
		if rapid.Bool().Draw(t, "terminating") {
			event.DeletionTimestamp, event.Finalizers = &event.CreationTimestamp, []string{"example.com/keep"}
		}
		if rapid.Bool().Draw(t, "has a time") {
			event.Spec.ReceivedTime = NewTimestamp(created.Add(times.Draw(t, "received")))
		}
		event.Spec.PackedAlerts = texts.Draw(t, "packed alerts")
		for range rapid.IntRange(0, 2).Draw(t, "alerts") {
			event.Spec.Alerts = append(event.Spec.Alerts, Alert{
				ID: "1", DedupKey: "disk", Comment: "c", AlertContent: AlertContent{Title: texts.Draw(t, "title")},
			})
		}
		return event
	})
}

func TestASecondCondenseChangesNothing(t *testing.T) {
	restored, dropped := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		event := anyAlertEvent().Draw(t, "event")
		before := event.IsRestored()
		event.Condense()
		once := event.DeepCopy()
		event.Condense()
		g.Expect(event).To(Equal(once))
		g.Expect(event.IsRestored()).To(Equal(before))
		if before {
			restored++
		}
		if event.Spec.CondensedBytes > 0 {
			dropped++
		}
	})
	if restored == 0 || dropped == 0 {
		t.Errorf("%d of the AlertEvents were restored, and something was removed from %d", restored, dropped)
	}
}

func TestACondensedAlertEventIsSmall(t *testing.T) {
	for sentence, test := range map[string]struct {
		restored bool
		want     []metav1.ManagedFieldsEntry
	}{
		"no managed fields are kept":                                {},
		"of one that was restored, the name of one manager is kept": {true, []metav1.ManagedFieldsEntry{{Manager: "velero-server"}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			created := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			managed := metav1.ManagedFieldsEntry{
				Manager: "velero-server", Operation: metav1.ManagedFieldsOperationUpdate, Time: &created, FieldsV1: metav1.NewFieldsV1(`{}`),
			}
			event := &AlertEvent{ObjectMeta: metav1.ObjectMeta{
				Name: "01a1ffa9-c360-72bb-b2de-ae677b9a4f82", CreationTimestamp: created, ManagedFields: []metav1.ManagedFieldsEntry{managed, managed},
				Annotations: map[string]string{"a": strings.Repeat("v", 99)},
			}}
			event.Spec.ReceivedTime = NewTimestamp(created.Time)
			if test.restored {
				event.Spec.ReceivedTime = NewTimestamp(created.Add(-time.Hour))
			}
			event.Spec.Alerts = []Alert{{ID: "1"}}
			event.Condense()
			g.Expect(event.ManagedFields).To(Equal(test.want))
			g.Expect(event.Annotations).To(BeEmpty())
			g.Expect(event.Spec.CondensedBytes).To(Equal(int64(100)))
			g.Expect(event.IsCondensed()).To(BeFalse(), "its alerts are whole")
		})
	}
}
