package silences

import (
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestASilenceHasALinkIfTheAlertmanagerHasAnExternalURL(t *testing.T) {
	for external, link := range map[string]string{
		"":                                "",
		"https://am.example.com":          "https://am.example.com/#/silences/7b3f",
		"https://am.example.com/prefix/":  "https://am.example.com/prefix/#/silences/7b3f",
		"http://am.example.com:9093/a b/": "http://am.example.com:9093/a%20b/#/silences/7b3f",
	} {
		g := NewWithT(t)
		var base *url.URL
		if external != "" {
			parsed, err := url.Parse(external)
			g.Expect(err).NotTo(HaveOccurred())
			base = parsed
		}
		m, key := NewMatching(base, ""), types.NamespacedName{Namespace: "shop", Name: "a"}
		m.AddAlert(key, []string{"7b3f"})
		m.AddSilence(&Silence{ID: "7b3f", CreatedBy: "ops", EndsAt: noon})
		g.Expect(m.Longest).To(HaveKeyWithValue(key,
			v1alpha1.Silence{EndTime: v1alpha1.NewTimestamp(noon), By: "ops", ID: "7b3f", Link: link}))
	}
}

// Whoever runs the Alertmanager gives the IDs.
func TestTheIDOfASilenceIsEscapedInALink(t *testing.T) {
	g := NewWithT(t)
	base, err := url.Parse("https://am.example.com")
	g.Expect(err).NotTo(HaveOccurred())
	link, err := url.Parse(NewMatching(base, "").linkTo(`"><script>//evil.example.com ` + "\n\u202e"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]string{link.Scheme, link.Host, link.Path}).To(Equal([]string{"https", "am.example.com", "/"}))
	g.Expect(link.String()).To(MatchRegexp(`^https://am\.example\.com/#/silences/[!-~]*$`))
	g.Expect(link.String()).NotTo(ContainSubstring(`"`))
	g.Expect(link.String()).NotTo(ContainSubstring("<"))
}

// Alertmanager lists silences that end at the same time in any order.
func TestOfEquallyLongSilencesTheSameOneCounts(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "a"}
	for _, ids := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"}} {
		m := NewMatching(nil, "")
		m.AddAlert(key, ids)
		for i, id := range ids {
			m.AddSilence(&Silence{ID: id, EndsAt: noon.Add(time.Duration(i) * time.Millisecond)})
		}
		NewWithT(t).Expect(m.Longest[key].ID).To(Equal("a"))
	}
}

func TestAcknowledgementsOfAnotherInstallationCountAsSilences(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "a"}
	found := func(installation string) map[types.NamespacedName]v1alpha1.Silence {
		m := NewMatching(nil, "here")
		m.AddAlert(key, []string{"7b3f"})
		comment := "I look " + marker{kindAcknowledged, key, installation}.String()
		m.AddSilence(&Silence{ID: "7b3f", EndsAt: noon, CreatedBy: "maria", Comment: comment})
		return m.Longest
	}
	g := NewWithT(t)
	g.Expect(found("here")).To(BeEmpty())
	g.Expect(found("elsewhere")).To(HaveKeyWithValue(key,
		v1alpha1.Silence{EndTime: v1alpha1.NewTimestamp(noon), By: "maria", Comment: "I look", ID: "7b3f"}))
}
