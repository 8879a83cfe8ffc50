package forward

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hangingReader is an API server that never answers.
type hangingReader struct{ client.Reader }

func (hangingReader) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAReadThatHangsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		now := func() (time.Time, bool) { return time.Now(), true }
		term := newTerm(New("", now, nil, logr.Discard()), nil, hangingReader{}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		started := time.Now()
		_, err := term.whole(ctx, wholeKey{})
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(time.Since(started)).To(Equal(readTimeout))
	})
}
