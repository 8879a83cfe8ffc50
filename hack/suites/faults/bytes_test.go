//go:build slow

package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	memoryLimit    = 1 << 30 // of a replica: the chart's
	hostileTenants = 4
	hostilePause   = time.Second      // of a tenant between two attacks
	hostileObjects = 38               // of a tenant and kind, by hand: about 300 in all
	hostileLabels  = 4000             // of an object made by hand
	etcdQuota      = 8 << 30          // room for what the tenants store by hand
	maxStored      = 1 << 30          // half of etcd's default quota: what the managers may store
	restartPause   = 30 * time.Second // between two kills
	maxRestart     = 30 * time.Second // from a start until the replica is ready
	maxDelay       = 3 * time.Second  // of nine in ten of the neighbour's answers and folds, beside one attack
	maxDelayOfAll  = 15 * time.Second // and beside all at once
)

// hostileBytes has four tenants bring a thousand times the usual bytes to one door after the other, and then to most at once
// while replicas with the memory of the chart die. A fifth tenant goes on as usual, at first alone.
func hostileBytes(t *testing.T) {
	t.Helper()
	r := startRig(t, etcdQuota)
	groups := map[int]*memoryGroup{}
	for i := range 2 {
		binary := *manager
		if group, err := newMemoryGroup(fmt.Sprintf("tocsin-faults-%d", i), memoryLimit); err != nil {
			t.Log("without a limit of memory:", err)
		} else {
			t.Cleanup(group.remove) // after the end of the replica
			groups[i] = group
			binary = group.wrap(r, fmt.Sprintf("manager-%d", i))
		}
		r.addReplica(binary, elect)
	}
	r.waitReady()
	run := r.prepare()
	var tenants []tenant
	for range hostileTenants {
		tenants = append(tenants, r.newTenant())
	}
	restarts := run.attackInTurns(tenants, *attackTime)
	run.judgeBytes(groups, restarts)
}

// attackInTurns lets the neighbour go on alone, beside each attack, and beside many at once; the latter takes a quarter of the
// time. It returns how long each replica that was killed took to be ready again.
func (r *run) attackInTurns(tenants []tenant, total time.Duration) (restarts []time.Duration) {
	all := slices.Concat(requestAttacks, attacks)
	each := total * 3 / 4 / time.Duration(len(all)+1)
	r.neighbourBeside(attack{name: "alone"}, each)
	for _, one := range all {
		r.neighbourBeside(one, each, func(ctx context.Context) { attackAll(ctx, r, tenants, one) })
	}
	r.neighbourBeside(attack{name: "all at once", most: maxDelayOfAll}, total/4,
		func(ctx context.Context) { attackAll(ctx, r, tenants, attacks...) },
		func(ctx context.Context) { restarts = r.killFollowers(ctx) })
	return restarts
}

// attackAll has each tenant carry out the attacks side by side, until the context ends.
func attackAll(ctx context.Context, r *run, tenants []tenant, attacks ...attack) {
	var attackers sync.WaitGroup
	for _, t := range tenants {
		for _, one := range attacks {
			attackers.Go(func() { one.run(r, ctx, t) })
		}
	}
	attackers.Wait()
}

// neighbourBeside lets the neighbour go on for so long while the others act, and reports what it notices, and the memory.
func (r *run) neighbourBeside(beside attack, duration time.Duration, others ...func(context.Context)) {
	ctx, stop := context.WithTimeout(r.Context, duration)
	defer stop()
	before := make([]int64, len(r.replicas))
	for i, replica := range r.replicas {
		before[i] = replica.resetPeak()
	}
	n := &neighbour{run: r, tenant: r.tenants[0], name: beside.name}
	var all sync.WaitGroup
	for _, other := range others {
		all.Go(func() { other(ctx) })
	}
	n.goOn(ctx)
	all.Wait()
	n.judge(cmp.Or(beside.most, maxDelay))
	for i, replica := range r.replicas {
		_, peak, _ := testenv.Memory(replica.manager.PID())
		if growth := peak - before[i]; beside.growth > 0 && growth > beside.growth {
			r.T.Errorf("F: %s: the memory of %s grew by %d MiB", beside.name, replica.name, growth>>20)
		}
	}
}

