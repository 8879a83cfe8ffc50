//go:build slow

package faults

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// corpus are payloads that try everything that JSON and Unicode have to offer.
func corpus() []string {
	long := strings.Repeat("x", 100_000)
	texts := []string{
		`""`, `" "`, `"\u0000\u0001\u001b[31mred\u007f\u009b"`, `"\ud800"`, `"\udfff\ud800"`, `"\ud83d\ude00"`,
		`"\u202e\u2066evil\u2069"`, `"\r\nSet-Cookie: a"`, `"\u2028\u2029"`,
		`"` + long + `"`, `"` + strings.Repeat(`\u0007`, 20_000) + `"`,
		`"` + strings.Repeat("é", 20_000) + `"`, `1e400`, `-0`, `12345678901234567890`, `0.1e-400`, `true`, `null`,
		`[]`, `{}`, `[1,[2,[3]]]`, `{"a":{"b":{"c":null}}}`, "\"\xff\xfe\"", `"<script>"`, `"{{ .Values }}"`, `"$(reboot)"`,
	}
	fields := []string{
		"title", "subject", "description", "message", "severity", "priority", "status", "dedup_key", "type", "link", "hostname",
		"region", "labels", "annotations", "values", "custom", "starts_at", "ends_at", "", "\\u0000", "metadata", "apiVersion",
	}
	var all []string
	for _, field := range fields {
		for _, text := range texts {
			all = append(all, fmt.Sprintf(`{"dedup_key":"corpus","%s":%s}`, field, text))
		}
	}
	for _, text := range texts {
		all = append(all, fmt.Sprintf(`{"labels":{"a":%[1]s,"":%[1]s},"values":{"x":[%[1]s]},"custom":{"deep":{"er":%[1]s}}}`, text))
		all = append(all, text)
	}
	keys := strings.Builder{}
	for n := range 5000 {
		fmt.Fprintf(&keys, `"key-%d":%d,`, n, n)
	}
	return append(all, `{`+keys.String()+`"end":1}`, `{"labels":{`+keys.String()+`"end":1}}`,
		`{"a":`+strings.Repeat("[", 60)+strings.Repeat("]", 60)+`}`, strings.Repeat("[", 10_000), `{`, ``, "\xef\xbb\xbf{}")
}

// postCorpus posts the corpus. The endpoint may refuse a payload; the API server may not, once the endpoint
// has taken it.
func postCorpus(r *run) {
	allowed := []int{
		http.StatusAccepted, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable,
	}
	codes := map[int]int{}
	for n, body := range corpus() {
		a, err := r.post(n, r.tenants[0].token, strings.NewReader(body), nil)
		if err != nil || !slices.Contains(allowed, a.code) {
			r.T.Errorf("E: %.60q is answered %d %s: %v", body, a.code, a.Type, err)
		}
		codes[a.code]++
	}
	r.T.Log("answers by code:", codes)
	r.drained()
	for _, incident := range r.incidents() {
		alert := &incident.Status.Alert
		for _, text := range []string{alert.Title, alert.Type, alert.Link, alert.Hostname, alert.Region, incident.Spec.DedupKey} {
			if strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) }) {
				r.T.Errorf("F: %s has the control characters of %.60q", incident.Name, text)
			}
		}
	}
	r.findAlarms()
}
