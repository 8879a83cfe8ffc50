//go:build slow

package faults

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
)

const (
	systemNamespace = "tocsin-system"
	serviceAccount  = "tocsin"

	// healTime is how long after a fault everything may take to be folded and released.
	healTime = 60 * time.Second

	// startTimeout is for a manager on a busy machine, a lease of a predecessor included, and for a change of the leader.
	startTimeout = 90 * time.Second
)

// rig is a control plane, a proxy for each replica, and the replicas. The client of the harness itself goes through a proxy of
// its own that has no faults.
type rig struct {
	*testenv.Rig
	direct   string // the URL of the harness's proxy
	token    string // of the operator's service account
	replicas []*replica
}

// startRig starts a control plane with everything that config/crd and config/rbac have, and no replica. A quota of zero is
// etcd's default.
func startRig(t *testing.T, quota int64) *rig {
	t.Helper()
	options := testenv.ControlPlaneOptions{APIServers: 2, KeepHistory: true, QuotaBytes: quota}
	r := &rig{Rig: testenv.NewRigOf(t, options, *manager)}
	direct, err := proxy.Start(r.URLs, r.Token, 0)
	r.Must(err)
	t.Cleanup(direct.Close)
	r.direct = direct.URL
	r.Client, err = client.New(&rest.Config{Host: r.direct, QPS: -1}, client.Options{Scheme: testenv.Scheme()})
	r.Must(err)
	r.install()
	return r
}

// install applies what a user applies, and gets the token that a pod of the operator would get.
func (r *rig) install() {
	config := filepath.Join(testenv.Root(), "config")
	flows := filepath.Join(config, "components", "flow-control")
	for _, what := range []string{
		"-f=" + filepath.Join(config, "default", "namespace.yaml"), "-k=" + filepath.Join(config, "rbac"),
		"-f=" + filepath.Join(flows, "priority_levels.yaml"), "-f=" + filepath.Join(flows, "flow_schemas.yaml"),
	} {
		_, err := r.Kubectl(r.Context, "apply", "--server-side", what)
		r.Must(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: serviceAccount}}
	hours := int64(24 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}
	r.Must(r.Client.SubResource("token").Create(r.Context, account, request))
	r.token = request.Status.Token
}

// elect are the flags of managers that elect a leader.
var elect = []string{"--leader-elect", "--leader-election-namespace=" + systemNamespace}

// startReplicas starts so many replicas with these arguments, each behind its own proxy, and waits until all are ready.
func (r *rig) startReplicas(count int, args []string) {
	r.replicas = nil
	if count > 1 {
		args = slices.Concat(args, elect)
	}
	for range count {
		r.addReplica(*manager, args)
	}
	r.waitReady()
}

// waitReady waits until every replica is ready and, where there is an election, one leads.
func (r *rig) waitReady() {
	r.T.Helper()
	for _, replica := range r.replicas {
		r.Must(replica.waitReady(r.Context))
	}
	if len(r.replicas) > 1 {
		r.roles()
	}
}

// leader waits until one of two replicas leads, and returns it and the other one.
func (r *rig) leader(ctx context.Context) (leader, follower *replica, err error) {
	at, err := testenv.Leader(ctx, startTimeout, []*testenv.Manager{r.replicas[0].manager, r.replicas[1].manager})
	if err != nil {
		return nil, nil, err
	}
	return r.replicas[at], r.replicas[1-at], nil
}

// roles is leader for the test.
func (r *rig) roles() (leader, follower *replica) {
	r.T.Helper()
	leader, follower, err := r.leader(r.Context)
	r.Must(err)
	return leader, follower
}

// awaitThat tries until done is true, for so long.
func (r *rig) awaitThat(timeout time.Duration, message string, done func() bool) {
	r.T.Helper()
	r.Must(testenv.AwaitThat(r.Context, timeout, message, func(context.Context) bool { return done() }))
}

// setRule gives all replicas' proxies a rule.
func (r *rig) setRule(rule func(proxy.Call) proxy.Fate) {
	for _, replica := range r.replicas {
		replica.proxy.SetRule(rule)
	}
}

// pause is testenv.Pause, for what may end early.
var pause = testenv.Pause

// harnessClient is for what the harness asks of managers and etcd.
var harnessClient = &http.Client{Timeout: 20 * time.Second}
