package simulation

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Failure is a story that breaks a guarantee, and what it breaks.
type Failure struct {
	Seed     uint64
	Story    *Story
	Findings []string
}

// String tells the story, one operation a line, and the findings.
func (f *Failure) String() string {
	return fmt.Sprintf("seed %d\n    %s\nfindings:\n    %s", f.Seed,
		strings.ReplaceAll(f.Story.String(), "\n", "\n    "), strings.Join(f.firstFindings(), "\n    "))
}

// maxFindings is how many findings are told.
const maxFindings = 8

// firstFindings returns the first ones, and how many more there are.
func (f *Failure) firstFindings() []string {
	if more := len(f.Findings) - maxFindings; more > 0 {
		return append(slices.Clone(f.Findings[:maxFindings]), fmt.Sprintf("and %d more", more))
	}
	return f.Findings
}

// explore plays the story of a seed. If it breaks a guarantee, explore shrinks it and returns the shortest one that breaks the
// same guarantee, and the original one.
func explore(t *testing.T, seed uint64, shrink bool, watcher Watcher) (shortest, original *Failure) {
	t.Helper()
	played := map[string][]string{} // by story: rapid plays some several times, and expects the same
	property := func(rt *rapid.T) {
		story := drawStory(rt)
		text := story.String()
		findings, ok := played[text]
		if !ok {
			findings = runSafely(t, seed, story, watcher)
			played[text] = findings
		}
		switch {
		case len(findings) == 0:
			return
		case original == nil:
			original = &Failure{seed, story, findings}
		case kind(findings) != kind(original.Findings):
			return
		}
		shortest = &Failure{seed, story, findings}
		rt.Fatalf("guarantee %s is broken", kind(findings))
	}
	setFlags(seed, shrink)
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(errEnd) {
				panic(r)
			}
		}()
		rapid.Check(&recorder{}, property)
	}()
	return shortest, original
}

// runSafely is Run, with a panic as a finding.
func runSafely(t *testing.T, seed uint64, story *Story, watcher Watcher) (findings []string) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			findings = append([]string{fmt.Sprint("F: panic: ", r)}, bubbled()...)
		}
	}()
	return Run(t, seed, story, watcher)
}

// bubbled returns where the goroutines are that remain in a bubble.
func bubbled() []string {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var remain []string
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if state, frames, ok := strings.Cut(stack, "\n"); ok && strings.Contains(state, "synctest bubble") {
			var calls []string
			for line := range strings.Lines(frames) {
				if !strings.HasPrefix(line, "\t") {
					calls = append(calls, strings.TrimSpace(line))
				}
			}
			remain = append(remain, state+" "+strings.Join(calls, " < "))
		}
	}
	return remain
}

// setFlags sets those of rapid, for one story.
func setFlags(seed uint64, shrink bool) {
	values := map[string]string{
		"rapid.seed": fmt.Sprint(seed), "rapid.checks": "1", "rapid.nofailfile": "true", "rapid.shrinktime": "0s",
	}
	if shrink {
		values["rapid.shrinktime"] = shrinkTime
	}
	for name, value := range values {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
}

// shrinkTime bounds the search for a shorter story.
const shrinkTime = "30s"

// recorder is a rapid.TB that keeps quiet: a failure is told as a story.
type recorder struct {
	rapid.TB // nil: a check calls no other methods
	failed   bool
}

// errEnd ends a check of rapid's.
var errEnd = errors.New("the check has ended")

func (r *recorder) Helper()               {}
func (r *recorder) Name() string          { return "" }
func (r *recorder) Logf(string, ...any)   {}
func (r *recorder) SkipNow()              { panic(errEnd) }
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Fatalf(string, ...any) { r.FailNow() }
func (r *recorder) FailNow()              { r.failed = true; panic(errEnd) }
func (r *recorder) Failed() bool          { return r.failed }

// drawn returns the story of a seed, as explore plays it.
func drawn(seed uint64) (story *Story) {
	setFlags(seed, false)
	rapid.Check(&recorder{}, func(t *rapid.T) { story = drawStory(t) })
	return story
}
