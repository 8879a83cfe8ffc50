#!/usr/bin/env bash
# A Kubernetes node on this machine, without a container engine: a control plane, kubelet, kube-proxy and containerd in
# a network namespace of their own. For "make e2e-local" and for whoever wants to look at pods.
#
#   node.sh check               says what is missing to run a node here, or that there is one already, and fails
#   node.sh up                  starts it and prints where its kubeconfig is
#   node.sh load NAME:TAG       takes an image from buildah's storage
#   node.sh restart-apiserver   kills the API server and starts it again five seconds later
#   node.sh reboot              kills the containers, containerd, kubelet and kube-proxy, and starts them again
#   node.sh down                ends everything and takes it away
#   node.sh packages            prints the Debian packages that it needs
#
# Linux and root, the Debian packages that "node.sh up" names, and what "make control-plane" and hack/node-programs.sh
# build. There is one such node on a machine. It has no DNS, and pods cannot reach beyond it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
readonly assets=${KUBEBUILDER_ASSETS:-$root/bin/control-plane} programs=$root/bin/node
readonly state=/var/lib/tocsin-node network=tocsin-node
readonly host_address=10.117.0.1 node_address=10.117.0.2 pod_range=10.118.0.0/16 service_range=10.119.0.0/16
readonly server=https://$node_address:6443
readonly containerd_socket=$state/containerd.sock
readonly cgroup=tocsin-node
readonly packages="buildah busybox conntrack containerd containernetworking-plugins iproute2 iptables openssl runc util-linux"
readonly sandbox_image=localhost/tocsin-node-busybox:1

say() { echo "node: $*" >&2; }

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      say "$what did not come up; the logs are in $state/log"
      return 1
    fi
    sleep 0.2
  done
}

# start NAME COMMAND...: starts a program in the node's network namespace.
start() {
  local name=$1
  shift
  setsid nsenter --net="/run/netns/$network" "$@" >>"$state/log/$name.log" 2>&1 </dev/null &
  echo $! >"$state/pid/$name"
}

# pid_of NAME: the number of a program's process. After an interrupted run, another process may have it.
pid_of() {
  local pid
  pid=$(cat "$state/pid/$1" 2>/dev/null) && grep -qs "$state" "/proc/$pid/cmdline" && echo "$pid"
}

# stop NAME: kills a program and waits until it is gone.
stop() {
  local pid
  pid=$(pid_of "$1") || return 0
  kill -KILL "$pid" 2>/dev/null || true
  for _ in $(seq 50); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  rm -f "$state/pid/$1"
}

ctr() { command ctr --address "$containerd_socket" --namespace k8s.io "$@"; }

# The node's end of a pair of cables is its only way out; the pods are behind it.
make_network() {
  ip netns add "$network"
  ip link add "$network" type veth peer name eth0 netns "$network"
  ip address add "$host_address/24" dev "$network"
  ip link set "$network" up
  ip -n "$network" address add "$node_address/24" dev eth0
  ip -n "$network" link set eth0 up
  ip -n "$network" link set lo up
  ip -n "$network" route add default via "$host_address"
  nsenter --net="/run/netns/$network" sysctl -qw net.ipv4.ip_forward=1
  ip route replace "$pod_range" via "$node_address"
}

# make_identity USER GROUP: a token for the API server and a kubeconfig with it.
make_identity() {
  local token
  token=$(openssl rand -hex 16)
  echo "$token,$1,$1,$2" >>"$state/pki/tokens.csv"
  cat >"$state/$1.kubeconfig" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "$server", certificate-authority: "$state/pki/apiserver.crt"}}]
users: [{name: "$1", user: {token: $token}}]
contexts: [{name: node, context: {cluster: node, user: "$1"}}]
current-context: node
EOF
}

