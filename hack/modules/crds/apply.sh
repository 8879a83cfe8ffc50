#!/usr/bin/env bash
# Applies the CustomResourceDefinitions of others that the components need to the cluster of KUBECONFIG: those of go.mod
# and envoygateway/go.mod, in their own schemas, so that strict validation means something. It needs kubectl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOWORK=off

# module PATH [FOLDER]: where the module lies that the go.mod in the folder pins; the first time it is downloaded.
module() {
  go -C "${2:-.}" mod download "$1"
  go -C "${2:-.}" list -m -f '{{.Dir}}' "$1"
}

cert_manager=$(module github.com/cert-manager/cert-manager)/deploy/crds
gateway_api=$(module sigs.k8s.io/gateway-api)/config/crd/standard
envoy_gateway=$(module github.com/envoyproxy/gateway envoygateway)/charts/gateway-helm/charts/crds/crds/generated
monitoring=$(module github.com/prometheus-operator/prometheus-operator)/example/prometheus-operator-crd

kubectl apply --server-side \
  -f "$cert_manager/cert-manager.io_certificates.yaml" \
  -f "$cert_manager/cert-manager.io_issuers.yaml" \
  -f "$gateway_api/gateway.networking.k8s.io_gateways.yaml" \
  -f "$gateway_api/gateway.networking.k8s.io_httproutes.yaml" \
  -f "$monitoring/monitoring.coreos.com_servicemonitors.yaml" \
  -f "$monitoring/monitoring.coreos.com_prometheusrules.yaml" \
  -f "$envoy_gateway/gateway.envoyproxy.io_envoyproxies.yaml"
# "kubectl wait" does not wait for conditions of which there are none yet: it fails.
tries=0
until kubectl wait --for=condition=Established crd --all --timeout=30s; do
  [ $((tries += 1)) -lt 10 ] || exit 1
  sleep 0.5
done
