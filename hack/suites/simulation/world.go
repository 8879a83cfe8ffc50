package simulation

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
)

// integrationName is that of every tenant's integration, so that whatever crosses a namespace finds something to spoil.
const integrationName = "app"

// userClient is the client of the users.
const userClient = "user"

// world is all that there is in one bubble.
type world struct {
	story    *Story
	began    time.Time
	network  *network
	server   *apiserver.Server
	users    client.Client
	replicas []*replica
	senders  *senders
	pings    *pings
	judge    *judge
	pager    *pager        // nil: no end is kept back
	backups  client.Client // of the backup tool
	calm     *disturbances

	alertmanagers []*fakeAlertmanager
	archive       archive

	serverAhead atomic.Int64 // by how many nanoseconds the clock of the API server is ahead
	chores      sync.WaitGroup
	healed      chan struct{} // closed when all faults end

	log  func(replica string) logr.Logger // nil: none
	says func(format string, args ...any) // nil: nothing
}

// definitions are the CustomResourceDefinitions, which all worlds share.
var definitions = sync.OnceValues(func() (*apiserver.Definitions, error) {
	return apiserver.ReadDefinitions(os.DirFS(filepath.Join(testenv.Root(), "config", "crd", "bases")))
})

var scheme = sync.OnceValue(testenv.Scheme)

// seededReader is a source of UUIDs.
type seededReader struct {
	mu    sync.Mutex
	state uint64
}

// Read implements io.Reader.
func (r *seededReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var word [8]byte
	for i := range p {
		if i%8 == 0 {
			r.state += 0x9e3779b97f4a7c15
			x := r.state
			x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
			x = (x ^ x>>27) * 0x94d049bb133111eb
			binary.LittleEndian.PutUint64(word[:], x^x>>31)
		}
		p[i] = word[i%8]
	}
	return len(p), nil
}

// number returns a number from 0 to n-1.
func (r *seededReader) number(n int) int {
	var b [8]byte
	_, _ = r.Read(b[:])
	return int(uint16(b[0])|uint16(b[1])<<8) % n
}

// newWorld makes the API server and the tenants. No replica runs yet.
func newWorld(seed uint64, story *Story) (*world, error) {
	uuid.SetRand(&seededReader{state: seed})
	lastV7time = 0
	defined, err := definitions()
	if err != nil {
		return nil, err
	}
	w := &world{story: story, began: time.Now(), network: newNetwork(seed), healed: make(chan struct{}), calm: &disturbances{}}
	var forwarding []string // flags of the replicas
	if story.Forward || story.KeepFiring {
		if forwarding, err = w.forward(); err != nil {
			return nil, err
		}
	}
	w.judge = newJudge(story, w)
	w.senders, w.pings = &senders{world: w}, w.judge.pings
	w.server, err = apiserver.New(apiserver.Options{
		Definitions: defined, WatchTimeout: 5 * time.Minute, UID: uids(seed),
		Now: func() time.Time { return time.Now().Add(time.Duration(w.serverAhead.Load())) },
	})
	if err != nil {
		return nil, err
	}
	w.server.OnCommit(w.judge.commit)
	w.server.OnCommit(w.network.commit)
	w.server.OnCommit(w.network.tracer.commit)
	w.newArchive()
	if w.users, err = w.newClient(userClient); err != nil {
		return nil, err
	}
	if w.backups, err = w.newClient(backupTool); err != nil {
		return nil, err
	}
	w.server.CreateNamespaces(leaseNamespace)
	for _, namespace := range tenants {
		w.server.CreateNamespaces(namespace)
		beat := testenv.Heartbeat(namespace, heartbeatName, integrationName, beatInterval, nil)
		if err := w.users.Create(context.Background(), beat); err != nil {
			return nil, fmt.Errorf("defining the heartbeat of %s: %w", namespace, err)
		}
		if err := w.users.Create(context.Background(), w.integration(namespace)); err != nil {
			return nil, fmt.Errorf("creating an integration: %w", err)
		}
	}
	if story.Forbidden {
		w.server.Deny("no Incidents of key-0", func(call *apiserver.Call, object map[string]any) string {
			spec, _ := object["spec"].(map[string]any)
			if denied["creation of Incidents"].matches(call) && spec["dedupKey"] == keyName(0) {
				return "not allowed"
			}
			return ""
		})
	}
	for i := range story.Replicas {
		w.replicas = append(w.replicas, &replica{
			world: w, name: fmt.Sprint("replica-", i), older: story.Older, args: forwarding, dialer: w,
		})
	}
	return w, nil
}

