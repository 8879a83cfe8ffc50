package protocol

// Rule is a rule of the protocol, or several. The model breaks each one, to show that it is needed.
type Rule uint32

// The rules, named for what happens without them.
const (
	MarkBeforeWrite Rule = 1 << iota
	DeleteBeforeWrite
	MarksIgnored
	NoMarks
	PrunedEarly
	CacheForList
	ListBeforeRead
	NoPrecondition
	NoMemory
	MemoryOfOneTerm
	YoungDoesNotWait
	LateAttemptTrusted
	ReleasedInPart
	AbsenceByCache
	OlderOfCache
	WaitingOvertaken
	LingeringUnmarked
	EvictedUnmarked
	FoldedTerminating
	NoLedgerLimit
	CreatedAfterList
)

// RuleNames are the names of the rules, in their order.
var RuleNames = []string{
	"mark-before-write", "delete-before-write", "marks-ignored", "no-marks", "pruned-early", "cache-for-list", "list-before-read",
	"no-precondition", "no-memory", "memory-of-one-term", "young-does-not-wait", "late-attempt-trusted", "released-in-part",
	"absence-by-cache", "older-of-cache", "waiting-overtaken", "lingering-unmarked", "evicted-unmarked", "folded-terminating",
	"no-ledger-limit", "created-after-list",
}

// Folds reports whether anything is folded into an Incident: not while it is being deleted.
func (broken Rule) Folds(known Incident) bool {
	return !known.Deleting || broken&FoldedTerminating != 0
}

// Creates reports whether a process may create an Incident: its cache shows an event that opens it, or did a moment ago.
func Creates(opening, shown Set) bool { return !opening.And(shown).IsEmpty() }

// Marks reports whether a process may mark an event for an Incident, as it knows it to be settled for these Incidents.
func (broken Rule) Marks(settled Set, incident int) bool {
	return settled.Has(incident) && broken&NoMarks == 0
}

// Releases reports whether a process may delete an event with alerts of some Incidents, as it knows it to be settled for these.
func (broken Rule) Releases(settled, concerned Set) bool {
	return settled.Contains(concerned) || !settled.IsEmpty() && broken&ReleasedInPart != 0
}

// DeletesCopy reports whether a process may delete an event unfolded: it remembers that another one of its name was deleted.
func (broken Rule) DeletesCopy(remembers bool) bool { return remembers && broken&NoMemory == 0 }

// Waits reports whether an event that may be a second copy has to wait: this process does not remember all deletions since its
// first attempt was sent, and others have not had the time to delete it.
func (broken Rule) Waits(doubtful, remembers, hadTime bool) bool {
	return doubtful && !remembers && !hadTime && broken&YoungDoesNotWait == 0
}
