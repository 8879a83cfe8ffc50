package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
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

	// startTimeout is for a manager on a busy machine, a lease of a predecessor included.
	startTimeout = 90 * time.Second
)

// rig is a control plane, a proxy for each replica, and the replicas. The client of the harness itself goes through a proxy of
// its own that has no faults.
type rig struct {
	*testenv.Cluster
	folder   string // for data and logs
	binary   string // the manager
	direct   *proxy.Proxy
	token    string // of the operator's service account
	replicas []*replica
}

// newRig starts a control plane with everything that config/crd and config/rbac have, and no replica. A quota of zero is
// etcd's default.
func newRig(ctx context.Context, folder, binary string, quota int64) (*rig, error) {
	cluster, err := testenv.StartClusterOf(ctx, testenv.ControlPlaneOptions{
		Folder: filepath.Join(folder, "plane"), APIServers: 2, KeepHistory: true, QuotaBytes: quota,
	})
	if err != nil {
		return nil, err
	}
	r := &rig{Cluster: cluster, folder: folder, binary: binary}
	if err := r.install(ctx); err != nil {
		r.close()
		return nil, fmt.Errorf("installing Tocsin: %w", err)
	}
	return r, nil
}

// install applies what a user applies, and gets the token that a pod of the operator would get.
func (r *rig) install(ctx context.Context) (err error) {
	if r.direct, err = proxy.Start(r.URLs, r.Token, 0); err != nil {
		return err
	}
	if r.Client, err = client.New(&rest.Config{Host: r.direct.URL, QPS: -1}, client.Options{Scheme: testenv.Scheme()}); err != nil {
		return err
	}
	config := filepath.Join(testenv.Root(), "config")
	flows := filepath.Join(config, "components", "flow-control")
	for _, what := range []string{
		"-f=" + filepath.Join(config, "default", "namespace.yaml"), "-k=" + filepath.Join(config, "rbac"),
		"-f=" + filepath.Join(flows, "priority_levels.yaml"), "-f=" + filepath.Join(flows, "flow_schemas.yaml"),
	} {
		if _, err := r.Kubectl(ctx, "apply", "--server-side", what); err != nil {
			return err
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: serviceAccount}}
	hours := int64(24 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}
	if err := r.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("requesting a token: %w", err)
	}
	r.token = request.Status.Token
	return nil
}

// elect are the flags of managers that elect a leader.
var elect = []string{"--leader-elect", "--leader-election-namespace=" + systemNamespace}

// startReplicas starts so many replicas with these arguments, each behind its own proxy, and waits until all
// are ready.
func (r *rig) startReplicas(ctx context.Context, count int, args []string) error {
	for range count {
		if err := r.addReplica(args); err != nil {
			return err
		}
	}
	return r.waitReady(ctx)
}

// waitReady waits until every replica is ready and, where there is an election, one leads.
func (r *rig) waitReady(ctx context.Context) error {
	for _, replica := range r.replicas {
		if err := replica.waitReady(ctx); err != nil {
			return err
		}
	}
	_, err := r.leader(ctx)
	return err
}

// leader waits until a replica leads and returns it.
func (r *rig) leader(ctx context.Context) (*replica, error) {
	if len(r.replicas) == 1 {
		return r.replicas[0], nil
	}
	var leader *replica
	return leader, testenv.AwaitThat(ctx, startTimeout, "no replica leads", func(context.Context) bool {
		at := slices.IndexFunc(r.replicas, (*replica).leads)
		if at >= 0 {
			leader = r.replicas[at]
		}
		return at >= 0
	})
}

// roles waits until a replica leads, and returns it and one that does not.
func (r *rig) roles(ctx context.Context) (leader, follower *replica, err error) {
	leader, err = r.leader(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, replica := range r.replicas {
		if replica != leader {
			return leader, replica, nil
		}
	}
	return nil, nil, errors.New("there is one replica only")
}

// stopReplicas ends the replicas and forgets them.
func (r *rig) stopReplicas() {
	for _, replica := range r.replicas {
		replica.close()
	}
	r.replicas = nil
}

func (r *rig) close() {
	r.stopReplicas()
	if r.direct != nil {
		r.direct.Close()
	}
	r.Stop()
}

// setRule gives all replicas' proxies a rule.
func (r *rig) setRule(rule func(proxy.Call) proxy.Fate) {
	for _, replica := range r.replicas {
		replica.proxy.SetRule(rule)
	}
}

// pause is testenv.Pause.
func pause(ctx context.Context, d time.Duration) bool { return testenv.Pause(ctx, d) }

// harnessClient is for what the harness asks of managers and etcd.
var harnessClient = &http.Client{Timeout: 20 * time.Second}
