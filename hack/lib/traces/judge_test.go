package traces_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/traces"
)

const namespace = "team"

// incidentName is that of all Incidents here.
var incidentName = v1alpha1.IncidentName("app", "key")

// site is an API server with a judge, and a process. A test has each of them do something.
type site struct {
	judge    *traces.Judge
	process  *traces.Process
	revision int64
	version  int64 // of the Incident
	now      time.Time
	status   map[string]any
}

func newSite(options traces.Options) *site {
	s := &site{
		judge: traces.New(options), process: traces.NewProcess("replica"),
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), revision: 1,
	}
	s.process.Shown("", s.revision, true, s.now)
	return s
}

func (s *site) commit(resource string, kind watch.EventType, object map[string]any, by *traces.Process, call, body string) {
	s.revision++
	s.now = s.now.Add(time.Millisecond)
	verb, subresource, _ := strings.Cut(call, " ")
	s.judge.Commit(&traces.Commit{
		Commit: apiserver.Commit{
			Revision: s.revision, Type: kind, Resource: resource, Object: object,
			Call: &apiserver.Call{Verb: verb, Subresource: subresource, Body: []byte(body)},
		},
		At: s.now, By: by,
	})
}

func eventOf(name string) map[string]any {
	status := strings.TrimRight(name, "0123456789")
	return map[string]any{
		"metadata": map[string]any{"namespace": namespace, "name": name, "uid": name},
		"spec":     map[string]any{"integrationName": "app", "alerts": fmt.Sprintf(`[{"status":%q,"dedupKey":"key"}]`, status)},
	}
}

// store stores an AlertEvent with an alert of this status, and a number.
func (s *site) store(name string) {
	s.commit(traces.AlertEvents, watch.Added, eventOf(name), nil, "", "")
}

// show has the watch show everything.
func (s *site) show() { s.process.Shown("", s.revision, false, s.now) }

func (s *site) list() { s.process.Listed("", s.revision) }

func (s *site) read() {
	s.judge.Read(s.process, types.NamespacedName{Namespace: namespace, Name: incidentName}, s.now)
}

func (s *site) incident(kind watch.EventType, by *traces.Process, call, body string) {
	s.commit(traces.Incidents, kind, map[string]any{
		"metadata": map[string]any{"namespace": namespace, "name": incidentName}, "status": s.status,
	}, by, call, body)
	s.version = s.revision
}

func (s *site) create() { s.incident(watch.Added, s.process, "create", "") }

