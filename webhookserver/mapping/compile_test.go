package mapping_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

func TestCompileErrors(t *testing.T) {
	for sentence, test := range map[string]struct {
		preset, mapping string
		errors          []string // each a line of the error; the beginning suffices
	}{
		"a preset that is not there": {preset: "nagios-9000", errors: []string{
			`spec.preset: there is no preset "nagios-9000"; there are alertmanager, `}},
		"a variable that is not there": {mapping: `{fields: {title: "alrt.name"}}`, errors: []string{
			"spec.mapping.fields.title: line 1, column 1: there is no variable \"alrt\""}},
		"a variable that is not there, in a loop": {mapping: `{fields: {title: "string(size(alrt.filter(a, a.b)))"}}`, errors: []string{
			"spec.mapping.fields.title: line 1, column 13: there is no variable \"alrt\""}},
		"a function that is not there": {mapping: `{alerts: "payload.alerts.select(a)"}`, errors: []string{
			"spec.mapping.alerts: line 1, column 22: there is no function \"select\""}},
		"a mistake in the second line": {mapping: "drop: |\n  alert.a == 'x' &&\n  alert.b ==\n", errors: []string{
			"spec.mapping.drop: line 3, column 1: the expression is incomplete"}},
		"a character too many": {mapping: `{fields: {title: "alert.a)"}}`, errors: []string{
			"spec.mapping.fields.title: line 1, column 8: unexpected ')'"}},
		"a text that does not end": {mapping: `{fields: {title: "'a"}}`, errors: []string{
			"spec.mapping.fields.title: line 1, column 1: unexpected ''a'"}},
		"a number and a text": {mapping: `{fields: {title: "1 + 'a'"}}`, errors: []string{
			"spec.mapping.fields.title: line 1, column 3: the operator + does not accept (int, string), expected (int, int)"}},
		"a method with a wrong argument": {mapping: `{drop: "alert.a.contains(3)"}`, errors: []string{
			"spec.mapping.drop: line 1, column 17: the function contains does not accept dyn.(int), expected string.(string)"}},
		"a function of many types": {mapping: `{drop: "size()"}`, errors: []string{
			"spec.mapping.drop: line 1, column 5: the function size does not accept (), expected "}},
		"a text where a map is wanted": {mapping: `{fields: {labels: "'a'"}}`, errors: []string{
			"spec.mapping.fields.labels: line 1, column 1: it evaluates to string, expected a map"}},
		"a map where a text is wanted": {mapping: `{fields: {title: "{'a': 1}"}}`, errors: []string{
			"spec.mapping.fields.title: line 1, column 1: it evaluates to map(string, int), expected a text"}},
		"a text where a condition is wanted": {mapping: `{drop: "'a'"}`, errors: []string{
			"spec.mapping.drop: line 1, column 1: it evaluates to string, expected true or false"}},
		"a condition where a list is wanted": {mapping: `{alerts: "true"}`, errors: []string{
			"spec.mapping.alerts: line 1, column 1: it evaluates to bool, expected a list of alerts"}},
		"a regular expression that is none": {mapping: `{drop: "alert.a.matches('(')"}`, errors: []string{
			"spec.mapping.drop: line 1, column 17: the regular expression is not valid"}},
		"an expression that is too long": {mapping: `{fields: {title: "'` + strings.Repeat("a", 2048) + `'"}}`, errors: []string{
			"spec.mapping.fields.title: it is longer than 2048 characters"}},
		"an expression that nests too deep": {mapping: `{fields: {title: "` + strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100) + `"}}`,
			errors: []string{"spec.mapping.fields.title: line 1, column 1: "}},
		"a regular expression of the sender": {mapping: `{drop: "alert.a.matches(alert.b)"}`, errors: []string{
			"spec.mapping.drop: line 1, column 22: the regular expression must be a literal"}},
		"a regular expression that is too long": {mapping: `{drop: "alert.a.matches('` + strings.Repeat("a{1000}", 100) + `')"}`, errors: []string{
			"spec.mapping.drop: line 1, column 17: the regular expressions of the field are too long"}},
		"a pattern to find that is none": {mapping: `{fields: {title: "alert.a.find('(')"}}`, errors: []string{
			"spec.mapping.fields.title: line 1, column 14: the regular expression is not valid"}},
		"several mistakes": {mapping: `{alerts: "a", fields: {title: "b", custom: "c"}}`, errors: []string{
			"spec.mapping.alerts: line 1, column 1: ", "spec.mapping.fields.title: line 1, column 1: ",
			"spec.mapping.fields.custom: line 1, column 1: "}},
		"the function that only the compiler may use": {mapping: "{fields: {title: \"`@range`(alert, 1)\"}}", errors: []string{
			"spec.mapping.fields.title: line 1, column 1"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			program, err := mapping.Compile(test.preset, parsed(t, test.mapping))
			g.Expect(err).To(HaveOccurred())
			g.Expect(program).To(BeNil())
			var compileError *mapping.CompileError
			g.Expect(errors.As(err, &compileError)).To(BeTrue())
			text := "\n" + err.Error()
			for _, line := range test.errors {
				g.Expect(text).To(ContainSubstring("\n" + line))
			}
		})
	}
}

