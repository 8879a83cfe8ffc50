package mapping_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// eventNames are the paths at which the payloads of a tool have the name of the event that users select, by its preset.
var eventNames = map[string][]string{
	"buildkite":          {"event"},
	"incident-io":        {"event_type"},
	"pagerduty-webhooks": {"event", "event_type"},
}

// selections are the words by which pages have users select what resolves, where the tool does not send it by itself.
var selections = map[string]string{
	"alertmanager": "send_resolved: true", "azure-devops": "the build status *Any*", "datadog": "also sends recoveries",
	"dynatrace": "*Call webhook if problem is closed* on", "flux": "eventSeverity: info", "gatus": "send-on-resolved: true",
	"gitea": "*recover*", "google-cloud-monitoring": "*Notify on incident closure*", "grafana": "*Disable resolved message* off",
	"grafana-legacy": "*Disable resolve message* off", "grafana-oncall": "*Status change*", "harbor": "*Replication status changed*",
	"healthchecks": "*down* and *up*", "jenkins": "*Job Finalized*", "librenms": "*Recovery alerts*", "opsgenie": "*closed*",
	"pingdom": "*Alert when back up*", "proxmox": "Match *info* as well", "rollbar": "*Item resolved*", "sentry": "the webhook *issue*",
	"site24x7": "and *Up*", "sns-cloudwatch": "for *OK*", "sonarr": "*On health restored*", "uptimerobot": "*Up*",
	"zabbix": "recovery operations",
}

// TestThePagesSelectWhatFiresAndResolves reads the steps of the pages, up to the alerts.
func TestThePagesSelectWhatFiresAndResolves(t *testing.T) {
	steps := func(t *testing.T, name string) string {
		t.Helper()
		text, _, found := strings.Cut(readPage(t, name), "## Alerts")
		NewWithT(t).Expect(found).To(BeTrue())
		return regexp.MustCompile(`\s+`).ReplaceAllString(text, " ")
	}
	for name, words := range selections {
		NewWithT(t).Expect(steps(t, name)).To(ContainSubstring(words), name)
	}
	eachPreset(t, func(t *testing.T, preset mapping.Preset, samples map[string]sample) {
		t.Helper()
		path, hasNames := eventNames[preset.Name]
		for name, s := range samples {
			selected := name == "firing" || strings.HasSuffix(name, "resolved") || slices.Contains(relatedCases(name, samples), name+"-resolved")
			if !hasNames || !selected {
				continue
			}
			value := s.body
			for _, key := range path {
				value = value.(map[string]any)[key]
			}
			NewWithT(t).Expect(steps(t, preset.Name)).To(ContainSubstring(value.(string)), name)
		}
	})
}
