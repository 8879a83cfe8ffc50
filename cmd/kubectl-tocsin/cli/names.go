package cli

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// leastHash is how many characters of the hash at the end of a name a short name has at least: a name that is short
// today is to be clear tomorrow as well.
const leastHash = 4

// shortNames maps the names of Incidents to the shortest beginnings that are clear in their namespaces.
func shortNames(names []types.NamespacedName) map[types.NamespacedName]string {
	names = slices.Clone(names)
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	short := make(map[types.NamespacedName]string, len(names))
	common := func(i, j int) int { // how many characters two neighbours have in common
		if j < 0 || j >= len(names) || names[i].Namespace != names[j].Namespace {
			return 0
		}
		a, b := names[i].Name, names[j].Name
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	for i, name := range names {
		least := strings.LastIndex(name.Name, "-") + 1 + leastHash
		short[name] = name.Name[:min(len(name.Name), max(least, common(i, i-1)+1, common(i, i+1)+1))]
	}
	return short
}

// incidentNames are the names of the Incidents in a namespace, empty for all.
func (c *cluster) incidentNames(ctx context.Context, namespace string) ([]types.NamespacedName, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("IncidentList"))
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	names := make([]types.NamespacedName, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return names, nil
}

func namesOf(incidents []*v1alpha1.Incident) []types.NamespacedName {
	names := make([]types.NamespacedName, 0, len(incidents))
	for _, incident := range incidents {
		names = append(names, client.ObjectKeyFromObject(incident))
	}
	return names
}
