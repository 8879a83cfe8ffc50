package simulation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// archived is a story in which an Incident ends and is opened again faster than the archiver writes, the bucket fails in each
// way, archivers are disturbed in each way, and the retention of Incidents ends meanwhile.
func archived(archivers int) *Story {
	var operations []operation
	key := 0
	episodes := func(n int) {
		for range n {
			for _, status := range []string{"firing", "resolved"} {
				operations = append(operations,
					post{to: key, times: 1, alerts: []alert{{key: key / 8 % 5, status: status, severity: "error"}}}, wait{2 * time.Second})
			}
			key++
		}
	}
	for _, how := range []bucketFailure{fails, hangs, storesOnly, isSlow} {
		episodes(2)
		operations = append(operations, breakBucket{how, 65 * time.Second})
		episodes(6)
		operations = append(operations, wait{70 * time.Second})
	}
	for _, fault := range []archiverFault{
		isKilled, isStopped, isFrozen, isCutOff, losesNotes, readsLate, seesNothingNew,
	} {
		operations = append(operations, disturbArchiver{0, fault, 30 * time.Second})
		episodes(3)
		operations = append(operations, wait{20 * time.Second}, kill{key % 2}, start{key % 2})
	}
	return &Story{Settings: Settings{Replicas: 2, Elect: true, Writes: 8, Archivers: archivers}, Operations: operations}
}

// TestEpisodesAreArchived plays the story with one archiver and with two.
func TestEpisodesAreArchived(t *testing.T) {
	for archivers := range 2 {
		g := NewWithT(t)
		episodes, deleted := 0, 0
		found := Run(t, 1, archived(archivers+1), Watcher{Archived: func(j *archiveJudge) {
			for _, known := range j.incidents {
				episodes += len(known.ended)
				if !known.exists {
					deleted++
				}
			}
		}})
		g.Expect(found).To(BeEmpty())
		g.Expect(episodes).To(BeNumerically(">", 30))
		g.Expect(deleted).To(BeNumerically(">", 5))
	}
}

// TestFindsWhatIsNotArchived has the bucket lose an object behind the judge's back.
func TestFindsWhatIsNotArchived(t *testing.T) {
	g := NewWithT(t)
	story := &Story{
		Settings:   Settings{Replicas: 2, Elect: true, Writes: 8, Archivers: 1},
		Operations: append(say("firing", "resolved"), wait{20 * time.Second}, fire{}),
	}
	g.Expect(Run(t, 1, story, Watcher{})).To(ContainElement(And(HavePrefix("R:"), ContainSubstring("has no record of episode"))))
}

// fire destroys all objects of the bucket.
type fire struct{}

func (fire) do(w *world) {
	w.archive.mu.Lock()
	defer w.archive.mu.Unlock()
	clear(w.archive.objects)
}
