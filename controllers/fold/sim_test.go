package fold

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// simulation is a cluster with two leaders at work at once, posts coming in, and everything going wrong
// that can: crashes between any two steps, stale reads, caches that show newer events before older ones,
// second copies of events, users who delete Incidents.
type simulation struct {
	cluster  *simCluster
	model    *simModel
	folders  []*simFolder
	now      time.Time
	names    []string // of the Incidents
	ids      int
	passOver bool // folders pass over what they remember as settled
	bug      simBug

	quietFrom time.Time // since when ingest could store alerts
	unknown   bool      // whether it can now
}

// simOp is one thing that happens; the numbers say to whom and how.
type simOp struct{ Kind, A, B, C, D int }

// simBug is a mistake made on purpose, to see that the simulation finds it.
type simBug string

const (
	bugNone             simBug = "none"
	bugPruneBeforeGone  simBug = "an entry leaves the ledger before its event is gone"
	bugNoQuorumList     simBug = "what exists is taken from the cache"
	bugDeleteBeforeFold simBug = "events are settled before the write"
	bugNoLedger         simBug = "the ledger is ignored"
	bugHighWaterMark    simBug = "what is below a high-water mark counts as seen"
	bugNoStamp          simBug = "the stamp is ignored"
	bugNoMemory         simBug = "second copies are folded"
	bugYoungMemory      simBug = "a replica folds retries before it remembers enough"
	bugMarkBeforeWrite  simBug = "an event is marked before the write"
	bugMarksIgnored     simBug = "marked events count as unsettled, and leave the ledger"
	bugUpdatesMove      simBug = "an update of the metadata moves an event in commit order"
)

// spoil makes the mistakes that can be made by what the fold is given.
func (b simBug) spoil(in *Input, cluster *simCluster) {
	if in.Incident == nil {
		return
	}
	spoilt := in.Incident.DeepCopy()
	ledger := &spoilt.Status.Ledger
	switch b {
	case bugPruneBeforeGone:
		if n := len(ledger.Events); n > 1 {
			ledger.Events = ledger.Events[n-1:]
		}
	case bugNoLedger:
		ledger.Events = nil
	case bugMarksIgnored:
		unmarked := cluster.listEvents(in.Name)
		ledger.Events = slices.DeleteFunc(ledger.Events, func(entry v1alpha1.LedgerEntry) bool { return !unmarked[entry.UID] })
	case bugNoStamp:
		ledger.ResourceVersion = ""
	case bugHighWaterMark:
		in.Events = slices.DeleteFunc(slices.Clone(in.Events), func(event *v1alpha1.AlertEvent) bool {
			return ledger.ResourceVersion != "" && !queue.NewerVersion(event.ResourceVersion, ledger.ResourceVersion)
		})
		ledger.Events = nil
	default:
		return
	}
	in.Incident = spoilt
}

func newSimulation(autoResolve, window time.Duration, passOver bool, bug simBug) *simulation {
	s := &simulation{cluster: newSimCluster(), now: testEpoch, passOver: passOver, bug: bug}
	s.model = &simModel{
		autoResolve: autoResolve, window: window, keys: map[string]v1alpha1.IncidentSpec{},
		lives: map[types.UID]*simLife{}, unmatched: map[string]bool{}, cluster: s.cluster,
	}
	for _, spec := range []v1alpha1.IncidentSpec{
		{IntegrationName: "mon", DedupKey: "disk"}, {IntegrationName: "mon", DedupKey: "memory"}, {IntegrationName: "web", DedupKey: "disk"},
	} {
		name := v1alpha1.IncidentName(spec.IntegrationName, spec.DedupKey)
		s.names = append(s.names, name)
		s.model.keys[name] = spec
	}
	s.folders = []*simFolder{newSimFolder(s), newSimFolder(s)}
	return s
}

// do lets one thing happen.
func (s *simulation) do(op simOp) error {
	folder := s.folders[op.A%2]
	name := s.names[min(op.B%5, 2)%3]
	switch op.Kind % 16 {
	case 0:
		switch op.D % 4 { // nothing for 0: the simplest operation
		case 1:
			s.touch(op.C)
		case 2, 3:
			folder.mark(op.C)
			if op.D%4 == 3 {
				return folder.run()
			}
		}
	case 1, 2, 3:
		s.post(s.event(name, op), 1+max(0, op.C%6-3), op)
	case 4:
		s.postByHand(name, op)
	case 5:
		s.postCopy(op)
	case 6:
		folder.watch(op.C, op.D%3 > 0, op.B%2 == 0)
		if op.B%3 == 0 {
			return folder.deleteCopies()
		}
	case 7, 8:
		folder.watch(op.C, op.D%3 > 0, op.D%2 == 0)
		folder.begin(name, op.C%5/4)
		return folder.run()
	case 9, 10:
		folder.watch(op.C, op.D%3 > 0, op.D%2 == 0)
		folder.begin(name, max(0, op.C%6-3))
	case 11, 12:
		return folder.step()
	case 13:
		for range 1 + op.C%4 {
			if _, err := folder.release(); err != nil {
				return err
			}
		}
	case 14:
		if err := s.deleteCopies(); err != nil { // they take seconds for it
			return err
		}
		s.now = s.now.Add(time.Duration(op.C%40) * time.Minute)
		if op.A%5 == 0 {
			s.quietFrom = s.now.Add(-time.Duration(op.B%20) * time.Minute)
		}
		s.unknown = op.A%7 == 0
	case 15:
		switch op.D % 4 {
		case 0:
			if s.isRemembered(s.folders[1-op.A%2]) {
				folder.crash()
			}
		case 1:
			s.cluster.deleteIncident(name)
		default:
			return folder.run()
		}
	}
	return nil
}

