package fold

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

func TestLedger(t *testing.T) {
	t.Run("an event in the ledger is settled and not folded again", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		bench.fold(eventOf(1, firingAlert()))
		p := bench.fold(eventOf(1, firingAlert()))
		g.Expect(p.ToSettle).To(Equal([]types.UID{"uid-1"}))
		g.Expect(p.Results).To(BeEmpty())
		g.Expect(p.Write).To(BeFalse())
		g.Expect(p.Status.AlertCount).To(BeEquivalentTo(1))
	})
	t.Run("an entry stays while its event exists, however old it is", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		bench.fold(eventOf(1, firingAlert()))
		for n := 2; n <= 40; n++ {
			bench.fold(eventOf(n, firingAlert()))
			bench.gone[fmt.Sprintf("uid-%d", n)] = true
		}
		bench.fold(eventOf(41, firingAlert()))
		g.Expect(namesOf(bench.status().Ledger)).To(Equal([]string{"uid-1", "uid-41"}), "the others are gone")
	})
	t.Run("pruning alone is no reason to write", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		for n := 1; n <= 20; n++ {
			bench.fold(eventOf(n, firingAlert()))
			bench.gone[fmt.Sprintf("uid-%d", n)] = n > 1
		}
		g.Expect(bench.fold().Write).To(BeFalse())
		bench.gone["uid-1"] = true
		g.Expect(bench.fold().Write).To(BeFalse())
	})
}

func TestEventsThatWaitKeepAnIncidentOpen(t *testing.T) {
	for waiting, state := range map[bool]v1alpha1.IncidentState{true: v1alpha1.IncidentOpen, false: v1alpha1.IncidentResolved} {
		p := Decide(Input{
			Name: testName, Events: []*v1alpha1.AlertEvent{eventOf(1, firingAlert())}, HasMore: waiting,
			Listing: AllListed{}, Policy: Policy{AutoResolveAfter: 1}, Now: minute(1000),
		})
		NewWithT(t).Expect(p.Status.State).To(Equal(state))
	}
}

func TestFullLedger(t *testing.T) {
	firings := func(from, to int) []*v1alpha1.AlertEvent {
		events := []*v1alpha1.AlertEvent{}
		for n := from; n <= to; n++ {
			events = append(events, eventOf(n, firingAlert()))
		}
		return events
	}
	g := NewWithT(t)
	bench := newBench()
	bench.policy.AutoResolveAfter = 1
	bench.now = minute(-1)

	all := firings(1, 130)
	slices.Reverse(all)
	p := bench.fold(all...)
	g.Expect(p.LedgerFull).To(BeTrue(), "more events than fit")
	g.Expect(p.Status.AlertCount).To(BeEquivalentTo(v1alpha1.MaxLedger), "as many as fit are folded")
	g.Expect(p.Status.Ledger.Events).To(HaveLen(v1alpha1.MaxLedger))
	g.Expect(p.ToSettle).To(HaveLen(v1alpha1.MaxLedger))
	g.Expect(p.ToSettle[0]).To(BeEquivalentTo("uid-1"), "in order")

	bench.now = minute(1000)
	p = bench.fold(append(firings(1, 130), eventOf(131, resolvingAlert()))...)
	g.Expect(p.LedgerFull).To(BeTrue())
	g.Expect(p.Write).To(BeFalse(), "what waits keeps the Incident from resolving by itself")
	g.Expect(p.ToSettle).To(HaveLen(v1alpha1.MaxLedger), "what is in the ledger is settled all the same")

	bench.gone["uid-5"], bench.gone["uid-1"] = true, true
	p = bench.fold(firings(2, 131)...)
	g.Expect(p.LedgerFull).To(BeTrue(), "one more than the two that are gone")
	ledger := namesOf(p.Status.Ledger)
	g.Expect(ledger).To(HaveLen(v1alpha1.MaxLedger))
	g.Expect(ledger).NotTo(ContainElement("uid-1"), "the entries of gone events give way")
	g.Expect(ledger).To(ContainElements("uid-2", "uid-129", "uid-130"))

	bench.gone["uid-2"] = true
	p = bench.fold(firings(3, 131)...)
	g.Expect(p.LedgerFull).To(BeFalse())
	g.Expect(p.Status.AlertCount).To(BeEquivalentTo(131))
}

