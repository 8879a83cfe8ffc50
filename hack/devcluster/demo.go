package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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

	playPoll = 50 * time.Millisecond
)

// demonstration is what there is to try.
type demonstration struct {
	address, token string
	archive        string // its URL; empty without one
	kubectl        kubectl
	cluster        *cluster
}

func (d demonstration) url() string {
	return "http://" + d.address + "/api/v1/events/webhook/" + d.token
}

// text has lines to copy, below comments that say what they do.
func (d demonstration) text() string {
	namespace := ""
	if d.cluster.environment == nil {
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

// accompany tells of the demo's Incidents, and has a command get kubectl if there is none, until ctx ends or the function that it
// returns is called.
func (d demonstration) accompany(ctx context.Context, out io.Writer, command string) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { d.tell(ctx, out) })
	if d.kubectl == kubectlLacks {
		tasks.Go(func() { getKubectl(ctx, command, out) })
	}
	return func() {
		cancel()
		tasks.Wait()
	}
}

// tell prints a line when an Incident of the demo opens, changes its severity or resolves, until ctx ends.
func (d demonstration) tell(ctx context.Context, out io.Writer) {
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

// play fires and resolves the alert, and waits for the Incident to follow.
func (d demonstration) play(ctx context.Context, out io.Writer) error {
	if err := d.warmUp(ctx); err != nil {
		return err
	}
	steps := []struct {
		body string
		want v1alpha1.IncidentState
	}{
		{fireBody, v1alpha1.IncidentOpen},
		{resolveBody, v1alpha1.IncidentResolved},
	}
	for _, step := range steps {
		start := time.Now()
		if err := d.post(ctx, step.body); err != nil {
			return err
		}
		if err := d.await(ctx, step.want); err != nil {
			return fmt.Errorf("waiting for the Incident to be %s: %w", step.want, err)
		}
		_, _ = fmt.Fprintf(out, "The Incident is %s, %d ms after the post.\n", step.want, time.Since(start).Milliseconds())
	}
	return nil
}

// warmUp has the API server make its pause of two seconds, before the first create of a kind whose CRD is new. An alert that
// took this long to store would count as one that was perhaps stored twice, and wait for the first 30 s of the manager's life.
func (d demonstration) warmUp(ctx context.Context) error {
	event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: demoNamespace, GenerateName: "warm-up-"}}
	if err := d.cluster.client.Create(ctx, event, client.DryRunAll); err != nil && !apierrors.IsInvalid(err) {
		return fmt.Errorf("finding out whether AlertEvents can be created: %w", err)
	}
	return nil
}

func (d demonstration) post(ctx context.Context, body string) error {
	if _, err := testenv.Call(ctx, http.MethodPost, d.url(), body); err != nil {
		return fmt.Errorf("posting an alert: %w", err)
	}
	return nil
}

func (d demonstration) await(ctx context.Context, want v1alpha1.IncidentState) error {
	key := client.ObjectKey{Namespace: demoNamespace, Name: v1alpha1.IncidentName(demoIntegration, demoKey)}
	return wait.PollUntilContextCancel(ctx, playPoll, true, func(ctx context.Context) (bool, error) {
		var incident v1alpha1.Incident
		if err := d.cluster.client.Get(ctx, key, &incident); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return incident.Status.State == want, nil
	})
}
