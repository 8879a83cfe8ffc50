package clustercache

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// guardInterval is how often GuardStore reads the store's resourceVersion; guardTimeout bounds one read.
	guardInterval = 10 * time.Second
	guardTimeout  = 5 * time.Second
)

// GuardStore returns a runnable that ends the process when the store was restored from a backup: a cache that is newer than the
// store does not show objects created after the restore. A new process reads everything again.
//
// reader lists at most one WebhookIntegration by a quorum read, whose resourceVersion is the store's. It never decreases by
// itself. namespace is one in which the manager has its permissions; empty if it watches all. Failed reads are ignored.
func GuardStore(reader client.Reader, namespace string) manager.RunnableFunc {
	return func(ctx context.Context) error {
		newest := ""
		err := wait.PollUntilContextCancel(ctx, guardInterval, true, func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, guardTimeout)
			defer cancel()
			var list metav1.PartialObjectMetadataList
			list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookIntegrationList"))
			if reader.List(ctx, &list, client.InNamespace(namespace), client.Limit(1)) != nil {
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
			return nil
		}
		return err
	}
}
