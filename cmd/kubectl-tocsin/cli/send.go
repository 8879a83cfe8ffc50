package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

const (
	// urlVariable is the environment variable for --url.
	urlVariable = "TOCSIN_URL"

	// testKey is the default dedup key of test alerts.
	testKey = "kubectl-tocsin-send"

	// sendTimeout bounds one post; the server responds within five seconds after the end of the body.
	sendTimeout = 15 * time.Second

	// A temporary token is valid for tokenLifetime. Within tokenDelay, the manager has learned of it.
	tokenLifetime = time.Minute
	tokenDelay    = 10 * time.Second
	tokenPoll     = 200 * time.Millisecond

	maxResponseBytes = 4 << 20
)

type sendOptions struct {
	*plugin
	file        string
	url         string
	integration string
	endpoint    string
	headers     []string
	dryRun      bool
	allowPlain  bool
	output      string

	fields map[string]*string // of the alert, by flag
	labels map[string]string
}

// alertFlags are the fields of an alert that have a flag. The endpoint is lenient, because tools cannot be changed; a flag
// with words is strict, so that a mistyped status does not fire an alert.
var alertFlags = []struct{ name, usage, words string }{
	{name: "title", usage: "Title of the alert."},
	{name: "description", usage: "Description of the alert."},
	{"severity", "Severity of the alert: critical, error, warning or info.", severityWords},
	{"status", "Status of the alert: firing, resolved or acknowledged.", "firing, resolved or acknowledged"},
	{name: "dedup-key", usage: "Dedup key of the alert."},
	{name: "type", usage: "Type of the alert."},
	{name: "link", usage: "Link of the alert."},
	{name: "hostname", usage: "Hostname of the alert."},
	{name: "region", usage: "Region of the alert."},
}

func (p *plugin) sendCommand() *cobra.Command {
	o := &sendOptions{plugin: p, fields: map[string]*string{}}
	command := &cobra.Command{
		Use:   "send",
		Short: "Send an alert to the webhook endpoint",
		RunE:  func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&o.url, "url", "", "Webhook URL with the token. Default: $"+urlVariable+".")
	flags.StringVarP(&o.integration, "integration", "i", "", "Integration to send to with a temporary token.")
	addEndpointFlag(flags, &o.endpoint)
	flags.StringVarP(&o.file, "filename", "f", "", "File with the payload to send; - reads standard input.")
	for _, field := range alertFlags {
		o.fields[field.name] = new(string)
		if field.words != "" {
			wordVar(flags, o.fields[field.name], field.name, "", field.words, field.usage)
		} else {
			flags.StringVar(o.fields[field.name], field.name, "", field.usage)
		}
		command.MarkFlagsMutuallyExclusive("filename", field.name)
	}
	flags.StringToStringVarP(&o.labels, "label", "l", nil, "Labels of the alert as `KEY=VALUE`, such as team=storage.")
	addHeaderFlag(flags, &o.headers)
	flags.BoolVar(&o.dryRun, "dry-run", false, "Print what the endpoint would store, without storing it.")
	flags.BoolVar(&o.allowPlain, "allow-plain-http", false, "Send the token unencrypted to http:// URLs of other hosts.")
	wordVar(flags, &o.output, "output", "o", "json or yaml", "Output format of the response: json or yaml. Default: a summary.")
	command.MarkFlagsMutuallyExclusive("filename", "label")
	command.MarkFlagsMutuallyExclusive("url", "integration")
	return command
}

func (o *sendOptions) run(ctx context.Context) error {
	header, err := parseHeaders(o.headers)
	if err != nil {
		return err
	}
	body, err := o.body()
	if err != nil {
		return err
	}
	code, text, err := o.send(ctx, header, body)
	if err != nil {
		return err
	}
	r, err := parseResponse(code, text)
	if target := o.target(); code == http.StatusUnauthorized && target != "" {
		if mistake := tokens.Check(tokenOf(target)); mistake != nil { // one of a person's own is valid nevertheless
			err = fmt.Errorf("%w; %w", err, mistake)
		}
	}
	if err != nil {
		return err
	}
	if o.output != "" {
		return writeObject(o.Out, o.output, json.RawMessage(text))
	}
	o.print(ctx, r)
	return nil
}

// tokenOf returns the token of a webhook URL.
func tokenOf(target string) string {
	target, _, _ = strings.Cut(target, "?")
	return path.Base(target)
}

// target returns the webhook URL; empty without one.
func (o *sendOptions) target() string {
	if o.integration != "" {
		return ""
	}
	return cmp.Or(o.url, os.Getenv(urlVariable))
}

// send posts to the URL, or to the integration with a temporary token. It returns the status code and the body.
func (o *sendOptions) send(ctx context.Context, header http.Header, body []byte) (int, []byte, error) {
	if o.integration != "" {
		return o.postWithTemporaryToken(ctx, header, body)
	}
	target := o.target()
	if target == "" {
		return 0, nil, fmt.Errorf("no destination: set --url (or $%s) or --integration", urlVariable)
	}
	if err := checkURL(target); err != nil {
		return 0, nil, err
	}
	return o.post(ctx, target, header, body)
}

