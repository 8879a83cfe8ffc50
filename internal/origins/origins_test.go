package origins_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/origins"
)

func TestText(t *testing.T) {
	for sentence, c := range map[string]struct {
		origins origins.Origins
		want    string
	}{
		"a payload of our own format": {
			origins.Origins{Kinds: kinds("kk-b")}, "//kk-b",
		},
		"expressions of a mapping over a preset": {
			origins.Origins{Mapping: "mapped", Preset: "preset", Kinds: kinds("pmppp---------pu")}, "mapped/preset/pmppp---------pu",
		},
		"a field of an earlier alert": {
			origins.Origins{Kinds: kinds("Kk"), Earlier: [origins.Count]bool{true}}, "//Kk",
		},
		"warnings about a field and the whole": {
			origins.Origins{Kinds: kinds("k"), Warnings: []origins.Warning{{Field: origins.Severity, Reason: 's'}, {Field: origins.Whole, Reason: 'M'}}},
			"//k/CsQM",
		},
		"a key in other letters, without warnings": {
			origins.Origins{Kinds: kinds("n"), Keys: [origins.Count]string{origins.Title: "Summary"}}, "//n//ASummary",
		},
		"keys beside warnings": {
			origins.Origins{Kinds: kinds("n-n"), Warnings: []origins.Warning{{Field: origins.Title, Reason: 'l'}},
				Keys: [origins.Count]string{origins.Title: "Summary", origins.Severity: "sev"}},
			"//n-n/Al/ASummary/Csev",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(c.origins.String()).To(Equal(c.want))
			read, known := origins.Parse(c.want)
			g.Expect(known).To(BeTrue())
			g.Expect(read.String()).To(Equal(c.want))
			g.Expect(read.Kinds).To(Equal(c.origins.Kinds))
		})
	}
}

// kinds reads the letters of kinds, without those of earlier alerts.
func kinds(letters string) (kinds [origins.Count]origins.Kind) {
	read, _ := origins.Parse("//" + strings.ToLower(letters))
	return read.Kinds
}

func TestWhatIsNoTextSaysNothing(t *testing.T) {
	for _, text := range []string{
		"", "k", "/k", "//k k", "//ä", "a b//k", "toolongadigest//k", "<//k", strings.Repeat("k", origins.MaxBytes+1),
		"//" + strings.Repeat("k", origins.MaxBytes),
	} {
		_, known := origins.Parse(text)
		NewWithT(t).Expect(known).To(BeFalse(), text)
	}
}

func TestWhatAnotherVersionAddsIsLeftOut(t *testing.T) {
	g := NewWithT(t)
	read, known := origins.Parse("//kx--------------kk/As?sZs/n/ASummary/Zkey/C" + strings.Repeat("x", 30) + "/A<b>")
	g.Expect(known).To(BeTrue())
	g.Expect(read.String()).To(Equal("//kx/As"), "a kind stays, a field, a reason and a key do not")
}

func TestMerge(t *testing.T) {
	for sentence, c := range map[string]struct {
		older, newer string
		kept         []origins.Field
		want         string
	}{
		"the first alert": {"", "//kkk", nil, "//kkk"},
		"a repeat":        {"//kkk", "//kkk", nil, "//kkk"},
		"what the newer one lacks is of an earlier one":   {"//kkkkk", "//k--b", nil, "//kKKbK"},
		"an earlier one stays earlier":                    {"//kKKb", "//k--b", nil, "//kKKb"},
		"what is given again is of the newest":            {"//KK", "//kk", nil, "//kk"},
		"a default stays a default":                       {"//k-d-bl", "//k---k", nil, "//k-D-kL"},
		"a default is replaced":                           {"//k-d", "//k-k", nil, "//k-k"},
		"the status and the expiry are of the newest":     {"//k--k-------k", "//k--b", nil, "//k--b"},
		"a resolve keeps the problem's title":             {"//kkm", "//mmm", []origins.Field{origins.Title, origins.Description}, "//KKm"},
		"expressions of the same mapping":                 {"map/pre/mp", "map/pre/--k", nil, "map/pre/MPk"},
		"expressions of another mapping are not known":    {"map//mk", "MAP//--k", nil, "MAP//-Kk"},
		"expressions of another preset are not known":     {"m/pre/mps", "m/PRE/---k", nil, "m/PRE/M--k"},
		"the severity of another preset is not known":     {"/pre/--s", "/PRE/k", nil, "/PRE/k"},
		"a newer one that has no field":                   {"//k", "//-", nil, "//K"},
		"a newer one of which nothing is known":           {"//kkk", "", nil, ""},
		"a newer one that somebody made up":               {"//kkk", "<script>", nil, ""},
		"an older one of which nothing is known":          {"", "//k", nil, "//k"},
		"one alert cannot have fields of earlier ones":    {"", "//KKb", nil, "//kkb"},
		"warnings are those of the newest":                {"//k/Al", "//k/As", nil, "//k/As"},
		"the key of an earlier one stays":                 {"//n//ASummary", "//-k", nil, "//Nk//ASummary"},
		"the key of the newest replaces":                  {"//n//ASummary", "//n//Aheadline", nil, "//n//Aheadline"},
		"the key goes with its field":                     {"//n//ASummary", "//k", nil, "//k"},
		"a key of a field that the content does not take": {"//k", "//n//ASummary", []origins.Field{origins.Title}, "//K"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			merged := origins.Merge(c.older, c.newer, c.kept...)
			g.Expect(merged).To(Equal(strings.NewReplacer("D", "d", "L", "l").Replace(c.want)))
		})
	}
}

