package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// response is the endpoint's response (docs/http.md): an acceptance or problem details.
type response struct {
	Preset   string            `json:"preset"`
	Alerts   []alertResponse   `json:"alerts"`
	Warnings []payload.Warning `json:"warnings"`

	Title  string `json:"title"`
	Detail string `json:"detail"`
}

type alertResponse struct {
	DedupKey string               `json:"dedup_key"`
	Incident string               `json:"incident"`
	Status   v1alpha1.AlertStatus `json:"status"`
	Dropped  bool                 `json:"dropped"`
	Alert    *v1alpha1.Alert      `json:"alert"`
	Sources  []mapping.Source     `json:"sources"`

	DroppedBy string `json:"dropped_by"`
	Heartbeat string `json:"heartbeat"`
}

// dropReason says why the alert is not stored.
func (a *alertResponse) dropReason() string {
	switch {
	case a.Heartbeat != "":
		return "it is a signal of the heartbeat " + safe(a.Heartbeat)
	case a.DroppedBy != "":
		return "the drop expression matched: " + safe(a.DroppedBy)
	}
	return "it has the label " + v1alpha1.ForwardedLabel
}

// parseResponse parses a response body. A rejection is an error, and so is a response that is not Tocsin's.
func parseResponse(code int, body []byte) (*response, error) {
	r := &response{}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("unexpected response: %d %s; is this Tocsin's endpoint?", code, http.StatusText(code))
	}
	if code < http.StatusOK || code >= http.StatusMultipleChoices {
		text := fmt.Sprintf("rejected with %d: %s", code, safe(r.Title))
		if r.Detail != "" {
			text += ". " + safe(r.Detail)
		}
		return nil, errors.New(text)
	}
	return r, nil
}

// warningLine is a warning as one line, which begins with the field if there is one.
type warningLine struct{ field, text string }

func (r *response) printWarnings(s *screen) {
	if len(r.Warnings) == 0 {
		return
	}
	s.printf("\n%s\n", s.styled(bold, "Warnings:"))
	for _, warning := range r.warningLines() {
		text := s.wrap(warning.text, len("    "))
		s.printf("  %s%s\n", s.styled(yellow, warning.field), strings.TrimPrefix(text, warning.field))
	}
}

// warningLines returns the warnings, one that applies to several alerts once.
func (r *response) warningLines() (lines []warningLine) {
	var distinct []payload.Warning
	alerts := map[payload.Warning]int{}
	for _, warning := range r.Warnings {
		warning.Field = alertIndex.ReplaceAllString(warning.Field, "")
		if alerts[warning]++; alerts[warning] == 1 {
			distinct = append(distinct, warning)
		}
	}
	for _, warning := range distinct {
		field, count := "", ""
		if warning.Field != "" {
			field = safe(warning.Field) + ": "
		}
		if alerts[warning] > 1 {
			count = fmt.Sprintf(" (%d alerts)", alerts[warning])
		}
		lines = append(lines, warningLine{field, field + safe(warning.Detail) + count})
	}
	return lines
}

// alertIndex is the part of a warning's field that identifies one of several alerts.
var alertIndex = regexp.MustCompile(`^\[\d+\]\.`)

func (p *plugin) readInput(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(p.In)
	}
	return os.ReadFile(name)
}

func addHeaderFlag(flags *pflag.FlagSet, headers *[]string) {
	flags.StringArrayVarP(headers, "header", "H", nil, `Request header, such as "X-GitHub-Event: push".`)
}

func parseHeaders(lines []string) (http.Header, error) {
	header := http.Header{}
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if name = textproto.TrimString(name); !found || name == "" || strings.ContainsAny(line, "\r\n") {
			return nil, fmt.Errorf(`--header %q does not have the form "X-GitHub-Event: push"`, line)
		}
		header.Add(name, textproto.TrimString(value))
	}
	return header, nil
}

const (
	outputJSON = "json"
	outputYAML = "yaml"
)

// writeObject writes a value as JSON or YAML.
func writeObject(out io.Writer, format string, object any) error {
	text, err := json.MarshalIndent(object, "", "  ")
	text = append(text, '\n')
	if format == outputYAML {
		text, err = yaml.Marshal(object)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
