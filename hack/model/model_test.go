package main

import (
	"math/bits"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/protocol"
)

const mostStates = 3_000_000

func TestTheProtocolHoldsInEveryScope(t *testing.T) {
	for _, c := range scopes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			found, err := c.explore(mostStates)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.wrong).To(BeEmpty(), found.String())
			t.Log(found.String())
		})
	}
}

// Each rule of the protocol is needed: the model notices when it is broken.
func TestEachBrokenRuleIsNoticed(t *testing.T) {
	const (
		lost      = "nothing is lost"
		twice     = "nothing is counted twice"
		pruned    = "an entry leaves the ledger only after its event is gone or marked"
		overtaken = "no alert is settled as unmatched behind an older one that is not folded"
	)
	cases := map[string]struct {
		rule  protocol.Rule
		scope string
		wrong string
	}{
		"an event is marked before the status is written":      {protocol.MarkBeforeWrite, "an Incident is refused", lost},
		"an event is deleted before the status is written":     {protocol.DeleteBeforeWrite, "two leaders", lost},
		"a fold ignores marks":                                 {protocol.MarksIgnored, "an Incident is refused", twice},
		"nothing is marked":                                    {protocol.NoMarks, "an Incident is refused", "no other Incident waits for one that is refused"},
		"nothing is marked at the limit of Incidents":          {protocol.NoMarks, "an Incident makes room", "every event is released in the end"},
		"an entry leaves the ledger before its event":          {protocol.PrunedEarly, "two leaders", pruned},
		"a fold trusts the cache about which events exist":     {protocol.CacheForList, "two leaders", twice},
		"the events are listed before the Incident is read":    {protocol.ListBeforeRead, "two leaders", twice},
		"a status is written over a newer one":                 {protocol.NoPrecondition, "two leaders", pruned},
		"names are not remembered":                             {protocol.NoMemory, "second copies", twice},
		"names are remembered for one term":                    {protocol.MemoryOfOneTerm, "second copies", twice},
		"a process folds retries before it remembers names":    {protocol.YoungDoesNotWait, "second copies", twice},
		"a first attempt that was stored late is trusted":      {protocol.LateAttemptTrusted, "second copies", twice},
		"an event is released when one Incident settled it":    {protocol.ReleasedInPart, "a batch of two Incidents", lost},
		"an absence is believed without a quorum read":         {protocol.AbsenceByCache, "two leaders", "the final state equals the replay in commit order"},
		"older events are looked for after the decision":       {protocol.OlderOfCache, "caches that list anew", overtaken},
		"alerts overtake one that waits":                       {protocol.WaitingOvertaken, "an alert behind a retry", overtaken},
		"an event that is kept for its key is not marked":      {protocol.LingeringUnmarked, "users delete Incidents", twice},
		"an Incident is deleted with entries of events":        {protocol.EvictedUnmarked, "retention", twice},
		"an Incident that is being deleted is written":         {protocol.FoldedTerminating, "users delete Incidents", "nothing is folded into an Incident that is being deleted"},
		"a ledger has no limit":                                {protocol.NoLedgerLimit, "two leaders", "the ledger is bounded"},
		"the events are listed before the Incident is created": {protocol.CreatedAfterList, "retention", twice},
	}
	var all protocol.Rule
	for name, tc := range cases {
		all |= tc.rule
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			c := scopeNamed(tc.scope)
			g.Expect(c).NotTo(BeNil())
			c.broken = tc.rule
			found, err := c.explore(mostStates)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.wrong).To(Equal(tc.wrong), found.String())
			g.Expect(found.trace).NotTo(BeEmpty())
			g.Expect(strings.Join(found.trace, "\n")).NotTo(ContainSubstring("unknown step"))
		})
	}
	for n, name := range protocol.RuleNames {
		NewWithT(t).Expect(all&(1<<n)).NotTo(BeZero(), "no case breaks %s", name)
	}
	NewWithT(t).Expect(all).To(BeEquivalentTo(1<<len(protocol.RuleNames)-1), "each rule has a name")
	NewWithT(t).Expect(protocol.RuleNames[bits.TrailingZeros32(uint32(protocol.NoMemory))]).To(Equal("no-memory"), "in their order")
	NewWithT(t).Expect(protocol.RuleNames[bits.TrailingZeros32(uint32(protocol.NoLedgerLimit))]).To(Equal("no-ledger-limit"))
}

// The limits that docs/guarantees.md states are real: beyond them, alerts are counted twice.
func TestBeyondItsBoundsASecondCopyCounts(t *testing.T) {
	cases := map[string]func(c *scope){
		"all processes that saw the first copy deleted end": func(c *scope) { c.left.crashes = 2 },
		"the only process ends":                             func(c *scope) { c.processes = 1 },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			c := scopeNamed("second copies")
			g.Expect(c).NotTo(BeNil())
			change(c)
			found, err := c.explore(mostStates)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.wrong).To(Equal("nothing is counted twice"), found.String())
		})
	}
}

// scopeNamed returns the scope of a name, nil if there is none.
func scopeNamed(name string) *scope {
	for _, c := range scopes {
		if c.name == name {
			return &c
		}
	}
	return nil
}