func TestSet(t *testing.T) {
	g := NewWithT(t)
	g.Expect(origins.Set("//k", origins.Type, origins.BuiltIn)).To(Equal("//k----b"))
	g.Expect(origins.Set("//K", origins.Title, origins.Default)).To(Equal("//d"))
	g.Expect(origins.Set("", origins.Type, origins.BuiltIn)).To(BeEmpty())
}

// texts are such as other versions and careless users write.
func texts() *rapid.Generator[string] {
	part := rapid.StringMatching(`[A-Za-z/?<"é-]{0,20}`)
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 0, 14).Draw(t, "parts"), "/")
	})
}

func TestWhateverIsMergedIsAText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		older, newer := texts().Draw(t, "older"), texts().Draw(t, "newer")
		older = origins.Merge("", older) // as an Incident has it
		merged := origins.Merge(older, newer, rapid.SliceOf(rapid.SampledFrom([]origins.Field{
			origins.Title, origins.Severity, origins.StartsAt})).Draw(t, "kept")...)
		if len(merged) > origins.MaxBytes {
			t.Fatalf("%d bytes", len(merged))
		}
		read, known := origins.Parse(merged)
		if known != (merged != "") || known && read.String() != merged {
			t.Fatalf("%q is read as %q", merged, read.String())
		}
		if again := origins.Merge(merged, newer); again != origins.Merge(again, newer) {
			t.Fatalf("%q becomes %q", again, origins.Merge(again, newer))
		}
		set := origins.Set(merged, origins.Type, origins.BuiltIn)
		if read, known := origins.Parse(set); known != (merged != "") || known && read.Kinds[origins.Type] != origins.BuiltIn {
			t.Fatalf("%q", set)
		}
	})
}

// TestTheLongestTextFits has a key of the greatest length for each field, and every warning that fits.
func TestTheLongestTextFits(t *testing.T) {
	g := NewWithT(t)
	o := origins.Origins{Mapping: "mapping_", Preset: "preset__"}
	for f := range origins.Whole {
		o.Kinds[f] = origins.OtherName
		o.Keys[f] = strings.Repeat("k", 24)
		o.Warn(f, 's')
		o.Warn(f, 's')
	}
	g.Expect(o.Warnings).To(HaveLen(8))
	text := o.String()
	g.Expect(len(text)).To(BeNumerically("<=", origins.MaxBytes))
	read, known := origins.Parse(text)
	g.Expect(known).To(BeTrue())
	g.Expect(read.Keys[origins.Title]).To(HaveLen(24))
	g.Expect(read.Keys[origins.Custom]).To(BeEmpty(), "it does not fit")
	g.Expect(origins.MaxBytes).To(Equal(v1alpha1.MaxOriginsChars))
}

// TestThePageHasEveryLetter compares the letters with those that users find in docs/spec/v1alpha1/alertevent.md.
func TestThePageHasEveryLetter(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs/spec/v1alpha1/alertevent.md"))
	g.Expect(err).NotTo(HaveOccurred())
	_, section, _ := strings.Cut(string(page), "\n#### Origins\n")
	var letters []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([a-z])` \\|").FindAllStringSubmatch(section, -1) {
		letters = append(letters, match[1])
	}
	var want []string
	for _, kind := range []origins.Kind{
		origins.Key, origins.Alias, origins.OtherName, origins.Mapping, origins.Preset, origins.PresetSeverity, origins.Failed,
		origins.Request, origins.Unmapped, origins.Generated, origins.Default, origins.BuiltIn, origins.FirstLine,
	} {
		want = append(want, string(rune(kind)))
	}
	g.Expect(letters).To(Equal(want))
	var fields []string
	for f := range origins.Whole {
		fields = append(fields, fmt.Sprintf("`%s`", f))
	}
	g.Expect(section).To(ContainSubstring(strings.Join(fields[:4], ", ")))
	for _, field := range fields {
		g.Expect(section).To(ContainSubstring(field))
	}
	g.Expect(slices.Contains(fields, "``")).To(BeFalse())
}

func BenchmarkMerge(b *testing.B) {
	for name, texts := range map[string][2]string{
		"a repeat":               {"/abcdef/ppppp--p-p-ppp-u", "/abcdef/ppppp--p-p-ppp-u"},
		"a repeat with defaults": {"//kkkkkb-k----k-k", "//kkkkk--k----k-k"},
		"a resolve":              {"/abcdef/ppppp--p-p-ppp-u", "/abcdef/---pp----pp----u"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				origins.Merge(texts[0], texts[1])
			}
		})
	}
}
