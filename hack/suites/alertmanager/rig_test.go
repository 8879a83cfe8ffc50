//go:build slow

// Package alertmanager is "make test-alertmanager": it runs two managers and two clustered, real Alertmanagers with a real
// receiver of notifications, breaks each of them, and judges by the notifications that the receiver got: no missing
// page, no false resolve, and at most one duplicate for each fault.
//
// Times are scaled down: the expiry of forwarded alerts is one minute instead of 15, so an outage of 40 seconds stands for one
// of ten minutes (factor 15).
package alertmanager

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// program is the Alertmanager.
var program = flag.String("alertmanager", testenv.Program("tools/alertmanager"), "the Alertmanager")

const (
	// namespace is that of the integration, which has the same name.
	namespace = "pager"

	// peerTimeout is how long the second Alertmanager waits for the first one to notify.
	peerTimeout = 300 * time.Millisecond

	// groupInterval is how often the Alertmanagers look at their alerts. It is much longer than peerTimeout, as by default.
	groupInterval = 2 * time.Second

	// expiry is that of the forwarded alerts, the shortest that the configuration permits.
	expiry = time.Minute

	// quietTime is how long nothing more may come after a story was told: longer than an Alertmanager waits for its peer.
	quietTime = groupInterval + 2*time.Second
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
	*testenv.Rig
	managers      []*testenv.Manager
	alertmanagers []*testenv.Process
	addresses     []string // of the Alertmanagers
	fake          *fake
	receiver      *receiver
	token         string
	forwarding    string               // the path of the configuration of the forwarding
	story         map[subject][]string // what the receiver has to be notified about, and how
}

// startRig starts everything and waits until it is ready.
func startRig(t *testing.T, replicas int) *rig {
	t.Helper()
	r := &rig{
		Rig:      testenv.NewRig(t, testenv.Program("manager"), *program),
		receiver: startReceiver(), fake: startFake(), story: map[subject][]string{},
	}
	t.Cleanup(r.receiver.Close)
	t.Cleanup(r.fake.close)
	r.token = r.Integrate(namespace, v1alpha1.WebhookIntegrationSpec{})
	r.startAlertmanagers()
	r.forwarding = r.configure("")
	for i := range replicas {
		r.managers = append(r.managers, r.manager(i, ""))
	}
	r.Leader(r.managers)
	return r
}

// configure writes the configuration of the forwarding, with these lines at the end of the list of Alertmanagers, and returns
// its path.
func (r *rig) configure(more string) string {
	text := fmt.Sprintf("expiry: %s\nexternal_labels: {cluster: test}\nalertmanagers:\n", expiry)
	for _, address := range r.addresses {
		text += fmt.Sprintf("- url: http://%s\n  external_url: http://%[1]s\n", address)
	}
	return r.Write("forwarding.yaml", text+more)
}

// manager starts a manager.
func (r *rig) manager(replica int, binary string, env ...string) *testenv.Manager {
	return r.Manager(fmt.Sprint("manager-", replica), testenv.ManagerOptions{
		Binary: binary, Env: env, Args: append([]string{"--alertmanager-config=" + r.forwarding}, testenv.Elect...),
	})
}

// startAlertmanagers starts a cluster of two.
func (r *rig) startAlertmanagers() {
	free := r.Addresses(4)
	r.addresses = free[:2]
	for i, address := range r.addresses {
		r.alertmanagers = append(r.alertmanagers, r.Alertmanager(fmt.Sprint("alertmanager-", i), *program, address,
			fmt.Sprintf(alertmanagerConfig, groupInterval, r.receiver.URL),
			"--cluster.listen-address="+free[2+i], "--cluster.peer="+free[3-i],
			"--cluster.gossip-interval=50ms", "--cluster.pushpull-interval=1s", "--cluster.peer-timeout="+peerTimeout.String(),
			"--cluster.settle-timeout=5s", "--cluster.reconnect-interval=1s", "--log.level=debug"))
	}
	r.Start(r.alertmanagers...)
}

// post sends an alert to any manager that accepts it.
func (r *rig) post(key, severity, status string) {
	r.Post(2*time.Second, r.managers, r.token, fmt.Sprintf(
		`{"title":%q,"dedup_key":%q,"severity":%q,"status":%q,"type":"Test"}`, "Alert "+key, key, severity, status))
}

func name(key string) string { return v1alpha1.IncidentName(namespace, key) }

// incident reads the Incident of a key.
func (r *rig) incident(ctx context.Context, key string) (*v1alpha1.Incident, error) {
	incident := &v1alpha1.Incident{}
	return incident, r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name(key)}, incident)
}

// happens posts an alert and adds the notification that it has to cause to the story.
func (r *rig) happens(key, severity, status string) {
	r.post(key, severity, status)
	r.tell(key, severity, status)
}

// begins fires an alert and waits until the receiver knows.
func (r *rig) begins(key, severity string) {
	r.happens(key, severity, firing)
	r.told()
}

// ends resolves an alert and waits until the receiver knows.
func (r *rig) ends(key, severity string) {
	r.happens(key, severity, resolved)
	r.told()
}

// tell adds a notification to the story.
func (r *rig) tell(key, severity, status string) {
	about := subject{name(key), severity}
	r.story[about] = append(r.story[about], status)
}

// told waits until the receiver was notified of the whole story, and the second Alertmanager has had its turn: a change that
// comes while it waits for its peer makes it notify about what was true before. That is how Alertmanager works.
func (r *rig) told() {
	r.T.Helper()
	r.Await(testenv.WaitTimeout, func(context.Context) error { return r.compare() })
	r.Pause(3 * peerTimeout)
	r.Must(r.compare())
}

// unchanged waits for so long and makes sure that the receiver was notified of nothing but the story.
func (r *rig) unchanged(d time.Duration) {
	r.told()
	r.Pause(d)
	r.Must(r.compare())
}

// compare returns how the notifications differ from the story.
func (r *rig) compare() error {
	var wrong []error
	for about, want := range r.story {
		if got, _ := r.receiver.statuses(about); !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Errorf("%s: the receiver got %v, not %v", about, got, want))
		}
	}
	return errors.Join(wrong[:min(len(wrong), 10)]...)
}

// judge compares the notifications with the story once more at the end, with their duplicates, and finds those that have
// nothing to do with it.
func (r *rig) judge() {
	r.told()
	for _, about := range r.receiver.subjects() {
		if _, ok := r.story[about]; !ok {
			r.T.Errorf("%s: nothing of it happened", about)
		}
		if _, duplicates := r.receiver.statuses(about); duplicates > r.receiver.allowed(about) {
			r.T.Errorf("%s: %d duplicates, and %d faults", about, duplicates, r.receiver.allowed(about))
		}
	}
}