// event makes an AlertEvent without alerts.
func (s *simulation) event(name string, op simOp) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{}
	event.CreationTimestamp = metav1.NewTime(s.now)
	event.Spec.IntegrationName = s.model.keys[name].IntegrationName
	event.Spec.ReceivedTime = *timestamp(s.now.Add(time.Duration([]int{-6, -4, -1, 0, 1, 2}[op.D%6]) * time.Minute))
	if op.D%4 == 0 {
		event.Spec.Defaults = &v1alpha1.AlertDefaults{
			Severity: v1alpha1.SeverityError, Labels: map[string]v1alpha1.LabelValue{"b": v1alpha1.LabelValue(fmt.Sprint(op.C % 3))},
		}
	}
	return event
}

// post stores alerts for the Incident and maybe its neighbour, in one event with a name of the server's.
func (s *simulation) post(event *v1alpha1.AlertEvent, alerts int, op simOp) {
	for i := range alerts {
		spec := v1alpha1.IncidentSpec{IntegrationName: event.Spec.IntegrationName, DedupKey: "disk"}
		if spec.IntegrationName == "mon" && (op.B+i*op.D)%3 == 1 {
			spec.DedupKey = "memory"
		}
		s.ids++
		alert := s.alert(op.A/2+i*7, op.C/6+i*5)
		alert.ID, alert.DedupKey = fmt.Sprint("alert-", s.ids), spec.DedupKey
		alert.IncidentName = v1alpha1.IncidentName(spec.IntegrationName, spec.DedupKey)
		if (op.D/4+i)%19 == 7 {
			alert.DedupKey = "wrong"
		}
		event.Alerts = append(event.Alerts, alert)
	}
	event.Name = fmt.Sprintf("019f0000-0000-7000-8000-%012d", s.ids)
	s.store(event)
}

// postByHand stores an event as a user with kubectl does, under a name that was used before or not.
func (s *simulation) postByHand(name string, op simOp) {
	event := s.event(name, op)
	alert := s.alert(op.A, op.C)
	alert.Status = []v1alpha1.AlertStatus{v1alpha1.AlertAcknowledged, v1alpha1.AlertResolved, v1alpha1.AlertUnacknowledged}[op.A%3]
	alert.IncidentName, alert.Comment = name, ""
	event.Name = fmt.Sprint("by-hand-", op.C%4)
	event.Alerts = []v1alpha1.Alert{alert}
	s.store(event)
}

// postCopy stores a second copy of an event that was deleted a moment ago, as a retry does.
func (s *simulation) postCopy(op simOp) {
	var gone []*v1alpha1.AlertEvent
	for _, event := range s.cluster.all {
		if v1alpha1.IsGeneratedEventName(event.Name) && s.cluster.deleted[event.UID].at.Equal(s.now) {
			gone = append(gone, event)
		}
	}
	if len(gone) == 0 {
		return
	}
	copied := gone[len(gone)-1-op.C%min(len(gone), 6)].DeepCopy()
	copied.UID, copied.Annotations = "", map[string]string{v1alpha1.RetryAnnotation: "true"}
	s.store(copied)
	if s.cluster.events[copied.UID] != nil && !s.isRemembered(s.folders[0]) && !s.isRemembered(s.folders[1]) {
		delete(s.cluster.events, copied.UID) // the replica that retries was there when the first one was deleted
		s.cluster.all = s.cluster.all[:len(s.cluster.all)-1]
	}
}

// isRemembered reports whether a replica knows all second copies.
func (s *simulation) isRemembered(by *simFolder) bool {
	for _, event := range s.cluster.existing() {
		if s.cluster.firstOf(event) != nil && !by.remembers(event) {
			return false
		}
	}
	return true
}

// deleteCopies has each replica delete the second copies that it knows.
func (s *simulation) deleteCopies() error {
	return errors.Join(s.folders[0].deleteCopies(), s.folders[1].deleteCopies())
}

