package queue

import (
	"maps"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestIsRestored(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const made = "01a1ffa9-c360-72bb-b2de-ae677b9a4f82"
	by := func(manager string, at time.Time) []metav1.ManagedFieldsEntry {
		time := metav1.NewTime(at)
		return []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &time}}
	}
	for sentence, test := range map[string]struct {
		name     string
		received time.Duration     // before the creation
		labels   map[string]string // in addition to the operator's
		managed  []metav1.ManagedFieldsEntry
		text     int  // bytes of the text that is not compressed
		byHand   bool // without the operator's label
		want     bool
	}{
		"what the operator has just written":                 {name: made, managed: by(v1alpha1.FieldManager, created)},
		"so with a clock that is two hours behind":           {name: made, received: 2 * time.Hour, managed: by(v1alpha1.FieldManager, created)},
		"so with a clock that is two hours ahead":            {name: made, received: -2 * time.Hour, managed: by(v1alpha1.FieldManager, created)},
		"a copy that another program made":                   {name: made, received: time.Hour, managed: by("velero-server", created), want: true},
		"a copy with the managed fields of the first":        {name: made, received: time.Hour, managed: by(v1alpha1.FieldManager, created.Add(-time.Hour)), want: true},
		"a copy with an idempotency key":                     {name: "key-abc", received: time.Hour, managed: by("kubectl", created), want: true},
		"a copy made within a minute may be live":            {name: made, received: time.Minute, managed: by("kubectl", created)},
		"an alert by hand about the past":                    {name: "by-hand", received: time.Hour, managed: by("kubectl", created)},
		"an alert by hand without a time":                    {name: made, received: time.Duration(1<<63 - 1), managed: by("kubectl", created)},
		"nothing is known without managed fields":            {name: made, received: time.Hour},
		"a manifest by hand whose name happens to be a UUID": {name: made, received: time.Hour, managed: by("kubectl", created), byHand: true},
		"a long text by hand, with all else of the first":    {name: made, received: time.Hour, managed: by("kubectl", created), text: MinCompressed},
		"a copy of a short text, which is never compressed":  {name: made, received: time.Hour, managed: by("kubectl", created), text: 100, want: true},
		"what Velero has restored, by whomever it was made":  {name: "by-hand", labels: map[string]string{v1alpha1.RestoreLabel: "monday"}, want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{
				Name: test.name, Labels: test.labels, CreationTimestamp: metav1.NewTime(created), ManagedFields: test.managed,
			}}
			if !test.byHand {
				event.Labels = map[string]string{v1alpha1.ExcludeFromBackupLabel: "true"}
				maps.Copy(event.Labels, test.labels)
			}
			event.Spec.Summary, event.Spec.Alerts = "firing: disk", v1alpha1.AlertsText(strings.Repeat("x", test.text))
			if test.received < 1<<62 {
				event.Spec.ReceivedTime = v1alpha1.NewTimestamp(created.Add(-test.received))
			}
			NewWithT(t).Expect(IsRestored(event)).To(Equal(test.want))
		})
	}
}
