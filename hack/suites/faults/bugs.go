package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// bug is a bug that the patch of its name seeds, and what must catch it: a scenario with such a manager, or a test of the
// product.
type bug struct {
	name     string
	scenario string
	args     []string // of the manager, beside the scenario's
	test     string   // package and name, such as "./controllers/fold TestExpiry"; empty: the scenario
	deviates bool     // it is one of the deviations of the simulation, which the oracle accepts: only the model rejects its steps
}

// oneWrite makes requests share AlertEvents.
var oneWrite = []string{"--max-in-flight-writes=1"}

var bugs = []bug{
	{name: "acknowledge-before-write", scenario: "kill-at-create"},
	{name: "retry-under-a-new-name", scenario: "weather"},
	{name: "uncertain-is-refused", scenario: "replies-lost"},
	{name: "queues-across-namespaces", scenario: "calm", args: oneWrite},
	{name: "delete-before-fold", scenario: "fold-blocked"},
	{name: "release-when-partly-settled", scenario: "fold-blocked", args: oneWrite},
	{name: "no-ledger", scenario: "release-blocked"},
	{name: "prune-before-gone", scenario: "release-blocked"},
	{name: "skip-quorum-list", scenario: "stale-events"},
	{name: "uncached-is-absent", scenario: "calm"},
	{name: "no-optimistic-lock", scenario: "stale-incidents"},
	{name: "high-water-mark", scenario: "watch-shuffled"},
	{name: "replays-count", scenario: "slow-retries"},
	{name: "restored-count", scenario: "queue-restored"},
	{name: "the-limit-is-a-kill-switch", scenario: "hostages"},
	{name: "any-order", scenario: "calm"},
	{name: "reopen-keeps-content", scenario: "calm"},
	{name: "late-for-ever", scenario: "repeated-alerts"},
	{name: "stale-resolves-end", scenario: "repeated-alerts"},
	{name: "downtime-is-silence", scenario: "api-outage"},
	{name: "outage-untold", test: "./webhookserver TestRefusalsAreTold"},
	{name: "any-clock", scenario: "clock-skew"},
	{name: "mark-before-write", scenario: "fold-blocked", args: oneWrite},
	{name: "marks-ignored", test: "./controllers/incident TestADeletedIncidentDoesNotComeBack"},
	{name: "retries-not-awaited", test: "./controllers/incident TestASecondCopyCountsOnce"},
	{name: "retries-awaited-from-start", test: "./internal/queue TestWhichEventsWaitForAReplicaThatRemembersMore"},
	{name: "stamp-ignored", test: "./controllers/fold TestFoldOrder"},
	{name: "updates-move", test: "./controllers/incident TestAnUpdateOfTheMetadataDoesNotMoveAnEvent"},
	{name: "expiry-ignored", test: "./controllers/fold TestExpiry"},
	{name: "old-times-count", test: "./controllers/fold TestReceivedTimeIsBoundByTheCreation"},
	{name: "forwarded-alerts-return", test: "./webhookserver TestForwardedAlertsAreDropped"},
	{name: "hops-unbounded", test: "./webhookserver TestHopsAreBounded"},
	{name: "federated-expiry-as-sent", test: "./webhookserver TestExpiryOfFederatedAlertsOutlastTheHeartbeat"},
	{name: "old-severity-fires", test: "./controllers/forward TestFireChangeResolve"},
	{name: "acknowledgement-covers-all", test: "./controllers/forward TestAnAcknowledgementSilencesNoHigherSeverity"},
	{name: "delete-before-archive", test: "./controllers/incident TestAnIncidentIsDeletedOnlyAfterItIsArchived"},
	{name: "note-over-any-version", test: "./controllers/archive TestAnIncidentThatChangesWhileItIsArchivedWaitsFurther"},
	{name: "archived-without-turns", test: "./controllers/archive TestNamespacesTakeTurns"},
	{name: "token-tag-ignored", test: "./webhookserver TestNobodyTakesATokenOver"},
	{name: "signatures-unchecked", test: "./webhookserver TestSignatures"},
	{name: "authorization-captured", test: "./webhookserver TestNoCredentialIsCaptured"},
	{name: "waiting-incidents-uncounted", test: "./webhookserver TestNoAlertIsAcceptedThatFindsNoPlace"},
	{name: "signed-for-any-path", test: "./webhookserver TestASignatureIsForOneOperation"},
	{name: "leads-under-older-definitions", test: "./internal/app TestNoAlertIsAcceptedUnderOlderDefinitions"},
	{name: "release-unnoticed", test: "./internal/leader TestAnOrderlyEndIsFollowedAtOnce"},
	{name: "slow-answers-end-terms", test: "./internal/leader TestNoTermEndsByItself"},
	{name: "canary-sees-one-namespace", test: "./controllers/incident TestACanaryIsSettledOnceAllWatchesShowWhatIsOlder"},
	{name: "denied-canary-tells-no-time", test: "./controllers/replica TestWhatTheAnswerToACanaryTells"},
	{name: "one-rejected-stops-all", test: "./controllers/forward TestRejectedAlertDelaysNoOther"},
	{name: "silences-of-others", test: "./controllers/forward TestInstallationsLeaveEachOthersSilencesAlone"},
	{name: "maintenance-forgets-forwarded", test: "./controllers/forward TestAWindowHoldsBackWhatIsNew"},
	{name: "held-is-posted", test: "./controllers/forward TestAnIncidentIsHeldBackUntilItsTime"},
	{name: "held-anew", test: "./controllers/fold TestAnIncidentIsHeldBack"},
	{name: "told-of-the-last-episode", test: "./controllers/fold TestAnIncidentIsHeldBack"},
	{name: "flapping-end-at-once", test: "./controllers/forward TestAnEndIsForwardedWhenAnIncidentIsQuiet"},
	{name: "flapping-end-forgotten", test: "./controllers/forward TestWhenAnEndIsForwardedThatWasKeptBack"},
	{name: "acknowledged-for-ever", test: "./controllers/fold TestAnAcknowledgementExpires"},
	{name: "assigned-for-ever", test: "./controllers/fold TestAnAssignmentEndsWithItsEpisode"},
	{name: "muted-until-written", test: "./controllers/forward TestAWindowEndsAlsoIfNoStatusCanBeWritten"},
	{name: "labels-change-while-muted", test: "./controllers/forward TestANewLeaderLearnsTheLabelsOfMutedIncidents"},
	{name: "former-labels-fire-on", test: "./controllers/forward TestNewLeaderEndsEarlierLabels"},
	{name: "ended-by-an-old-cache", test: "./controllers/forward TestANewLeaderWithAnOldCache"},
	{name: "lost-by-the-watch-is-not-forwarded", test: "./controllers/forward TestAnIncidentThatTheWatchLostIsForwarded"},
	{name: "labels-unlocked", test: "./controllers/incident TestLabelsAreSetOnlyOnTheIncidentThatWasRead"},
	{name: "labels-of-others", test: "./controllers/incident TestIncidentsAreSelectedByLabelsOfTheirAlerts"},
	{name: "downtime-is-a-miss", test: "./controllers/heartbeat TestWhileNobodyListensNothingIsMissed"},
	{name: "a-miss-is-late", test: "./controllers/heartbeat TestEachMissOpensTheIncident"},
	{name: "reports-without-turns", test: "./webhookserver TestNoNamespaceDelaysTheReportsOfAnotherOneByMoreThanAWrite"},
	{name: "a-success-hides-a-failure", test: "./webhookserver TestASignalEndsAFailureOnlyIfItCameLater"},
	{name: "last-received-forgotten", test: "./controllers/integration TestLastReceivedTimeIsWrittenOnceAMinute"},
	{name: "recovery-unnoticed", test: "./controllers/integration TestTheConditionsOfOthersShow"},
	{name: "conditions-by-own-clock", test: "./controllers/integration TestConditionsChangeByTheTimeOfTheAPIServer"},
	{name: "pages-by-number", test: "./internal/pages TestEach"},
	{name: "hidden-is-gone", test: "./controllers/incident TestHiddenAlertEventsTakeLittleOfAList"},
	{name: "heavy-lists-shared", test: "./controllers/incident TestNobodyWaitsForTheListOfAnotherNamespace"},
	{name: "absence-by-the-cache", test: "./controllers/incident TestAnotherLeaderActsRightBeforeARead"},
	{name: "reopened-is-evicted", test: "./controllers/sweep TestAnIncidentThatIsReopenedIsNotEvicted"},
	{name: "content-taken-from-readers", test: "./internal/queue TestWhatTheCacheHasShownStaysAsItIs"},
	{name: "stored-is-folded", test: "./controllers/replica TestWhatTheAnswerToACanaryTells"},
	{name: "known-since-the-future", test: "./controllers/heartbeat TestADefinitionIsKnownSinceNoTimeOfTheFuture"},
	{name: "times-stay-in-the-future", test: "./controllers/integration TestNoTimeOfAnIntegrationIsOfTheFuture"},
	{name: "wish-of-a-mark-is-lost", test: "./controllers/release TestAMarkThatIsWantedDuringAWriteIsWrittenNext"},
	{name: "mark-of-the-cache-ignored", test: "./controllers/incident TestAMarkIsHeededThatOnlyTheCacheShows"},
	{name: "eviction-forgets-writes", test: "./controllers/sweep TestTheCountsAreThoseOfARecount"},
	{name: "a-rise-leaves-the-gate-open", test: "./controllers/summary TestWhatDoesNotDifferChangesNoSummary"},
	{name: "ledger-keeps-what-is-gone", scenario: "calm", deviates: true},
	{name: "release-whatever-the-uid", scenario: "calm", deviates: true},
	{name: "mark-over-any-version", scenario: "calm", deviates: true},
	{name: "page-has-credentials", test: "./internal/page TestNoRequestBearsAnythingButTheUsersToken"},
}