// touch updates the metadata of an event that the replicas have seen, as a user does.
func (s *simulation) touch(n int) {
	if events := s.cluster.existing(); len(events) > 0 {
		event := events[n%len(events)]
		for _, folder := range s.folders {
			folder.see(event)
		}
		_ = s.cluster.annotate(event, "touched", "true")
	}
}

func (s *simulation) store(event *v1alpha1.AlertEvent) {
	_ = s.cluster.createEvent(event) // the name may be taken
}

// alert draws an alert's status and content from two numbers.
func (s *simulation) alert(a, c int) v1alpha1.Alert {
	alert := v1alpha1.Alert{Status: []v1alpha1.AlertStatus{
		"firing", "resolved", "firing", "acknowledged", "firing", "noted", "unacknowledged", "resolved",
	}[a%8]}
	if alert.Status == v1alpha1.AlertNoted {
		alert.Comment = []string{"", "It is being repaired."}[c%2]
	}
	alert.Severity = []v1alpha1.Severity{"", "critical", "", "info"}[c%4]
	alert.Title = []string{"", "Disk full", "", "", "Disk fuller"}[c%5]
	alert.Description = []string{"", "", "It is full."}[c%3]
	if c%2 == 1 {
		alert.Labels = map[string]string{[]string{"a", "b", "c"}[c%3]: []string{"1", "x", `{"y":[null]}`, "2"}[a%4]}
	}
	if c%7 < 4 {
		alert.StartTime = timestamp(s.now.Add(-time.Duration(c%7*11) * time.Minute))
	}
	if alert.Status == v1alpha1.AlertResolved && a%4 == 1 {
		alert.EndTime = timestamp(s.now.Add(time.Duration(c%5-2) * time.Minute))
	}
	return alert
}

// settleDown lets everything come to rest with one leader that sees it all, and says what is wrong then.
func (s *simulation) settleDown() error {
	if err := s.deleteCopies(); err != nil {
		return err
	}
	folder := s.folders[0]
	folder.crash()
	s.now = s.now.Add(time.Minute)
	for round := 0; len(s.cluster.events) > 0; round++ {
		if round > 20 {
			return fmt.Errorf("%d events remain", len(s.cluster.events))
		}
		folder.watch(0, true, true)
		for _, name := range s.names {
			folder.begin(name, 0)
			if err := folder.run(); err != nil {
				return err
			}
		}
		for more, err := folder.release(); more || err != nil; more, err = folder.release() {
			if err != nil {
				return err
			}
		}
	}
	for _, name := range s.names {
		if incident := s.cluster.incident(name); incident != nil && incident.Status.State != "" {
			if err := s.model.compare(incident); err != nil {
				return err
			}
		}
	}
	return nil
}

// simulate lets the operations happen, and then everything come to rest.
func simulate(ops []simOp, autoResolve, window time.Duration, passOver bool, bug simBug) error {
	s := newSimulation(autoResolve, window, passOver, bug)
	for i, op := range ops {
		if err := s.do(op); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return s.settleDown()
}

func simOps() *rapid.Generator[[]simOp] {
	number := rapid.IntRange(0, 1<<12)
	op := rapid.Custom(func(t *rapid.T) simOp {
		return simOp{
			Kind: rapid.IntRange(0, 15).Draw(t, "kind"), A: number.Draw(t, "a"), B: number.Draw(t, "b"),
			C: number.Draw(t, "c"), D: number.Draw(t, "d"),
		}
	})
	return rapid.SliceOfN(op, 100, 300)
}

func TestFoldIsExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		autoResolve := rapid.SampledFrom([]time.Duration{0, 30 * time.Minute}).Draw(t, "autoResolveAfter")
		window := rapid.SampledFrom([]time.Duration{0, 30 * time.Second, 20 * time.Minute}).Draw(t, "lateFiringWindow")
		passOver := rapid.Bool().Draw(t, "passOver")
		if err := simulate(simOps().Draw(t, "ops"), autoResolve, window, passOver, bugNone); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTheSimulationFindsMistakes(t *testing.T) {
	for _, bug := range []simBug{
		bugPruneBeforeGone, bugNoQuorumList, bugDeleteBeforeFold, bugNoLedger, bugHighWaterMark, bugNoStamp,
		bugNoMemory, bugYoungMemory, bugMarkBeforeWrite, bugMarksIgnored, bugUpdatesMove,
	} {
		t.Run(string(bug), func(t *testing.T) {
			const tries = 2000
			for seed := range tries {
				if err := simulate(simOps().Example(seed), 0, 20*time.Minute, seed%2 == 0, bug); err != nil {
					t.Logf("found with seed %d: %v", seed, err)
					return
				}
			}
			t.Errorf("not found in %d runs", tries)
		})
	}
}
