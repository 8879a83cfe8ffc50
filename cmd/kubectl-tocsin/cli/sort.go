package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// sortBy sorts Incidents by a JSONPath expression such as .status.alertCount, as kubectl get --sort-by does. Incidents
// without the field come first.
func sortBy(incidents []*v1alpha1.Incident, expression string) error {
	path, err := parsePath(expression)
	if err != nil {
		return fmt.Errorf("--sort-by %q: %w", expression, err)
	}
	keys := map[*v1alpha1.Incident]any{}
	for _, incident := range incidents {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(incident)
		if err != nil {
			return err
		}
		found, err := path.FindResults(object)
		if err != nil {
			return fmt.Errorf("--sort-by %q: %w", expression, err)
		}
		if len(found) > 0 && len(found[0]) > 0 {
			keys[incident] = found[0][0].Interface()
		}
	}
	slices.SortStableFunc(incidents, func(a, b *v1alpha1.Incident) int { return compareKeys(keys[a], keys[b]) })
	return nil
}

// parsePath parses a JSONPath expression such as .status.alertCount or {.status.alertCount}. Missing fields are no error.
func parsePath(expression string) (*jsonpath.JSONPath, error) {
	path := jsonpath.New("path").AllowMissingKeys(true)
	return path, path.Parse("{" + strings.Trim(expression, "{}") + "}")
}

// compareKeys compares numbers by value and everything else as text. API timestamps sort correctly as text.
func compareKeys(a, b any) int {
	if a == nil || b == nil {
		return compareBool(a != nil, b != nil)
	}
	x, xNumber := a.(int64)
	y, yNumber := b.(int64)
	if xNumber && yNumber {
		return cmp.Compare(x, y)
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}
