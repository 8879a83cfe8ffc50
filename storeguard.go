package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// guardInterval is how often the store's version is read, and guardTimeout bounds a read.
	guardInterval = 10 * time.Second
	guardTimeout  = 5 * time.Second
)

// storeGuard ends the process when the store was restored from a backup: caches that are younger than the store would
// not show what is created in it. It is the one reason to end; a new process reads everything anew.
type storeGuard struct {
	// version returns the store's resourceVersion, from the quorum. It never goes back by itself.
	version func(ctx context.Context) (string, error)
	ticks   <-chan time.Time // nil: every guardInterval
}

// newStoreGuard makes a guard that reads the version from a list of WebhookIntegrations, of one item at most.
func newStoreGuard(reader client.Reader, namespace string) *storeGuard {
	return &storeGuard{version: func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, guardTimeout)
		defer cancel()
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookIntegrationList"))
		err := reader.List(ctx, &list, client.InNamespace(namespace), client.Limit(1))
		return list.ResourceVersion, err
	}}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica has a cache.
func (g *storeGuard) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It fails when the store has gone back. While the API server is away it waits.
func (g *storeGuard) Start(ctx context.Context) error {
	ticks := g.ticks
	if ticks == nil {
		ticker := time.NewTicker(guardInterval)
		defer ticker.Stop()
		ticks = ticker.C
	}
	newest := ""
	for {
		if version, err := g.version(ctx); err == nil {
			if order, err := resourceversion.CompareResourceVersion(version, newest); err == nil && order < 0 {
				return fmt.Errorf("the store has gone back from resourceVersion %s to %s: it was restored from a backup", newest, version)
			}
			newest = version
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}
