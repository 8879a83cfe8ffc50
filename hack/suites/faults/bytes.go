package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/packing"
)

const (
	memoryLimit    = 1 << 30 // of a replica: the chart's
	hostileTenants = 4
	hostilePause   = time.Second      // of a tenant between two attacks
	hostileObjects = 38               // of a tenant and kind, by hand: about 300 in all
	hostileLabels  = 4000             // of an object made by hand
	etcdQuota      = 8 << 30          // room for what the tenants store by hand
	maxStored      = 1 << 30          // half of etcd's default quota: what the managers may store
	restartPause   = time.Minute      // between two kills
	maxRestart     = 30 * time.Second // from a start until the replica is ready
	maxDelay       = 3 * time.Second  // of the neighbour's answers and folds
)

// hostileBytes has four tenants bring a thousand times the usual bytes, each in all the ways that are known, while the
// replicas have the memory of the chart and die from time to time, and a fifth tenant goes on as usual.
func hostileBytes(ctx context.Context, s *suite) (*report, error) {
	s.dropRig()
	rig, err := s.newRig(ctx, etcdQuota)
	if err != nil {
		return nil, err
	}
	defer rig.close()
	result := &report{}
	groups := make([]*memoryGroup, 2)
	for i := range groups {
		if groups[i], err = newMemoryGroup(fmt.Sprintf("tocsin-faults-%d", i), memoryLimit); err != nil {
			result.void = err.Error()
			return result, nil
		}
		defer groups[i].remove()
		binary := rig.binary
		if rig.binary, err = groups[i].wrap(binary, filepath.Join(rig.folder, fmt.Sprintf("manager-%d", i))); err != nil {
			return nil, err
		}
		replica, err := rig.newReplica(i, []string{"--leader-elect", "--leader-election-namespace=" + systemNamespace}, nil)
		if err != nil {
			return nil, err
		}
		rig.replicas, rig.binary = append(rig.replicas, replica), binary
	}
	defer rig.stopReplicas()
	run, _, err := rig.prepare(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, s.attack)
	defer stop()
	neighbour := &neighbour{run: run, tenant: run.tenants[0]}
	var load sync.WaitGroup
	for range hostileTenants {
		t, err := rig.newTenant(ctx)
		if err != nil {
			return nil, err
		}
		load.Go(func() { run.attackByBytes(ctx, t) })
	}
	load.Go(func() { neighbour.goOn(ctx) })
	restarts := run.killFollowers(ctx, result)
	load.Wait()
	neighbour.report(result)
	return result, run.judgeBytes(context.WithoutCancel(ctx), result, groups, restarts)
}

// killFollowers kills the replica that does not lead from time to time, until the context ends, and returns how long each took to
// be ready again.
func (r *run) killFollowers(ctx context.Context, result *report) (restarts []time.Duration) {
	for pause(ctx, restartPause) {
		_, replica, err := r.roles(ctx)
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
			result.findings.Add("E: %v", err)
		}
		restarts = append(restarts, time.Since(began))
	}
	return restarts
}

// judgeBytes compares what the replicas took with what they may take.
func (r *run) judgeBytes(ctx context.Context, result *report, groups []*memoryGroup, restarts []time.Duration) error {
	stored, err := r.storedByManagers(ctx)
	if err != nil {
		return err
	}
	size, err := r.history.size(ctx)
	if err != nil {
		return err
	}
	result.notes = append(result.notes, fmt.Sprintf("etcd has %d MiB, %d MiB of them stored by the managers", size>>20, stored>>20))
	if stored > maxStored {
		result.findings.Add("F: the managers have stored %d MiB", stored>>20)
	}
	for i, group := range groups {
		result.notes = append(result.notes, fmt.Sprintf("%s had at most %d MiB", r.replicas[i].name, group.peak()>>20))
		if kills := group.kills(); kills > 0 {
			result.findings.Add("F: %s was killed for its memory %d times", r.replicas[i].name, kills)
		}
	}
	var times []string
	for _, took := range restarts {
		times = append(times, took.Round(100*time.Millisecond).String())
		if took > maxRestart {
			result.findings.Add("E: a replica was ready only %s after it was killed", took.Round(time.Second))
		}
	}
	result.notes = append(result.notes, "ready after a kill in "+strings.Join(times, ", "))
	return nil
}

