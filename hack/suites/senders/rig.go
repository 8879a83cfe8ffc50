package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	readyTimeout = time.Minute

	// waitTimeout is how long something that takes seconds may take on a busy machine.
	waitTimeout = 45 * time.Second

	webhookPath = "/api/v1/events/webhook/"
)

// way is one of the two ways that alerts take to the manager: an integration and the relay before it.
type way struct {
	preset string // and the name of the integration and its namespace
	token  string
	relay  *relay
}

// rig is everything that runs.
type rig struct {
	cluster      *testenv.Cluster
	manager      *testenv.Manager
	prometheus   *testenv.Process
	alertmanager *testenv.Process
	link         *link // from Prometheus to Alertmanager
	target       *target
	through      *way // Alertmanager
	direct       *way // from Prometheus
	groups       []group
	at           addresses
}

// group is an integration to which Alertmanager sends its groups of alerts, as to another service: straight to the manager.
type group struct{ name, token string } // the name is also that of the namespace

func (r *rig) ways() []*way { return []*way{r.through, r.direct} }

// startRig starts everything and waits until it is ready. The caller closes the rig, after an error too.
func startRig(ctx context.Context, b binaries, folder string) (*rig, error) {
	r := &rig{}
	fmt.Println("Starting etcd, kube-apiserver, the manager, Alertmanager and Prometheus.")
	var err error
	if r.cluster, err = testenv.StartCluster(folder); err != nil {
		return r, err
	}
	if err := r.startManager(ctx, b.manager, folder); err != nil {
		return r, err
	}
	if r.through, err = r.newWay(ctx, "alertmanager"); err != nil {
		return r, err
	}
	if r.direct, err = r.newWay(ctx, "vmalert"); err != nil {
		return r, err
	}
	for _, name := range []string{"pagerduty", "opsgenie"} {
		token, err := r.cluster.Integrate(ctx, name, name, v1alpha1.WebhookIntegrationSpec{})
		if err != nil {
			return r, err
		}
		r.groups = append(r.groups, group{name, token})
	}
	r.target = startTarget()
	return r, r.startSenders(ctx, b, folder)
}

// startManager starts the manager as "make run" does.
func (r *rig) startManager(ctx context.Context, binary, folder string) error {
	log, err := os.Create(filepath.Join(folder, "manager.log"))
	if err != nil {
		return err
	}
	r.manager, err = r.cluster.RunManager(ctx, testenv.ManagerOptions{
		Binary: binary, Log: log, Args: []string{"--shutdown-delay=0s"},
	})
	return err
}

// waitManager waits until the manager is ready.
func (r *rig) waitManager(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return r.manager.WaitReady(ctx)
}

func (r *rig) newWay(ctx context.Context, preset string) (*way, error) {
	w := &way{preset: preset}
	var err error
	w.token, err = r.cluster.Integrate(ctx, preset, preset, v1alpha1.WebhookIntegrationSpec{Preset: preset})
	if err != nil {
		return nil, err
	}
	w.relay, err = startRelay(r.manager.WebhookURL, preset)
	return w, err
}

// startSenders starts Alertmanager and Prometheus.
func (r *rig) startSenders(ctx context.Context, b binaries, folder string) error {
	free, err := testenv.FreeAddresses(2)
	if err != nil {
		return err
	}
	r.link = startLink(free[1])
	r.at = addresses{
		link:   hostOf(r.link.URL),
		target: hostOf(r.target.URL), prometheus: free[0], alertmanager: free[1],
		through: r.through.relay.URL + webhookPath + r.through.token,
		direct:  hostOf(r.direct.relay.URL), directToken: r.direct.token,
		pagerDuty: r.manager.WebhookURL + r.groups[0].token,
		opsgenie:  r.manager.WebhookURL, opsgenieToken: r.groups[1].token,
	}
	if err := writeConfigs(folder, r.at); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(folder, "alertmanager.log"))
	if err != nil {
		return err
	}
	r.alertmanager = testenv.NewProcess(log, b.alertmanager,
		"--config.file="+filepath.Join(folder, "alertmanager.yml"), "--storage.path="+filepath.Join(folder, "alertmanager"),
		"--web.listen-address="+r.at.alertmanager, "--cluster.listen-address=", "--log.level=debug")
	if log, err = os.Create(filepath.Join(folder, "prometheus.log")); err != nil {
		return err
	}
	r.prometheus = testenv.NewProcess(log, b.prometheus,
		"--config.file="+filepath.Join(folder, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(folder, "prometheus"),
		"--web.listen-address="+r.at.prometheus, "--rules.alert.resend-delay="+resendDelay)
	for _, sender := range []struct {
		process *testenv.Process
		address string
	}{{r.alertmanager, r.at.alertmanager}, {r.prometheus, r.at.prometheus}} {
		if err := sender.process.Start(); err != nil {
			return err
		}
		if err := testenv.Await(ctx, waitTimeout, func(ctx context.Context) error {
			_, err := testenv.Call(ctx, http.MethodGet, "http://"+sender.address+"/-/ready", "")
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// drained waits until the alerts that were let through are folded.
func (r *rig) drained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for _, w := range r.ways() {
		if _, err := loadgen.Drained(ctx, r.cluster.Client, w.preset); err != nil {
			return err
		}
	}
	return nil
}

// summary is what went through the relays.
func (r *rig) summary() string {
	return fmt.Sprintf("Through Alertmanager:    %s\nStraight from Prometheus: %s",
		r.through.relay.tally(), r.direct.relay.tally())
}

// close ends everything that was started.
func (r *rig) close() error {
	for _, process := range []*testenv.Process{r.prometheus, r.alertmanager} {
		if process != nil {
			process.Kill()
		}
	}
	for _, w := range r.ways() {
		if w != nil && w.relay != nil {
			w.relay.CloseClientConnections()
			w.relay.Close()
		}
	}
	var err error
	if r.target != nil {
		r.target.Close()
	}
	if r.link != nil {
		r.link.CloseClientConnections()
		r.link.Close()
	}
	if r.cluster != nil {
		err = errors.Join(err, r.cluster.Stop())
	}
	return err
}
