package apiserver_test

import (
	"strings"
	"testing"
)

func TestAdmission(t *testing.T) { admission.run(t) }

// entries returns entries of a ledger.
func entries(n int) (entries []any) {
	for range n {
		entries = append(entries, object{"uid": "00000000-0000-4000-8000-000000000000", "name": "event"})
	}
	return entries
}

var admission = conformance{
	"a quota is exceeded": {func(s *site) {
		s.create("incidents", incident("a"))
		s.quota(s, 1)
		a := s.send("POST", s.path("incidents"), incident("b"))
		s.note("%v %v", a, a.at("message"))
		s.note("%v %v", a.at("details", "name"), a.at("details", "kind"))
		s.note("%v", s.send("POST", s.path("alertevents"), alertEvent("b")))
	},
		[]string{`403 Forbidden incidents.tocsin.dev "b" is forbidden: exceeded quota: few, requested: count/incidents.tocsin.dev=1, ` +
			"used: count/incidents.tocsin.dev=1, limited: count/incidents.tocsin.dev=1", "b incidents", "201"}},

	"a policy denies": {func(s *site) {
		s.deny(s)
		a := s.send("POST", s.path("incidents"), with(incident("a"), "denied", "spec", "dedupKey"))
		s.note("%v %v", a, a.at("message"))
		causes, _ := a.at("details", "causes").([]any)
		s.note("%v %v", len(causes), at(causes[0], "message"))
		s.note("%v", s.send("POST", s.path("incidents"), incident("a")))
	},
		[]string{`403 Forbidden:  incidents.tocsin.dev "a" is forbidden: ValidatingAdmissionPolicy 'no-denied' ` +
			"with binding 'no-denied' denied request: this key is denied",
			"1 ValidatingAdmissionPolicy 'no-denied' with binding 'no-denied' denied request: this key is denied", "201"}},

	"an AlertEvent is immutable, its metadata is not": {func(s *site) {
		first := s.create("alertevents", alertEvent("a")).body
		s.note("%v", s.send("PUT", s.path("alertevents", "a"), with(first, "other", "spec", "integrationName")))
		s.note("%v", s.send("PUT", s.path("alertevents", "a"), with(first, object{"x": "y"}, "metadata", "annotations")))
	}, []string{"422 Invalid: FieldValueInvalid <nil>", "200"}},

	"an AlertEvent is validated": {func(s *site) {
		report := func(value any, path ...string) object {
			valid := object{"dedupKey": "key", "status": "firing"}
			return with(with(alertEvent("a"), nil, "spec", "alerts"), with(valid, value, path...), "spec", "report")
		}
		for _, o := range []object{
			report("burning", "status"), report(nil, "status"), report(nil, "dedupKey"), report(strings.Repeat("x", 2000), "comment"),
			report(7, "comment"), with(alertEvent("a"), "yesterday", "spec", "receivedTime"),
			with(alertEvent("a"), nil, "spec"), with(alertEvent("a"), nil, "spec", "alerts"), with(alertEvent("a"), "", "spec", "alerts"),
			with(alertEvent("a"), "{}", "spec", "alerts"), with(alertEvent("a"), nil, "spec", "integrationName"),
			with(alertEvent("a"), "Not a name", "metadata", "name"), with(alertEvent("a"), nil, "metadata", "name"),
		} {
			s.note("%v", s.send("POST", s.path("alertevents"), o))
		}
	}, []string{
		"422 Invalid: FieldValueInvalid <nil>, FieldValueNotSupported spec.report.status",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueRequired spec.report.status",
		"422 Invalid: FieldValueInvalid spec.report, FieldValueInvalid spec.report",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueTooLong spec.report.comment",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueTypeInvalid spec.report.comment",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueInvalid spec.receivedTime, " +
			"FieldValueTypeInvalid spec.receivedTime",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueRequired spec",
		"422 Invalid: FieldValueInvalid spec",
		"422 Invalid: FieldValueInvalid spec, FieldValueInvalid spec.alerts",
		"422 Invalid: FieldValueInvalid spec",
		"422 Invalid: FieldValueInvalid spec",
		"422 Invalid: FieldValueInvalid metadata.name",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueRequired metadata.name",
	}},

	"an Incident is validated": {func(s *site) {
		s.note("%v", s.send("POST", s.path("incidents"), with(incident("b"), "", "spec", "dedupKey")))
		first := s.create("incidents", incident("a")).body
		s.note("%v", s.send("PUT", s.path("incidents", "a"), with(first, "other", "spec", "dedupKey")))
		condition := func(value any, path ...string) object {
			return with(object{"type": "Resolved", "status": "True", "reason": "Test", "message": "",
				"lastTransitionTime": "2026-01-01T00:00:00Z"},
				value, path...)
		}
		for _, status := range []object{
			{"state": "Unsure"}, {"alertCount": -1}, {"alertCount": 1.5}, {"ledger": object{"events": entries(129)}},
			{"conditions": []any{condition("True", "status"), condition("False", "status")}}, {"conditions": []any{condition(nil,
				"reason")}},
			{"conditions": []any{condition("now", "lastTransitionTime")}}, {"episode": object{"number": 0}},
		} {
			s.note("%v", s.send("PUT", s.path("incidents", "a", "status"), with(first, status, "status")))
		}
	}, []string{
		"422 Invalid: FieldValueInvalid spec.dedupKey",
		"422 Invalid: FieldValueInvalid spec",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueNotSupported status.state",
		"422 Invalid: FieldValueInvalid status.alertCount",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueInvalid status, FieldValueTypeInvalid status.alertCount",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueTooMany status.ledger.events",
		"422 Invalid: FieldValueDuplicate status.conditions[1]",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueRequired status.conditions[0].reason",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueTypeInvalid status.conditions[0].lastTransitionTime",
		"422 Invalid: FieldValueInvalid <nil>, FieldValueInvalid status.episode.number, " +
			"FieldValueRequired status.episode.alertCount, " +
			"FieldValueRequired status.episode.startTime",
	}},

	"a WebhookIntegration is validated": {func(s *site) {
		for _, o := range []object{
			integration(strings.Repeat("x", 64)), with(integration("a"), "1h", "spec", "lateFiringWindow"), with(integration("a"), "25h",
				"spec", "lateFiringWindow"),
			with(integration("a"), []any{object{"name": "first", "sha256": "short"}}, "spec", "tokens"),
			with(integration("a"), []any{object{"name": "first", "sha256": strings.Repeat("a", 64)}, object{"name": "first",
				"sha256": strings.Repeat("b", 64)}},
				"spec", "tokens"),
			with(integration("a"), "10s", "spec", "autoResolveAfter"), with(integration("a"), object{"": "x"}, "spec", "defaults",
				"labels"),
		} {
			s.note("%v", s.send("POST", s.path("webhookintegrations")+"?dryRun=All", o))
		}
	}, []string{
		"422 Invalid: FieldValueInvalid <nil>",
		"201",
		"422 Invalid: FieldValueInvalid spec.lateFiringWindow",
		"422 Invalid: FieldValueInvalid spec.tokens[0].sha256",
		"422 Invalid: FieldValueDuplicate spec.tokens[1]",
		"422 Invalid: FieldValueInvalid spec.autoResolveAfter",
		"422 Invalid: FieldValueInvalid spec.defaults.labels",
	}},
}
