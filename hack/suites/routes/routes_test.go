// Package routes holds the routes of Alertmanager that the documents show against alerts whose labels a tenant has chosen.
package routes

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// route is a route of alertmanager.yml, or of an AlertmanagerConfig.
type route struct {
	Receiver   string   `json:"receiver"`
	Matchers   []any    `json:"matchers"`
	GroupBy    []string `json:"group_by"`
	GroupByKey []string `json:"groupBy"`
	Routes     []route  `json:"routes"`
}

// matcher is a parsed matcher.
type matcher struct{ name, operator, value string }

var (
	fences  = regexp.MustCompile("(?ms)^( *)```yaml[^\n]*\n(.*?)^ *```")
	written = regexp.MustCompile(`^\s*(\w+)\s*(=~|!~|!=|=)\s*"?([^"]*)"?\s*$`)
)

// matchersOf parses the matchers of a route.
func (r *route) matchersOf(g *WithT) (all []matcher) {
	for _, one := range r.Matchers {
		switch one := one.(type) {
		case string:
			parts := written.FindStringSubmatch(one)
			g.Expect(parts).NotTo(BeNil(), one)
			all = append(all, matcher{parts[1], parts[2], parts[3]})
		case map[string]any:
			text := func(key, otherwise string) string {
				if value, ok := one[key].(string); ok {
					return value
				}
				return otherwise
			}
			all = append(all, matcher{text("name", ""), text("matchType", "="), text("value", "")})
		}
	}
	return all
}

// takes reports whether a matcher takes a value.
func (m matcher) takes(value string) bool {
	switch m.operator {
	case "=":
		return value == m.value
	case "!=":
		return value != m.value
	}
	matches := regexp.MustCompile("^(?:" + m.value + ")$").MatchString(value)
	return matches == (m.operator == "=~")
}

// tenants reports whether a tenant of another namespace can have an alert that all matchers take: whatever is in the labels but the
// namespace, and the name of its Incident, which is never empty.
func tenants(all []matcher) bool {
	for _, m := range all {
		switch {
		case m.name == "namespace" && !m.takes("tenant"), m.name == "tocsin_incident" && !m.takes("alive-0"):
			return false
		}
	}
	return true
}

// isForAll reports whether a route is for all alerts of Tocsin, those of tenants as well.
func isForAll(all []matcher) bool {
	return slices.ContainsFunc(all, func(m matcher) bool { return m.name == "tocsin_incident" && m.takes("alive-0") })
}

// documented returns the routes of all documents, by the file and the receiver.
func documented(g *WithT) map[string][]route {
	found := map[string][]route{}
	files, err := filepath.Glob(filepath.Join(testenv.Root(), "docs", "*.md"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		for _, block := range fences.FindAllStringSubmatch(string(text), -1) {
			lines := strings.Split(block[2], "\n")
			for i := range lines {
				lines[i] = strings.TrimPrefix(lines[i], block[1])
			}
			var config struct {
				Route *route `json:"route"`
				Spec  struct {
					Route *route `json:"route"`
				} `json:"spec"`
			}
			if yaml.Unmarshal([]byte(strings.Join(lines, "\n")), &config) != nil {
				continue // an excerpt, which another test reads
			}
			for _, r := range []*route{config.Route, config.Spec.Route} {
				if r != nil {
					found[filepath.Base(file)] = append(found[filepath.Base(file)], r.all()...)
				}
			}
		}
	}
	return found
}

// all returns a route and those below it.
func (r *route) all() []route {
	all := []route{*r}
	for i := range r.Routes {
		all = append(all, r.Routes[i].all()...)
	}
	return all
}

func TestNoTenantTakesADocumentedRouteOfSomebodyElse(t *testing.T) {
	g := NewWithT(t)
	count := 0
	for file, routes := range documented(g) {
		for _, r := range routes {
			count++
			matchers := r.matchersOf(g)
			g.Expect(len(matchers) == 0 || isForAll(matchers) || !tenants(matchers)).To(BeTrue(),
				"%s: a tenant can have an alert that takes the route to %s", file, r.Receiver)
			if by := slices.Concat(r.GroupBy, r.GroupByKey); slices.Contains(by, "tocsin_incident") {
				g.Expect(by).To(ContainElement("namespace"), "%s: the route to %s joins Incidents of two namespaces", file, r.Receiver)
			}
		}
	}
	g.Expect(count).To(BeNumerically(">", 8), "routes in the documents")
}

func TestTenantsChooseAllLabelsButTwo(t *testing.T) {
	for sentence, test := range map[string]struct {
		matchers []matcher
		want     bool
	}{
		"the name of an alert":                   {[]matcher{{"alertname", "=", "Watchdog"}}, true},
		"a name, and no alert of Tocsin":         {[]matcher{{"alertname", "=", "Watchdog"}, {"tocsin_incident", "=", ""}}, false},
		"an integration of any namespace":        {[]matcher{{"integration", "=", "alive"}}, true},
		"an integration of a namespace":          {[]matcher{{"namespace", "=", "tocsin-system"}, {"integration", "=", "alive"}}, false},
		"all but one namespace":                  {[]matcher{{"namespace", "!=", "tocsin-system"}}, true},
		"a namespace by a pattern of all":        {[]matcher{{"namespace", "=~", ".+"}}, true},
		"a pattern that no Incident's name fits": {[]matcher{{"tocsin_incident", "!~", ".+"}}, false},
	} {
		NewWithT(t).Expect(tenants(test.matchers)).To(Equal(test.want), sentence)
	}
}
