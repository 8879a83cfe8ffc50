#!/usr/bin/env bash
# Takes the terminal pictures of the documents: runs the kubectl plugin on a control plane of its own and draws what
# it really prints. It takes five minutes, so that the incidents are of some age.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

port=${PORT:-18480}
work=$(mktemp -d)
go build -C hack/gen -o "$work/termpicture" ./termpicture
go build -o "$work/devcluster" ./hack/devcluster
"$work/devcluster" --port="$port" --folder="$work/run" >"$work/log" &
cluster=$!
trap 'kill "$cluster"; wait "$cluster" || true; rm -rf "$work"' EXIT
until grep -q 'is ready' "$work/log"; do
  kill -0 "$cluster" || { cat "$work/log" >&2; exit 1; }
  sleep 0.2
done

export KUBECONFIG="$work/run/$port/kubeconfig" TOCSIN_ENDPOINT="http://127.0.0.1:$port" TZ=UTC
export PATH="$PWD/bin:${KUBEBUILDER_ASSETS:-$PWD/bin/control-plane}:$PATH"
url=$(kubectl tocsin integration create monitoring --quiet)
kubectl wait --for=condition=Ready webhookintegration/monitoring >/dev/null
send() { kubectl tocsin send --url "$url" "$@" >/dev/null; }
until send --dry-run 2>/dev/null; do sleep 0.2; done
send --dedup-key backup --title "Backup of db-2 failed" --severity error --hostname db-2
sleep 50
send --dedup-key backup --status resolved
send --dedup-key update --title "Node pool wants an update" --severity info
sleep 70
send --dedup-key cert --title "The certificate of shop.example.com ends in 12 days" --severity warning
sleep 45
send --dedup-key disk-db-1 --title "Disk 91 % full" --severity warning --hostname db-1
sleep 65
send --dedup-key disk-db-1 --title "Disk 97 % full" --severity critical --hostname db-1 --label team=storage,mount=/var \
  --description "/var is at 97 %. It grows by 1 % an hour." --link https://grafana.example.com/d/disk
send --dedup-key queue --title "Queue stalls: 18,204 messages wait" --severity error --label team=web
until [ "$(kubectl tocsin get --all 2>/dev/null | wc -l)" = 6 ]; do sleep 0.2; done
sleep 20
kubectl tocsin ack monitoring-qf4t --message "looking into it" --as maria --as-group system:masters >/dev/null
sleep 30
kubectl tocsin ack monitoring-qf4t --message "ordered a larger one" --as alex --as-group system:masters >/dev/null

sleep 15
# shot NAME COMMAND...: a picture of a command and what it prints.
shot() {
  local name=$1
  shift
  { printf '\e[2m$\e[0m %s\n' "$*"; "$@" --color always; } | "$work/termpicture" >"docs/images/$name.svg"
}
mkdir -p docs/images
shot get kubectl tocsin get --all
shot show kubectl tocsin show monitoring-qf4t