func TestAnIntegrationsMappingOverridesThePresetFieldByField(t *testing.T) {
	g := NewWithT(t)
	body := `{"alerts": [{"fingerprint": "abc", "status": "firing", "labels": {"alertname": "A", "severity": "critical"}}]}`
	program, err := mapping.Compile("alertmanager", nil)
	g.Expect(err).NotTo(HaveOccurred())
	before := readBody(t, program, body, nil).Alerts[0]
	program, err = mapping.Compile("alertmanager", parsed(t, `{fields: {severity: "'info'"}}`))
	g.Expect(err).NotTo(HaveOccurred())
	after := readBody(t, program, body, nil).Alerts[0]
	g.Expect(before.Severity).To(Equal(v1alpha1.SeverityCritical))
	g.Expect(after.Severity).To(Equal(v1alpha1.SeverityInfo))
	g.Expect(after.Title).To(Equal(before.Title))
	g.Expect(after.DedupKey).To(Equal("abc"))
}

func TestPresetsAreCopies(t *testing.T) {
	g := NewWithT(t)
	presets, err := mapping.Presets()
	g.Expect(err).NotTo(HaveOccurred())
	names := mapping.PresetNames()
	g.Expect(names).To(HaveLen(len(presets) + 2))
	g.Expect(names[len(presets):]).To(Equal([]string{mapping.Auto, mapping.None}))
	presets[0].Mapping.Fields.Title = "changed"
	again, err := mapping.Presets()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again[0].Mapping.Fields.Title).NotTo(BeEquivalentTo("changed"))
}

func integration(generation int64, m *v1alpha1.Mapping) *v1alpha1.WebhookIntegration {
	return &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "tool", UID: "1", Generation: generation},
		Spec:       v1alpha1.WebhookIntegrationSpec{Mapping: m},
	}
}

func TestCache(t *testing.T) {
	g := NewWithT(t)
	cache := mapping.NewCache()
	first, err := cache.Program(integration(1, parsed(t, `{fields: {title: "'one'"}}`)))
	g.Expect(err).NotTo(HaveOccurred())
	same, err := cache.Program(integration(1, parsed(t, `{fields: {title: "'one'"}}`)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(same).To(BeIdenticalTo(first), "compiled once a generation")
	other, err := cache.Program(integration(2, parsed(t, `{fields: {title: "'two'"}}`)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(readBody(t, other, `{}`, nil).Alerts[0].Title).To(Equal("two"))
	plain, err := cache.Program(integration(3, nil))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(readBody(t, plain, `{"title": "three"}`, nil).Alerts[0].Title).To(Equal("three"))
}

func TestAMappingThatDoesNotCompileLeavesThePayloadToThePayloadRules(t *testing.T) {
	g := NewWithT(t)
	cache := mapping.NewCache()
	for range 2 {
		program, err := cache.Program(integration(1, parsed(t, `{alerts: payload.list, fields: {title: alrt.name}}`)))
		g.Expect(err).To(MatchError(ContainSubstring(`there is no variable "alrt"`)))
		result := readBody(t, program, `{"title": "T", "list": [], "name": "N"}`, nil)
		g.Expect(result.Warnings).To(HaveLen(1))
		g.Expect(result.Warnings[0].Detail).To(ContainSubstring("does not compile"))
		g.Expect(result.Alerts).To(HaveLen(1))
		g.Expect(result.Alerts[0].Title).To(Equal("T"))
		g.Expect(result.Alerts[0].Custom).To(HaveKey("name"))
	}
}

func TestACacheIsForManyGoroutines(t *testing.T) {
	cache := mapping.NewCache()
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for n := range 50 {
				w := integration(int64(n%3), parsed(t, `{alerts: payload.alerts, fields: {title: "alert.map(k, k).join()"}}`))
				w.Name = string(rune('a' + i%2))
				program, err := cache.Program(w)
				if err != nil {
					t.Error(err)
					return
				}
				readBody(t, program, `{"alerts": [{"a": 1, "b": 2}]}`, nil)
			}
		})
	}
	wait.Wait()
}
