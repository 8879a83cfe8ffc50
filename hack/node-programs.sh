#!/usr/bin/env bash
# Makes sure that bin/node has kubelet, kube-proxy, kube-scheduler and kube-controller-manager, built from their
# Go modules: about five minutes on two cores once the control plane is built, and nothing after that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/modules/node"

readonly folder=../../../bin/node
readonly programs=(kubelet kube-proxy kube-scheduler kube-controller-manager)

key=$(git hash-object go.mod)
if [ "$(cat "$folder/.key" 2>/dev/null)" = "$key" ]; then
  exit 0
fi
start=$SECONDS
version=$(GOWORK=off go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v*.}
echo "node: building ${programs[*]} $version, once; this takes about five minutes on two cores" >&2
variables=k8s.io/component-base/version
mkdir -p "$folder"
GOWORK=off go build -o "$folder/" -ldflags "-s -w \
  -X $variables.gitVersion=$version -X $variables.gitMajor=1 -X $variables.gitMinor=${minor%%.*} \
  -X $variables.gitTreeState=clean" "${programs[@]/#/k8s.io/kubernetes/cmd/}"
echo "$key" >"$folder/.key"
echo "node: built in $((SECONDS - start)) s" >&2
