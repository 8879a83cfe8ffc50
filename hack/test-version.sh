#!/usr/bin/env bash
# hack/test-version.sh VERSION, such as 1.31.0: builds the control plane of that Kubernetes version, see
# hack/control-plane.sh, and runs the tests that talk to an API server, and the short fault suite, with it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$1
hack/control-plane.sh "$version"
export KUBEBUILDER_ASSETS=$PWD/bin/control-plane-$version
export TOCSIN_TEST_SERVER=real # rather than the one in memory that "make test" has
export KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=2m # for a busy machine
start=$SECONDS
go test -count=1 ./api/... ./config/... ./controllers/... ./webhookserver/...
make --no-print-directory test-faults-short
etcd=$("$KUBEBUILDER_ASSETS/etcd" --version | sed -n 's/etcd Version: //p')
echo "test-versions: Kubernetes $version with etcd $etcd: passed in $((SECONDS - start)) s, commit $(git rev-parse --short=12 HEAD)"
