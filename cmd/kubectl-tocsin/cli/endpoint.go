package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// webhookPath is the path of the webhook endpoint. A slash and the token follow.
	webhookPath = "/api/v1/events/webhook"

	// endpointVariable is the environment variable for --endpoint.
	endpointVariable = "TOCSIN_ENDPOINT"

	// serviceEndpoint is the Service of config/default, for senders in the cluster.
	serviceEndpoint = "http://tocsin-webhook.tocsin-system.svc:8080"
)

// endpointFlag is --endpoint, the base URL under which senders reach Tocsin, such as that of an Ingress.
type endpointFlag struct{ given string }

func (e *endpointFlag) addFlag(flags *pflag.FlagSet) {
	flags.StringVar(&e.given, "endpoint", "", "Base URL for senders, such as https://alerts.example.com. Default: $"+
		endpointVariable+", else "+serviceEndpoint+".")
}

// base returns the endpoint without a trailing slash.
func (e *endpointFlag) base() (string, error) {
	text := cmp.Or(e.given, os.Getenv(endpointVariable), serviceEndpoint)
	address, err := url.Parse(text)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return "", fmt.Errorf("the endpoint %q is not a URL such as https://alerts.example.com", text)
	}
	if address.RawQuery != "" || address.Fragment != "" || address.User != nil {
		return "", fmt.Errorf("the endpoint %q may only have a host and a path", text)
	}
	return strings.TrimRight(address.String(), "/"), nil
}

// checkURL validates a webhook URL. Its errors do not quote the URL, because it contains a token.
func checkURL(text string) error {
	address, err := url.Parse(text)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return errors.New("the URL must start with http:// or https://")
	}
	_, token, found := strings.Cut(address.Path, webhookPath+"/")
	if !found || token == "" {
		return fmt.Errorf("the URL must end with %s/TOKEN, as printed by \"token create\"", webhookPath)
	}
	return v1alpha1.CheckToken(token)
}
