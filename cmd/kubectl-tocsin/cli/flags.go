package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// days is a duration flag as Go or Prometheus writes durations, such as 1.5h or 7d.
type days struct{ *model.Duration }

// durationVar adds a duration flag. The value is its default; the help does not show 0.
func durationVar(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	flag := flags.VarPF(days{(*model.Duration)(value)}, name, "", usage)
	if *value == 0 {
		flag.DefValue = ""
	}
}

// Set implements pflag.Value.
func (d days) Set(text string) error {
	duration, err := time.ParseDuration(text)
	if err == nil && duration >= 0 {
		*d.Duration = model.Duration(duration)
	} else if d.Duration.Set(text) != nil {
		return fmt.Errorf("%q is not a duration such as 90m, 12h or 7d", text)
	}
	return nil
}

// acknowledgementLength is the value of a flag that says how long an acknowledgement lasts. It accepts what the API server does,
// and so not 0, which would leave the length to the integration.
type acknowledgementLength struct{ days }

// Set implements pflag.Value.
func (a acknowledgementLength) Set(text string) error {
	if err := a.days.Set(text); err != nil {
		return err
	}
	if length := time.Duration(*a.Duration); length < time.Minute || length > v1alpha1.MaxAcknowledgement {
		return fmt.Errorf("an acknowledgement lasts from 1m to %s", model.Duration(v1alpha1.MaxAcknowledgement))
	}
	return nil
}

// wordValue is the value of a flag: one word of an enumeration or, if list is set, several of them. It ignores their case.
type wordValue struct {
	enumeration string // such as "json or yaml"
	word        *string
	list        *[]string
}

// wordVar adds a flag for a word. The value is its default.
func wordVar(flags *pflag.FlagSet, value *string, name, short, enumeration, usage string) {
	flags.VarP(wordValue{enumeration: enumeration, word: value}, name, short, usage)
}

// words returns the words of the enumeration.
func (v wordValue) words() []string {
	return strings.FieldsFunc(strings.NewReplacer("one of ", "", " and ", " ", " or ", " ").Replace(v.enumeration),
		func(r rune) bool { return r == ' ' || r == ',' })
}

// Set implements pflag.Value.
func (v wordValue) Set(text string) error {
	given := []string{text}
	switch {
	case text == "":
		return nil // as without the flag
	case v.list != nil:
		given = strings.Split(text, ",")
	}
	words := v.words()
	for _, word := range given {
		at := slices.IndexFunc(words, func(known string) bool { return strings.EqualFold(known, word) })
		switch {
		case at < 0:
			return fmt.Errorf("must be %s, not %q", v.enumeration, word)
		case v.list != nil:
			*v.list = append(*v.list, words[at])
		default:
			*v.word = words[at]
		}
	}
	return nil
}

// String implements pflag.Value.
func (v wordValue) String() string {
	if v.word != nil {
		return *v.word
	}
	return ""
}

func (v wordValue) Type() string {
	if v.list != nil {
		return "strings"
	}
	return "string"
}

const (
	// webhookPath is the path of the webhook endpoint. A slash and the token follow.
	webhookPath = "/api/v1/events/webhook"

	// endpointVariable is the environment variable for --endpoint.
	endpointVariable = "TOCSIN_ENDPOINT"

	// serviceEndpoint is the Service of config/default, for senders in the cluster.
	serviceEndpoint = "http://tocsin-webhook.tocsin-system.svc:8080"
)

func addEndpointFlag(flags *pflag.FlagSet, endpoint *string) {
	flags.StringVar(endpoint, "endpoint", "", "Base URL for senders, such as https://alerts.example.com. Default: $"+
		endpointVariable+", else "+serviceEndpoint+".")
}

// resolveEndpoint returns the base URL under which senders reach Tocsin, such as that of an Ingress, without a trailing slash.
func resolveEndpoint(given string) (string, error) {
	text := cmp.Or(given, os.Getenv(endpointVariable), serviceEndpoint)
	address, err := parseHTTP(text)
	if err != nil {
		return "", fmt.Errorf("the endpoint %q is not a URL such as https://alerts.example.com", text)
	}
	if address.RawQuery != "" || address.Fragment != "" || address.User != nil {
		return "", fmt.Errorf("the endpoint %q may only have a host and a path", text)
	}
	return strings.TrimRight(address.String(), "/"), nil
}

// parseHTTP parses an absolute URL. Its error does not quote the URL, which may contain a token.
func parseHTTP(text string) (*url.URL, error) {
	address, err := url.Parse(text)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, errors.New("the URL must start with http:// or https://")
	}
	return address, nil
}

// checkURL validates a webhook URL. Its errors do not quote the URL, because it contains a token.
func checkURL(text string) error {
	address, err := parseHTTP(text)
	if err != nil {
		return err
	}
	_, token, found := strings.Cut(address.Path, webhookPath+"/")
	if !found || token == "" {
		return fmt.Errorf("the URL must end with %s/TOKEN, as printed by \"token create\"", webhookPath)
	}
	if address.Fragment != "" { // it would not be sent
		return errors.New("the URL may not have a fragment")
	}
	if tokens.TagOf(token) == "" { // no server accepts it
		return tokens.Check(token)
	}
	return nil
}
