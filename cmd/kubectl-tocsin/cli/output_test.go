package cli

import (
	"bytes"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestSortBy(t *testing.T) {
	for sentence, test := range map[string]struct{ in, want []string }{
		"decimals are in the order of their values": {[]string{"10.5", "9.25", "-1.5"}, []string{"-1.5", "9.25", "10.5"}},
		"among integers":                    {[]string{"10", "9.5", "9"}, []string{"9", "9.5", "10"}},
		"integers that a float would round": {[]string{"9007199254740993", "9007199254740992"}, []string{"9007199254740992", "9007199254740993"}},
		"texts are in the order of their characters, after all numbers":          {[]string{`"b"`, `"a"`, "2", `"10"`}, []string{"2", `"10"`, `"a"`, `"b"`}},
		"incidents without the field come first, as do those with nothing in it": {[]string{"1", "", "0.5", "null"}, []string{"", "null", "0.5", "1"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			var incidents []*v1alpha1.Incident
			for _, value := range test.in {
				incident := &v1alpha1.Incident{}
				if value != "" {
					incident.Status.Alert.Values = v1alpha1.Bag{"used": []byte(value)}
				}
				incident.Name = value
				incidents = append(incidents, incident)
			}
			g.Expect(sortBy(incidents, "{.status.alert.values.used}")).To(Succeed())
			var got []string
			for _, incident := range incidents {
				got = append(got, incident.Name)
			}
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestACustomColumnThatCannotBeEvaluatedIsAnError(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
	g.Expect(writeColumns("A:.metadata.name,LONG:.metadata.labels", incident, true, &out)).To(Succeed())
	g.Expect(out.String()).To(Equal("A      LONG\ndisk   <none>\n"))
	g.Expect(writeColumns("A:.metadata[5]", incident, true, &out)).To(MatchError(HavePrefix("custom column A: ")))
}
