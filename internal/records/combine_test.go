package records_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/internal/records"
)

const day = "2026-11-22"

// contents returns the objects of a bucket by key.
func contents(t *testing.T, bucket *blob.Bucket) map[string][]byte {
	t.Helper()
	found, list := map[string][]byte{}, bucket.List(nil)
	for {
		object, err := list.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return found
		}
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		data, err := bucket.ReadAll(t.Context(), object.Key)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		found[object.Key] = data
	}
}

// fill writes ten objects with twelve versions of ten records, and returns the newest of each.
func fill(t *testing.T, bucket *blob.Bucket) (newest []records.Record) {
	t.Helper()
	for i := range 10 {
		newest = append(newest, record(fmt.Sprint(i), 1, 5, "50", noon))
		write(t, bucket, newest[i])
	}
	write(t, bucket, record("3", 1, 2, "20", noon), record("4", 1, 2, "20", noon))
	return newest
}

func combine(t *testing.T, bucket *blob.Bucket, over bool) {
	t.Helper()
	NewWithT(t).Expect(records.Combine(t.Context(), bucket, day, over)).To(Succeed())
}

func TestCombineLeavesOneObjectWithTheNewestRecords(t *testing.T) {
	g, bucket := NewWithT(t), openMemory(t)
	newest := fill(t, bucket)
	tomorrow := write(t, bucket, record("x", 1, 1, "1", noon.AddDate(0, 0, 1)))
	combine(t, bucket, false)
	g.Expect(contents(t, bucket)).To(HaveLen(12), "the day is not over")
	combine(t, bucket, true)
	combined := contents(t, bucket)
	g.Expect(combined).To(And(HaveLen(2), HaveKey(tomorrow)))
	g.Expect(collect(t, records.All(t.Context(), bucket, records.Query{To: noon.AddDate(0, 0, 1)}))).To(ConsistOf(newest))
	combine(t, bucket, true)
	g.Expect(contents(t, bucket)).To(Equal(combined), "one object is combined with nothing")
}

// A leader may be killed after any request, and another one then begins anew.
func TestCombineMayBeInterruptedAnywhere(t *testing.T) {
	g := NewWithT(t)
	whole := openMemory(t)
	newest := fill(t, whole)
	before := contents(t, whole)
	combine(t, whole, true)
	maps.Copy(before, contents(t, whole)) // as before, and with the combined object
	keys := slices.Sorted(maps.Keys(before))
	for deleted := range keys {
		bucket := openMemory(t)
		for _, key := range keys[deleted:] {
			g.Expect(bucket.WriteAll(t.Context(), key, before[key], nil)).To(Succeed())
		}
		for key, data := range contents(t, whole) {
			g.Expect(bucket.WriteAll(t.Context(), key, data, nil)).To(Succeed())
		}
		g.Expect(collect(t, records.All(t.Context(), bucket, records.Query{}))).To(ConsistOf(newest))
		combine(t, bucket, true)
		g.Expect(collect(t, records.All(t.Context(), bucket, records.Query{}))).To(ConsistOf(newest))
		g.Expect(contents(t, bucket)).To(HaveLen(1))
	}
}

func TestTwoProcessesMayCombineADay(t *testing.T) {
	for range 20 {
		bucket := openMemory(t)
		newest := fill(t, bucket)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() { _ = records.Combine(t.Context(), bucket, day, true) }) // an input may vanish
		}
		group.Wait()
		NewWithT(t).Expect(collect(t, records.All(t.Context(), bucket, records.Query{}))).To(ConsistOf(newest))
	}
}

// A leader combines objects after a reader has listed them.
func TestReadersDoNotNoticeThatADayIsCombined(t *testing.T) {
	for _, small := range []int{1, 5} { // objects of the first day that is read
		g, bucket := NewWithT(t), openMemory(t)
		newest := fill(t, bucket)
		for i := range small {
			write(t, bucket, record(fmt.Sprint("later-", i), 1, 1, "1", noon.AddDate(0, 0, 1)))
		}
		var last records.Progress
		found, combined := 0, false
		query := records.Query{Progress: func(p records.Progress) { last = p }}
		for _, err := range records.All(t.Context(), bucket, query) {
			g.Expect(err).NotTo(HaveOccurred())
			found++
			if !combined {
				combined = true
				combine(t, bucket, true)
			}
		}
		g.Expect(found).To(Equal(small + len(newest)))
		g.Expect(last.Part).To(BeNumerically("~", 1))
	}
}

func TestCombineDeletesNothingThatItCannotRead(t *testing.T) {
	g, bucket := NewWithT(t), openMemory(t)
	fill(t, bucket)
	g.Expect(bucket.WriteAll(t.Context(), "v1/day="+day+"/0.ndjson.gz", []byte("junk"), nil)).To(Succeed())
	before := contents(t, bucket)
	g.Expect(records.Combine(t.Context(), bucket, day, true)).NotTo(Succeed())
	g.Expect(contents(t, bucket)).To(Equal(before))
}

func TestManySmallObjectsAreCombinedBeforeTheDayIsOver(t *testing.T) {
	g, bucket := NewWithT(t), openMemory(t)
	for i := range 64 {
		write(t, bucket, record(fmt.Sprint(i), 1, 1, "1", noon))
	}
	combine(t, bucket, false)
	g.Expect(contents(t, bucket)).To(HaveLen(1))
}

// A day with thousands of objects is combined step by step: what fails later, or is interrupted, undoes nothing.
func TestGroupsAreCombinedOnTheirOwn(t *testing.T) {
	g, bucket := NewWithT(t), openMemory(t)
	for i := range 200 {
		write(t, bucket, record(fmt.Sprint(i), 1, 1, "1", noon))
	}
	junk := "v1/day=" + day + "/0.ndjson.gz"
	g.Expect(bucket.WriteAll(t.Context(), junk, make([]byte, 1<<20), nil)).To(Succeed()) // the largest, and so in the last group
	g.Expect(records.Combine(t.Context(), bucket, day, true)).To(MatchError(ContainSubstring(junk)))
	left := contents(t, bucket)
	g.Expect(len(left)).To(BeNumerically("<=", 3+200%64+1))
	g.Expect(left).To(HaveKey(junk))
	g.Expect(bucket.Delete(t.Context(), junk)).To(Succeed())
	combine(t, bucket, true)
	g.Expect(contents(t, bucket)).To(HaveLen(1))
	g.Expect(collect(t, records.All(t.Context(), bucket, records.Query{}))).To(HaveLen(200))
}
