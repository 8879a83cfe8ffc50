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
	// webhookPath is where the manager takes alerts, followed by a slash and the token.
	webhookPath = "/api/v1/events/webhook"

	// endpointVariable is the environment variable for --endpoint.
	endpointVariable = "TOCSIN_ENDPOINT"

	// serviceEndpoint is where config/default serves, for senders in the cluster.
	serviceEndpoint = "http://tocsin-webhook.tocsin-system.svc:8080"
)

// endpointFlag is --endpoint: where senders reach Tocsin. The plugin cannot know: it may be an Ingress.
type endpointFlag struct{ given string }

func (e *endpointFlag) addFlag(flags *pflag.FlagSet) {
	flags.StringVar(&e.given, "endpoint", "", "Where senders reach Tocsin, such as https://alerts.example.com. Default: $"+
		endpointVariable+", else "+serviceEndpoint+".")
}

// base is the endpoint without a path.
func (e *endpointFlag) base() (string, error) {
	text := cmp.Or(e.given, os.Getenv(endpointVariable), serviceEndpoint)
	address, err := url.Parse(text)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return "", fmt.Errorf("the endpoint %q is not an address such as https://alerts.example.com", text)
	}
	if address.RawQuery != "" || address.Fragment != "" || address.User != nil {
		return "", fmt.Errorf("the endpoint %q has more than a host and a path", text)
	}
	return strings.TrimRight(address.String(), "/"), nil
}

// checkAddress finds out whether an address that is to be posted to is whole. Its errors do not quote it: a
// token is in it.
func checkAddress(text string) error {
	address, err := url.Parse(text)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return errors.New("the address is not one that begins with http:// or https://")
	}
	_, token, found := strings.Cut(address.Path, webhookPath+"/")
	if !found || token == "" {
		return fmt.Errorf("the address does not end in %s/TOKEN, as that of \"token create\" does", webhookPath)
	}
	return v1alpha1.CheckToken(token)
}
