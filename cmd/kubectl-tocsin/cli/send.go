package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
)

const (
	// urlVariable is the environment variable for --url.
	urlVariable = "TOCSIN_URL"

	// testKey is the dedup key of test alerts, unless another one is given.
	testKey = "kubectl-tocsin-send"

	// sendTimeout bounds one post; the server answers within five seconds of the body's end.
	sendTimeout = 15 * time.Second

	// A token of our own works when the manager has heard of it.
	tokenLife  = time.Minute
	tokenDelay = 10 * time.Second
	tokenPoll  = 200 * time.Millisecond

	maxAnswerBytes = 4 << 20
)

// sendOptions are those of "send".
type sendOptions struct {
	*plugin
	file        string
	url         string
	integration string
	endpoint    endpointFlag
	headers     []string
	dryRun      bool
	allowPlain  bool
	output      string
	poster      *http.Client

	title, description, severity, status, dedupKey string
	kind, link, hostname, region                   string
	labels                                         map[string]string
}

func (p *plugin) sendCommand() *cobra.Command {
	o := &sendOptions{plugin: p}
	command := &cobra.Command{
		Use:   "send",
		Short: "Send an alert through the real endpoint, as a sender would",
		Long: `Send an alert through the real endpoint, as a sender would: a test alert, one that the flags describe, or the
payload in a file.

It goes to the address that "token create" printed (--url), or, with --integration, to the integration by a token
that is made for it and revoked right afterwards, which takes the right to change the integration.

A Service of the cluster, such as ` + serviceEndpoint + `, is reached by a port-forward to one of
its pods, which takes the right to get services, to list pods and to create pods/portforward in its namespace. Where
Tocsin runs in another namespace, --endpoint has it in the name. An http:// address of any other machine is refused,
since the token is in the request: use https://, or --allow-plain-http.

Without --dedup-key a test alert has the key "` + testKey + `", so that several are one incident and
"--status resolved" ends it.`,
		Example: example(`
# A test alert, by a token of its own
kubectl tocsin send -i monitoring

# The same along the way that senders outside the cluster take
kubectl tocsin send -i monitoring --endpoint https://alerts.example.com

# To an address that "token create" printed
kubectl tocsin send --url "$url" --title "Disk full" --severity critical --dedup-key disk-db-1

# Resolve it
kubectl tocsin send --url "$url" --status resolved --dedup-key disk-db-1

# What a tool would send
kubectl tocsin send --url "$url" -f payload.json`),
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	o.addFlags(command)
	command.MarkFlagsMutuallyExclusive("url", "integration")
	err := errors.Join(
		command.RegisterFlagCompletionFunc("integration", p.completeIntegrations),
		command.RegisterFlagCompletionFunc("severity", fixedCompletions("critical", "error", "warning", "info")),
		command.RegisterFlagCompletionFunc("status", fixedCompletions("firing", "resolved", "acknowledged")),
		command.RegisterFlagCompletionFunc("output", fixedCompletions(outputJSON, outputYAML)),
	)
	if err != nil {
		panic(err) // the flags exist
	}
	return command
}

func (o *sendOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.url, "url", "", "The address to post to, token included. Default: $"+urlVariable+".")
	flags.StringVarP(&o.integration, "integration", "i", "", "Send to this integration, by a token of its own.")
	o.endpoint.addFlag(flags)
	flags.StringVarP(&o.file, "filename", "f", "", "Send the payload in this file; - is standard input.")
	flags.StringVar(&o.title, "title", "", "The title.")
	flags.StringVar(&o.description, "description", "", "The description.")
	flags.StringVar(&o.severity, "severity", "", "The severity: critical, error, warning or info.")
	flags.StringVar(&o.status, "status", "", "The status: firing, resolved or acknowledged.")
	flags.StringVar(&o.dedupKey, "dedup-key", "", "The dedup key.")
	flags.StringVar(&o.kind, "type", "", "The type.")
	flags.StringVar(&o.link, "link", "", "The link.")
	flags.StringVar(&o.hostname, "hostname", "", "The host.")
	flags.StringVar(&o.region, "region", "", "The region.")
	flags.StringToStringVarP(&o.labels, "label", "l", nil, "Labels as `KEY=VALUE`, such as team=storage.")
	flags.StringArrayVarP(&o.headers, "header", "H", nil, `A header of the request, such as "X-GitHub-Event: push".`)
	flags.BoolVar(&o.dryRun, "dry-run", false, "Ask the endpoint what it would store, and store nothing.")
	flags.BoolVar(&o.allowPlain, "allow-plain-http", false, "Send the token unencrypted to http:// addresses of other machines.")
	flags.StringVarP(&o.output, "output", "o", "", "Print the answer: json or yaml. Default: for a person.")
	for _, field := range []string{
		"title", "description", "severity", "status", "dedup-key", "type", "link", "hostname", "region", "label",
	} {
		command.MarkFlagsMutuallyExclusive("filename", field)
	}
}

