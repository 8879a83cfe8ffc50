package loadgen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// drainTimeout is how long a queue may take to drain.
const drainTimeout = 10 * time.Minute

// Drained waits until no AlertEvent is left in the namespace and returns how long that took.
func Drained(ctx context.Context, c client.Client, namespace string) (time.Duration, error) {
	start := time.Now()
	err := testenv.Await(ctx, drainTimeout, func(ctx context.Context) error {
		var events v1alpha1.AlertEventList
		err := c.List(ctx, &events, client.InNamespace(namespace), client.Limit(1))
		if err == nil && len(events.Items) > 0 {
			err = errors.New("the queue is not empty")
		}
		return err
	})
	return time.Since(start), err
}

// Check compares the account with the Incidents of the integration: every acknowledged alert counted
// once, no refused one counted, and an unknown one at most once. It returns what does not agree, a line a
// key, at most limit lines.
func Check(ctx context.Context, c client.Client, namespace, integration string, account *Account, limit int) ([]string, error) {
	var list v1alpha1.IncidentList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the Incidents: %w", err)
	}
	incidents := map[string]*v1alpha1.Incident{}
	for i := range list.Items {
		if list.Items[i].Spec.IntegrationName == integration {
			incidents[list.Items[i].Spec.DedupKey] = &list.Items[i]
		}
	}
	var wrong []string
	for key, incident := range incidents {
		if account.Keys[key] == nil {
			wrong = append(wrong, fmt.Sprintf("%s: %d alerts folded of a key that was never sent", key, incident.Status.AlertCount))
		}
	}
	for key, k := range account.Keys {
		if fault := k.compare(incidents[key]); fault != "" {
			wrong = append(wrong, key+": "+fault)
		}
	}
	slices.Sort(wrong)
	return wrong[:min(len(wrong), limit)], nil
}

func (k *KeyAccount) compare(incident *v1alpha1.Incident) string {
	var status v1alpha1.IncidentStatus
	if incident != nil {
		status = incident.Status
	}
	least, most := k.Acknowledged, k.Acknowledged+k.Unknown
	if folded := int(status.AlertCount); folded < least || folded > most {
		return fmt.Sprintf("%d alerts folded, want %d to %d", folded, least, most)
	}
	// With no unknown outcome the multiset of folded alerts is known, and not only its size.
	if k.Unknown == 0 && k.Acknowledged > 0 {
		if want := oracle.Digest(k.AlertIDs); status.Ledger.Digest != want {
			return fmt.Sprintf("the digest of the folded alerts is %q, want %q", status.Ledger.Digest, want)
		}
	}
	return ""
}
