package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// The configurations of Prometheus and Alertmanager. Their intervals are short, so that a run takes a minute;
// the ones that people use differ in nothing else.
const (
	prometheusConfig = `
global:
  scrape_interval: 500ms
  evaluation_interval: 500ms
rule_files: [rules.yml]
scrape_configs:
- job_name: disks
  metrics_path: %[1]s
  static_configs: [{targets: ['%[2]s']}]
- job_name: exporter
  metrics_path: %[3]s
  static_configs: [{targets: ['%[2]s']}]
alerting:
  alertmanagers:
  - static_configs: [{targets: ['%[4]s']}]
  - path_prefix: /api/v1/events/webhook
    authorization: {type: Bearer, credentials: %[6]s}
    static_configs: [{targets: ['%[5]s']}]
`

	rules = `
groups:
- name: test
  rules:
  - alert: DiskFull
    expr: disk_used_ratio > 0.9
    labels: {severity: critical}
    annotations:
      summary: Disk {{ $labels.device }} is {{ $value | humanizePercentage }} full
      description: Disk {{ $labels.device }} of {{ $labels.instance }} has hardly any space left.
  - alert: ExporterDown
    expr: up{job="exporter"} == 0
    for: 1s
    labels: {severity: ticket}
    annotations:
      summary: The exporter is down
  - alert: Watchdog
    expr: vector(1)
    labels: {severity: none}
`

	alertmanagerConfig = `
route:
  receiver: tocsin
  group_by: [alertname]
  group_wait: 200ms
  group_interval: 1s
  repeat_interval: 2s
receivers:
- name: tocsin
  webhook_configs:
  - url: %[1]s
    send_resolved: true
  pagerduty_configs:
  - url: %[2]s/v2/enqueue
    routing_key: unused
  opsgenie_configs:
  - api_url: %[3]s
    api_key: %[4]s
    update_alerts: true
`

	// resendDelay is how often Prometheus sends a firing alert again.
	resendDelay = "2s"
)

// addresses are where the parts of the rig are found, each a host and a port.
type addresses struct {
	target, prometheus, alertmanager string
	link                             string // that Prometheus takes for Alertmanager
	through                          string // the address with its token that Alertmanager posts to
	direct, directToken              string // the relay that Prometheus posts to
	pagerDuty                        string // the address with its token for the receiver for PagerDuty
	opsgenie, opsgenieToken          string // the same for Opsgenie
}

// writeConfigs writes the configurations into the folder.
func writeConfigs(folder string, a addresses) error {
	for name, text := range map[string]string{
		"prometheus.yml": fmt.Sprintf(prometheusConfig, disksPath, a.target, exporterPath, a.link, a.direct, a.directToken),
		"rules.yml":      rules,
		"alertmanager.yml": fmt.Sprintf(alertmanagerConfig,
			a.through, a.pagerDuty, a.opsgenie, a.opsgenieToken),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// hostOf is the host and the port of an address.
func hostOf(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return parsed.Host
}
