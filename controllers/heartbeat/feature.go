package heartbeat

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
)

// missedMemory is how long it is remembered that a heartbeat was deleted that was missed, and maxMissed of how many integrations:
// until then, none of its Incidents ended for want of alerts.
const (
	missedMemory = 24 * time.Hour
	maxMissed    = 4096
)

// Feature is all that the leader does about heartbeats. Lead adds the controllers that open and resolve the Incidents of missed
// ones. Meanwhile AddTo has no Incident of the integration end for want of alerts. The cache is sufficient for it: this leader
// itself notes which heartbeats are missed, and their number is bounded. It implements controllers.Feature.
type Feature struct {
	cache     client.Reader
	health    replica.Health
	incidents incidents
	missed    *expirecache.LRUExpireCache // when a heartbeat was deleted that was missed: time.Time by the name of the integration
}

// incidents knows those that are not Resolved. It is a *capacity.Counts outside of tests.
type incidents interface {
	OfIntegration(namespace, integration string) []string
}

// NewFeature returns a Feature for a cache that a heartbeats.Index follows, which finds Heartbeats by their integration.
func NewFeature(objects client.Reader, health replica.Health, incidents incidents) *Feature {
	return &Feature{objects, health, incidents, expirecache.NewLRUExpireCache(maxMissed)}
}

// Synced implements controllers.Feature. It keeps nothing of its own: a term begins when the cache has synced.
func (f *Feature) Synced() bool { return true }

// AddTo implements incident.Feature.
func (f *Feature) AddTo(ctx context.Context, policy *fold.Policy, integration *v1alpha1.WebhookIntegration) error {
	key := client.ObjectKeyFromObject(integration)
	beats, err := heartbeats.List(ctx, f.cache, key)
	if err != nil {
		return err
	}
	sender, known := &policy.Sender, senderOf(beats)
	isUnwatched := integration.Spec.Federate && !slices.ContainsFunc(beats, heartbeats.WatchesLink) // perhaps the leaf is gone
	sender.Missing = sender.Missing || known.Missing || isUnwatched
	sender.PresentFrom = fold.Latest(sender.PresentFrom, known.PresentFrom, f.missedUntil(key, f.health.APITime()))
	sender.Keys = append(sender.Keys, known.Keys...)
	return nil
}

func senderOf(beats []*v1alpha1.Heartbeat) (s fold.Sender) {
	for _, beat := range beats {
		s.Missing = s.Missing || isMissed(beat)
		s.PresentFrom = fold.Latest(s.PresentFrom, beat.Status.MissedUntilTime.OrZero(), beat.Status.ObservedTime.OrZero())
		s.Keys = append(s.Keys, v1alpha1.HeartbeatKey(beat.Name))
	}
	return s
}

// missedUntil returns until when a heartbeat of an integration was missed that was deleted lately; zero if none was. A time of
// the future is of now: the API server's clock was set back.
func (f *Feature) missedUntil(integration types.NamespacedName, now time.Time) time.Time {
	deleted, _ := f.missed.Get(integration)
	until, _ := deleted.(time.Time)
	if fold.IsFuture(until, now) {
		until = now
		f.missed.Add(integration, now, missedMemory)
	}
	return until
}

// Source implements incident.Feature. It forgets what an earlier term has noted, since another leader may have led meanwhile.
func (f *Feature) Source(objects cache.Cache) source.Source {
	f.missed.RemoveAll(func(any) bool { return true })
	return source.Kind[client.Object](objects, &v1alpha1.Heartbeat{}, f.onHeartbeat())
}

// onHeartbeat enqueues the Incidents of a WebhookIntegration when the first of its heartbeats is missed, when the last one is
// not missed any more, and when one begins or ceases to watch its link: their deadlines may be other ones. The Incident of a
// heartbeat itself is enqueued when that comes or goes.
func (f *Feature) onHeartbeat() handler.EventHandler {
	return requests.OnChange(func(ctx context.Context, before, after *v1alpha1.Heartbeat, initial bool, folds requests.Queue) {
		if initial {
			return
		}
		h, was, is := cmp.Or(after, before), isMissed(before), isMissed(after)
		integration := heartbeats.IntegrationOf(h)
		if after == nil && was {
			f.missed.Add(integration, f.health.APITime(), missedMemory)
		}
		if before == nil || after == nil {
			requests.Add(folds, heartbeats.IncidentOf(h))
		}
		if watchesLink(before) == watchesLink(after) && (was == is || f.missesAnother(ctx, h, is)) {
			return
		}
		for _, name := range f.incidents.OfIntegration(integration.Namespace, integration.Name) {
			requests.Add(folds, types.NamespacedName{Namespace: integration.Namespace, Name: name})
		}
	})
}

func isMissed(h *v1alpha1.Heartbeat) bool { return h != nil && h.Status.MissedTime != nil }

func watchesLink(h *v1alpha1.Heartbeat) bool { return h != nil && heartbeats.WatchesLink(h) }

// missesAnother reports whether another heartbeat of the same integration is missed, for longer if h is missed too. Of heartbeats
// that are missed together, each sees the others in the cache, perhaps before their events.
func (f *Feature) missesAnother(ctx context.Context, h *v1alpha1.Heartbeat, both bool) bool {
	beats, err := heartbeats.List(ctx, f.cache, heartbeats.IntegrationOf(h))
	return err == nil && slices.ContainsFunc(beats, func(other *v1alpha1.Heartbeat) bool {
		if other.Name == h.Name || !isMissed(other) {
			return false
		}
		return !both || cmp.Or(other.Status.MissedTime.Compare(h.Status.MissedTime.Time), cmp.Compare(other.Name, h.Name)) < 0
	})
}
