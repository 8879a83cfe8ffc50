package forward

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
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
	x := newTerm(New(Options{}, clockFunc(realTime), nil, logr.Discard()), nil, live, nil)
	read := func() *v1alpha1.Incident {
		incident, _, err := x.incidents.read(t.Context(), client.ObjectKeyFromObject(whole))
		g.Expect(err).NotTo(HaveOccurred())
		return incident
	}
	g.Expect(read()).To(BeNil(), "nothing is known of it: it was resolved long ago, or there is none")
	g.Expect(live.reads).To(BeZero())
	x.noteResolved(whole)
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

func TestTheIndexHasOnlyWhatIsLookedAtAgain(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	const day = 24 * time.Hour
	x, version := newIncidents(nil, nil), 0
	incident := func(name string, state v1alpha1.IncidentState, resolved time.Duration, change func(*v1alpha1.IncidentStatus)) {
		i := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		version++
		i.ResourceVersion = strconv.Itoa(version)
		i.Spec.IntegrationName = integration
		i.Status.State = state
		if state == v1alpha1.IncidentResolved {
			at := v1alpha1.NewTimestamp(now.Add(-resolved))
			i.Status.ResolvedTime = &at
		}
		if change != nil {
			change(&i.Status)
		}
		x.put(i, now.Add(-day))
	}
	acknowledged := func(s *v1alpha1.IncidentStatus) {
		s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue}}
	}
	incident("open", v1alpha1.IncidentOpen, 0, nil)
	incident("acknowledged", v1alpha1.IncidentOpen, 0, acknowledged)
	incident("resolved", v1alpha1.IncidentResolved, time.Minute, acknowledged)
	incident("resolved-earlier", v1alpha1.IncidentResolved, time.Hour, nil)
	incident("resolved-long-ago", v1alpha1.IncidentResolved, 48*time.Hour, nil)
	incident("requested", v1alpha1.IncidentResolved, 48*time.Hour, func(s *v1alpha1.IncidentStatus) { s.Silence = &v1alpha1.Silence{} })
	incident("silenced", v1alpha1.IncidentResolved, 48*time.Hour, func(s *v1alpha1.IncidentStatus) {
		s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSilenced}}
	})
	incident("silenced-once", v1alpha1.IncidentResolved, 48*time.Hour, func(s *v1alpha1.IncidentStatus) {
		s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSilenced}}
	})
	names := func(keys []types.NamespacedName) []string {
		names := []string{}
		for _, key := range keys {
			names = append(names, key.Name)
		}
		return names
	}
	open, ended := x.active(now.Add(-2 * time.Hour))
	g.Expect(names(open)).To(ConsistOf("open", "acknowledged"))
	g.Expect(names(ended)).To(ConsistOf("resolved", "resolved-earlier"))
	g.Expect(names(x.silenced())).To(ConsistOf("acknowledged", "requested", "silenced"))
	g.Expect(names(x.of(types.NamespacedName{Namespace: namespace, Name: integration}))).To(HaveLen(6))
	g.Expect(x.of(types.NamespacedName{Namespace: "other", Name: integration})).To(BeEmpty())

	incident("open", v1alpha1.IncidentResolved, 48*time.Hour, nil)
	open, ended = x.active(now.Add(-15 * time.Minute))
	g.Expect(names(open)).To(ConsistOf("acknowledged"))
	g.Expect(names(ended)).To(ConsistOf("resolved"))
	g.Expect(x.index).To(HaveLen(4), "no more than a round needs, and what silences concern")
}

