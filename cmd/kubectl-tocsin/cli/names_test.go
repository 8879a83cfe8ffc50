package cli

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestShortNamesHaveTheBeginningOfTheHash(t *testing.T) {
	g := NewWithT(t)
	for name, short := range map[string]string{
		"monitoring-qf4temcyqfg5jyf6hfops4jsuk":               "monitoring-qf4tem",
		"production-monitoring-eu-qf4temcyqfg5jyf6hfops4jsuk": "production-monitoring-eu-qf4tem",
		"disk-1":    "disk-1",
		"unrelated": "unrela",
	} {
		g.Expect(shortName(name)).To(Equal(short))
		g.Expect(abbreviates(short, name)).To(BeTrue(), "the commands accept %s", short)
	}
	g.Expect(shortName(v1alpha1.IncidentName("mon", "disk"))).To(MatchRegexp(`^mon-[a-z2-7]{6}$`))
}