// attackByBytes takes turns with all attacks until the context ends.
func (r *run) attackByBytes(ctx context.Context, t tenant) {
	metadata := largeMetadata(t.namespace)
	packed := v1alpha1.AlertEventSpec{IntegrationName: integrationName}
	for n := range 8 {
		packed.Alerts = append(packed.Alerts, v1alpha1.Alert{
			DedupKey: fmt.Sprint("packed-", n), Status: v1alpha1.AlertFiring,
			AlertContent: v1alpha1.AlertContent{Custom: v1alpha1.Bag{"text": json.RawMessage(`"` + strings.Repeat("x", 500<<10) + `"`)}},
		})
	}
	_ = packing.Pack(&packed)
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
			event := hostage(t.namespace, n)
			event.ObjectMeta = metadata
			event.Finalizers = []string{"example.com/hostage"}
			_ = r.admin.Create(ctx, event)
		case 3:
			event := &v1alpha1.AlertEvent{Spec: packed}
			event.Namespace, event.Name = t.namespace, fmt.Sprint("packed-", n/5)
			_ = r.admin.Create(ctx, event)
		case 4:
			_ = r.admin.Create(ctx, &v1alpha1.WebhookIntegration{ObjectMeta: metadata, Spec: v1alpha1.WebhookIntegrationSpec{
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
func (r *run) storedByManagers(ctx context.Context) (bytes int64, err error) {
	for _, list := range []client.ObjectList{&v1alpha1.IncidentList{}, &v1alpha1.AlertEventList{}} {
		for more := ""; ; {
			if err := r.admin.List(ctx, list, client.Limit(20), client.Continue(more)); err != nil {
				return 0, err
			}
			err := meta.EachListItem(list, func(item runtime.Object) error {
				object, err := meta.Accessor(item)
				if err != nil || object.GetAnnotations()["large"] != "" || strings.HasPrefix(object.GetName(), "packed-") {
					return err // stored by hand
				}
				encoded, err := json.Marshal(item)
				bytes += int64(len(encoded))
				return err
			})
			if err != nil {
				return 0, err
			}
			if more = list.GetContinue(); more == "" {
				break
			}
		}
	}
	return bytes, nil
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
	began := time.Now()
	key := fmt.Sprint("usual-", i)
	for {
		// A load balancer sends to the replicas that are ready.
		a, err := n.run.post(n.run.ready(i), n.tenant.token, strings.NewReader(fmt.Sprintf(`{"dedup_key":%q}`, key)), nil)
		if err == nil && a.code == http.StatusAccepted {
			break
		}
		if !pause(ctx, 200*time.Millisecond) {
			return
		}
	}
	answered := time.Since(began)
	began = time.Now()
	name := client.ObjectKey{Namespace: n.tenant.namespace, Name: v1alpha1.IncidentName(integrationName, key)}
	for {
		var incident v1alpha1.Incident
		err := n.run.admin.Get(ctx, name, &incident)
		if err == nil && incident.Status.AlertCount > 0 {
			break
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			pause(ctx, time.Second)
		}
		if !pause(ctx, 200*time.Millisecond) {
			break // counted as folded at the end, which is too early
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answered = append(n.answered, answered)
	n.folded = append(n.folded, time.Since(began))
}

func (n *neighbour) report(result *report) {
	result.acknowledged = len(n.answered)
	for _, figure := range []struct {
		name  string
		times []time.Duration
	}{{"answered", n.answered}, {"folded", n.folded}} {
		if len(figure.times) == 0 {
			result.findings.Add("E: none of the neighbour's alerts was %s", figure.name)
			continue
		}
		slices.Sort(figure.times)
		at := func(q float64) time.Duration { return loadgen.Quantile(figure.times, q).Round(10 * time.Millisecond) }
		result.notes = append(result.notes, fmt.Sprintf("%s: median %s, p90 %s, p99 %s", figure.name, at(0.5), at(0.9), at(0.99)))
		if at(0.9) > maxDelay {
			result.findings.Add("E: one in ten of the neighbour's alerts is %s only after %s", figure.name, at(0.9))
		}
	}
}