// The cache shows the end of an Incident, and the fold or a sweep tells what became of it, in any order.
func TestTheIndexKnowsTheNewestVersion(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	version := func(number string, resolved time.Time) *v1alpha1.Incident {
		i := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", ResourceVersion: number}}
		i.Status.State = v1alpha1.IncidentOpen
		if !resolved.IsZero() {
			at := v1alpha1.NewTimestamp(resolved)
			i.Status.State, i.Status.ResolvedTime = v1alpha1.IncidentResolved, &at
		}
		return i
	}
	key := types.NamespacedName{Namespace: namespace, Name: "a"}
	x := newIncidents(nil, nil)
	set := func(incident *v1alpha1.Incident) bool {
		_, news := x.put(incident, now.Add(-time.Hour))
		return news
	}
	g.Expect(set(version("9", time.Time{}))).To(BeTrue())
	g.Expect(set(version("10", now.Add(-time.Second)))).To(BeTrue(), "the fold tells")
	g.Expect(x.noteGone(version("10", time.Time{}), now)).To(BeFalse(), "it is known")
	g.Expect(x.index[key].ended).To(BeTemporally("~", now.Add(-time.Second), time.Millisecond))

	g.Expect(set(version("11", time.Time{}))).To(BeTrue(), "it is open again")
	g.Expect(set(version("10", now))).To(BeFalse(), "a sweep read it before")
	g.Expect(x.index[key].ended).To(BeZero())
	g.Expect(x.noteGone(version("12", time.Time{}), now)).To(BeTrue(), "somebody else resolved or deleted it")
	_, ended := x.active(now.Add(-time.Minute))
	g.Expect(ended).To(ConsistOf(key), "its alert has to end")

	g.Expect(set(version("13", time.Time{}))).To(BeTrue())
	g.Expect(x.noteGone(version("13", time.Time{}), now)).To(BeTrue(), "a new list lacks it, and no event told its end")
	g.Expect(x.index[key].unresolved).To(BeNil())
	g.Expect(set(version("14", now))).To(BeTrue())
}

// What a fold has written is known at once. The watch may show it later, earlier or never.
func TestWhatAFoldWroteIsKnown(t *testing.T) {
	version := func(number string) *v1alpha1.Incident {
		i := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", ResourceVersion: number}}
		i.Status.State = v1alpha1.IncidentOpen
		return i
	}
	key := types.NamespacedName{Namespace: namespace, Name: "a"}
	synctest.Test(t, func(t *testing.T) {
		g, x := NewWithT(t), newIncidents(nil, nil)
		write := func(number string) bool { _, news := x.putUncached(version(number)); return news }
		show := func(number string) bool { _, news := x.put(version(number), time.Time{}); return news }
		lost := func() bool {
			time.Sleep(lostAfter)
			return x.index[key].isLost()
		}
		g.Expect(write("8")).To(BeTrue())
		g.Expect(lost()).To(BeTrue(), "the watch does not show it")
		g.Expect(show("8")).To(BeFalse(), "it was known")
		g.Expect(lost()).To(BeFalse())
		g.Expect(show("9")).To(BeTrue())
		g.Expect(write("9")).To(BeFalse(), "the watch was faster than the answer")
		g.Expect(lost()).To(BeFalse())
		g.Expect(write("11")).To(BeTrue())
		g.Expect(show("10")).To(BeFalse(), "the watch is late")
		g.Expect(x.index[key].version).To(Equal("11"))
		g.Expect(x.noteGone(version("10"), time.Now())).To(BeFalse(), "it is open again, or a new list lacks it")
		g.Expect(x.lost()).To(ConsistOf(key), "it is read at once")
		g.Expect(show("11")).To(BeFalse())
		g.Expect(x.lost()).To(BeEmpty())
	})
}

// An Incident of which the watch has lost all is posted as it is, and ends when it is deleted.
func TestAnIncidentThatTheWatchLostIsForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		go r.term.readLost(t.Context())
		_, incident := r.fold(v1alpha1.Alert{DedupKey: "k", Status: v1alpha1.AlertFiring})
		key := client.ObjectKeyFromObject(incident)
		delete(r.term.incidents.index, key)
		r.term.observe(incident)
		r.wait(time.Hour)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=warning"))
		changed := incident.DeepCopy()
		changed.Status.Alert.Severity, changed.ResourceVersion = "critical", incident.ResourceVersion+"0"
		r.objects[key] = changed
		r.wait(2 * alerts.MaxRoundInterval)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=critical"), "it is read")
		r.unreadable = key
		r.wait(time.Hour)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=mon severity=critical"), "without an answer it is as it was")
		r.unreadable = types.NamespacedName{}
		delete(r.objects, key)
		r.wait(2 * alerts.MaxRoundInterval)
		r.Expect(r.am.firing()).To(BeEmpty())
		r.Expect(r.term.incidents.index).To(BeEmpty())
	})
}