// body returns the payload to post.
func (o *sendOptions) body() ([]byte, error) {
	if o.file != "" {
		return o.readInput(o.file)
	}
	alert := map[string]any{"dedup_key": testKey}
	if status := *o.fields["status"]; *o.fields["title"] == "" && (status == "" || status == string(v1alpha1.AlertFiring)) {
		alert["title"], alert["description"] = "Test alert", "Sent by kubectl tocsin send."
		alert["severity"] = v1alpha1.SeverityInfo
	}
	for name, value := range o.fields {
		if *value != "" {
			alert[strings.ReplaceAll(name, "-", "_")] = *value
		}
	}
	if len(o.labels) > 0 {
		alert["labels"] = o.labels
	}
	return json.Marshal(alert)
}

// post posts a body and returns the status code and the body of the response. Its errors do not quote the URL, because
// it contains the token.
func (o *sendOptions) post(ctx context.Context, target string, header http.Header, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, errors.New("invalid webhook URL")
	}
	if o.dryRun { // beside the parameters of the URL
		request.URL.RawQuery = strings.Trim(request.URL.RawQuery+"&dryRun=true", "&")
	}
	request.Header = header.Clone()
	request.Header.Set("User-Agent", "kubectl-tocsin/"+buildinfo.Read().Version)
	if request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	poster, err := o.newClient(request.URL, o.allowPlain)
	if err != nil {
		return 0, nil, fmt.Errorf("posting to %s: %w", request.URL.Host, err)
	}
	defer poster.CloseIdleConnections()
	response, err := poster.Do(request)
	if err != nil {
		if urlError, is := errors.AsType[*url.Error](err); is {
			err = urlError.Err
		}
		return 0, nil, fmt.Errorf("posting to %s: %w", request.URL.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes))
	if err != nil {
		return 0, nil, fmt.Errorf("reading the response: %w", err)
	}
	return response.StatusCode, text, nil
}

// postWithTemporaryToken creates a token, posts with it and revokes it.
func (o *sendOptions) postWithTemporaryToken(
	ctx context.Context, header http.Header, body []byte,
) (code int, text []byte, err error) {
	c, err := o.cluster()
	if err != nil {
		return 0, nil, err
	}
	temporary := &tokenOptions{
		plugin: o.plugin, endpoint: o.endpoint, name: "send-" + rand.String(6), expiresIn: tokenLifetime,
	}
	token, err := temporary.create(ctx, c, o.integration)
	if err != nil {
		return 0, nil, err
	}
	defer func() {
		// Revoke the token also when the user has interrupted the command.
		_, revokeErr := temporary.revoke(context.WithoutCancel(ctx), c, o.integration, []string{token.Name})
		if revokeErr != nil {
			err = errors.Join(err, fmt.Errorf("revoking the token %s: %w", token.Name, revokeErr))
		}
	}()
	for deadline := o.now().Add(tokenDelay); ; {
		code, text, err = o.post(ctx, token.url, header, body)
		if err != nil || code != http.StatusUnauthorized || o.now().After(deadline) {
			return code, text, err
		}
		select {
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		case <-time.After(tokenPoll):
		}
	}
}

func (o *sendOptions) print(ctx context.Context, r *response) {
	s, result := o.screen, "Accepted"
	if o.dryRun {
		result = "Would be accepted"
	}
	if len(r.Alerts) == 0 {
		s.printf("%s: the payload contains no alert\n", result)
	}
	for i := range r.Alerts {
		alert := &r.Alerts[i]
		if alert.Dropped {
			s.printf("%s and dropped: %s\n", result, alert.dropReason())
			continue
		}
		first, second := result+": "+o.outcome(ctx, alert)+",", "dedup key "+safe(alert.DedupKey)
		if s.isTerminal() && runewidth.StringWidth(first+" "+second) > s.width {
			second = "\n  " + cut(second, s.width-2)
		} else {
			second = " " + second
		}
		s.printf("%s%s\n", first, second)
	}
	r.printWarnings(s)
}

// outcome describes the effect of an accepted alert. Only a firing alert creates an Incident. With --integration, outcome
// reads from the cluster whether there is one.
func (o *sendOptions) outcome(ctx context.Context, alert *alertResponse) string {
	incident := "incident " + o.screen.styled(bold, safe(alert.Incident))
	if alert.Status != v1alpha1.AlertResolved && alert.Status != v1alpha1.AlertAcknowledged {
		return incident
	}
	if c, err := o.cluster(); o.integration != "" && err == nil {
		namespace, name, _ := strings.Cut(alert.Incident, "/")
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &v1alpha1.Incident{})
		if apierrors.IsNotFound(err) {
			return "no effect, because no incident matches"
		}
	}
	return string(alert.Status) + ", " + incident + " if it is open"
}
