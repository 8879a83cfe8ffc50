package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// answer is what the endpoint answers (docs/http.md): an acceptance or a problem.
type answer struct {
	Status   json.RawMessage   `json:"status"` // a word or, of a problem, a number
	Alerts   []answeredAlert   `json:"alerts"`
	Warnings []payload.Warning `json:"warnings"`

	Title  string `json:"title"`
	Detail string `json:"detail"`

	// Incidents is what the plugin adds: what the alerts would open.
	Incidents []v1alpha1.Incident `json:"incidents"`
}

type answeredAlert struct {
	DedupKey string           `json:"dedup_key"`
	Incident string           `json:"incident"`
	Dropped  bool             `json:"dropped"`
	Alert    *v1alpha1.Alert  `json:"alert"`
	Sources  []mapping.Source `json:"sources"`
}

// parseAnswer reads what came with a status code. What is no answer of Tocsin's is an error, and so is a
// refusal.
func parseAnswer(code int, body []byte) (*answer, error) {
	a := &answer{}
	if err := json.Unmarshal(body, a); err != nil {
		return nil, fmt.Errorf("the endpoint answered %d %s, and not as Tocsin does", code, http.StatusText(code))
	}
	if code < http.StatusOK || code >= http.StatusMultipleChoices {
		text := fmt.Sprintf("refused with %d: %s", code, safe(a.Title))
		if a.Detail != "" {
			text += ". " + safe(a.Detail)
		}
		return nil, errors.New(text)
	}
	return a, nil
}

// warn prints the warnings.
func (a *answer) warn(s *screen) {
	if len(a.Warnings) == 0 {
		return
	}
	s.printf("\n%s\n", s.styled(bold, "Warnings:"))
	for _, warning := range a.Warnings {
		field := ""
		if warning.Field != "" {
			field = safe(warning.Field) + ": "
		}
		s.printf("  %s%s\n", s.styled(yellow, field), safe(warning.Detail))
	}
}

// readInput reads a file, or standard input for "-".
func (p *plugin) readInput(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(p.In)
	}
	return os.ReadFile(name)
}

// parseHeaders reads headers such as "X-GitHub-Event: push".
func parseHeaders(lines []string) (http.Header, error) {
	header := http.Header{}
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if name = textproto.TrimString(name); !found || name == "" || strings.ContainsAny(line, "\r\n") {
			return nil, fmt.Errorf(`--header %q is not like "X-GitHub-Event: push"`, line)
		}
		header.Add(name, textproto.TrimString(value))
	}
	return header, nil
}

// What -o may be for answers.
const (
	outputJSON = "json"
	outputYAML = "yaml"
)

func checkAnswerFormat(format string) error {
	switch format {
	case "", outputJSON, outputYAML:
		return nil
	}
	return fmt.Errorf("-o is json or yaml, not %q", format)
}

// writeAnswer prints a JSON object in one of the formats.
func writeAnswer(out io.Writer, format string, object []byte) error {
	var text []byte
	var err error
	if format == outputYAML {
		text, err = yaml.JSONToYAML(object)
	} else {
		var indented bytes.Buffer
		err = json.Indent(&indented, object, "", "  ")
		indented.WriteByte('\n')
		text = indented.Bytes()
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
