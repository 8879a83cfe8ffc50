package fold

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// flap folds a firing and a resolving alert, the content of which is of this size and does not compress.
func (b *foldBench) flap(n, size int) Plan {
	b.now = minute(n)
	text := make([]byte, size)
	for i := range text {
		text[i] = byte('!' + rand.N(90))
	}
	firing := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{
		Title: fmt.Sprint("flap ", n), Description: string(text), Severity: v1alpha1.SeverityError,
	})
	opening, ending := eventOf(2*n, firing), eventOf(2*n+1, resolvingAlert())
	defer func() { b.gone[string(opening.UID)], b.gone[string(ending.UID)] = true, true }() // released
	return b.fold(opening, ending)
}

func flappingBench() *foldBench {
	b := newBench()
	b.policy.LateFiringWindow = 0
	b.archiveRequired = true
	return b
}

// digest is that of the Incident's ledger; empty if there is no Incident.
func (b *foldBench) digest() string {
	if b.incident == nil {
		return ""
	}
	return b.status().Ledger.Digest
}

// archive notes that everything is archived, as the archiver does.
func (b *foldBench) archive() {
	ended := EndedEpisodes(b.status())
	newest := ended[len(ended)-1]
	b.status().Archive = &v1alpha1.ArchiveStatus{State: v1alpha1.ArchiveComplete, Episode: newest.Number, Digest: newest.Digest}
}

func TestTheDescriptionOfAnEpisode(t *testing.T) {
	g, b := NewWithT(t), newBench()
	firing := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: "Disk full", Severity: v1alpha1.SeverityWarning})
	worse := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Severity: v1alpha1.SeverityCritical})
	better := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Severity: v1alpha1.SeverityInfo})
	ack, end := acknowledgingAlert(), resolvingAlert()
	ack.By, end.By = "anna", "ben"
	b.fold(eventOf(1, firing), eventOf(2, worse), eventOf(3, ack), eventOf(4, better))
	_, ok := DescribeEpisode(b.status())
	g.Expect(ok).To(BeFalse(), "it has not ended")
	b.fold(eventOf(5, end))
	e, ok := DescribeEpisode(b.status())
	g.Expect(ok).To(BeTrue())
	g.Expect(e.Timeline).To(HaveLen(5))
	e.Timeline, e.Alert = nil, v1alpha1.AlertContent{}
	g.Expect(e).To(Equal(EndedEpisode{
		Number: 1, StartTime: *minuteStamp(1), OpenedTime: *minuteStamp(1), LastAlertTime: *minuteStamp(4),
		AcknowledgedTime: *minuteStamp(3), AcknowledgedBy: "anna",
		ResolvedTime: *minuteStamp(5), ResolvedBy: "ben", Resolution: v1alpha1.ReasonResolvedByUser, AlertCount: 3,
		InitialSeverity: v1alpha1.SeverityWarning, HighestSeverity: v1alpha1.SeverityCritical, Severity: v1alpha1.SeverityInfo,
		Digest: b.status().Ledger.Digest,
	}))
}

// Somebody may have written such a status by hand.
func TestOnlyAWholeEpisodeThatHasEndedIsDescribed(t *testing.T) {
	for sentence, status := range map[string]v1alpha1.IncidentStatus{
		"it is open":         {State: v1alpha1.IncidentOpen, Episode: &v1alpha1.Episode{}, ResolvedTime: minuteStamp(1)},
		"it has no episode":  {State: v1alpha1.IncidentResolved, ResolvedTime: minuteStamp(1)},
		"nobody saw its end": {State: v1alpha1.IncidentResolved, Episode: &v1alpha1.Episode{}},
	} {
		_, ok := DescribeEpisode(&status)
		NewWithT(t).Expect(ok).To(BeFalse(), sentence)
		NewWithT(t).Expect(EndedEpisodes(&status)).To(BeEmpty(), sentence)
	}
}

func TestTheSeveritiesOfAnEpisodeWhoseTimelineHasLostItsOpening(t *testing.T) {
	g, b := NewWithT(t), newBench()
	b.fold(eventOf(1, firingAt("warning")))
	b.note(2, v1alpha1.MaxTimeline)
	b.fold(eventOf(3, resolvingAlert()))
	e, _ := DescribeEpisode(b.status())
	g.Expect([]v1alpha1.Severity{e.InitialSeverity, e.HighestSeverity}).To(HaveEach(v1alpha1.SeverityWarning), "the only one known")
}

