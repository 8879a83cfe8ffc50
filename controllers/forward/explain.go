package forward

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Check reads a configuration file as the manager would, and returns what it has, or its errors, one in each line.
func Check(path string) (report string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	config, err := parseConfig(data, filepath.Dir(path))
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(config.Alertmanagers))
	for i := range config.Alertmanagers {
		names = append(names, config.Alertmanagers[i].name())
	}
	return path + " is valid. Alertmanagers: " + strings.Join(names, ", "), nil
}

// oneLine returns the errors of the file in one line, for a condition.
func oneLine(err error) string {
	const maxChars, maxBytes = 1024, 4096
	return plaintext.OneLine(strings.ReplaceAll(err.Error(), "\n", "; "), maxChars, maxBytes)
}

// yamlNames are the names of kinds of Go, and of types of JSON, for people who write YAML. Others are the same.
var yamlNames = map[string]string{
	"slice": "a list", "array": "a list", "map": "a mapping", "struct": "a mapping", "object": "a mapping", "bool": "true or false",
}

func yamlName(kind string) string { return cmp.Or(yamlNames[kind], "a "+kind) }

// fieldExpiry is the only duration of the file.
const fieldExpiry = "expiry"

// explain returns an error of the decoder in the words of the file.
func explain(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		needed := yamlName(wrong.Type.Kind().String())
		if wrong.Field == fieldExpiry { // which decodes itself
			needed = "a duration such as 15m"
		}
		given, _, _ := strings.Cut(wrong.Value, " ") // without the value
		return fmt.Errorf("%s: need %s, got %s", cmp.Or(wrong.Field, "the file"), needed, yamlName(given))
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	text := plaintext.SanitizeLine(err.Error())
	if wrongDuration, ok := strings.CutPrefix(text, "time: "); ok {
		return fmt.Errorf("%s: %s", fieldExpiry, wrongDuration)
	}
	return fmt.Errorf("the file: %s", strings.TrimPrefix(text, "json: "))
}

// httpConfigErrors rewrite what the library for http_config says: without Go's types, and without values, which may be secrets.
var httpConfigErrors = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`yaml: unmarshal errors:\s*`), ""},
	{regexp.MustCompile(`(?:line \d+: )?field (\S+) not found in type \S+`), `unknown field "$1"`},
	{
		regexp.MustCompile("(?:line \\d+: )?cannot unmarshal !!(\\w+)(?: `[^`]*`)? into \\S+"),
		"a field cannot have a value of the YAML type $1",
	},
	{regexp.MustCompile(`parse "(?:[^"\\]|\\.)*": `), "invalid URL: "},
}

// explainHTTPConfig is explain for http_config.
func explainHTTPConfig(err error) error {
	text := err.Error()
	for _, rule := range httpConfigErrors {
		text = rule.pattern.ReplaceAllString(text, rule.text)
	}
	return fmt.Errorf("http_config: %s", plaintext.SanitizeLine(text))
}

// cause is why an Alertmanager does not accept requests, in a few words for a condition. They change only when they have not
// been true for failingAfter, so that answers that alternate cause no writes.
type cause struct {
	text string
	seen time.Time
}

// see takes in a failure.
func (c *cause) see(err error, now time.Time) {
	text := describeFailure(err)
	if c.text == text || now.Sub(c.seen) >= failingAfter {
		*c = cause{text, now}
	}
}

// answerError is an answer of Alertmanager that is no success.
type answerError struct {
	code    int
	request string
	answer  string
}

// Error implements error.
func (e *answerError) Error() string {
	return fmt.Sprintf("%s: Alertmanager answers %d: %s", e.request, e.code, e.answer)
}

// describeFailure returns the kind of a failure without anything that changes from one request to the next.
func describeFailure(err error) string {
	var answer *answerError
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &answer):
		return strings.TrimSpace(fmt.Sprint("HTTP ", answer.code, " ", http.StatusText(answer.code)))
	case errors.Is(err, errNoClient):
		return errNoClient.Error()
	case errors.As(err, &name):
		return "the host name is not resolved"
	case errors.As(err, &certificate):
		return "the certificate is not valid"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	default:
		return "the manager's log has the error"
	}
}
