package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
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

// rig is a control plane, a proxy for each replica, and the replicas. The harness itself looks at the
// cluster through a proxy of its own that has no faults.
type rig struct {
	folder   string // for data and logs
	binary   string // the manager
	plane    *testenv.ControlPlane
	direct   *proxy.Proxy
	admin    client.Client
	token    string // of the operator's service account
	history  *etcdHistory
	replicas []*replica
}

// newRig starts a control plane with everything that config/crd and config/rbac have, and no replica. A quota of zero is
// etcd's default.
func newRig(ctx context.Context, folder, binary string, quota int64) (r *rig, err error) {
	r = &rig{folder: folder, binary: binary}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	r.plane, err = testenv.StartControlPlane(ctx, testenv.ControlPlaneOptions{
		Folder: filepath.Join(folder, "plane"), APIServers: 2, KeepHistory: true, QuotaBytes: quota,
	})
	if err != nil {
		return r, fmt.Errorf("starting the control plane: %w", err)
	}
	r.history = &etcdHistory{url: r.plane.EtcdURL}
	if r.direct, err = proxy.Start(r.plane.URLs, r.plane.Token, 0); err != nil {
		return r, err
	}
	r.admin, err = client.New(&rest.Config{Host: r.direct.URL, QPS: -1}, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		return r, err
	}
	if err = r.install(ctx); err != nil {
		return r, fmt.Errorf("installing Tocsin: %w", err)
	}
	return r, nil
}

// install applies what a user applies, and gets the token that a pod of the operator would get.
func (r *rig) install(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}
	if err := r.admin.Create(ctx, namespace); err != nil {
		return err
	}
	if err := r.applyManifests(ctx); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: serviceAccount}}
	hours := int64(24 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}
	if err := r.admin.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("requesting a token: %w", err)
	}
	r.token = request.Status.Token
	return nil
}

// applyManifests applies the CustomResourceDefinitions and what concerns permissions.
func (r *rig) applyManifests(ctx context.Context) error {
	for _, pattern := range []string{
		"config/crd/bases/*.yaml", "config/rbac/*.yaml",
		"config/components/flow-control/priority_levels.yaml", "config/components/flow-control/flow_schemas.yaml",
	} {
		files, err := filepath.Glob(filepath.Join(testenv.Root(), pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := r.applyFile(ctx, file); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *rig) applyFile(ctx context.Context, file string) error {
	objects, err := readManifests(file)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if strings.HasPrefix(object.GetAPIVersion(), "kustomize.config.k8s.io/") {
			continue
		}
		err := r.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("faults"))
		if err != nil {
			return fmt.Errorf("applying %s %s of %s: %w", object.GetKind(), object.GetName(), file, err)
		}
	}
	return nil
}

// readManifests reads the objects of a YAML file.
func readManifests(path string) (objects []*unstructured.Unstructured, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// startReplicas starts so many replicas with these arguments, each behind its own proxy, and waits until all
// are ready.
func (r *rig) startReplicas(ctx context.Context, count int, args []string) error {
	for i := range count {
		replica, err := r.newReplica(i, args)
		if err != nil {
			return err
		}
		r.replicas = append(r.replicas, replica)
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
	if r.plane != nil {
		r.plane.Stop()
	}
}

// setRule gives all replicas' proxies a rule.
func (r *rig) setRule(rule func(proxy.Call) proxy.Fate) {
	for _, replica := range r.replicas {
		replica.proxy.SetRule(rule)
	}
}

// startAPIServers starts those of the API servers that do not run, and waits until all are ready.
func (r *rig) startAPIServers(ctx context.Context) error {
	return testenv.StartReady(ctx, r.plane.APIServers...)
}

// pause is testenv.Pause.
func pause(ctx context.Context, d time.Duration) bool { return testenv.Pause(ctx, d) }

// harnessClient is for what the harness asks of managers and etcd.
var harnessClient = &http.Client{Timeout: 20 * time.Second}
