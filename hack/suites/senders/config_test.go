//go:build slow

package senders

import "net/url"

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

// hostOf is the host and the port of an address.
func hostOf(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return parsed.Host
}
