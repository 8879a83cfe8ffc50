package controllers

import (
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// A key that only repeats itself never makes another one's opening wait, nor its own resolve.
func TestOnlyRepeatsOfOpenIncidentsAreNotUrgent(t *testing.T) {
	s := newSite(t)
	s.postFiring("open")
	s.fold("open")
	s.postFiring("over")
	s.fold("over")
	s.post(s.alert(v1alpha1.AlertResolved, "over"))
	s.fold("over")
	s.release()

	for sentence, test := range map[string]struct {
		alerts  []v1alpha1.Alert
		initial bool
		deleted bool
		want    int
	}{
		"a repeat of an open Incident is not urgent": {
			alerts: []v1alpha1.Alert{s.alert(v1alpha1.AlertFiring, "open"), s.alert(v1alpha1.AlertFiring, "open")}, want: handler.LowPriority},
		"a resolve among repeats is": {
			alerts: []v1alpha1.Alert{s.alert(v1alpha1.AlertResolved, "open"), s.alert(v1alpha1.AlertFiring, "open")}},
		"an alert of a new key is":            {alerts: []v1alpha1.Alert{s.alert(v1alpha1.AlertFiring, "new")}},
		"an alert of a resolved Incident is":  {alerts: []v1alpha1.Alert{s.alert(v1alpha1.AlertFiring, "over")}},
		"an alert from before this leader is": {alerts: []v1alpha1.Alert{s.alert(v1alpha1.AlertFiring, "open")}, initial: true},
		"the end of an AlertEvent is not": {
			alerts: []v1alpha1.Alert{s.alert(v1alpha1.AlertFiring, "new")}, deleted: true, want: handler.LowPriority},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			queue, _ := newFairQueue(requestNamespace, 1)("", backoff[reconcile.Request]()).(*fairQueue[reconcile.Request])
			defer queue.ShutDown()
			posted, watch := s.post(test.alerts...), s.incidents.foldEvents()
			if test.deleted {
				watch.Delete(t.Context(), event.DeleteEvent{Object: posted}, queue)
			} else {
				watch.Create(t.Context(), event.CreateEvent{Object: posted, IsInInitialList: test.initial}, queue)
			}
			_, priority, _ := queue.GetWithPriority()
			g.Expect(priority).To(Equal(test.want))
		})
	}
}

// A leader that takes over a hundred thousand Incidents releases the AlertEvents that wait before it looks at those that are
// over.
func TestResolvedIncidentsDoNotDelayTheStart(t *testing.T) {
	over := func(name string) *v1alpha1.Incident {
		incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
		incident.Status.State = v1alpha1.IncidentResolved
		return incident
	}
	open, unarchived := over("open"), over("unarchived")
	open.Status.State = v1alpha1.IncidentOpen
	unarchived.Status.UnarchivedEpisodes = []v1alpha1.UnarchivedEpisode{{}}

	g := NewWithT(t)
	queue, _ := newFairQueue(requestNamespace, 1)("", backoff[reconcile.Request]()).(*fairQueue[reconcile.Request])
	defer queue.ShutDown()
	watch := watchIncidents(newWriteMemory(systemClock{}))
	const many = restingRate // the last of them comes after a second
	for i := range many {
		watch.Create(t.Context(), event.CreateEvent{Object: over(strconv.Itoa(i)), IsInInitialList: true}, queue)
	}
	for _, at := range []*v1alpha1.Incident{open, unarchived} {
		watch.Create(t.Context(), event.CreateEvent{Object: at, IsInInitialList: true}, queue)
	}
	watch.Update(t.Context(), event.UpdateEvent{ObjectOld: over("changed"), ObjectNew: over("changed")}, queue)
	g.Expect(queue.Len()).To(BeNumerically("<", many), "not all at once")

	order := map[string]int{}
	for i := range many + 3 {
		request, _ := queue.Get()
		order[request.Name] = i
		queue.Done(request)
	}
	for _, name := range []string{"open", "unarchived", "changed"} {
		g.Expect(order[name]).To(BeNumerically("<", order[strconv.Itoa(many-1)]), name)
	}
}