func (o *sendOptions) run(ctx context.Context) error {
	if err := checkAnswerFormat(o.output); err != nil {
		return err
	}
	header, err := parseHeaders(o.headers)
	if err != nil {
		return err
	}
	body, err := o.body()
	if err != nil {
		return err
	}
	s, err := o.screen()
	if err != nil {
		return err
	}
	o.poster = o.newPoster(o.allowPlain)
	defer o.poster.CloseIdleConnections()
	var code int
	var text []byte
	if address := o.address(); address != "" {
		if err := checkAddress(address); err != nil {
			return err
		}
		code, text, err = o.post(ctx, address, header, body)
	} else {
		code, text, err = o.postByOwnToken(ctx, header, body)
	}
	if err != nil {
		return err
	}
	a, err := parseAnswer(code, text)
	if err != nil {
		return err
	}
	if o.output != "" {
		return writeAnswer(o.Out, o.output, text)
	}
	o.tell(s, a)
	return s.err
}

// address is the one to post to; empty when there is to be a token of our own.
func (o *sendOptions) address() string {
	switch {
	case o.url != "":
		return o.url
	case o.integration != "":
		return ""
	}
	return os.Getenv(urlVariable)
}

// body is what to post.
func (o *sendOptions) body() ([]byte, error) {
	if o.file != "" {
		return o.readInput(o.file)
	}
	fields := map[string]any{}
	for name, value := range map[string]string{
		"title": o.title, "description": o.description, "severity": o.severity, "status": o.status,
		"dedup_key": o.dedupKey, "type": o.kind, "link": o.link, "hostname": o.hostname, "region": o.region,
	} {
		if value != "" {
			fields[name] = value
		}
	}
	if len(o.labels) > 0 {
		fields["labels"] = o.labels
	}
	if o.dedupKey == "" {
		fields["dedup_key"] = testKey
	}
	if o.title == "" && (o.status == "" || o.status == string(v1alpha1.AlertFiring)) {
		fields["title"] = "Test alert"
		if o.description == "" {
			fields["description"] = "Sent by kubectl tocsin send."
		}
		if o.severity == "" {
			fields["severity"] = string(v1alpha1.SeverityInfo)
		}
	}
	return json.Marshal(fields)
}

// post posts a body and returns the answer. Its errors do not quote the address: the token is in it.
func (o *sendOptions) post(ctx context.Context, address string, header http.Header, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if o.dryRun {
		address += "?dryRun=true"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, errors.New("the address cannot be posted to")
	}
	request.Header = header.Clone()
	request.Header.Set("User-Agent", "kubectl-tocsin/"+buildinfo.Read().Version)
	if request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := o.poster.Do(request)
	if err != nil {
		if urlError, is := errors.AsType[*url.Error](err); is {
			err = urlError.Err
		}
		return 0, nil, fmt.Errorf("posting to %s: %w", request.URL.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return 0, nil, fmt.Errorf("reading the answer: %w", err)
	}
	return response.StatusCode, text, nil
}

// postByOwnToken makes a token, posts with it and revokes it.
func (o *sendOptions) postByOwnToken(ctx context.Context, header http.Header, body []byte) (code int, text []byte, err error) {
	if o.integration == "" {
		return 0, nil, fmt.Errorf("where to? Give --url (or $%s) or --integration", urlVariable)
	}
	endpoint, err := o.endpoint.base()
	if err != nil {
		return 0, nil, err
	}
	c, err := o.cluster()
	if err != nil {
		return 0, nil, err
	}
	maker := &tokenCreateOptions{plugin: o.plugin, name: "send-" + rand.String(6), expiresIn: tokenLife}
	made, err := maker.create(ctx, c, o.integration)
	if err != nil {
		return 0, nil, err
	}
	defer func() {
		// Also when the user has had enough; the token expires soon in any case.
		revokeErr := c.revokeToken(context.WithoutCancel(ctx), o.integration, made.Name)
		if revokeErr != nil {
			err = errors.Join(err, fmt.Errorf("revoking the token %s: %w", made.Name, revokeErr))
		}
	}()
	ticker := time.NewTicker(tokenPoll)
	defer ticker.Stop()
	for deadline := o.now().Add(tokenDelay); ; {
		code, text, err = o.post(ctx, endpoint+webhookPath+"/"+made.secret, header, body)
		if err != nil || code != http.StatusUnauthorized || o.now().After(deadline) {
			return code, text, err
		}
		select {
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		case <-ticker.C:
		}
	}
}

// tell says what became of it.
func (o *sendOptions) tell(s *screen, a *answer) {
	what := "Accepted"
	if o.dryRun {
		what = "Would be accepted"
	}
	if len(a.Alerts) == 0 {
		s.printf("%s, with no alert in it.\n", what)
	}
	for _, alert := range a.Alerts {
		if alert.Dropped {
			s.printf("%s, and dropped, as the mapping wants it.\n", what)
			continue
		}
		s.printf("%s: incident %s, dedup key %s\n", what, s.styled(bold, safe(alert.Incident)), safe(alert.DedupKey))
	}
	a.warn(s)
}
