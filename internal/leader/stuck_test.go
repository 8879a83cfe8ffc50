package leader

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestStuckDetector(t *testing.T) {
	kind := schema.GroupResource{Group: "tocsin.dev", Resource: "incidents"}
	away := errors.New("connection refused")
	const list, write = "list", "write"
	type step struct {
		after time.Duration
		do    func(*stuckDetector)
	}
	answer := func(kind string, err error) func(*stuckDetector) {
		return func(d *stuckDetector) { _ = d.track(kind, nil, func() error { return err }) }
	}
	hang := func(lasting time.Duration) func(*stuckDetector) {
		return func(d *stuckDetector) {
			go func() {
				_ = d.track(list, nil, func() error {
					time.Sleep(lasting)
					return away
				})
			}()
		}
	}
	for sentence, test := range map[string]struct {
		steps []step
		stuck bool
	}{
		"an idle leader is not stuck":                       {[]step{{time.Hour, func(*stuckDetector) {}}}, false},
		"a leader whose calls succeed is not":               {[]step{{0, answer(list, nil)}, {time.Hour, answer(list, nil)}}, false},
		"one whose calls fail is":                           {[]step{{0, answer(list, away)}, {stuckAfter, answer(list, away)}}, true},
		"one whose calls fail for less than that is not":    {[]step{{0, answer(list, away)}, {stuckAfter - 1, answer(list, away)}}, false},
		"one whose call hangs is":                           {[]step{{0, hang(time.Hour)}, {stuckAfter, func(*stuckDetector) {}}}, true},
		"one whose calls hang and end without an answer is": {[]step{{0, hang(stuckAfter)}, {stuckAfter, func(*stuckDetector) {}}}, true},
		"a success between failures counts": {[]step{
			{0, answer(list, away)}, {stuckAfter / 2, answer(list, nil)}, {stuckAfter / 2, answer(list, away)}}, false},
		"the success of other calls does not": {[]step{
			{0, answer(list, away)}, {stuckAfter / 2, answer(write, nil)}, {stuckAfter / 2, answer(list, away)}}, true},
		"a refusal of the object is an answer": {[]step{
			{0, answer(write, apierrors.NewConflict(kind, "x", away))},
			{stuckAfter, answer(write, apierrors.NewForbidden(kind, "x", away))}}, false},
		"overload is none": {[]step{
			{0, answer(write, apierrors.NewTooManyRequestsError("slow down"))},
			{stuckAfter, answer(write, apierrors.NewGenericServerResponse(http.StatusInternalServerError, "update", kind, "x", "", 0, true))}}, true},
		"failures that nobody tries again are no work": {[]step{{0, answer(list, away)}, {3 * stuckAfter, func(*stuckDetector) {}}}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				d := &stuckDetector{kinds: map[string]*callState{}}
				for _, step := range test.steps {
					time.Sleep(step.after)
					step.do(d)
					synctest.Wait()
				}
				if test.stuck {
					g.Expect(d.check()).To(MatchError(ContainSubstring("cannot fold")))
				} else {
					g.Expect(d.check()).To(Succeed())
				}
				time.Sleep(time.Hour) // calls that hang end
			})
		})
	}
}

func TestStuckDetectorEndsWithTheTerm(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	NewWithT(t).Expect((&stuckDetector{}).Start(ctx)).To(Succeed())
}