// write writes the status over a version, with these AlertEvents in the ledger.
func (s *site) write(over int64, state string, ledger ...string) {
	var entries []any
	for _, uid := range ledger {
		entries = append(entries, map[string]any{"uid": uid})
	}
	s.status = map[string]any{"state": state, "ledger": map[string]any{"events": entries}}
	s.incident(watch.Modified, s.process, "update status", fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"}}`, over))
}

func (s *site) mark(name string, over int64) {
	event := eventOf(name)
	meta, _ := event["metadata"].(map[string]any)
	meta["annotations"] = map[string]any{v1alpha1.SettledAnnotation: "1/*"}
	s.commit(traces.AlertEvents, watch.Modified, event, s.process, "patch", fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"}}`, over))
}

func (s *site) release(name string) {
	s.commit(traces.AlertEvents, watch.Deleted, eventOf(name), s.process, "delete", fmt.Sprintf(`{"preconditions":{"uid":%q}}`, name))
}

func (s *site) userDeletes(name string) {
	s.commit(traces.AlertEvents, watch.Deleted, eventOf(name), nil, "delete", "")
}

func (s *site) evict() {
	s.incident(watch.Deleted, s.process, "delete", fmt.Sprintf(`{"preconditions":{"resourceVersion":"%d"}}`, s.version))
}

// open opens the Incident with one event, and releases that.
func (s *site) open() {
	s.store("firing1")
	s.show()
	s.create()
	s.list()
	s.write(s.version, "Open", "firing1")
	s.release("firing1")
	s.show()
}

func TestSteps(t *testing.T) {
	for sentence, test := range map[string]struct {
		steps    func(s *site)
		rejected string // the step; empty: none is
	}{
		"an event is folded and released": {steps: (*site).open},
		"an Incident is created for nothing": {
			steps: (*site).create, rejected: "create Incident",
		},
		"an Incident is created for an event that is gone": {
			steps: func(s *site) { s.store("firing1"); s.show(); s.userDeletes("firing1"); s.create(); s.list() },
		},
		"the events are listed before the Incident is created": {
			steps: func(s *site) {
				s.store("firing1")
				s.show()
				s.list()
				s.create()
				s.write(s.version, "Open", "firing1")
			},
			rejected: "write over version 3, with the ledger [0]",
		},
		"a status is written without a condition": {
			steps:    func(s *site) { s.store("firing1"); s.show(); s.create(); s.list(); s.write(0, "Open", "firing1") },
			rejected: "write over version 0",
		},
		"an event is folded that the cache does not show": {
			steps: func(s *site) {
				s.open()
				s.store("firing2")
				s.list()
				s.write(s.version, "Open", "firing2")
			},
			rejected: "with the ledger [1]",
		},
		"an event overtakes an older one": {
			steps: func(s *site) {
				s.open()
				s.store("resolved2")
				s.store("firing3")
				s.show()
				s.list()
				s.write(s.version, "Open", "firing3")
			},
			rejected: "with the ledger [2]",
		},
		"an entry stays in the ledger when its event is gone": {
			steps: func(s *site) {
				s.open()
				s.store("firing2")
				s.show()
				s.list()
				s.write(s.version, "Open", "firing1", "firing2")
			},
			rejected: "with the ledger [0 1]",
		},
		"an entry leaves the ledger before its event": {
			steps: func(s *site) {
				s.open()
				s.store("firing2")
				s.show()
				s.list()
				s.write(s.version, "Open", "firing2")
				s.list()
				s.write(s.version, "Open")
			},
			rejected: "with the ledger []",
		},
		"a status is written for what the time changes": {
			steps: func(s *site) { s.open(); s.list(); s.write(s.version, "Resolved") },
		},
		"an event is released that is not settled": {
			steps: func(s *site) { s.store("firing1"); s.show(); s.release("firing1") }, rejected: "delete AlertEvent",
		},
		"an event matches nothing": {
			steps: func(s *site) { s.store("resolved1"); s.show(); s.list(); s.read(); s.release("resolved1") },
		},
		"an absence is known from before the list": {
			steps:    func(s *site) { s.store("resolved1"); s.show(); s.read(); s.list(); s.release("resolved1") },
			rejected: "delete AlertEvent",
		},
		"an older event could open the Incident that is absent": {
			steps: func(s *site) {
				s.store("firing1")
				s.store("resolved2")
				s.show()
				s.list()
				s.read()
				s.release("resolved2")
			},
			rejected: "delete AlertEvent",
		},
		"events from before the Incident enter its ledger": {
			steps: func(s *site) {
				s.store("resolved1")
				s.store("firing2")
				s.show()
				s.create()
				s.list()
				s.write(s.version, "Open", "resolved1", "firing2")
			},
		},
		"a mark is written over any version": {
			steps: func(s *site) {
				s.open()
				s.store("firing2")
				s.show()
				s.list()
				s.write(s.version, "Open", "firing2")
				s.mark("firing2", 0)
			},
			rejected: "mark AlertEvent",
		},
		"an event is marked that is not settled": {
			steps: func(s *site) { s.store("firing1"); s.mark("firing1", s.revision) }, rejected: "mark AlertEvent",
		},
		"an Incident is evicted while its ledger is needed": {
			steps: func(s *site) {
				s.open()
				s.store("resolved2")
				s.show()
				s.list()
				s.write(s.version, "Resolved", "resolved2")
				s.list()
				s.evict()
			},
			rejected: "delete version",
		},
		"an Incident is evicted": {
			steps: func(s *site) {
				s.open()
				s.store("resolved2")
				s.show()
				s.list()
				s.write(s.version, "Resolved", "resolved2")
				s.release("resolved2")
				s.show()
				s.list()
				s.evict()
			},
		},
		"a ledger has more than 64 events": {
			steps: func(s *site) {
				var names []string
				for n := range 100 {
					names = append(names, fmt.Sprint("firing", n))
					s.store(names[n])
				}
				s.show()
				s.create()
				s.list()
				s.write(s.version, "Open", names...)
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			s := newSite(traces.Options{})
			test.steps(s)
			if test.rejected == "" {
				g.Expect(s.judge.Findings()).To(BeEmpty())
			} else {
				g.Expect(s.judge.Findings()).To(HaveLen(1))
				g.Expect(s.judge.Findings()[0]).To(ContainSubstring(test.rejected))
			}
		})
	}
}
