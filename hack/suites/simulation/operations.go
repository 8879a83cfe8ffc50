package simulation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
)

type wait struct{ d time.Duration }

func (o wait) do(*world) { time.Sleep(o.d) }

// post sends one request, several times if it is repeated.
type post struct {
	tenant, to int
	alerts     []alert
	key        string // idempotency key
	times      int    // deliveries, at the same time if together
	together   bool
}

// repeatAfter is the pause between deliveries of a request.
const repeatAfter = 700 * time.Millisecond

func (o post) do(w *world) {
	namespace := tenantName(o.tenant)
	if o.key == "" { // every try is a request of its own, as of a sender that does not know of keys
		for i := range o.times {
			w.senders.deliver(w.senders.request(namespace, o.alerts, ""), o.to+i)
		}
		return
	}
	r := w.senders.request(namespace, o.alerts, o.key)
	for i := range o.times {
		if o.together {
			w.senders.deliver(r, o.to+i)
		} else {
			w.later(time.Duration(i)*repeatAfter, func() { w.senders.deliver(r, o.to+i) })
		}
	}
}

// burst sends many requests at a steady rate, in the background.
type burst struct {
	tenant, count, keys int
	over                time.Duration
	salt                uint64 // decides the alerts
	keyed               bool   // each request has an idempotency key of its own
}

func (o burst) do(w *world) {
	w.chores.Go(func() {
		random := seededReader{state: o.salt}
		number := random.number
		for i := range o.count {
			key := ""
			if o.keyed {
				key = fmt.Sprintf("burst %d, request %d", o.salt, i)
			}
			var alerts []alert
			for range 1 + number(3)*number(2) {
				a := alert{key: number(o.keys), status: statuses[number(len(statuses))], severity: severities[number(len(severities))]}
				alerts = append(alerts, a)
			}
			w.senders.deliver(w.senders.request(tenantName(o.tenant), alerts, key), number(len(w.replicas)))
			select {
			case <-w.healed:
				return
			case <-time.After(o.over / time.Duration(o.count)):
			}
		}
	})
}

var (
	severities = []string{"critical", "error", "warning", "info"}
	statuses   = []string{"firing", "firing", "firing", "resolved", "acknowledged"}
)

// Deaths and births of processes.
type (
	kill      struct{ replica int }
	terminate struct{ replica int }
	start     struct{ replica int }
	freeze    struct {
		replica int
		d       time.Duration
	}
)

// setClock makes the clock of a replica's node wrong for a while.
type setClock struct {
	replica int
	ahead   time.Duration
	d       time.Duration
}

func (o setClock) do(w *world) {
	clock := &w.replicas[o.replica].clock
	clock.Set(o.ahead)
	w.later(o.d, func() { clock.Set(0) })
}

// setServerClock makes the clock of the API server wrong for a while.
type setServerClock struct{ ahead, d time.Duration }

func (o setServerClock) do(w *world) {
	w.serverAhead.Store(int64(o.ahead))
	w.later(o.d, func() { w.serverAhead.Store(0) })
}

// forgets says whether an operation makes replicas read everything anew.
func forgets(o operation) bool {
	switch o := o.(type) {
	case kill, terminate, compact:
		return true
	case trouble:
		return o.effect == expire || o.effect == behind
	default:
		return false
	}
}

func replicaName(i int) string { return fmt.Sprint("replica-", i) }

func (o kill) do(w *world)      { w.replicas[o.replica].kill() }
func (o terminate) do(w *world) { w.replicas[o.replica].terminate() }

func (o start) do(w *world) {
	if err := w.replicas[o.replica].start(); err != nil {
		panic(err)
	}
}

func (o freeze) do(w *world) {
	p := w.replicas[o.replica].process
	if p == nil {
		return
	}
	p.freeze()
	w.replicas[o.replica].trouble(o.d)
	w.later(o.d, p.thaw)
}

// trouble is a fault between a replica and the API server.
type trouble struct {
	replica int
	effect
	target
	count int // how many calls; 0: all
	delay time.Duration
	d     time.Duration
}

