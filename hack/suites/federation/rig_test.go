//go:build slow

// Package federation is "make test-federation": it runs two clusters, each with two managers, and a link between them that can be
// broken, and judges by the Incidents of the hub: none ends falsely, however long the link, the leaf or the hub is down, and
// whatever ended meanwhile ends.
package federation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	shop     = "shop"     // the namespace of the leaf's integration, and its name
	clusters = "clusters" // the namespace of the hub's integrations

	// The shortest times that are allowed, and the expiry that they make on the hub. It includes the difference that clocks may
	// have.
	leafExpiry = time.Minute
	beatEvery  = time.Minute
	beatGrace  = 10 * time.Second
	hubExpiry  = 2*(beatEvery+beatGrace) + time.Minute

	// missTime is how long it takes until the hub misses the leaf. It looks at what it heard up to a third of an interval ago.
	missTime = beatEvery + beatGrace + 30*time.Second

	// afterMiss is how long an outage goes on after that: longer than an expiry together.
	afterMiss = hubExpiry - 30*time.Second

	// backTime is how long it takes after an outage until the hub has everything: what ended before, and is posted, included.
	backTime = 90 * time.Second
)

// cluster is one of the two, with its managers.
type cluster struct {
	*testenv.Rig
	managers []*testenv.Manager
}

// rig is everything that runs.
type rig struct {
	leaf, hub *cluster
	link      *link // from the leaf to the hub
	token     string
	tokenFile string // of the leaf, for the hub
}

// startRig starts everything as docs/federation.md describes, with shorter times.
func startRig(t *testing.T, replicas int) *rig {
	t.Helper()
	r := &rig{}
	r.leaf, r.hub = startClusters(t)
	integration, forwarding := readGuide(r.leaf)
	r.token = r.leaf.Integrate(shop, v1alpha1.WebhookIntegrationSpec{})
	// Tocsin, which does not run yet, makes no other one.
	beat := testenv.Heartbeat(integration.Namespace, integration.Name, integration.Name, beatEvery, testenv.AnyRequest())
	beat.Spec.Grace, beat.Spec.Required = &metav1.Duration{Duration: beatGrace}, true
	beat.Spec.Incident = &v1alpha1.HeartbeatIncident{Title: "The Tocsin of leaf-1 does not report"}
	_, err := r.hub.Cluster.Integrate(r.hub.Context, integration.Namespace, integration.Name, integration.Spec)
	r.hub.Must(err)
	r.hub.Must(r.hub.Client.Create(r.hub.Context, beat))

	addresses := r.hub.Addresses(replicas)
	r.link, err = startLink(addresses)
	r.leaf.Must(err)
	t.Cleanup(func() { _ = r.link.listener.Close() })
	r.tokenFile = r.leaf.Write("hub-token", testenv.Token(integration.Namespace, integration.Name))
	forwarding = strings.NewReplacer("https://tocsin.example.com", "http://"+r.link.address(),
		"/etc/tocsin/hub/token", r.tokenFile).Replace(forwarding) + fmt.Sprintf("expiry: %s\n", leafExpiry)
	for i := range replicas {
		r.leaf.run(i, "--alertmanager-config="+r.leaf.Write("forwarding.yaml", forwarding))
	}
	back := r.leaf.managers[0].WebhookURL
	r.hub.Write("token", testenv.Token(clusters, "hub"))
	loop := r.hub.Write("forwarding.yaml", fmt.Sprintf(
		"alertmanagers: [{url: %q, http_config: {authorization: {credentials_file: token}}, integration_selector: loop=yes}]\n",
		strings.TrimSuffix(back, "/")))
	for i, address := range addresses {
		r.hub.run(i, "--alertmanager-config="+loop, "--webhook-bind-address="+address)
	}
	for _, c := range []*cluster{r.leaf, r.hub} {
		c.Leader(c.managers)
	}
	return r
}