func TestAReopenedIncidentKeepsItsEndedEpisodeUntilItIsArchived(t *testing.T) {
	g, b := NewWithT(t), flappingBench()
	b.flap(1, 100)
	ended, _ := DescribeEpisode(b.status())
	b.flap(2, 100)
	kept := b.status().UnarchivedEpisodes
	g.Expect(kept).To(HaveLen(1))
	unpacked, err := UnpackEpisode(&kept[0])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(unpacked).To(Equal(ended))
	g.Expect(EndedEpisodes(b.status())).To(Equal([]v1alpha1.UnarchivedEpisode{
		{Number: 1, Digest: ended.Digest, ResolvedTime: *minuteStamp(3)},
		{Number: 2, Digest: b.status().Ledger.Digest, ResolvedTime: *minuteStamp(5)},
	}))

	second, _ := DescribeEpisode(b.status())
	g.Expect(kindsOf(second.Timeline)).To(Equal([]v1alpha1.TransitionType{v1alpha1.TransitionReopened, v1alpha1.TransitionResolved}))
	g.Expect(b.status().Archive).To(Equal(&v1alpha1.ArchiveStatus{State: v1alpha1.ArchiveWaiting}))
	g.Expect(IsArchived(b.status())).To(BeFalse())

	b.status().Archive.Episode, b.status().Archive.Digest = 1, ended.Digest // the second one came too late for the archiver
	g.Expect(IsArchived(b.status())).To(BeFalse())
	b.flap(3, 100)
	g.Expect(b.status().UnarchivedEpisodes).To(HaveLen(1), "the first one is archived")
	b.archive()
	b.flap(4, 100)
	g.Expect(b.status().UnarchivedEpisodes).To(BeEmpty())
	g.Expect(b.status().Archive.State).To(Equal(v1alpha1.ArchiveWaiting))
	g.Expect(b.status().Episode.Number).To(BeEquivalentTo(4))
}

func TestAnIncidentFromBeforeTheArchiveWaitsForIt(t *testing.T) {
	g, b := NewWithT(t), flappingBench()
	b.archiveRequired = false
	b.flap(1, 100)
	g.Expect(b.status().Archive).To(BeNil())
	g.Expect(b.fold().Write).To(BeFalse())
	b.archiveRequired = true
	g.Expect(b.fold().Write).To(BeTrue())
	g.Expect(b.status().Archive.State).To(Equal(v1alpha1.ArchiveWaiting))
	g.Expect(b.fold().Write).To(BeFalse(), "once")
	b.archive()
	g.Expect(b.fold().Write).To(BeFalse())
}

// As an archiver that has lost the lease may leave it.
func TestAnOutdatedNoteIsCorrected(t *testing.T) {
	g, b := NewWithT(t), flappingBench()
	b.flap(1, 100)
	b.status().Archive = &v1alpha1.ArchiveStatus{State: v1alpha1.ArchiveComplete, Episode: 1, Digest: "another version"}
	g.Expect(IsArchived(b.status())).To(BeFalse())
	g.Expect(b.fold().Write).To(BeTrue())
	g.Expect(b.status().Archive.State).To(Equal(v1alpha1.ArchiveWaiting))
}

func TestAnEpisodeWithAlertsThatCameAfterItWasArchivedIsKept(t *testing.T) {
	late, again := firingAlert(), firingAlert()
	late.StartTime, again.StartTime = minuteStamp(1), minuteStamp(90)
	for sentence, fold := range map[string]func(g *WithT, b *foldBench){
		"until the next one opens": func(g *WithT, b *foldBench) {
			b.fold(eventOf(4, late))
			g.Expect(b.status().State).To(Equal(v1alpha1.IncidentResolved))
			g.Expect(b.status().Archive.State).To(Equal(v1alpha1.ArchiveWaiting))
			b.fold(eventOf(90, again))
		},
		"also if the next one opens in the same fold": func(_ *WithT, b *foldBench) { b.fold(eventOf(4, late), eventOf(90, again)) },
	} {
		t.Run(sentence, func(t *testing.T) {
			g, b := NewWithT(t), newBench() // with a window for late firings
			b.archiveRequired = true
			b.flap(1, 100)
			b.archive()
			fold(g, b)
			g.Expect(b.status().UnarchivedEpisodes).To(HaveLen(1))
			kept, err := UnpackEpisode(&b.status().UnarchivedEpisodes[0])
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(kept.AlertCount).To(BeEquivalentTo(3))
		})
	}
}

