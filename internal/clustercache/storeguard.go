package clustercache

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
	// guardInterval is how often the StoreGuard reads the store's resourceVersion; guardTimeout bounds one read.
	guardInterval = 10 * time.Second
	guardTimeout  = 5 * time.Second
)

// StoreGuard ends the process when the store was restored from a backup: a cache that is newer than the store does not
// show objects created after the restore. A new process reads everything again.
type StoreGuard struct {
	// version returns the store's current resourceVersion by a quorum read. It never decreases by itself.
	version func(ctx context.Context) (string, error)
	ticks   <-chan time.Time // nil: every guardInterval
}

// NewStoreGuard returns a StoreGuard that reads the resourceVersion from a list of at most one WebhookIntegration.
func NewStoreGuard(reader client.Reader, namespace string) *StoreGuard {
	return &StoreGuard{version: func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, guardTimeout)
		defer cancel()
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookIntegrationList"))
		err := reader.List(ctx, &list, client.InNamespace(namespace), client.Limit(1))
		return list.ResourceVersion, err
	}}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica has a cache.
func (g *StoreGuard) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It returns an error when the resourceVersion decreases, and ignores failed reads.
func (g *StoreGuard) Start(ctx context.Context) error {
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
