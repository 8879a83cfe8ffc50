package simulation

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// longestDelay is that of requests and responses.
const longestDelay = 150 * time.Second

// serverJump is how far the clock of the API server jumps. What waits for a time may wait for so much longer.
const serverJump = 20 * time.Second

// chapters is how many slices of operations a story has.
const chapters = 6

// drawStory draws a story. It shrinks to fewer operations, and to the first of each choice.
func drawStory(t *rapid.T) *Story {
	s := &Story{Settings: Settings{
		Replicas:    oneOf(t, "replicas", 2, 2, 2, 3),
		Elect:       oneOf(t, "elect", true, true, false),
		Writes:      oneOf(t, "writes", 8, 1, 1),
		AutoResolve: oneOf(t, "autoResolve", false, false, true),
		HoldBack:    rapid.Bool().Draw(t, "holdBack"),
		Forget:      oneOf(t, "forget", false, false, true),
		Forward:     oneOf(t, "forward", false, false, true),
	}}
	switch oneOf(t, "bound", "", "", "", "limit", "forbidden") {
	case "limit":
		s.MaxIncidents = 8
	case "forbidden":
		s.Forbidden = true
	}
	var pause []operation
	d := &drawer{replicas: s.Replicas, breaches: oneOf(t, "breaches", false, false, false, true)}
	s.Operations, pause = d.drawTheme(t, s)
	for chapter := range chapters { // rapid likes short slices
		for _, scene := range rapid.SliceOfN(scenes(d), 0, 12).Draw(t, fmt.Sprint("chapter ", chapter)) {
			s.Operations = append(s.Operations, scene...)
		}
		s.Operations = append(s.Operations, pause...)
	}
	d.drawArchive(t, s)
	return s
}

// scenes draws one operation, or a few that are worth more together. Its kinds are weighted: most of them are posts.
func scenes(d *drawer) *rapid.Generator[[]operation] {
	one := func(draw func(*rapid.T) operation) func(*rapid.T) []operation {
		return func(t *rapid.T) []operation { return []operation{draw(t)} }
	}
	kinds := []struct {
		weight int
		draw   func(*rapid.T) []operation
	}{
		{16, one(d.post)}, {16, one(d.wait)}, {10, one(d.burst)}, {12, one(d.trouble)}, {8, one(d.watchTrouble)},
		{6, one(d.process)}, {6, one(d.user)}, {4, one(d.report)}, {4, one(d.policy)}, {2, one(d.restore)}, {2, one(d.setClock)},
		{1, d.secondCopy}, {1, d.deletedIncident}, {1, one(d.manyKeys)}, {2, one(d.alertmanager)},
	}
	var weighted []func(*rapid.T) []operation
	for _, k := range kinds {
		for range k.weight {
			weighted = append(weighted, k.draw)
		}
	}
	return rapid.Custom(func(t *rapid.T) []operation {
		return weighted[rapid.IntRange(0, len(weighted)-1).Draw(t, "kind")](t)
	})
}

// drawer draws operations for so many replicas.
type drawer struct {
	replicas int
	breaches bool // watches may break their promise
}

func (d *drawer) replica(t *rapid.T) int { return rapid.IntRange(0, d.replicas-1).Draw(t, "replica") }

// tenant draws the first one most of the time, so that faults meet.
func (d *drawer) tenant(t *rapid.T) int {
	return oneOf(t, "tenant", 0, 0, 0, 1)
}

func (d *drawer) key(t *rapid.T) int { return rapid.IntRange(0, 4).Draw(t, "key") }

func (d *drawer) which(t *rapid.T) int { return rapid.IntRange(0, 5).Draw(t, "which") }

func (d *drawer) salt(t *rapid.T) uint64 { return rapid.Uint64Range(0, 9999).Draw(t, "salt") }

func oneOf[T any](t *rapid.T, name string, choices ...T) T {
	return rapid.SampledFrom(choices).Draw(t, name)
}

// short is how long a fault lasts.
func (d *drawer) short(t *rapid.T) time.Duration {
	return oneOf(t, "for", 2*time.Second, 500*time.Millisecond, 5*time.Second, 12*time.Second, 35*time.Second)
}

func (d *drawer) wait(t *rapid.T) operation {
	return wait{oneOf(t, "wait",
		time.Second, 100*time.Millisecond, 300*time.Millisecond, 3*time.Second, 8*time.Second, 20*time.Second, 45*time.Second)}
}

func (d *drawer) alert(t *rapid.T) alert {
	a := alert{
		key:       d.key(t),
		status:    oneOf(t, "status", "firing", "firing", "firing", "resolved", "resolved", "acknowledged"),
		severity:  oneOf(t, "severity", severities...),
		forbidden: oneOf(t, "forbidden", false, false, false, false, false, true),
	}
	times := []time.Duration{0, 0, 0, 0, atFirst, 500 * time.Millisecond, 10 * time.Second, time.Minute}
	a.starts = oneOf(t, "startsAt", times...)
	if a.status == "resolved" {
		a.ends = oneOf(t, "endsAt", times...)
	}
	return a
}

