package cli

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// minHashChars is the minimum number of characters that a short name has of the hash at the end of a name: a short name
// should stay unambiguous when more Incidents are created.
const minHashChars = 4

// shortNames maps the names of Incidents to their shortest prefixes that are unambiguous in their namespaces.
func shortNames(names []types.NamespacedName) map[types.NamespacedName]string {
	names = slices.Clone(names)
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	short := make(map[types.NamespacedName]string, len(names))
	common := func(i, j int) int { // length of the common prefix of two neighbors
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
		least := strings.LastIndex(name.Name, "-") + 1 + minHashChars
		short[name] = name.Name[:min(len(name.Name), max(least, common(i, i-1)+1, common(i, i+1)+1))]
	}
	return short
}

func namesOf(incidents []*v1alpha1.Incident) []types.NamespacedName {
	names := make([]types.NamespacedName, 0, len(incidents))
	for _, incident := range incidents {
		names = append(names, client.ObjectKeyFromObject(incident))
	}
	return names
}
