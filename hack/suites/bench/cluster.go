package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	warmUpTime  = 2 * time.Second
	fillClients = 32 // that fill the cluster, and empty it
)

// cluster is a control plane for managers to work on.
type cluster struct {
	*testenv.Cluster
	options
	clients  *kubernetes.Clientset
	folder   string
	log      *os.File           // of the programs beside the control plane
	managers []*testenv.Manager // that run
}

// startCluster starts a control plane; no manager yet.
func startCluster(ctx context.Context, o options) (c *cluster, err error) {
	c = &cluster{options: o}
	if c.folder, err = os.MkdirTemp("", "tocsin-bench-"); err != nil {
		return nil, err
	}
	if c.log, err = os.Create(filepath.Join(c.folder, "programs.log")); err != nil {
		return nil, err
	}
	c.Cluster, err = testenv.StartClusterOf(ctx, testenv.ControlPlaneOptions{
		Folder: c.folder, EtcdMembers: o.etcdMembers, Fsync: o.fsync,
	})
	if err != nil {
		return nil, err
	}
	c.clients, err = kubernetes.NewForConfig(c.Config)
	return c, err
}

// startManagers starts managers, which elect a leader if they are several, and waits until all are ready.
func (c *cluster) startManagers(ctx context.Context, count int) error {
	// Enough to open an Incident for each alert of a load.
	flags := []string{"--max-incidents=1000000", "--namespace-share=1", "--shutdown-delay=0s"}
	if count > 1 {
		flags = append(flags, testenv.Elect...)
	} else {
		flags = append(flags, "--leader-elect=false")
		if c.profiles != "" {
			flags = append(flags, "--pprof-bind-address="+pprofAddress)
		}
	}
	flags = append(flags, strings.Fields(c.args)...)
	var processes []*testenv.Process
	for range count {
		m, err := testenv.StartManager(testenv.ManagerOptions{Binary: c.binary, Kubeconfig: c.Kubeconfig, Log: c.log, Args: flags})
		if err != nil {
			return err
		}
		c.managers, processes = append(c.managers, m), append(processes, m.Process)
	}
	return testenv.StartReady(ctx, processes...)
}

// stopManagers ends the managers in order, so that the next leader need not wait for the end of a lease.
func (c *cluster) stopManagers() {
	for _, m := range c.managers {
		_ = m.Stop()
	}
	c.managers = nil
}

// begin makes tenants, starts managers, and warms them up: the first requests after a start, and after a CRD was made, are
// slower than the others.
func (c *cluster) begin(ctx context.Context, tenants, managers int) (list []tenant, err error) {
	for range tenants + 1 {
		t, err := c.newTenant(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	warm := list[tenants]
	if err := c.startManagers(ctx, managers); err != nil {
		return nil, err
	}
	account := loadgen.Run(ctx, loadgen.Load{
		URLs: c.urls(warm), Senders: 16, Duration: warmUpTime, Key: loadgen.RotatingKeys(16),
	})
	if account.Acknowledged() == 0 {
		return nil, fmt.Errorf("no alert of the warm-up was accepted: %v", account.Codes)
	}
	if _, err := c.drained(ctx, warm); err != nil {
		return nil, err
	}
	return list[:tenants], c.clear(ctx, warm.namespace)
}

// urls returns where a tenant posts its alerts.
func (c *cluster) urls(t tenant) (urls []string) {
	for _, m := range c.managers {
		urls = append(urls, m.WebhookURL+t.token)
	}
	return urls
}

// drained waits until all alerts of a tenant are folded, and returns how long that took.
func (c *cluster) drained(ctx context.Context, t tenant) (time.Duration, error) {
	return loadgen.Drained(ctx, c.Client, t.namespace)
}

// clear deletes what a load left in its namespace, one by one: the API server gives one request a minute, which
// is too little for thousands.
func (c *cluster) clear(ctx context.Context, namespace string) error {
	for _, kind := range []string{"WebhookIntegration", "AlertEvent", "Incident"} {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		if err := c.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		err := testenv.SideBySide(fillClients, len(list.Items), func(n int) error {
			item := &list.Items[n]
			item.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
			return client.IgnoreNotFound(c.Client.Delete(ctx, item))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tenant is a namespace with an integration.
type tenant struct {
	namespace   string
	integration string
	token       string
}

// newTenant makes a namespace with an integration and a token for it, which managers know that start later.
func (c *cluster) newTenant(ctx context.Context) (tenant, error) {
	t := tenant{namespace: "bench-" + strings.ToLower(rand.Text()), integration: "bench"}
	var err error
	t.token, err = c.Integrate(ctx, t.namespace, t.integration, v1alpha1.WebhookIntegrationSpec{})
	return t, err
}
