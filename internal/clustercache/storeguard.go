package clustercache

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
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
	// Reader lists at most one WebhookIntegration in the Namespace by a quorum read, whose resourceVersion is the store's. It
	// never decreases by itself. Namespace is one in which the manager has its permissions; empty if it watches all.
	Reader    client.Reader
	Namespace string
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica has a cache.
func (g *StoreGuard) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It returns an error when the resourceVersion decreases, and ignores failed reads.
func (g *StoreGuard) Start(ctx context.Context) error {
	newest := ""
	err := wait.PollUntilContextCancel(ctx, guardInterval, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, guardTimeout)
		defer cancel()
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookIntegrationList"))
		if g.Reader.List(ctx, &list, client.InNamespace(g.Namespace), client.Limit(1)) != nil {
			return false, nil
		}
		version := list.ResourceVersion
		if order, err := resourceversion.CompareResourceVersion(version, newest); err == nil && order < 0 {
			return false, fmt.Errorf("the store has gone back from resourceVersion %s to %s: it was restored from a backup",
				newest, version)
		}
		newest = version
		return false, nil
	})
	if ctx.Err() != nil {
		err = nil
	}
	return err
}
