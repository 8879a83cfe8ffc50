package forward

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

// incidents has what a term knows of Incidents, and reads from the API server those that the cache lacks.
type incidents struct {
	*index
	api      client.Reader
	settings func() *alerts.Settings
	resolved *expirecache.LRUExpireCache // compact Incidents by version: a Resolved one is posted again and again
	reads    flowcontrol.RateLimiter
}

func newIncidents(api client.Reader, settings func() *alerts.Settings) *incidents {
	return &incidents{
		index: newIndex(), api: api, settings: settings, resolved: expirecache.NewLRUExpireCache(maxResolved),
		reads: flowcontrol.NewTokenBucketRateLimiter(readRate, readRate),
	}
}

// version is a version of an Incident.
type version struct {
	types.NamespacedName
	resource string
}

// read returns an Incident and its integration, each nil if it does not exist. An Incident that was resolved long ago is nil as
// well. The objects must not be modified.
func (i *incidents) read(
	ctx context.Context, key types.NamespacedName,
) (incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, err error) {
	known, integration, ok := i.get(key)
	if incident = known.open; ok && incident == nil {
		incident, err = i.readResolved(ctx, version{key, known.version})
	}
	if err != nil || incident == nil {
		return nil, nil, err
	}
	return incident, integration, nil
}

// mayRead reports whether read needs no request, or may make one now.
func (i *incidents) mayRead(key types.NamespacedName) bool {
	known, _, ok := i.get(key)
	if !ok || known.open != nil {
		return true
	}
	_, ok = i.resolved.Get(version{key, known.version})
	return ok || i.reads.TryAccept()
}

// readResolved returns an Incident that the index knows and the cache lacks, nil if there is none.
func (i *incidents) readResolved(ctx context.Context, known version) (*v1alpha1.Incident, error) {
	if kept, ok := i.resolved.Get(known); ok {
		if incident, ok := kept.(*v1alpha1.Incident); ok {
			return incident, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout) // or an API server that hangs lets all alerts expire
	defer cancel()
	incident := &v1alpha1.Incident{}
	if err := i.api.Get(ctx, known.NamespacedName, incident); err != nil {
		if apierrors.IsNotFound(err) {
			i.missing(known.NamespacedName, known.resource)
		}
		return nil, client.IgnoreNotFound(err)
	}
	if incident.Status.Flapping != nil { // its end may be forwarded later than the cache shows it
		i.set(incident, time.Time{})
		known.resource = incident.ResourceVersion
	}
	return i.keepAs(known, incident), nil
}

// keep keeps a Resolved Incident, so that it need not be read.
func (i *incidents) keep(incident *v1alpha1.Incident) {
	i.keepAs(version{client.ObjectKeyFromObject(incident), incident.ResourceVersion}, incident)
}

func (i *incidents) keepAs(known version, incident *v1alpha1.Incident) *v1alpha1.Incident {
	kept, length := alerts.Compact(incident, i.settings()), resolvedTime
	if incident.Status.Flapping != nil && incident.Status.Flapping.KeptFiring != nil {
		length = keptFiringTime
	}
	i.resolved.Add(known, kept, length)
	return kept
}
