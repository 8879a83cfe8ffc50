package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

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
