#!/usr/bin/env bash
# A newcomer's path, from an empty cluster to an incident that was handled, and back to an empty cluster. Its test
# runs it as it is, but for two lines that need nodes.
set -euo pipefail

### Install Tocsin.
kubectl apply --server-side -k config/default
kubectl -n tocsin-system wait --for=condition=Available deployment/tocsin

### Let a sender in.
kubectl create namespace shop
kubectl config set-context --current --namespace shop
kubectl -n tocsin-system port-forward service/tocsin-webhook 8080 >/dev/null &
export TOCSIN_ENDPOINT=http://127.0.0.1:8080
url=$(kubectl tocsin integration create monitoring --token-name first --quiet)
kubectl wait --for=condition=Ready webhookintegration/monitoring --timeout 60s

### Watch, while an alert comes.
kubectl tocsin watch >watched &
watcher=$!
kubectl tocsin send --url "$url" --title "Disk 97 % full" --severity critical --dedup-key disk-db-1
until grep -q "Open .*Disk 97 % full" watched; do sleep 0.2; done
kubectl tocsin show monitoring-
if kubectl tocsin check; then exit 1; fi # it says that one is open

### Handle it.
kubectl tocsin ack monitoring- --message "looking into it"
kubectl tocsin resolve monitoring- --message "replaced the disk"
until grep -q "Resolved .*Disk 97 % full" watched; do sleep 0.2; done
kill "$watcher"
wait "$watcher" || true
kubectl tocsin check

### Rotate the token: both work, and then the new one only.
new=$(kubectl tocsin token create monitoring --name second --quiet)
until kubectl tocsin send --url "$new" --dry-run; do sleep 0.2; done
kubectl tocsin send --url "$url" --dry-run
kubectl tocsin token revoke monitoring first
while kubectl tocsin send --url "$url" --dry-run; do sleep 0.2; done # until it is refused
kubectl tocsin send --url "$new" --status resolved --dedup-key disk-db-1

### Uninstall.
kubectl delete namespace shop
kubectl delete --ignore-not-found -k config/default
rm watched
