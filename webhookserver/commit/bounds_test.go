package commit

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/memorystore"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// withShortKeys returns the submission with keys so short that a batch reaches maxBatchAlerts before maxBatchBytes.
func withShortKeys(s Submission) Submission {
	for i := range s.Alerts {
		s.Alerts[i].DedupKey = "k"
	}
	return s
}

func TestCommitterBoundsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := slowStore(time.Second)
		c := startCommits(store, 1)
		c.add(submission("x", "first"), time.Minute)
		t.Log("300 alerts and 300 more do not fit into one event, and are not split")
		for _, name := range []string{"a", "b"} {
			var ids []string
			for i := range 300 {
				ids = append(ids, fmt.Sprintf("%s%d", name, i))
			}
			c.add(submission("x", ids...), time.Minute)
		}
		t.Log("nor do 300 KiB and 300 KiB more")
		for _, name := range []string{"c", "d"} {
			s := submission("x", name, name+"2")
			for i := range s.Alerts {
				s.Alerts[i].Custom = v1alpha1.Bag{"x": []byte(`"` + strings.Repeat("x", 150<<10) + `"`)}
			}
			c.add(s, time.Minute)
		}
		c.finish()
		var sizes []int
		for _, event := range store.Stored() {
			sizes = append(sizes, len(event.Alerts))
		}
		g.Expect(sizes).To(Equal([]int{1, 300, 300, 2, 2}))
	})
}

// large makes a submission of one alert whose text has about so many bytes, which cannot be compressed if random.
func large(id string, bytes int, random bool) Submission {
	s := submission("x", id)
	text := strings.Repeat("x", bytes)
	if random {
		source := rand.New(rand.NewPCG(1, 2))
		text = strings.Map(func(rune) rune { return 'A' + source.Int32N(26) + 32*source.Int32N(2) }, text)
	}
	s.Alerts[0].Custom = v1alpha1.Bag{"x": []byte(`"` + text + `"`)}
	return s
}

// incompressible makes a submission of one alert whose text has exactly so many bytes, and does not shrink when it is compressed.
func incompressible(g Gomega, bytes int) Submission {
	made := func(random int) Submission {
		source := rand.NewChaCha8([32]byte{})
		text := make([]byte, random)
		_, _ = source.Read(text)
		s := submission("x", "1")
		s.Alerts[0].Custom = v1alpha1.Bag{"x": []byte(`"` + base64.StdEncoding.EncodeToString(text)[:random] + `"`)}
		return s
	}
	length := func(s Submission) int {
		event := v1alpha1.AlertEvent{Alerts: s.Alerts}
		g.Expect(queue.Encode(&event)).To(Succeed())
		g.Expect(event.Spec.Encoding).To(BeEmpty())
		return len(event.Spec.Alerts)
	}
	s := made(2*bytes - length(made(bytes)))
	g.Expect(length(s)).To(Equal(bytes))
	return s
}

func TestAlertsFitIfTheirTextDoesOnceItIsCompressed(t *testing.T) {
	g := NewWithT(t)
	compressible := large("1", maxGroupBytes-queue.EncodedSize(large("1", 0, false).Alerts), false)
	for sentence, test := range map[string]struct {
		submission Submission
		want       bool
	}{
		"few bytes do":                            {submission("x", "1"), true},
		"bytes that are compressed do":            {large("1", 2*MaxBytes, false), true},
		"bytes that cannot be compressed do not":  {large("1", 2*MaxBytes, true), false},
		"more than is ever compressed do not":     {large("1", maxGroupBytes+1, false), false},
		"as many as are ever compressed do":       {compressible, true},
		"as many as an event may have do":         {incompressible(g, MaxBytes), true},
		"one byte more does not":                  {incompressible(g, MaxBytes+1), false},
		"half of the bytes do, whatever they are": {large("1", MaxBytes/2, true), true},
	} {
		t.Run(sentence, func(t *testing.T) { NewWithT(t).Expect(Fits(test.submission.Alerts)).To(Equal(test.want)) })
	}
}