func (d *drawer) post(t *rapid.T) operation {
	o := post{
		tenant: d.tenant(t), to: d.replica(t),
		alerts: rapid.SliceOfN(rapid.Custom(d.alert), 1, 3).Draw(t, "alerts"),
		key:    oneOf(t, "idempotency key", "", "", "k1", "k2", "k3"),
		times:  oneOf(t, "times", 1, 1, 1, 2, 3),
	}
	o.together = o.times > 1 && rapid.Bool().Draw(t, "together")
	return o
}

func (d *drawer) burst(t *rapid.T) operation {
	return burst{
		tenant: d.tenant(t),
		count:  rapid.IntRange(2, 40).Draw(t, "count"),
		keys:   rapid.IntRange(1, 5).Draw(t, "keys"),
		over:   oneOf(t, "over", 2*time.Second, 100*time.Millisecond, 500*time.Millisecond, 5*time.Second),
		salt:   d.salt(t),
	}
}

// targets are the calls that faults concern.
var targets = []target{
	{"create", "alertevents"}, {"update", "incidents/status"}, {"delete", "alertevents"}, {"create", "incidents"},
	{"get", "alertevents"}, {"list", "alertevents"}, {"get", "incidents"}, {"patch", "alertevents"}, {"update", "alertevents"},
	{"patch", "incidents"},
	{"", "alertevents"}, {"", "incidents"}, {"", "leases"}, {"patch", "webhookintegrations/status"}, {"patch", "heartbeats/status"},
	{"delete", "incidents"},
	{"", ""},
}

func (d *drawer) trouble(t *rapid.T) operation {
	o := trouble{
		replica: d.replica(t),
		effect:  oneOf(t, "effect", lose, lose, hang, late, slow, answerLate, refuse, reject, throttle),
		target:  oneOf(t, "target", targets...),
		count:   oneOf(t, "calls", 1, 2, 5, 0),
		d:       d.short(t),
	}
	if o.effect == late || o.effect == slow || o.effect == answerLate {
		short := []time.Duration{time.Second, 200 * time.Millisecond, 4 * time.Second, 15 * time.Second}
		long := []time.Duration{50 * time.Second, longestDelay}
		o.delay = oneOf(t, "delay", slices.Concat(short, short, long)...)
	}
	return o
}

func (d *drawer) watchTrouble(t *rapid.T) operation {
	effects := []effect{lag, stall, end, expire, behind}
	if d.breaches {
		effects = append(effects, drop, repeat, swap, rewind)
	}
	o := trouble{
		replica: d.replica(t),
		effect:  oneOf(t, "effect", effects...),
		target: target{"watch", oneOf(t, "resource",
			"alertevents", "alertevents", "incidents", "webhookintegrations", "maintenancewindows", "heartbeats", "leases", "")},
		d: d.short(t),
	}
	switch o.effect {
	case lag:
		o.delay = oneOf(t, "delay", 200*time.Millisecond, time.Second, 3*time.Second)
	case end, expire, rewind:
		o.count = 1
	case drop, repeat, swap:
		o.count = oneOf(t, "events", 1, 3, 0)
	case behind:
		o.verb = ""
	default:
	}
	return o
}

func (d *drawer) process(t *rapid.T) operation {
	r := d.replica(t)
	switch oneOf(t, "process", "kill", "start", "stop", "freeze", "start") {
	case "kill":
		return kill{r}
	case "stop":
		return terminate{r}
	case "freeze":
		return freeze{r, oneOf(t, "for", 5*time.Second, time.Second, 20*time.Second, 40*time.Second)}
	default:
		return start{r}
	}
}

func (d *drawer) user(t *rapid.T) operation {
	tenant := d.tenant(t)
	resource := oneOf(t, "resource", "incidents", "incidents", "incidents", "alertevents", "alertevents", "webhookintegrations",
		"webhookintegrations", "maintenancewindows")
	switch oneOf(t, "user", "delete", "label", "hold", "suspend", "lease", "window", "window", "hush") {
	case "delete":
		return remove{tenant, resource, d.which(t)}
	case "label":
		return edit{tenant, resource, d.which(t)}
	case "hold":
		return hold{tenant, resource, d.which(t), d.short(t)}
	case "suspend":
		return suspend{tenant, d.short(t)}
	case "hush":
		return hush{tenant, hushFor}
	case "window":
		return maintain{
			tenant, oneOf(t, "after", -time.Second, 0, 5*time.Second), oneOf(t, "window", 20*time.Second, 0, 3*time.Minute, time.Hour),
		}
	default:
		return removeLease{}
	}
}