// startClusters starts both control planes at the same time.
func startClusters(t *testing.T) (leaf, hub *cluster) {
	t.Helper()
	folder, err := os.MkdirTemp("", "tocsin-hub-") //nolint:usetesting // it has to stay if the test fails
	if err != nil {
		t.Fatal(err)
	}
	var started *testenv.Cluster
	var starting sync.WaitGroup
	starting.Go(func() { started, err = testenv.StartCluster(folder) })
	t.Cleanup(func() {
		starting.Wait()
		started.Stop()
		if t.Failed() {
			t.Log("The logs of the hub are in", folder)
		} else if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	leaf = &cluster{Rig: testenv.NewRig(t, testenv.Program("manager"))}
	starting.Wait()
	leaf.Must(err)
	return leaf, &cluster{Rig: &testenv.Rig{Cluster: started, T: t, Context: leaf.Context, Folder: folder}}
}

// guideBlock is an example of docs/federation.md, which may be indented.
var guideBlock = regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```$")

// readGuide returns the two examples of docs/federation.md.
func readGuide(c *cluster) (hub *v1alpha1.WebhookIntegration, leaf string) {
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "federation.md"))
	c.Must(err)
	blocks := guideBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		c.T.Fatalf("docs/federation.md has %d examples", len(blocks))
	}
	hub = &v1alpha1.WebhookIntegration{}
	c.Must(yaml.UnmarshalStrict([]byte(blocks[0][1]), hub))
	return hub, regexp.MustCompile("(?m)^   ").ReplaceAllString(blocks[1][1], "")
}

// run runs a manager.
func (c *cluster) run(replica int, args ...string) {
	c.managers = append(c.managers, c.Manager(fmt.Sprint("manager-", replica), testenv.ManagerOptions{
		Args: append(args, testenv.Elect...),
	}))
}

// failOver kills the leader, and starts it again when it has a successor.
func (c *cluster) failOver() {
	c.T.Helper()
	leader := c.Leader(c.managers)
	c.managers[leader].Kill()
	c.Successor(c.managers, leader)
	c.Start(c.managers[leader].Process)
}

// post posts an alert to the leaf.
func (r *rig) post(key, severity, status string) {
	r.leaf.T.Helper()
	r.leaf.Post(2*time.Second, r.leaf.managers, r.token,
		fmt.Sprintf(`{"title":%q,"dedup_key":%q,"severity":%q,"status":%q}`, key, key, severity, status))
}

// act creates an AlertEvent of a user about the leaf's Incident of a key.
func (r *rig) act(key string, status v1alpha1.AlertStatus) {
	r.leaf.T.Helper()
	r.leaf.Must(r.leaf.Client.Create(r.leaf.Context, &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, GenerateName: "act-"},
		Spec: v1alpha1.AlertEventSpec{Report: &v1alpha1.Report{
			Status: status, By: "maria", IncidentName: v1alpha1.IncidentName(shop, key),
		}},
	}))
}

// incidents returns the Incidents of a namespace.
func (c *cluster) incidents(ctx context.Context, namespace string) ([]v1alpha1.Incident, error) {
	list := &v1alpha1.IncidentList{}
	err := c.Client.List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}

// states returns what the hub has of the leaf: titles, severities and states, with the reason of the end.
func (r *rig) states(ctx context.Context) ([]string, error) {
	incidents, err := r.hub.incidents(ctx, clusters)
	var states []string
	for i := range incidents {
		status := &incidents[i].Status
		if hops := status.Alert.Labels[v1alpha1.HopsLabel]; hops != "" && hops != "1" {
			continue
		}
		state := fmt.Sprintf("%s %s %s", status.Alert.Title, status.Alert.Severity, status.State)
		if resolved := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionResolved); status.State == v1alpha1.IncidentResolved {
			state += " " + resolved.Reason
		}
		states = append(states, state)
	}
	slices.Sort(states)
	return states, err
}

// shows waits until the hub has these states.
func (r *rig) shows(timeout time.Duration, want ...string) {
	r.leaf.T.Helper()
	r.leaf.Await(timeout, func(ctx context.Context) error {
		states, err := r.states(ctx)
		if err == nil && !slices.Equal(states, want) {
			err = fmt.Errorf("the hub has %q, not %q", states, want)
		}
		return err
	})
}

// stays makes sure that the states do not change for so long.
func (r *rig) stays(d time.Duration, want ...string) {
	r.leaf.T.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); r.leaf.Pause(time.Second) {
		states, err := r.states(r.leaf.Context)
		r.leaf.Must(err)
		if !slices.Equal(states, want) {
			r.leaf.T.Fatalf("the hub has %q, not %q", states, want)
		}
	}
}

// annotated waits until the hub's Incident of a title has an annotation.
func (r *rig) annotated(title, name, want string) {
	r.leaf.T.Helper()
	r.leaf.Await(testenv.WaitTimeout, func(ctx context.Context) error {
		incidents, err := r.hub.incidents(ctx, clusters)
		for i := range incidents {
			alert := &incidents[i].Status.Alert
			if got, ok := alert.Annotations[name]; alert.Title == title && (!ok || got != want) {
				return fmt.Errorf("%s of %s is %q, not %q", name, title, got, want)
			}
		}
		return err
	})
}