func TestFlappingFasterThanTheArchiveIsBoundedAndCounted(t *testing.T) {
	for _, size := range []int{10, 2_000, 100_000} {
		g, b := NewWithT(t), flappingBench()
		omitted, last := 0, ""
		for n := range 100 {
			last = b.digest()
			omitted += b.flap(n+1, size).Omitted
		}
		waiting := b.status().UnarchivedEpisodes
		g.Expect(len(waiting)).To(And(BeNumerically(">", 1), BeNumerically("<=", v1alpha1.MaxUnarchivedEpisodes)))
		var packed int
		var alerts, episodes int64
		for i := range waiting {
			e, err := UnpackEpisode(&waiting[i])
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(e.Alert.Title).To(HavePrefix("flap "))
			g.Expect(e.ContentOmitted).To(Equal(e.Alert.Description == ""))
			packed += len(waiting[i].Packed)
			alerts += e.AlertCount
			episodes++
			if e.Omitted != nil {
				g.Expect(i).To(Equal(len(waiting)-1), "the newest counts them")
				g.Expect(e.Digest).To(Equal(last), "and if it has been archived without them, it is once more")
				alerts += e.Omitted.AlertCount
				episodes += e.Omitted.Episodes
				g.Expect(e.Omitted.LastResolvedTime).To(Equal(*minuteStamp(2*99 + 1)))
			}
		}
		g.Expect(packed).To(BeNumerically("<=", maxUnarchivedBytes))
		g.Expect(episodes).To(BeEquivalentTo(99), "and the last one is in the status")
		g.Expect(episodes).To(BeEquivalentTo(len(waiting) + omitted))
		g.Expect(alerts).To(BeEquivalentTo(2 * 99))
	}
}

func TestWithoutAnArchiveNothingIsKept(t *testing.T) {
	g, b := NewWithT(t), flappingBench()
	b.flap(1, 10)
	b.flap(2, 10)
	g.Expect(b.status().UnarchivedEpisodes).NotTo(BeEmpty())
	b.archiveRequired = false // the flag was removed
	g.Expect(b.fold().Write).To(BeFalse(), "that alone is no reason")
	b.flap(3, 10)
	g.Expect(b.status().UnarchivedEpisodes).To(BeEmpty())
	g.Expect(b.status().Archive.State).To(Equal(v1alpha1.ArchiveComplete))
}

func TestHandMadePackedEpisodes(t *testing.T) {
	bomb := packEpisode(&EndedEpisode{Timeline: []v1alpha1.Transition{{Message: strings.Repeat("x", 2*maxEpisodeBytes)}}})
	for _, packed := range []string{"", "!", "eA==", bomb} {
		_, err := UnpackEpisode(&v1alpha1.UnarchivedEpisode{Number: 1, Packed: packed})
		NewWithT(t).Expect(err).To(HaveOccurred())
	}
}

// What the archiver has read of a flood of episodes is noted when others have followed, which had no space.
func TestEpisodesThatAreCountedAfterTheArchiverHasReadAreArchived(t *testing.T) {
	for sentence, test := range map[string]struct {
		later int // episodes that end between the read and the note
		kept  int // episodes that wait when the next one opens
	}{
		"none":                                  {later: 0, kept: 0},
		"the one that was read is counted, too": {later: 1, kept: 1},
		"another one":                           {later: 2, kept: 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, b := NewWithT(t), flappingBench()
			for n := range 20 {
				b.flap(n+1, 10)
			}
			noted := v1alpha1.ArchiveStatus{State: v1alpha1.ArchiveWaiting, Episode: 20, Digest: b.status().Ledger.Digest}
			for n := range test.later {
				b.flap(21+n, 10)
			}
			*b.status().Archive = noted
			b.fold(eventOf(100, firingAlert()))
			g.Expect(b.status().UnarchivedEpisodes).To(HaveLen(test.kept))
		})
	}
}
