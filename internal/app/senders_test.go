package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// TestAResolveOfAnyPresetKeepsWhatWasWrong folds each sample and the sample that resolves it.
func TestAResolveOfAnyPresetKeepsWhatWasWrong(t *testing.T) {
	const folder = "../../webhookserver/mapping/presets/"
	resolves, err := filepath.Glob(folder + "*resolved.json")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(len(resolves)).To(BeNumerically(">", 22))
	for _, resolve := range resolves {
		preset, name, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(resolve, "resolved.json"), folder), ".")
		firing := folder + preset + "." + strings.TrimSuffix(name, "-") + ".json"
		if name == "" {
			firing = folder + preset + ".firing.json"
		}
		if _, err := os.Stat(firing); err != nil {
			continue // the resolve of a sample that is about something else
		}
		t.Run(preset+"."+name, func(t *testing.T) {
			g := NewWithT(t)
			before, after := foldSamples(t, preset, firing), foldSamples(t, preset, firing, resolve)
			g.Expect(after).To(HaveLen(len(before)))
			for i := range before {
				if after[i].Status.State != v1alpha1.IncidentResolved {
					continue // Falco and the Watchdog never resolve
				}
				g.Expect(after[i].Status.Alert.Title).To(Equal(before[i].Status.Alert.Title))
				g.Expect(after[i].Status.Alert.Description).To(Equal(before[i].Status.Alert.Description))
				g.Expect(after[i].Status.Alert.Severity).To(Equal(before[i].Status.Alert.Severity))
			}
		})
	}
}

// foldSamples folds the alerts of several payloads.
func foldSamples(t *testing.T, preset string, files ...string) []v1alpha1.Incident {
	t.Helper()
	g := NewWithT(t)
	received := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	program, err := mapping.Compile(preset, nil)
	g.Expect(err).NotTo(HaveOccurred())
	integration := &v1alpha1.WebhookIntegration{}
	integration.Name, integration.Spec.Preset = "mon", preset
	event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{IntegrationName: "mon", ReceivedTime: v1alpha1.NewTimestamp(received)}}
	for _, file := range files {
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		body, _, err := payload.ParseAny(text)
		g.Expect(err).NotTo(HaveOccurred())
		result, err := program.Alerts(body, nil, received)
		g.Expect(err).NotTo(HaveOccurred())
		for _, alert := range result.Alerts {
			if !alert.Dropped {
				event.Alerts = append(event.Alerts, alert.Alert)
			}
		}
	}
	return fold.Preview(event, integration, mapping.PresetWindows{}, received)
}