// killFollowers kills the replica that does not lead from time to time, until the context ends, and returns how long each took to
// be ready again.
func (r *run) killFollowers(ctx context.Context) (restarts []time.Duration) {
	for pause(ctx, restartPause) {
		_, replica, err := r.leader(ctx)
		if err != nil {
			break
		}
		replica.kill()
		began := time.Now()
		pause(ctx, 2*restartDelay)
		err = replica.waitReady(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			r.T.Errorf("E: %v", err)
		}
		restarts = append(restarts, time.Since(began))
	}
	return restarts
}

// judgeBytes compares what the replicas took with what they may take.
func (r *run) judgeBytes(groups map[int]*memoryGroup, restarts []time.Duration) {
	stored, size := r.storedByManagers(), r.etcdSize()
	r.T.Logf("etcd has %d MiB, %d MiB of them stored by the managers", size>>20, stored>>20)
	if stored > maxStored {
		r.T.Errorf("F: the managers have stored %d MiB", stored>>20)
	}
	for i, group := range groups {
		r.T.Logf("%s had at most %d MiB", r.replicas[i].name, group.peak()>>20)
		if kills := group.kills(); kills > 0 {
			r.T.Errorf("F: %s was killed for its memory %d times", r.replicas[i].name, kills)
		}
	}
	var times []string
	for _, took := range restarts {
		times = append(times, took.Round(100*time.Millisecond).String())
		if took > maxRestart {
			r.T.Errorf("E: a replica was ready only %s after it was killed", took.Round(time.Second))
		}
	}
	r.T.Logf("ready after a kill in %s", strings.Join(times, ", "))
}

// attackByBytes takes turns with all attacks until the context ends.
func (r *run) attackByBytes(ctx context.Context, t tenant) {
	metadata := largeMetadata(t.namespace)
	large := v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{IntegrationName: integrationName}}
	for n := range 8 {
		large.Alerts = append(large.Alerts, v1alpha1.Alert{
			DedupKey: fmt.Sprint("large-", n), Status: v1alpha1.AlertFiring,
			AlertContent: v1alpha1.AlertContent{Custom: v1alpha1.Bag{"text": json.RawMessage(`"` + strings.Repeat("x", 500<<10) + `"`)}},
		})
	}
	_ = queue.Encode(&large)
	for n := 0; pause(ctx, hostilePause); n++ {
		metadata.Name = fmt.Sprint("large-", n/5%hostileObjects)
		switch n % 5 {
		case 0:
			_, _ = r.post(n, t.token, strings.NewReader(manyKeys(n/5)), nil)
		case 1:
			if n/5%2 == 0 {
				_, _ = r.post(n, t.token, strings.NewReader(fmt.Sprintf(`{"status":"resolved","dedup_key":"many-%d"}`, n/5)), nil)
			}
		case 2:
			_ = r.Client.Create(ctx, hostage(metadata, n))
		case 3:
			event := &v1alpha1.AlertEvent{Spec: large.Spec}
			event.Namespace, event.Name = t.namespace, fmt.Sprint("text-", n/5)
			_ = r.Client.Create(ctx, event)
		case 4:
			_ = r.Client.Create(ctx, &v1alpha1.WebhookIntegration{ObjectMeta: metadata, Spec: v1alpha1.WebhookIntegrationSpec{
				Tokens: testenv.Tokens(t.namespace, metadata.Name),
			}})
		}
	}
}

// largeMetadata is the largest that an API server stores, nearly: annotations have 256 KiB at most, labels any number, and the
// managed fields name each of them again.
func largeMetadata(namespace string) metav1.ObjectMeta {
	metadata := metav1.ObjectMeta{
		Namespace: namespace, Annotations: map[string]string{"large": strings.Repeat("x", 250<<10)}, Labels: map[string]string{},
	}
	for n := range hostileLabels {
		metadata.Labels[fmt.Sprintf("%063d", n)] = strings.Repeat("x", 63)
	}
	return metadata
}

// manyKeys is an alert with as many keys as 170 KiB have room for.
func manyKeys(n int) string {
	var body strings.Builder
	fmt.Fprintf(&body, `{"dedup_key":"many-%d"`, n)
	for key := range 17_000 {
		fmt.Fprintf(&body, `,"%04x":0`, key)
	}
	return body.String() + "}"
}

