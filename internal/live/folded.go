package live

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const maxNotFolded = 3

// NotFolded says of which integrations of a namespace, empty for all, alerts do not become Incidents, and why; empty if all do.
// Otherwise, that no Incident is open proves nothing. If there are names, it considers these integrations only.
func NotFolded(ctx context.Context, c client.Reader, namespace string, names []string) (string, error) {
	var found []string
	message := ""
	for integration, err := range Integrations(ctx, c, namespace) {
		if err != nil {
			return "", err
		}
		reason := integrations.WhyNotFolded(integration)
		if reason == "" || len(names) > 0 && !slices.Contains(names, integration.Name) {
			continue
		}
		found = append(found, fmt.Sprintf("%s/%s (%s)", integration.Namespace, integration.Name, reason))
		condition := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionAlertsFolded)
		message = cmp.Or(message, condition.Message)
	}
	if len(found) == 0 {
		return "", nil
	}
	list := plaintext.Few(found, maxNotFolded)
	return plaintext.SanitizeLine(fmt.Sprintf("alerts for %s do not become incidents: %s", list, message)), nil
}
