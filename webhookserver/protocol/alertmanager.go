package protocol

import (
	"net/http"
	"time"
)

// alertmanagerOperations are those of Alertmanager's API v2 that senders need:
// https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
//
// Prometheus, vmalert, and the rulers of Loki and Mimir only post alerts; the data source of Grafana tests its address
// with /api/v2/status, and probes use /-/ready. A Tocsin that forwards asks which of its alerts fire, and which are silenced.
func alertmanagerOperations() []Operation {
	get := []string{http.MethodGet, http.MethodHead}
	return []Operation{
		{Path: "/api/v2/alerts", Methods: []string{http.MethodPost}, ListPreset: "vmalert", Read: readPayload},
		{Path: "/api/v2/alerts", Methods: get, Answer: func(*Request) Reply { return Reply{Status: http.StatusOK, Body: []any{}} }},
		{Path: "/api/v2/status", Methods: get, Answer: alertmanagerStatus},
		{Path: "/-/ready", Methods: get, Answer: func(*Request) Reply { return Reply{Status: http.StatusOK, Body: "OK"} }},
	}
}

// alertmanagerStatus answers with the members that the API requires. Tocsin has no cluster and no configuration file.
func alertmanagerStatus(r *Request) Reply {
	version := map[string]string{}
	for _, name := range []string{"version", "revision", "branch", "buildUser", "buildDate", "goVersion"} {
		version[name] = ""
	}
	version["version"] = "tocsin"
	return Reply{Status: http.StatusOK, Body: map[string]any{
		"cluster":     map[string]any{"status": "disabled", "peers": []string{}},
		"config":      map[string]string{"original": ""},
		"uptime":      r.Started.UTC().Format(time.RFC3339),
		"versionInfo": version,
	}}
}
