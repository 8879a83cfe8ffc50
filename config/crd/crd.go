// Package crd embeds CustomResourceDefinitions for programs that validate manifests without a cluster.
package crd

import _ "embed" // of bases

// WebhookIntegration is the YAML of the CustomResourceDefinition of WebhookIntegrations.
//
//go:embed bases/tocsin.dev_webhookintegrations.yaml
var WebhookIntegration []byte