// runBugs runs a manager with each bug, and reports whether all were caught.
func (s *suite) runBugs(ctx context.Context) (bool, error) {
	ok := true
	var lines []string
	for _, b := range bugs {
		if s.run != "" && !s.wanted.MatchString(b.name) {
			continue
		}
		said, err := s.runBug(ctx, b)
		if err != nil {
			s.dropRig()
			said = ""
			fmt.Printf("%s: %v\n", b.name, err)
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		verdict := "caught"
		if said == "" {
			verdict, ok = "MISSED", false
		}
		fmt.Printf("%-6s %s\n", verdict, b.name)
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |", b.name, cmp.Or(b.scenario, b.test), verdict, said))
	}
	fmt.Println("\n| Seeded bug | Scenario | | First finding |\n|---|---|---|---|")
	for _, text := range lines {
		fmt.Println(text)
	}
	return ok, nil
}

// patchFolder has the patches of bugs. Those of deviations lie in deviationFolder, and are named from patchFolder.
const (
	patchFolder     = "hack/suites/faults/bugs"
	deviationFolder = "../../simulation/deviations"
)

// patchFiles returns the paths of patches of the manager.
func patchFiles(names []string) []string {
	files := make([]string, len(names))
	for i, name := range names {
		files[i] = filepath.Join(testenv.Root(), patchFolder, name+".patch")
	}
	return files
}

// patches returns the names of the bug's patches: its scenario's, and its own.
func (b bug) patches() ([]string, error) {
	if b.test != "" {
		return []string{b.name}, nil
	}
	s, err := b.seeded()
	return s.patches, err
}

// seeded returns the bug's scenario with the bug in the manager.
func (b bug) seeded() (scenario, error) {
	at := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == b.scenario })
	if at < 0 {
		return scenario{}, fmt.Errorf("there is no scenario %q", b.scenario)
	}
	s := scenarios[at]
	s.patches = slices.Clone(s.patches)
	if b.deviates {
		s.patches = append(s.patches, filepath.Join(deviationFolder, b.name), filepath.Join(deviationFolder, "switch"))
		s.env = append(slices.Clone(s.env), "TOCSIN_DEVIATION="+b.name)
	} else {
		s.patches = append(s.patches, b.name)
	}
	s.args = append(slices.Clone(s.args), b.args...)
	return s, nil
}