func (o trouble) do(w *world) {
	p := w.replicas[o.replica].process
	if p == nil {
		return
	}
	left := o.count
	if left == 0 {
		left = -1
	}
	concernsMemory := o.resource == "" || o.resource == "alertevents"
	if concernsMemory && o.verb != "create" && o.effect != lag { // a lag is shorter than a retry is doubtful
		lasts := o.d + o.delay
		if o.effect == drop { // a deletion that is lost is never learned
			lasts += rememberTime
		}
		w.replicas[o.replica].trouble(lasts)
	}
	p.add(fault{target: o.target, effect: o.effect, delay: o.delay, until: time.Now().Add(o.d), left: left})
}

// compact makes the API server forget its history.
type compact struct{}

func (compact) do(w *world) {
	for _, r := range w.replicas {
		r.trouble(0)
	}
	w.server.Expire()
}

// quota limits the objects of a tenant for a while.
type quota struct {
	tenant   int
	resource string
	more     int64         // than there are
	d        time.Duration // 0: to the end, also after all other faults
}

const (
	quotaName  = "quota"
	policyName = "policy"
	backupTool = "velero-server"
)

func (o quota) do(w *world) {
	namespace := tenantName(o.tenant)
	used := int64(len(w.objects(o.resource, namespace)))
	w.server.SetQuota(namespace, quotaName, map[string]int64{"count/" + o.resource + ".tocsin.dev": used + o.more})
	if o.d > 0 {
		w.later(o.d, func() { w.server.SetQuota(namespace, quotaName, nil) })
	}
}

// deny has a policy deny writes for a while, or a webhook with a code of its choice.
type deny struct {
	what string // of denied
	code int32  // 0: it is a policy
	d    time.Duration
}

// denied are the writes that a policy may deny.
var denied = map[string]target{
	"creation of Incidents": {"create", "incidents"}, "forbidden content of Incidents": {"", "incidents/status"},
	"status of Incidents": {"", "incidents/status"}, "creation of AlertEvents": {"create", "alertevents"},
}

func (o deny) do(w *world) {
	target, ok := denied[o.what]
	if !ok {
		panic("no policy denies " + o.what)
	}
	w.server.DenyWith(policyName, o.code, func(call *apiserver.Call, object map[string]any) string {
		title, _, _ := unstructured.NestedString(object, "status", "alert", "title")
		isForbidden := title == forbiddenTitle || !strings.HasPrefix(o.what, "forbidden")
		if call.Client != userClient && target.matches(call) && isForbidden && !call.Query.Has("dryRun") {
			return "not allowed"
		}
		return ""
	})
	w.later(o.d, func() { w.server.Deny(policyName, nil) })
}

// restore backs up the AlertEvents, and restores those that are gone a while later.
type restore struct {
	labelled bool // by Velero, which labels what it restores; another tool does not
	d        time.Duration
}

func (o restore) do(w *world) {
	var backup []*unstructured.Unstructured
	for _, namespace := range tenants {
		backup = append(backup, w.objects("alertevents", namespace)...)
	}
	due := time.Now().Add(o.d)
	w.later(o.d, func() {
		if o.labelled || !time.Now().Before(due) {
			w.restore(backup, o.labelled)
		}
	})
}

// restore creates AlertEvents again that are gone. Without a label, those that users made cannot be told from new ones.
func (w *world) restore(backup []*unstructured.Unstructured, labelled bool) {
	for _, saved := range backup {
		generated := v1alpha1.IsGeneratedEventName(saved.GetName()) || v1alpha1.IsKeyedEventName(saved.GetName())
		if !labelled && !generated {
			continue
		}
		restored := saved.DeepCopy()
		restored.SetUID("")
		restored.SetResourceVersion("")
		restored.SetManagedFields(nil)
		restored.SetFinalizers(nil)
		if labelled {
			labels := restored.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[v1alpha1.RestoreLabel] = "backup"
			restored.SetLabels(labels)
		}
		_ = w.backups.Create(context.Background(), restored)
	}
}

type deleteNamespace struct{ tenant int }

func (o deleteNamespace) do(w *world) { w.deletePath("/api/v1/namespaces/" + tenantName(o.tenant)) }