write_configuration() {
  mkdir -p "$state"/{pki,log,pid,cni,manifests}
  chmod 700 "$state"
  openssl genrsa -out "$state/pki/sa.key" 2048 2>/dev/null
  make_identity admin system:masters
  make_identity system:node:node-1 system:nodes
  make_identity system:kube-controller-manager ""
  make_identity system:kube-scheduler ""
  make_identity system:kube-proxy ""
  cat >"$state/cni/10-pods.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "$state/addresses",
    "ranges": [[{"subnet": "$pod_range"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
EOF
  cat >"$state/containerd.toml" <<EOF
version = 2
root = "$state/containerd"
state = "/run/tocsin-node"
[grpc]
address = "$containerd_socket"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "$sandbox_image"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$state/cni"
EOF
  cat >"$state/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $node_address
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://$containerd_socket
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {nodefs.available: 1%, imagefs.available: 1%, memory.available: 50Mi}
imageGCHighThresholdPercent: 100
resolvConf: ""
nodeStatusUpdateFrequency: 5s
EOF
  cat >"$state/kube-proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
bindAddress: $node_address
clusterCIDR: $pod_range
clientConnection: {kubeconfig: "$state/system:kube-proxy.kubeconfig"}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
hostnameOverride: node-1
EOF
}

# It need not outlive the loss of power, and the disk is not what is tested.
start_etcd() {
  start etcd "$assets/etcd" --data-dir "$state/etcd" --log-level warn --unsafe-no-fsync
}

start_apiserver() {
  start apiserver "$assets/kube-apiserver" --etcd-servers http://127.0.0.1:2379 \
    --advertise-address "$node_address" --cert-dir "$state/pki" --service-cluster-ip-range "$service_range" \
    --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$state/pki/sa.key" --service-account-signing-key-file "$state/pki/sa.key" \
    --token-auth-file "$state/pki/tokens.csv" --authorization-mode Node,RBAC \
    --enable-admission-plugins NodeRestriction --allow-privileged --kubelet-preferred-address-types InternalIP
  wait_for 90 "the API server" kubectl get --raw /readyz
}

start_controllers() {
  start controller-manager "$programs/kube-controller-manager" --leader-elect=false \
    --kubeconfig "$state/system:kube-controller-manager.kubeconfig" --use-service-account-credentials \
    --service-account-private-key-file "$state/pki/sa.key" --root-ca-file "$state/pki/apiserver.crt"
  start scheduler "$programs/kube-scheduler" --leader-elect=false --kubeconfig "$state/system:kube-scheduler.kubeconfig"
}

start_containerd() {
  start containerd containerd --config "$state/containerd.toml"
  wait_for 30 containerd ctr version
}

# kubelet_works starts the kubelet again if it has ended, as systemd would: it ends if containerd answers, but is not ready.
kubelet_works() {
  pid_of kubelet ||
    start kubelet "$programs/kubelet" --config "$state/kubelet.yaml" --kubeconfig "$state/system:node:node-1.kubeconfig" \
      --hostname-override node-1 --node-ip "$node_address" --root-dir "$state/kubelet" --cert-dir "$state/kubelet-pki"
  nsenter --net="/run/netns/$network" busybox wget -q -O /dev/null http://127.0.0.1:10248/healthz
}

start_kubelet() {
  wait_for 60 "the kubelet" kubelet_works
  start kube-proxy "$programs/kube-proxy" --config "$state/kube-proxy.yaml"
}

kubectl() { "$assets/kubectl" --kubeconfig "$state/admin.kubeconfig" "$@"; }

# The image of the pods' sandboxes: busybox, which sleeps. It has a shell and wget for whoever needs them. It is the
# dynamic one with its libraries, since the static one cannot look up names.
load_sandbox() {
  local container busybox file
  busybox=$(command -v busybox)
  container=$(buildah from scratch)
  for file in "$busybox" $(ldd "$busybox" | grep -o '/[^ ]*'); do
    buildah copy --quiet "$container" "$file" "$file" >/dev/null
  done
  for file in busybox sh sleep timeout wget; do
    buildah copy --quiet "$container" "$busybox" "/bin/$file" >/dev/null
  done
  buildah config --entrypoint '["/bin/busybox", "sleep", "infinity"]' "$container"
  buildah commit --quiet "$container" "$sandbox_image" >/dev/null
  buildah rm "$container" >/dev/null
  load "$sandbox_image"
}

load() {
  local archive=$state/image.tar
  buildah push --quiet "$1" "docker-archive:$archive:$1"
  ctr images import "$archive" >/dev/null
  rm -f "$archive"
}

# check says loudly what is missing to run containers here, or that there is a node already.
check() {
  local missing=() program
  [ "$(uname -s)" = Linux ] || missing+=("Linux")
  [ "$(id -u)" = 0 ] || missing+=("root")
  for program in conntrack containerd ctr runc buildah ip iptables nsenter openssl busybox /usr/lib/cni/ptp; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  for program in "$assets/"{etcd,kube-apiserver,kubectl} "$programs/"{kubelet,kube-proxy,kube-scheduler,kube-controller-manager}; do
    [ -x "$program" ] || missing+=("$program")
  done
  unshare --net --mount --pid --fork true 2>/dev/null || missing+=("the right to make namespaces")
  [ -w /sys/fs/cgroup ] || missing+=("cgroups that can be written")
  if [ ${#missing[@]} -gt 0 ]; then
    say "THIS MACHINE CANNOT RUN A NODE. It lacks: ${missing[*]}"
    say "On Debian: apt-get install $packages"
    say 'The programs of Kubernetes come from "make node-programs".'
    return 1
  fi
  if running; then
    say "a node runs on this machine already; \"node.sh down\" ends it"
    return 1
  fi
}

# running tells whether a program of the node lives. What an interrupted run left on the disk is no node.
running() {
  local name
  for name in etcd apiserver containerd kubelet; do
    if pid_of "$name" >/dev/null; then return; fi
  done
  return 1
}

up() {
  check
  down # what an interrupted run left
  write_configuration
  make_network
  make_cgroups
  start_etcd
  start_apiserver
  start_controllers
  start_containerd
  load_sandbox
  start_kubelet
  wait_for 60 "the node" kubectl wait --for=condition=Ready node/node-1 --timeout=1s
  echo "$state/admin.kubeconfig"
}

# The kubelet wants its root to exist, in every hierarchy of version 1. Beside what else runs on the machine, all pods together would
# get the time of one process: they get that of sixteen.
make_cgroups() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir -p "/sys/fs/cgroup/$cgroup"
    [ ! -e "/sys/fs/cgroup/$cgroup/cpu.weight" ] || echo 1600 >"/sys/fs/cgroup/$cgroup/cpu.weight"
    return
  fi
  local hierarchy
  for hierarchy in /sys/fs/cgroup/*/; do
    mkdir -p "$hierarchy$cgroup" 2>/dev/null || true
  done
  # Without these, no task can enter a cpuset below.
  for file in cpuset.cpus cpuset.mems; do
    cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$cgroup/$file"
  done
  echo 16384 >"/sys/fs/cgroup/cpu/$cgroup/cpu.shares"
}

kill_containers() {
  local task
  for task in $(ctr tasks list --quiet 2>/dev/null); do
    ctr tasks delete --force "$task" >/dev/null 2>&1 || true
  done
}

restart_apiserver() {
  stop apiserver
  sleep 5
  start_apiserver
}

reboot() {
  stop kubelet
  stop kube-proxy
  kill_containers
  stop containerd
  # A kernel that starts knows no connections. Those to the dead pods would lead new ones from the same port there.
  nsenter --net="/run/netns/$network" conntrack --flush 2>/dev/null
  sleep 5
  start_containerd
  start_kubelet
}

down() {
  [ -d "$state" ] || return 0
  stop kubelet # first, or it starts the pods again
  kill_containers
  local name
  for name in kube-proxy scheduler controller-manager containerd apiserver etcd; do
    stop "$name"
  done
  awk -v a="$state/" -v b=/run/tocsin-node/ 'index($2, a) == 1 || index($2, b) == 1 {print $2}' /proc/mounts | sort -r |
    while read -r mount; do umount --lazy "$mount"; done
  ip link delete "$network" 2>/dev/null || true
  ip netns delete "$network" 2>/dev/null || true
  find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" -exec rmdir {} + 2>/dev/null || true
  rm -rf "$state" /run/tocsin-node
}

export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
case ${1:-} in
check) check ;;
up) up ;;
load) load "$2" ;;
restart-apiserver) restart_apiserver ;;
reboot) reboot ;;
down) down ;;
packages) echo "$packages" ;;
*)
  sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
  ;;
esac
