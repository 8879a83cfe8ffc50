// Package crd embeds the CustomResourceDefinitions, for programs that validate manifests without a cluster or compare
// what is installed.
package crd

import _ "embed" // of bases

// The YAML of the CustomResourceDefinitions.
var (
	//go:embed bases/tocsin.dev_alertevents.yaml
	AlertEvent []byte

	//go:embed bases/tocsin.dev_heartbeats.yaml
	Heartbeat []byte

	//go:embed bases/tocsin.dev_incidents.yaml
	Incident []byte

	//go:embed bases/tocsin.dev_incidentsummaries.yaml
	IncidentSummary []byte

	//go:embed bases/tocsin.dev_maintenancewindows.yaml
	MaintenanceWindow []byte

	//go:embed bases/tocsin.dev_requestcaptures.yaml
	RequestCapture []byte

	//go:embed bases/tocsin.dev_webhookintegrations.yaml
	WebhookIntegration []byte
)