// storedByManagers is the size of the Incidents and of the AlertEvents that the managers have stored, as JSON.
func (r *run) storedByManagers() (bytes int64) {
	for _, list := range []client.ObjectList{&v1alpha1.IncidentList{}, &v1alpha1.AlertEventList{}} {
		for more := ""; ; {
			r.Must(r.Client.List(r.Context, list, client.Limit(20), client.Continue(more)))
			r.Must(meta.EachListItem(list, func(item runtime.Object) error {
				object, err := meta.Accessor(item)
				if err != nil || object.GetAnnotations()["large"] != "" || strings.HasPrefix(object.GetName(), "text-") ||
					strings.HasPrefix(object.GetName(), "tiny-") {
					return err // stored by hand
				}
				encoded, err := json.Marshal(item)
				bytes += int64(len(encoded))
				return err
			}))
			if more = list.GetContinue(); more == "" {
				break
			}
		}
	}
	return bytes
}

// ready returns the number of a replica that a load balancer would send to: one that is ready, if there is one.
func (r *run) ready(first int) int {
	for n := range r.replicas {
		if r.replicas[(first+n)%len(r.replicas)].isReady() {
			return first + n
		}
	}
	return first
}

// neighbour is a tenant who posts an alert with a new key each second, and waits for its Incident.
type neighbour struct {
	run    *run
	tenant tenant
	name   string // of what happens meanwhile, part of its keys

	mu               sync.Mutex
	answered, folded []time.Duration
}

func (n *neighbour) goOn(ctx context.Context) {
	var alerts sync.WaitGroup
	for i := 0; pause(ctx, time.Second); i++ {
		alerts.Go(func() { n.alert(ctx, i) })
	}
	alerts.Wait()
}

func (n *neighbour) alert(ctx context.Context, i int) {
	key := fmt.Sprintf("%s-%d", n.name, i)
	answered := untilDone(ctx, func() bool {
		// A load balancer sends to the replicas that are ready.
		a, err := n.run.post(n.run.ready(i), n.tenant.token, strings.NewReader(fmt.Sprintf(`{"dedup_key":%q}`, key)), nil)
		return err == nil && a.code == http.StatusAccepted
	})
	name := client.ObjectKey{Namespace: n.tenant.namespace, Name: v1alpha1.IncidentName(integrationName, key)}
	folded := untilDone(ctx, func() bool {
		var incident v1alpha1.Incident
		err := n.run.Client.Get(ctx, name, &incident)
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			pause(ctx, time.Second)
		}
		return err == nil && incident.Status.AlertCount > 0
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answered = append(n.answered, answered)
	n.folded = append(n.folded, folded)
}

// untilDone tries until something is done, and returns how long it took. What is not done when the context ends counts as done
// then, which is too early.
func untilDone(ctx context.Context, done func() bool) time.Duration {
	began, goesOn := time.Now(), true
	for goesOn && !done() {
		goesOn = pause(ctx, 200*time.Millisecond)
	}
	return time.Since(began)
}

// judge reports how long the neighbour's alerts took.
func (n *neighbour) judge(most time.Duration) {
	var figures []string
	for _, figure := range []struct {
		name  string
		times []time.Duration
	}{{"answered", n.answered}, {"folded", n.folded}} {
		if len(figure.times) == 0 {
			n.run.T.Errorf("E: %s: none of the neighbour's alerts was %s", n.name, figure.name)
			continue
		}
		slices.Sort(figure.times)
		at := func(q float64) time.Duration { return loadgen.Quantile(figure.times, q).Round(10 * time.Millisecond) }
		figures = append(figures, fmt.Sprintf("%s in %s, p90 %s, p99 %s", figure.name, at(0.5), at(0.9), at(0.99)))
		if at(0.9) > most {
			n.run.T.Errorf("E: %s: one in ten of the neighbour's alerts is %s only after %s", n.name, figure.name, at(0.9))
		}
	}
	n.run.T.Logf("%s: %s", n.name, strings.Join(figures, ", "))
}
