package webhookserver

import (
	"sync/atomic"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=create;get;list;watch

// pendingCounter knows how many AlertEvents are in the cluster and about how large they are together, as
// far as the informer has heard of them.
type pendingCounter struct {
	events atomic.Int64
	bytes  atomic.Int64
}

// full tells whether the queue is so long that nothing may be added. It ends by itself as alerts are folded.
func (p *pendingCounter) full(maxEvents int) bool {
	return p.events.Load() >= int64(maxEvents) || p.bytes.Load() >= maxPendingBytes
}

// ratio is how full the queue is, of its bounds the one that is nearer: at 1 requests are refused.
func (p *pendingCounter) ratio(maxEvents int) float64 {
	return max(float64(p.events.Load())/float64(maxEvents), float64(p.bytes.Load())/maxPendingBytes)
}

// handler feeds the counter from an informer. AlertEvents never change, so only their coming and going
// counts; an informer that missed both reports another object of the same name as an update.
func (p *pendingCounter) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { p.add(obj, 1) },
		UpdateFunc: func(old, obj any) {
			p.add(old, -1)
			p.add(obj, 1)
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			p.add(obj, -1)
		},
	}
}

func (p *pendingCounter) add(obj any, sign int64) {
	event, ok := obj.(*v1alpha1.AlertEvent)
	if !ok {
		return
	}
	p.events.Add(sign)
	p.bytes.Add(sign * int64(alertsSize(event.Spec.Alerts)))
}

// alertsSize is the size in bytes of the alerts as the API server stores them, never less.
func alertsSize(alerts []v1alpha1.Alert) int {
	const overhead = 1 << 9 // id, incidentName and status with their field names
	size := 0
	for i := range alerts {
		size += overhead + 6*len(alerts[i].DedupKey) + alerts[i].EncodedSize()
	}
	return size
}
