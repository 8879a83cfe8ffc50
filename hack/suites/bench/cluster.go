package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	warmUpTime  = 2 * time.Second
	fillClients = 32 // that fill the cluster, and empty it
)

// cluster is a control plane with a manager at work on it.
type cluster struct {
	plane    *testenv.Cluster
	config   *rest.Config
	client   client.Client
	folder   string
	binary   string
	args     []string // of the manager
	profiles string   // the folder for them, empty for none
	log      *os.File

	profileTime  time.Duration
	alertmanager string // the binary, empty for none
	manager      *testenv.Manager
}

// startCluster starts a control plane; no manager yet.
func startCluster(ctx context.Context, o options) (c *cluster, err error) {
	c = &cluster{
		binary:   o.binary,
		args:     append([]string{"--leader-elect=false", maxIncidents}, strings.Fields(o.args)...),
		profiles: o.profiles,

		profileTime:  o.profileTime,
		alertmanager: o.alertmanager,
	}
	if c.profiles != "" {
		c.args = append(c.args, "--pprof-bind-address="+pprofAddress)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if c.folder, err = os.MkdirTemp("", "tocsin-bench-"); err != nil {
		return c, err
	}
	if c.log, err = os.Create(filepath.Join(c.folder, "manager.log")); err != nil {
		return c, err
	}
	c.plane, err = testenv.StartClusterOf(ctx, testenv.ControlPlaneOptions{
		Folder: c.folder, EtcdMembers: o.etcdMembers, Fsync: o.fsync,
	})
	if err != nil {
		return c, err
	}
	c.config, c.client = c.plane.Config, c.plane.Client
	return c, nil
}

// maxIncidents is enough for a namespace, which has a quarter of it, to open an Incident for each alert of a load.
const maxIncidents = "--max-incidents=100000"

// startManager starts the manager and waits until it is ready.
func (c *cluster) startManager(ctx context.Context) error {
	var err error
	c.manager, err = c.plane.RunManager(ctx, testenv.ManagerOptions{Binary: c.binary, Log: c.log, Args: c.args})
	return err
}

// begin makes tenants, starts the manager, to be killed by the caller, and warms it up.
func (c *cluster) begin(ctx context.Context, count int) ([]tenant, error) {
	tenants := make([]tenant, count)
	for i := range tenants {
		t, err := c.newTenant(ctx)
		if err != nil {
			return nil, err
		}
		tenants[i] = t
	}
	if err := c.startManager(ctx); err != nil {
		return nil, err
	}
	return tenants, c.warmUp(ctx)
}

// warmUp posts a few alerts to an integration of their own and waits until they are folded: the first
// requests after a start, and after a CRD was made, are slower than the others.
func (c *cluster) warmUp(ctx context.Context) error {
	t, err := c.newTenant(ctx)
	if err != nil {
		return err
	}
	account := loadgen.Run(ctx, loadgen.Load{
		URLs: []string{c.manager.WebhookURL + t.token}, Senders: 16, Duration: warmUpTime, Key: loadgen.RotatingKeys(16),
	})
	if account.Acknowledged() == 0 {
		return fmt.Errorf("no alert of the warm-up was accepted: %v", account.Codes)
	}
	if _, err := c.drained(ctx, t); err != nil {
		return err
	}
	return c.clear(ctx, t.namespace)
}

// drained waits until all alerts of a tenant are folded, and returns how long that took.
func (c *cluster) drained(ctx context.Context, t tenant) (time.Duration, error) {
	return loadgen.Drained(ctx, c.client, t.namespace)
}

// clear deletes what a load left in its namespace, one by one: the API server gives one request a minute, which
// is too little for thousands.
func (c *cluster) clear(ctx context.Context, namespace string) error {
	for _, kind := range []string{"WebhookIntegration", "AlertEvent", "Incident"} {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		if err := c.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		err := testenv.SideBySide(fillClients, len(list.Items), func(n int) error {
			item := &list.Items[n]
			item.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
			return client.IgnoreNotFound(c.client.Delete(ctx, item))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// stop ends the manager and the control plane.
func (c *cluster) stop() error {
	if c.plane != nil {
		c.plane.Stop()
	}
	return errors.Join(c.log.Close(), os.RemoveAll(c.folder))
}

// tenant is a namespace with an integration.
type tenant struct {
	namespace   string
	integration string
	token       string
}

// newTenant makes a namespace with an integration and a token for it.
func (c *cluster) newTenant(ctx context.Context) (tenant, error) {
	t := tenant{namespace: "bench-" + strings.ToLower(rand.Text()), integration: "bench"}
	var err error
	t.token, err = c.plane.Integrate(ctx, t.namespace, t.integration, v1alpha1.WebhookIntegrationSpec{})
	return t, err
}