func TestASubmissionHasAtLeastOneAlertAndNotMoreThanAnEvent(t *testing.T) {
	for _, alerts := range []int{0, 1, v1alpha1.MaxAlertsPerEvent, v1alpha1.MaxAlertsPerEvent + 1} {
		g, s := NewWithT(t), submission("x")
		for i := range alerts {
			s.Alerts = append(s.Alerts, submission("x", fmt.Sprint(i)).Alerts...)
		}
		_, err := commitOne(&memorystore.Store{}, s)
		isWrong := alerts == 0 || alerts > v1alpha1.MaxAlertsPerEvent
		g.Expect(errors.As(err, new(*InvalidError))).To(Equal(isWrong), "%d: %v", alerts, err)
	}
}

func TestABatchHasAsManyBytesAsItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := slowStore(slowWrite - time.Millisecond)
		c := startCommits(store, 1)
		c.add(submission("x", "first"), time.Minute)
		size := queue.EncodedSize(large("0", 100<<10, false).Alerts)
		fitting := maxBatchBytes / size
		for i := range 2*fitting + 1 {
			c.add(large(fmt.Sprint(i), 100<<10, false), time.Minute)
		}
		c.finish()
		var sizes []int
		for _, event := range store.Stored() {
			sizes = append(sizes, len(event.Alerts))
		}
		g.Expect(sizes).To(Equal([]int{1, fitting, fitting, 1}))
		expectIdle(g, c.committer)
	})
}

func TestTwoSubmissionsShareAnEventUpToItsBounds(t *testing.T) {
	alerts := func(id string, n int) Submission {
		s := submission("x", id)
		for i := range n - 1 {
			s.Alerts = append(s.Alerts, submission("x", fmt.Sprint(id, "-", i)).Alerts...)
		}
		return withShortKeys(s)
	}
	bytes := func(id string, size int) Submission {
		return large(id, size-queue.EncodedSize(large(id, 0, false).Alerts), false)
	}
	for sentence, test := range map[string]struct {
		one, other Submission
		events     int
	}{
		"as many alerts as an event may have": {alerts("1", 300), alerts("2", maxBatchAlerts-300), 1},
		"one alert more":                      {alerts("1", 300), alerts("2", maxBatchAlerts-300+1), 2},
		"as many bytes as an event may have":  {bytes("1", maxBatchBytes/2), bytes("2", maxBatchBytes/2), 1},
		"one byte more":                       {bytes("1", maxBatchBytes/2), bytes("2", maxBatchBytes/2+1), 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := slowStore(slowWrite / 2)
				c := startCommits(store, 1)
				c.add(submission("x", "first"), time.Minute)
				c.add(test.one, time.Minute)
				c.add(test.other, time.Minute)
				c.finish()
				NewWithT(t).Expect(store.Stored()).To(HaveLen(1 + test.events))
			})
		})
	}
}

func TestASubmissionThatCannotBeWrittenAtOnceNeedsSpaceAlthoughAWriterIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := startCommits(slowStore(2*slowWrite), 2)
		storm := submission("x", "1")
		c.add(storm, Timeout)
		full := c.committer.space.Reserve(storm.Integration, maxWaiting/4, 0)
		g.Expect(full).NotTo(BeNil())
		g.Expect(c.committer.CheckSpace(storm.Integration)).To(MatchError(ErrOverloaded), "a write of its own is under way")
		c.add(submission("x", "2"), Timeout)
		g.Expect(c.result("2")).To(MatchError(ErrOverloaded))
		time.Sleep(slowWrite)
		synctest.Wait()
		g.Expect(c.committer.CheckSpace(storm.Integration)).To(Succeed(), "that write is slow")
		c.add(submission("x", "3"), Timeout)
		c.finish()
		full.Release()
		g.Expect(c.errs["3"]).NotTo(HaveOccurred())
		expectIdle(g, c.committer)
	})
}

func TestASubmissionOfAnIdleIntegrationNeedsNoSpaceToWait(t *testing.T) {
	g := NewWithT(t)
	c := New(nil, 8, nil)
	idle := types.NamespacedName{Namespace: "team-a", Name: "idle"}
	for i := 0; c.space.Reserve(types.NamespacedName{Namespace: "team-a", Name: fmt.Sprint(i)}, minWeight, 0) != nil; i++ {
		g.Expect(c.CheckSpace(idle)).To(Succeed())
	}
	g.Expect(c.CheckSpace(idle)).To(Succeed(), "it is written at once")
	c.turns.Places = 0
	g.Expect(c.CheckSpace(idle)).To(MatchError(ErrOverloaded))
}