func TestUnmatchedEventsEnterTheLedgerAsFarAsThereIsRoom(t *testing.T) {
	g := NewWithT(t)
	events := []*v1alpha1.AlertEvent{}
	for n := 1; n <= 150; n++ {
		events = append(events, eventOf(n, resolvingAlert()))
	}
	p := newBench().fold(append(events, eventOf(151, firingAlert()), eventOf(152, firingAlert()))...)
	g.Expect(p.LedgerFull).To(BeTrue(), "the second firing alert waits for room")
	g.Expect(p.ToSettle).To(HaveLen(151))
	g.Expect(p.Status.AlertCount).To(BeEquivalentTo(1))
	ledger := namesOf(p.Status.Ledger)
	g.Expect(ledger).To(HaveLen(v1alpha1.MaxLedger))
	g.Expect(ledger[0]).To(Equal("uid-24"))
	g.Expect(ledger[v1alpha1.MaxLedger-1]).To(Equal("uid-151"))
}

// A manager that comes new to it must not count them for the Incident that they came before.
func TestUnmatchedEventsHaveTheirPlacesBeforeThoseThatWouldFillTheLedger(t *testing.T) {
	g := NewWithT(t)
	bench := newBench()
	events := []*v1alpha1.AlertEvent{}
	for n := 1; n <= 5; n++ {
		events = append(events, eventOf(n, resolvingAlert()))
	}
	for n := 6; n <= 6+v1alpha1.MaxLedger; n++ {
		events = append(events, eventOf(n, firingAlert()))
	}
	p := bench.fold(events...)
	g.Expect(p.LedgerFull).To(BeTrue())
	g.Expect(p.ToSettle).To(HaveLen(v1alpha1.MaxLedger))
	g.Expect(p.Status.AlertCount).To(BeEquivalentTo(v1alpha1.MaxLedger - 5))
	g.Expect(namesOf(p.Status.Ledger)[:6]).To(Equal([]string{"uid-1", "uid-2", "uid-3", "uid-4", "uid-5", "uid-6"}))

	for n := 6; n <= v1alpha1.MaxLedger; n++ {
		bench.gone[fmt.Sprintf("uid-%d", n)] = true
	}
	p = bench.fold(events...)
	g.Expect(p.Status.AlertCount).To(BeEquivalentTo(v1alpha1.MaxLedger + 1))
}

// An earlier fold has found them without an Incident.
func TestEventsThatWereSettledBeforeTheIncidentEnterTheLedger(t *testing.T) {
	g, bench := NewWithT(t), newBench()
	bench.gone["uid-2"] = true
	in := bench.input(eventOf(3, firingAlert()))
	in.Settled = []*v1alpha1.AlertEvent{eventOf(1, resolvingAlert()), eventOf(2, resolvingAlert())}
	g.Expect(namesOf(Decide(in).Status.Ledger)).To(Equal([]string{"uid-1", "uid-3"}), "as far as they exist")
}

func TestDigest(t *testing.T) {
	sum := func(ids ...string) string {
		var digest queue.Digest
		for _, id := range ids {
			digest.Add(id)
		}
		return digest.String()
	}
	t.Run("it does not depend on the order", func(t *testing.T) {
		NewWithT(t).Expect(sum("a", "b", "c")).To(Equal(sum("c", "a", "b")))
	})
	t.Run("it tells once from twice", func(t *testing.T) {
		NewWithT(t).Expect(sum("a", "b")).NotTo(Equal(sum("a", "b", "b")))
	})
	t.Run("one id gives the first half of its SHA-256", func(t *testing.T) {
		NewWithT(t).Expect(sum("abc")).To(Equal("ba7816bf8f01cfea414140de5dae2223"))
	})
	t.Run("it wraps around", func(t *testing.T) {
		digest := queue.ParseDigest("ffffffffffffffffffffffffffffffff")
		digest.Add("abc")
		NewWithT(t).Expect(digest.String()).To(Equal("ba7816bf8f01cfea414140de5dae2222"))
	})
	t.Run("what is no digest counts as zero", func(t *testing.T) {
		for _, text := range []string{"", "0", "no hexadecimal digits at all !!!", "ba7816bf"} {
			NewWithT(t).Expect(queue.ParseDigest(text)).To(Equal(queue.Digest{}))
		}
	})
	t.Run("late alerts are in it, unmatched and invalid ones are not", func(t *testing.T) {
		bench := newBench()
		other := firingAlert()
		other.DedupKey = "memory"
		bench.fold(eventOf(1, resolvingAlert()), eventOf(3, firingAlert(), other), eventOf(4, resolvingAlert()))
		bench.fold(eventOf(2, firingAlert()))
		NewWithT(t).Expect(bench.status().Ledger.Digest).To(Equal(sum("alert-3-0", "alert-4-0", "alert-2-0")))
	})
	t.Run("an alert without an id counts by its event and place", func(t *testing.T) {
		event := eventOf(1, resolvingAlert(), firingAlert())
		event.Alerts[1].ID = ""
		bench := newBench()
		bench.fold(event)
		NewWithT(t).Expect(bench.status().Ledger.Digest).To(Equal(sum("uid-1/1")))
	})
}
