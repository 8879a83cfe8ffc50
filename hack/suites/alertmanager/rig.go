package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	// namespace is that of the integration, which has the same name.
	namespace = "pager"

	// waitTimeout is how long something that takes seconds may take on a busy machine.
	waitTimeout = 45 * time.Second

	// peerTimeout is how long the second Alertmanager waits for the first one to notify.
	peerTimeout = 300 * time.Millisecond

	// groupInterval is how often the Alertmanagers look at their alerts. It is much longer than peerTimeout, as by default.
	groupInterval = 2 * time.Second

	// lease is that of the forwarded alerts, the shortest that the configuration permits.
	lease = time.Minute
)

// alertmanagerConfig notifies about each alert by itself, soon, and never repeats a notification within a run.
const alertmanagerConfig = `
route:
  receiver: pager
  group_by: ['...']
  group_wait: 100ms
  group_interval: %s
  repeat_interval: 4h
receivers:
- name: pager
  webhook_configs:
  - url: %s
    send_resolved: true
`

// rig is everything that runs.
type rig struct {
	options       options
	folder        string
	cluster       *testenv.Cluster
	managers      []*testenv.Manager
	alertmanagers []*testenv.Process
	addresses     []string // of the Alertmanagers
	fake          *fake
	receiver      *receiver
	token         string
	story         map[subject][]string // what the receiver has to be notified about, and how
}

// startRig starts everything and waits until it is ready. The caller closes the rig, after an error too.
func startRig(ctx context.Context, o options, folder string) (*rig, error) {
	r := &rig{options: o, folder: folder, receiver: startReceiver(), fake: startFake(), story: map[subject][]string{}}
	fmt.Println("Starting etcd, kube-apiserver, the managers and two Alertmanagers.")
	var err error
	if r.cluster, err = testenv.StartCluster(folder); err != nil {
		return r, err
	}
	if r.token, err = r.cluster.Integrate(ctx, namespace, namespace, v1alpha1.WebhookIntegrationSpec{}); err != nil {
		return r, err
	}
	if err := r.startAlertmanagers(ctx); err != nil {
		return r, err
	}
	if err := r.configure(""); err != nil {
		return r, err
	}
	replicas := 2
	if o.short {
		replicas = 1
	}
	for i := range replicas {
		m, err := r.runManager(ctx, i, o.manager)
		if err != nil {
			return r, err
		}
		r.managers = append(r.managers, m)
	}
	_, err = testenv.Leader(ctx, waitTimeout, r.managers)
	return r, err
}

func (r *rig) configFile() string { return filepath.Join(r.folder, "forwarding.yaml") }

// configure writes the configuration of the forwarding, with these lines at the end of the list of Alertmanagers.
func (r *rig) configure(more string) error {
	text := fmt.Appendf(nil, "lease: %s\nexternal_labels: {cluster: test}\nalertmanagers:\n", lease)
	for _, address := range r.addresses {
		text = fmt.Appendf(text, "- url: http://%s\n", address)
	}
	return os.WriteFile(r.configFile(), append(text, more...), 0o600)
}

// runManager starts a manager and waits until it is ready.
func (r *rig) runManager(ctx context.Context, replica int, binary string, env ...string) (*testenv.Manager, error) {
	log, err := os.OpenFile(filepath.Join(r.folder, fmt.Sprintf("manager-%d.log", replica)),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return r.cluster.RunManager(ctx, testenv.ManagerOptions{
		Binary: binary, Log: log, Env: env,
		Args: []string{
			"--leader-elect", "--leader-election-namespace=default", "--shutdown-delay=0s",
			"--alertmanager-config=" + r.configFile(),
		},
	})
}

// startAlertmanagers starts a cluster of two.
func (r *rig) startAlertmanagers(ctx context.Context) error {
	free, err := testenv.FreeAddresses(4)
	if err != nil {
		return err
	}
	config := filepath.Join(r.folder, "alertmanager.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, alertmanagerConfig, groupInterval, r.receiver.URL), 0o600); err != nil {
		return err
	}
	for i := range 2 {
		log, err := os.Create(filepath.Join(r.folder, fmt.Sprintf("alertmanager-%d.log", i)))
		if err != nil {
			return err
		}
		r.addresses = append(r.addresses, free[i])
		r.alertmanagers = append(r.alertmanagers, testenv.NewProcess(log, r.options.alertmanager,
			"--config.file="+config, "--storage.path="+filepath.Join(r.folder, fmt.Sprintf("alertmanager-%d", i)),
			"--web.listen-address="+free[i], "--cluster.listen-address="+free[2+i], "--cluster.peer="+free[3-i],
			"--cluster.gossip-interval=50ms", "--cluster.pushpull-interval=1s", "--cluster.peer-timeout="+peerTimeout.String(),
			"--cluster.settle-timeout=5s", "--cluster.reconnect-interval=1s", "--log.level=debug"))
	}
	for i := range r.alertmanagers {
		if err := r.alertmanagers[i].Start(); err != nil {
			return err
		}
	}
	return r.alertmanagersReady(ctx)
}

func (r *rig) alertmanagersReady(ctx context.Context) error {
	for _, address := range r.addresses {
		err := testenv.Await(ctx, waitTimeout, func(ctx context.Context) error {
			_, err := testenv.Call(ctx, http.MethodGet, "http://"+address+"/-/ready", "")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// post sends an alert to any manager that accepts it.
func (r *rig) post(ctx context.Context, key, severity, status string) error {
	body := fmt.Sprintf(`{"title":%q,"dedup_key":%q,"severity":%q,"status":%q,"type":"Test"}`, "Alert "+key, key, severity, status)
	return testenv.Await(ctx, waitTimeout, func(ctx context.Context) (err error) {
		for _, m := range r.managers {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err = testenv.Call(ctx, http.MethodPost, m.WebhookURL+r.token, body)
			cancel()
			if err == nil {
				return nil
			}
		}
		return err
	})
}

// incident reads the Incident of a key.
func (r *rig) incident(ctx context.Context, key string) (*v1alpha1.Incident, error) {
	incident := &v1alpha1.Incident{}
	name := client.ObjectKey{Namespace: namespace, Name: v1alpha1.IncidentName(namespace, key)}
	return incident, r.cluster.Client.Get(ctx, name, incident)
}

// close ends everything that was started.
func (r *rig) close() error {
	var err error
	if r.cluster != nil {
		err = errors.Join(err, r.cluster.Stop())
	}
	for _, alertmanager := range r.alertmanagers {
		alertmanager.Kill()
	}
	r.receiver.Close()
	r.fake.close()
	return err
}
