package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// The alerts of the demonstration.
const (
	demoKey = "disk-full-db-1"

	fireBody = `{"title":"Disk 97 % full","severity":"critical","hostname":"db-1",` +
		`"labels":{"team":"storage"},"dedup_key":"` + demoKey + `"}`
	resolveBody = `{"status":"resolved","dedup_key":"` + demoKey + `"}`
)

// demonstration is what there is to try.
type demonstration struct {
	address, token string
	archive        string // its URL; empty without one
	kubectl        kubectl
	cluster        *cluster
}

func (d *demonstration) url() string {
	return "http://" + d.address + "/api/v1/events/webhook/" + d.token
}

// text has lines to copy, below comments that say what they do.
func (d *demonstration) text() string {
	namespace := ""
	if d.cluster.theirs {
		namespace = " -n " + demoNamespace // its kubeconfig is not ours to set one in
	}
	settings := ""
	if d.kubectl != kubectlOfPath {
		settings += "export PATH=\"" + testenv.Assets() + ":$PATH\"\n"
	}
	note := ""
	if d.kubectl == kubectlLacks {
		note = " (kubectl is being built, a line below will say that it is there)"
	}
	if d.archive != "" {
		settings += "export TOCSIN_ARCHIVE=" + d.archive + "\n"
	}
	return fmt.Sprintf(`# In another terminal, for kubectl and "kubectl tocsin" (which "make install-plugin" builds):
export KUBECONFIG=%s
export TOCSIN_ENDPOINT=http://%s
%s# List the incidents%s:
kubectl get incidents%s
# Fire an alert:
curl -d '%s' %s
# Resolve it:
curl -d '%s' %s

What happens to the incidents of the demo:
`, d.cluster.kubeconfig, d.address, settings, note, namespace, fireBody, d.url(), resolveBody, d.url())
}

// accompany keeps the programs running, tells of the demo's Incidents, and has a command get kubectl if there is none, until ctx
// ends or a program ends by itself.
func (d *demonstration) accompany(ctx context.Context, programs []*program, command string, out io.Writer) error {
	tasks, ctx := errgroup.WithContext(ctx)
	for _, p := range programs {
		tasks.Go(func() error { return p.keepRunning(ctx, out) })
	}
	tasks.Go(func() error {
		d.tell(ctx, out)
		return nil
	})
	if d.kubectl == kubectlLacks {
		tasks.Go(func() error {
			getKubectl(ctx, command, out)
			return nil
		})
	}
	return tasks.Wait()
}

// tell prints a line when an Incident of the demo opens, changes its severity or resolves, until ctx ends.
func (d *demonstration) tell(ctx context.Context, out io.Writer) {
	told := map[string]string{}
	live.Follow(d.cluster.client, demoNamespace, live.Prune, func(change live.Change) {
		status := &change.Incident.Status
		line := fmt.Sprintf("%-8s  %-8s  %s", status.State, status.Alert.Severity, plaintext.SanitizeLine(status.Alert.Title))
		if name := change.Incident.Name; !change.Deleted && status.State != "" && told[name] != line {
			told[name] = line
			_, _ = fmt.Fprintln(out, time.Now().Format(time.TimeOnly), line)
		}
	}).Run(ctx)
}
