package heartbeats

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// LinkEvery is the longest time between two signals of the link of a federated integration.
	LinkEvery = 2 * time.Minute

	// maxLinkEvery and maxLinkGrace bound the heartbeat of a link: of a leaf that is gone, no alert may end before it is missed.
	maxLinkEvery = 4 * time.Minute
	maxLinkGrace = time.Minute

	// LinkPeriod is after how long without a signal the link is missed.
	LinkPeriod = LinkEvery + LinkEvery/5
)

// WatchesLink reports whether a heartbeat is missed before the first alert of a leaf that is gone ends.
func WatchesLink(h *v1alpha1.Heartbeat) bool {
	return h.IsAnyRequest() && h.Spec.Every != nil && !h.Spec.Suspend && every(h) <= maxLinkEvery && Grace(h) <= maxLinkGrace
}
