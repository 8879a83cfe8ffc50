package fold

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("x", 63)
	for sentence, c := range map[string]struct{ text, want string }{
		"a value stays":                         {"db-1.example_com", "db-1.example_com"},
		"the longest value stays":               {long, long},
		"a longer one is cut":                   {long + "y", long},
		"a cut leaves no mark at the end":       {long[:60] + "-._" + "y", long[:60]},
		"other characters become _":             {"10.0.0.1:9100/metrics", "10.0.0.1_9100_metrics"},
		"one character becomes one _":           {"a\U0001F525é\nb", "a___b"},
		"it begins and ends with a letter":      {" -_.a.- ", "a"},
		"marks before it do not count":          {strings.Repeat("/", 1000) + "a", "a"},
		"nothing stays of marks":                {"-._/", ""},
		"nothing stays of other scripts":        {"東京", ""},
		"nothing stays of nothing":              {"", ""},
		"an injection is a text":                {`x","uid":null,"`, "x___uid__null"},
		"invalid UTF-8 is replaced":             {"a\xff\xfeb", "a__b"},
		"a very long one takes no longer value": {strings.Repeat("ä", 1<<20) + "b", "b"},
		"letters beyond ASCII are no letters":   {"Ａpple", "pple"},
	} {
		t.Run(sentence, func(t *testing.T) { NewWithT(t).Expect(labelValue(c.text)).To(Equal(c.want)) })
	}
}

func TestLabelValueIsValidAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[-_.a/]{0,130}`)).Draw(t, "text")
		value := labelValue(text)
		if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
			t.Fatalf("%q becomes %q: %s", text, value, wrong)
		}
		if again := labelValue(value); again != value {
			t.Fatalf("%q becomes %q and then %q", text, value, again)
		}
		if len(validation.IsValidLabelValue(text)) == 0 && value != text {
			t.Fatalf("%q is valid, and becomes %q", text, value)
		}
	})
}

func labelled(status v1alpha1.AlertStatus, labels map[string]string) v1alpha1.Alert {
	return alertOf(status, v1alpha1.AlertContent{Labels: labels})
}

func TestTheLabelsOfTheObjectAreThoseOfTheFirstAlertOfAnEpisode(t *testing.T) {
	firing := func(team string) v1alpha1.Alert {
		return labelled(v1alpha1.AlertFiring, map[string]string{"team": team, "pod": "p", "empty": "/"})
	}
	start := func(t *testing.T, names ...string) (*WithT, *foldBench) {
		t.Helper()
		bench := newBench()
		bench.policy.LateFiringWindow, bench.policy.ObjectLabels = 0, names
		return NewWithT(t), bench
	}
	team := func(name string) map[string]string { return map[string]string{"alert.tocsin.dev/team": name} }

	t.Run("once", func(t *testing.T) {
		g, bench := start(t, "team", "empty", "none")
		g.Expect(bench.at(1, eventOf(1, firing("a"), firing("b"))).ObjectLabels).To(Equal(team("a")))
		g.Expect(bench.at(2, eventOf(2, firing("c"))).ObjectLabels).To(BeNil(), "a repeat changes none")
		g.Expect(bench.at(3, eventOf(3, labelled(v1alpha1.AlertResolved, team("d")))).ObjectLabels).To(BeNil())
		g.Expect(bench.at(4, eventOf(4, firing("e"))).ObjectLabels).To(Equal(team("e")))
		g.Expect(bench.at(5, eventOf(5, resolvingAlert(), firing("f"), resolvingAlert())).ObjectLabels).To(Equal(team("f")))
		g.Expect(bench.at(6).ObjectLabels).To(BeNil())
	})
	t.Run("with the integration's defaults", func(t *testing.T) {
		g, bench := start(t, "team", "site")
		event := eventOf(1, firing("a"))
		event.Spec.Defaults = &v1alpha1.AlertDefaults{Labels: map[string]v1alpha1.LabelValue{"team": "z", "site": "north"}}
		want := team("a")
		want["alert.tocsin.dev/site"] = "north"
		g.Expect(bench.at(1, event).ObjectLabels).To(Equal(want))
	})
	t.Run("none if the integration lists none, or no label has a value", func(t *testing.T) {
		g, bench := start(t)
		g.Expect(bench.at(1, eventOf(1, firing("a"))).ObjectLabels).To(And(BeEmpty(), Not(BeNil())), "those of earlier settings go")
		g, bench = start(t, "team")
		g.Expect(bench.at(1, eventOf(1, firingAlert())).ObjectLabels).To(And(BeEmpty(), Not(BeNil())))
	})
	t.Run("those that it has while its integration is deleted", func(t *testing.T) {
		g, bench := start(t)
		bench.policy.Absent = true
		g.Expect(bench.at(1, eventOf(1, firing("a"))).ObjectLabels).To(BeNil())
	})
}
