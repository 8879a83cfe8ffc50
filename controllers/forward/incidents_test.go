package forward

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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
		incidents := newIncidents(hangingReader{}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		started := time.Now()
		_, err := incidents.readResolved(ctx, version{})
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(time.Since(started)).To(Equal(readTimeout))
	})
}

// oneIncident is a reader of one Incident, which counts the reads. Nothing else exists.
type oneIncident struct {
	client.Reader
	*v1alpha1.Incident
	reads int
	err   error
}

func (r *oneIncident) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if incident, ok := object.(*v1alpha1.Incident); ok {
		r.reads++
		r.DeepCopyInto(incident)
	}
	return r.err
}

func TestAnIncidentResolvedAWhileAgoIsReadOnce(t *testing.T) {
	g := NewWithT(t)
	c := newCluster()
	c.fold(v1alpha1.Alert{DedupKey: "a", Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{Title: "Disk full"}})
	_, whole := c.fold(v1alpha1.Alert{DedupKey: "a", Status: v1alpha1.AlertResolved})
	whole.ResourceVersion = "5"
	live, none := &oneIncident{Incident: whole}, apierrors.NewNotFound(schema.GroupResource{}, "")
	x := newTerm(New("", clockFunc(realTime), nil, logr.Discard()), nil, live, nil)
	read := func() *v1alpha1.Incident {
		incident, _, err := x.incidents.read(t.Context(), client.ObjectKeyFromObject(whole))
		g.Expect(err).NotTo(HaveOccurred())
		return incident
	}
	g.Expect(read()).To(BeNil(), "nothing is known of it: it was resolved long ago, or there is none")
	g.Expect(live.reads).To(BeZero())
	x.resolved(whole)
	g.Expect(read().Status.Alert.Title).To(Equal("Disk full"))
	g.Expect(live.reads).To(BeZero(), "the fold told it")
	stale := whole.DeepCopy()
	stale.ResourceVersion, stale.Status.State = "4", v1alpha1.IncidentOpen
	x.incidentChanged(stale, false)
	g.Expect(read().Status.State).To(Equal(v1alpha1.IncidentResolved), "the cache lags")

	ended := whole.DeepCopy()
	ended.ResourceVersion = "17"
	x.incidentGone(ended)
	for range 3 {
		g.Expect(read().Status.Timeline).NotTo(BeEmpty())
	}
	g.Expect(live.reads).To(Equal(1), "another version")

	ended.ResourceVersion, live.err = "18", none
	x.incidentGone(ended)
	for range 3 {
		g.Expect(read()).To(BeNil(), "it was deleted")
	}
	g.Expect(live.reads).To(Equal(2))

	ended.ResourceVersion, live.err = "19", errors.New("no connection")
	x.incidentGone(ended)
	_, _, err := x.incidents.read(t.Context(), client.ObjectKeyFromObject(whole))
	g.Expect(err).To(MatchError("no connection"))
}