// runTest runs the bug's test with the bug in the product, and returns the first test that failed.
func (b bug) runTest(ctx context.Context) (string, error) {
	folder, err := os.MkdirTemp("", "tocsin-bug-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file, _, err := overlay.Write(testenv.Root(), folder, patchFiles([]string{b.name})...)
	if err != nil {
		return "", err
	}
	pkg, name, _ := strings.Cut(b.test, " ")
	command := exec.CommandContext(ctx, "go", "test", "-overlay="+file, "-run=^"+name+"$", pkg)
	command.Dir = testenv.Root()
	output, err := command.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return "", err
	}
	if said := failedTest.FindString(string(output)); err == nil || said != "" {
		return said, nil
	}
	return "", fmt.Errorf("go test fails without a test that fails: %s", output)
}

// failedTest is the line of a test that fails.
var failedTest = regexp.MustCompile(`--- FAIL: \S+`)

// runBug runs a bug's test, or its scenario up to three times, and returns the first thing that was found.
func (s *suite) runBug(ctx context.Context, b bug) (string, error) {
	if b.test != "" {
		return b.runTest(ctx)
	}
	scenario, err := b.seeded()
	if err != nil {
		return "", err
	}
	if err := s.prepareRig(ctx, &scenario); err != nil {
		return "", err
	}
	for range 3 {
		result, err := s.rig.runScenario(ctx, &scenario)
		if err != nil {
			return "", err
		}
		found := slices.DeleteFunc(result.findings, func(finding string) bool {
			return b.deviates && !strings.HasPrefix(finding, "P: ")
		})
		if len(found) > 0 {
			first, _, _ := strings.Cut(found[0], "\n")
			return fmt.Sprintf("%s (%d in all)", first, len(found)), nil
		}
	}
	return "", nil
}