func (d *drawer) report(t *rapid.T) operation {
	statuses, longest := []string{"acknowledged", "resolved", "noted", "unacknowledged", "firing"}, time.Duration(0)
	if olderProgram == nil { // the baseline knows no assignments, and no acknowledgements that end
		statuses, longest = append(statuses, "assigned", "assigned", "unassigned", "silenced", "silenced"), time.Hour
	}
	return report{
		tenant: d.tenant(t), key: d.key(t), status: oneOf(t, "status", statuses...),
		to:      oneOf(t, "to", "maria", "alex"),
		unnamed: oneOf(t, "unnamed", false, false, true),
		lasts:   min(oneOf(t, "lasts", 0, 0, time.Minute, 2*time.Minute, time.Hour), longest),
	}
}

func (d *drawer) policy(t *rapid.T) operation {
	switch oneOf(t, "policy", "quota", "quota", "deny", "deny", "compact", "namespace") {
	case "quota":
		return quota{
			d.tenant(t), oneOf(t, "resource", "incidents", "alertevents"), rapid.Int64Range(0, 2).Draw(t, "more"), d.short(t),
		}
	case "deny":
		names := []string{"creation of Incidents", "forbidden content of Incidents", "status of Incidents", "creation of AlertEvents"}
		codes := []int32{0, 0, 400, 401, 404, 409, 500}
		return deny{oneOf(t, "what", names...), oneOf(t, "code", codes...), d.short(t)}
	case "namespace":
		return deleteNamespace{1}
	default:
		return compact{}
	}
}

func (d *drawer) setClock(t *rapid.T) operation {
	ahead := oneOf(t, "ahead", 20*time.Second, -20*time.Second, 90*time.Second, -90*time.Second, time.Hour, -time.Hour)
	if rapid.IntRange(0, 3).Draw(t, "whose clock") == 3 {
		return setServerClock{oneOf(t, "server ahead", serverJump, -serverJump), d.short(t)}
	}
	lasting := oneOf(t, "for", 2*time.Second, 12*time.Second, 35*time.Second, 2*time.Minute, 10*time.Minute)
	return setClock{d.replica(t), ahead, lasting}
}

func (d *drawer) alertmanager(t *rapid.T) operation {
	return breakAlertmanager{
		rapid.IntRange(0, alertmanagers-1).Draw(t, "alertmanager"),
		oneOf(t, "broken", isAway, answers503, neverAnswers, works), rapid.Bool().Draw(t, "forgets"),
		d.short(t),
	}
}

// secondCopy draws a create whose response hangs until the AlertEvent is folded, released and out of the ledger, while another
// replica begins anew. Then the retry is stored, and the writer is slow to see it.
func (d *drawer) secondCopy(t *rapid.T) []operation {
	writer, tenant, key := d.replica(t), d.tenant(t), d.key(t)
	reader := (writer + 1) % d.replicas
	status := oneOf(t, "status", "firing", "resolved")
	return []operation{
		trouble{replica: writer, effect: hang, target: target{"create", "alertevents"}, count: 1, d: 2 * time.Second},
		post{tenant: tenant, to: writer, times: 1, alerts: []alert{{key: key, status: status}}},
		wait{300 * time.Millisecond},
		burst{tenant: tenant, count: 20, keys: key + 1, over: 500 * time.Millisecond, salt: d.salt(t)},
		wait{oneOf(t, "wait", time.Second, 300*time.Millisecond, 3*time.Second)},
		trouble{replica: writer, effect: lag, target: target{"watch", "alertevents"}, delay: time.Second, d: 12 * time.Second},
		kill{reader}, start{reader},
		d.wait(t),
	}
}

// manyKeys draws more requests with idempotency keys than a ledger has space for.
func (d *drawer) manyKeys(t *rapid.T) operation {
	salt := d.salt(t)
	return burst{tenant: d.tenant(t), count: v1alpha1.MaxLedger + 12, keys: 1, over: 5 * time.Second, salt: salt, keyed: true}
}

// deletedIncident draws a user who deletes an Incident while an AlertEvent stays for its idempotency key, and a replica that
// begins anew.
func (d *drawer) deletedIncident(t *rapid.T) []operation {
	tenant, reader := d.tenant(t), d.replica(t)
	return []operation{
		post{tenant: tenant, to: reader, times: 1, alerts: []alert{{key: d.key(t), status: "firing"}},
			key: oneOf(t, "idempotency key", "k4", "k5", "k6")},
		wait{time.Second},
		remove{tenant, "incidents", d.which(t)},
		wait{300 * time.Millisecond},
		kill{reader}, start{reader},
		d.wait(t),
	}
}

func (d *drawer) restore(t *rapid.T) operation {
	if rapid.Bool().Draw(t, "unlabelled") {
		return restore{d: 70 * time.Second} // what is restored within a minute cannot be told from what is new
	}
	return restore{labelled: true, d: d.short(t)}
}
