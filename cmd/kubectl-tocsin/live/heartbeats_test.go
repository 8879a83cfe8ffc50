package live

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestHeartbeats(t *testing.T) {
	g := NewWithT(t)
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) *v1alpha1.Timestamp {
		return new(v1alpha1.NewTimestamp(noon.Add(time.Duration(minutes) * time.Minute)))
	}
	integration := func(namespace, name string, beats map[string]v1alpha1.HeartbeatStatus, required ...string) *v1alpha1.WebhookIntegration {
		made := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		for name, status := range beats {
			beat := v1alpha1.Heartbeat{Name: name, Interval: &metav1.Duration{Duration: 10 * time.Minute}}
			for _, one := range required {
				beat.Required = beat.Required || one == name
			}
			made.Spec.Heartbeats = append(made.Spec.Heartbeats, beat)
			if status.Name = name; status.ObservedTime != nil {
				made.Status.Heartbeats = append(made.Status.Heartbeats, status)
			}
		}
		return made
	}
	server := newServer(
		integration("shop", "jobs", map[string]v1alpha1.HeartbeatStatus{
			"heard":  {ObservedTime: at(0), LastSignalTime: at(30), FailedTime: at(20)},
			"failed": {ObservedTime: at(0), LastSignalTime: at(30), FailedTime: at(30)},
			"missed": {ObservedTime: at(0), LastSignalTime: at(1), FailedTime: at(1), MissedTime: at(13)},
			"never":  {ObservedTime: at(0), MissedTime: at(12)},
			"fresh":  {ObservedTime: at(0)},
			"new":    {}, // nobody has seen it yet
			"old":    {ObservedTime: at(0), LastSignalTime: at(2)},
		}, "never"),
		integration("bank", "jobs", map[string]v1alpha1.HeartbeatStatus{"first": {ObservedTime: at(5)}}, "first"),
		&v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "none"}},
	)
	all, err := Heartbeats(t.Context(), server, "")
	g.Expect(err).NotTo(HaveOccurred())
	line := func(h Heartbeat) string {
		text := h.Namespace + " " + h.Name + " " + string(h.State)
		for _, time := range []*v1alpha1.Timestamp{h.Last, h.Due} {
			if time == nil {
				text += " -"
			} else {
				text += time.UTC().Format(" 15:04")
			}
		}
		return text
	}
	var lines []string
	for _, h := range all {
		lines = append(lines, line(h))
	}
	g.Expect(lines).To(Equal([]string{
		"shop missed Missed 12:01 12:11", "shop never Missed - 12:10", "shop failed Failed 12:30 12:40", "bank first Waiting - 12:15",
		"shop fresh Waiting - -", "shop new Waiting - -", "shop heard Heard 12:30 12:40", "shop old Heard 12:02 12:12",
	}))
	g.Expect(TallyHeartbeats(all)).To(Equal("2 missed, 1 failed, 3 waiting, 2 heard"))
	g.Expect(TallyHeartbeats(nil)).To(BeEmpty())

	all, err = Heartbeats(t.Context(), server, "bank")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(1))
	server.refuses.Store(true)
	_, err = Heartbeats(t.Context(), server, "")
	g.Expect(err).To(MatchError(ContainSubstring("listing integrations: ")))
}
