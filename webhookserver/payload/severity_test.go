package payload_test

import (
	"testing"
)

func TestSeverity(t *testing.T) {
	check(t, map[string]example{
		"the four severities are themselves": {
			payload: `{"severity":"critical"}`,
			alert:   `{"status":"firing","severity":"critical"}`,
		},
		"case and the spaces around it do not matter": {
			payload: `{"severity":" WARNING\n"}`,
			alert:   `{"status":"firing","severity":"warning"}`,
		},
		"spaces, hyphens and underscores in it do not matter": {
			payload: `{"severity":"Not_classified"}`,
			alert:   `{"status":"firing","severity":"info"}`,
		},
		"a synonym is read without a warning": {
			payload: `{"severity":"Disaster"}`,
			alert:   `{"status":"firing","severity":"critical"}`,
		},
		"P1 to P5 are critical, error, warning, info and info": {
			payload:  `{"severity":"p3","priority":"SEV-2"}`,
			alert:    `{"status":"firing","severity":"warning","custom":{"priority":"SEV-2"}}`,
			warnings: []string{"priority"},
		},
		"an unknown one is kept in custom, with a warning": {
			payload:  `{"severity":"Sunny"}`,
			alert:    `{"status":"firing","custom":{"severity":"Sunny"}}`,
			warnings: []string{"severity"},
		},
		"a bare number is unknown and kept as a number": {
			payload:  `{"severity":1}`,
			alert:    `{"status":"firing","custom":{"severity":1}}`,
			warnings: []string{"severity"},
		},
		"an unknown priority is kept in custom as severity": {
			payload:  `{"priority":"soonish"}`,
			alert:    `{"status":"firing","custom":{"severity":"soonish"}}`,
			warnings: []string{"priority"},
		},
		"two unknown ones are both kept": {
			payload:  `{"severity":"odd","priority":"soonish"}`,
			alert:    `{"status":"firing","custom":{"severity":"odd","severity_2":"soonish"}}`,
			warnings: []string{"severity", "priority", "priority"},
		},
	})
}

func TestStatus(t *testing.T) {
	check(t, map[string]example{
		"firing fires": {
			payload: `{"status":"firing"}`,
			alert:   `{"status":"firing"}`,
		},
		"resolved resolves, in any case": {
			payload: `{"status":"ReSolved ","dedup_key":"k"}`,
			alert:   `{"status":"resolved","dedupKey":"k"}`,
		},
		"acknowledged acknowledges, in any case": {
			payload: `{"status":"ACKNOWLEDGED","dedup_key":"k"}`,
			alert:   `{"status":"acknowledged","dedupKey":"k"}`,
		},
		"a common word for a problem fires without a warning": {
			payload: `{"status":"Triggered"}`,
			alert:   `{"status":"firing"}`,
		},
		"any other word fires with a warning and is kept in custom": {
			payload:  `{"status":"no data"}`,
			alert:    `{"status":"firing","custom":{"status":"no data"}}`,
			warnings: []string{"status"},
		},
		"a word that only resembles resolved fires": {
			payload:  `{"status":"unresolved","dedup_key":"k"}`,
			alert:    `{"status":"firing","dedupKey":"k","custom":{"status":"unresolved"}}`,
			warnings: []string{"status"},
		},
		"a number fires with a warning": {
			payload:  `{"status":0}`,
			alert:    `{"status":"firing","custom":{"status":0}}`,
			warnings: []string{"status"},
		},
	})
	for _, word := range []string{"ok", "recovered", "closed", "cleared", "up", "OK"} {
		check(t, map[string]example{
			word + " resolves with a warning": {
				payload:  `{"status":"` + word + `","dedup_key":"k"}`,
				alert:    `{"status":"resolved","dedupKey":"k"}`,
				warnings: []string{"status"},
			},
		})
	}
}