// forward makes the Alertmanagers, and returns the flags by which replicas forward to them.
func (w *world) forward() (flags []string, err error) {
	file, err := forwardingFile()
	if err != nil {
		return nil, err
	}
	for range alertmanagers {
		w.alertmanagers = append(w.alertmanagers, newFakeAlertmanager())
	}
	if w.story.KeepFiring {
		w.pager = newPager(w.story, w.alertmanagers[0])
	}
	w.alertmanagers[1].changed = w.judgeBeginnings // those of the first one are the pager's to judge
	return []string{"--alertmanager-config=" + file}, nil
}

// uids returns a source of UIDs in no order.
func uids(seed uint64) func() types.UID {
	random := &seededReader{state: ^seed}
	return func() types.UID {
		return types.UID(uuid.Must(uuid.NewRandomFromReader(random)).String())
	}
}

// integration is that of a tenant. It reads several alerts from each body.
func (w *world) integration(namespace string) *v1alpha1.WebhookIntegration {
	integration := &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: integrationName},
		Spec: v1alpha1.WebhookIntegrationSpec{
			Tokens:  testenv.Tokens(namespace, integrationName),
			Mapping: &v1alpha1.Mapping{Alerts: "payload.alerts"},

			ObjectLabels: []string{oracle.SeqLabel}, // they differ from episode to episode
		},
	}
	if w.story.AutoResolve {
		integration.Spec.AutoResolveAfter = &metav1.Duration{Duration: autoResolveAfter}
	}
	if w.story.HoldBack {
		integration.Spec.ForwardAfter = holdBack()
	}
	if w.story.Forget {
		integration.Spec.AcknowledgementExpiresAfter = &metav1.Duration{Duration: time.Minute}
	}
	if w.story.Archivers > 0 {
		integration.Spec.Retention = &metav1.Duration{Duration: retention}
	}
	if w.story.KeepFiring {
		integration.Spec.Flapping = &v1alpha1.FlappingPolicy{
			Openings: 1, Period: &metav1.Duration{Duration: flapPeriod}, KeepFiringFor: &metav1.Duration{Duration: keptFor},
		}
	}
	return integration
}

// newClient returns a client of the users or of the backup tool, which no fault concerns.
func (w *world) newClient(name string) (client.Client, error) {
	config := w.server.Config(name, nil)
	config.UserAgent = name + "/v1"
	mapper, err := clustercache.RESTMapper(config, nil)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme(), Mapper: mapper})
}

// route returns the process that a load balancer sends a request to: that of the replica, or of another one.
func (w *world) route(to int) *process {
	for i := range w.replicas {
		if p := w.replicas[(to+i)%len(w.replicas)].process; p != nil && !isClosed(p.ended) {
			return p
		}
	}
	return nil
}

// note adds a line to the log of the run.
func (w *world) note(format string, args ...any) {
	if w.says != nil {
		w.says(time.Now().UTC().Format("15:04:05.000000 ")+format, args...)
	}
}

// remembers says whether a process runs that has watched AlertEvents without trouble since then, and can delete second copies.
func (w *world) remembers(since time.Time) bool {
	return slices.ContainsFunc(w.replicas, func(r *replica) bool {
		return r.running.Load() && time.Unix(0, r.troubled.Load()).Before(since)
	})
}

// later runs a chore after a while, or as soon as all faults end.
func (w *world) later(d time.Duration, chore func()) {
	w.chores.Go(func() {
		_ = sleep(context.Background(), d, w.healed)
		chore()
	})
}

// heal ends all faults and starts a replica if none runs.
func (w *world) heal() error {
	close(w.healed)
	w.chores.Wait()
	running := false
	for _, r := range w.replicas {
		for _, p := range r.all {
			p.heal()
			p.thaw()
		}
		running = running || r.process != nil
	}
	for _, a := range w.archive.archivers {
		a.heal()
	}
	w.server.Deny(policyName, nil)
	for _, namespace := range tenants {
		if !w.story.stays(namespace) {
			w.server.SetQuota(namespace, quotaName, nil)
		}
	}
	if running {
		return nil
	}
	return w.replicas[0].start()
}

// stop stops all processes as SIGTERM does, and returns why one did not stop.
func (w *world) stop() error {
	for _, r := range w.replicas {
		r.terminate()
	}
	for _, a := range w.archive.archivers {
		a.terminate()
	}
	for _, r := range w.replicas {
		if err := awaitAll(r.all); err != nil {
			return err
		}
	}
	for _, a := range w.archive.archivers {
		if err := awaitAll(a.all); err != nil {
			return err
		}
	}
	for _, a := range w.alertmanagers {
		_ = a.server.Close()
		a.listener.reset()
	}
	return nil
}
