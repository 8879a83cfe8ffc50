package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func (p *plugin) tokenCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the tokens of an integration",
		Long: `Make, list and revoke the tokens of an integration.

A token is what a sender needs to post alerts. The cluster holds only its SHA-256, so nobody can read it there:
it is printed once, when it is made. To rotate one, create a second one, change the sender, and revoke the first
one; both work meanwhile.`,
		Example: example(`
kubectl tocsin token create monitoring --name 2026-06
kubectl tocsin token list monitoring
kubectl tocsin token revoke monitoring 2026-05`),
	}, p.tokenCreateCommand(), p.tokenListCommand(), p.tokenRevokeCommand())
}

// tokenCreateOptions are those of "token create".
type tokenCreateOptions struct {
	*plugin
	endpoint  endpointFlag
	name      string
	expiresIn time.Duration
	quiet     bool
}

func (p *plugin) tokenCreateCommand() *cobra.Command {
	o := &tokenCreateOptions{plugin: p}
	command := &cobra.Command{
		Use:   "create INTEGRATION",
		Short: "Make a token and print the address to post to, once",
		Long: `Make a token for an integration and print the address that the sender has to post to.

The token is in the address. It is printed once: the cluster holds only its SHA-256. It is valid for this integration
in this namespace alone. Secret scanners can find it by its form: "tocsin_", a tag of the integration, and 49 letters
and digits with a checksum.`,
		Example: example(`
# A token named after the day, that never expires
kubectl tocsin token create monitoring

# One that works for an hour, for a script
url=$(kubectl tocsin token create monitoring --expires-in 1h --quiet)

# With the address under which senders outside the cluster reach Tocsin
kubectl tocsin token create monitoring --endpoint https://alerts.example.com`),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: onlyFirst(p.completeIntegrations),
		RunE:              func(command *cobra.Command, args []string) error { return o.run(command.Context(), args[0]) },
	}
	flags := command.Flags()
	flags.StringVar(&o.name, "name", "", "What to call the token. Default: the date, such as 2026-05-04.")
	flags.DurationVar(&o.expiresIn, "expires-in", 0, "For how long it works, such as 720h. Default: for ever.")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "Print nothing but the address.")
	o.endpoint.addFlag(flags)
	return command
}

func (o *tokenCreateOptions) run(ctx context.Context, integration string) error {
	endpoint, err := o.endpoint.base()
	if err != nil {
		return err
	}
	if o.expiresIn < 0 {
		return errors.New("--expires-in is a time from now on, such as 720h")
	}
	c, err := o.cluster()
	if err != nil {
		return err
	}
	made, err := o.create(ctx, c, integration)
	if err != nil {
		return err
	}
	return o.tell(made, endpoint)
}

// newToken is a token that was just made.
type newToken struct {
	v1alpha1.Token
	secret      string
	integration string
}

func (o *tokenCreateOptions) create(ctx context.Context, c *cluster, integration string) (newToken, error) {
	made := o.newToken(c.namespace, integration)
	err := c.editTokens(ctx, integration, func(tokens []v1alpha1.Token) ([]v1alpha1.Token, error) {
		name, err := o.pickName(tokens)
		made.Name = name
		return append(tokens, made.Token), err
	})
	return made, err
}

// newToken makes a token without a name.
func (o *tokenCreateOptions) newToken(namespace, integration string) newToken {
	made := newToken{secret: v1alpha1.NewToken(namespace, integration), integration: integration}
	made.SHA256 = v1alpha1.TokenHash(made.secret)
	if o.expiresIn > 0 {
		expires := v1alpha1.NewTimestamp(o.now().Add(o.expiresIn))
		made.ExpiresAt = &expires
	}
	return made
}

// pickName is the name that was asked for, or else the date, with a number behind it when there is one of
// that date already.
func (o *tokenCreateOptions) pickName(tokens []v1alpha1.Token) (string, error) {
	taken := func(name string) bool {
		return slices.ContainsFunc(tokens, func(t v1alpha1.Token) bool { return t.Name == name })
	}
	if o.name != "" {
		if taken(o.name) {
			return "", fmt.Errorf("there is a token %q already; revoke it first, or give the new one another name", o.name)
		}
		return o.name, nil
	}
	date := o.now().Format(time.DateOnly)
	name := date
	for number := 2; taken(name); number++ {
		name = fmt.Sprintf("%s-%d", date, number)
	}
	return name, nil
}

// tell prints the address, and around it, on stderr, what there is to know.
func (o *tokenCreateOptions) tell(made newToken, endpoint string) error {
	if !o.quiet {
		expiry := "never expires"
		if made.ExpiresAt != nil {
			expiry = "expires at " + made.ExpiresAt.Local().Format("2006-01-02 15:04:05 MST")
		}
		_, err := fmt.Fprintf(o.ErrOut, "Token %s of the integration %s, which %s. The address to post to, shown only this once:\n",
			made.Name, made.integration, expiry)
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(o.Out, endpoint+webhookPath+"/"+made.secret)
	return err
}

// editTokens changes the tokens of an integration, again when somebody else was faster.
func (c *cluster) editTokens(ctx context.Context, name string, edit func([]v1alpha1.Token) ([]v1alpha1.Token, error)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		integration := &v1alpha1.WebhookIntegration{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, integration); err != nil {
			return err
		}
		before := client.MergeFromWithOptions(integration.DeepCopy(), client.MergeFromWithOptimisticLock{})
		tokens, err := edit(integration.Spec.Tokens)
		if err != nil {
			return err
		}
		integration.Spec.Tokens = tokens
		return c.Patch(ctx, integration, before, fieldManager)
	})
}

func (p *plugin) tokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "list INTEGRATION",
		Aliases:           []string{"ls"},
		Short:             "List the tokens of an integration",
		Long:              `List the tokens of an integration: their names, when they expire, and how their SHA-256 begins.`,
		Example:           example(`kubectl tocsin token list monitoring`),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: onlyFirst(p.completeIntegrations),
		RunE: func(command *cobra.Command, args []string) error {
			return p.listTokens(command.Context(), args[0])
		},
	}
}

func (p *plugin) listTokens(ctx context.Context, name string) error {
	c, err := p.cluster()
	if err != nil {
		return err
	}
	s, err := p.screen()
	if err != nil {
		return err
	}
	integration := &v1alpha1.WebhookIntegration{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, integration); err != nil {
		return err
	}
	if len(integration.Spec.Tokens) == 0 {
		_, err := fmt.Fprintf(p.ErrOut, "The integration %s has no tokens.\n", name)
		return err
	}
	width := len("NAME")
	for _, token := range integration.Spec.Tokens {
		width = max(width, len(token.Name))
	}
	s.printf("%s\n", s.styled(bold, pad("NAME", width)+"   EXPIRES           SHA256"))
	for _, token := range integration.Spec.Tokens {
		expires, look := expiry(token.ExpiresAt, p.now())
		const shown = 12 // enough to tell them apart
		s.printf("%s   %s   %s…\n", pad(token.Name, width), s.styled(look, pad(expires, len("EXPIRES        "))), token.SHA256[:shown])
	}
	return s.err
}

// expiry says when a token expires, or that it has.
func expiry(at *v1alpha1.Timestamp, now time.Time) (string, style) {
	switch {
	case at == nil || at.IsZero():
		return "never", plain
	case now.Before(at.Time):
		return "in " + duration.HumanDuration(at.Sub(now)), plain
	}
	return "expired " + duration.HumanDuration(now.Sub(at.Time)), red
}

// tokenRevokeOptions are those of "token revoke".
type tokenRevokeOptions struct {
	*plugin
	expired bool
}

func (p *plugin) tokenRevokeCommand() *cobra.Command {
	o := &tokenRevokeOptions{plugin: p}
	command := &cobra.Command{
		Use:   "revoke INTEGRATION [NAME...]",
		Short: "Revoke tokens of an integration",
		Long: `Revoke tokens of an integration: their hashes are removed, and Tocsin refuses them within two seconds.

Incidents stay as they are.`,
		Example: example(`
kubectl tocsin token revoke monitoring 2026-05-04

# Tidy up what has expired
kubectl tocsin token revoke monitoring --expired`),
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: p.completeTokens,
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), args[0], args[1:])
		},
	}
	command.Flags().BoolVar(&o.expired, "expired", false, "Revoke all that have expired.")
	return command
}

func (o *tokenRevokeOptions) run(ctx context.Context, integration string, names []string) error {
	if len(names) == 0 && !o.expired {
		return errors.New("which token? Give a name, or --expired")
	}
	c, err := o.cluster()
	if err != nil {
		return err
	}
	var revoked []string
	now := o.now()
	err = c.editTokens(ctx, integration, func(tokens []v1alpha1.Token) ([]v1alpha1.Token, error) {
		var kept []v1alpha1.Token
		kept, revoked = sortOut(tokens, func(token *v1alpha1.Token) bool {
			expired := token.ExpiresAt != nil && !now.Before(token.ExpiresAt.Time)
			return o.expired && expired || slices.Contains(names, token.Name)
		})
		for _, name := range names {
			if !slices.Contains(revoked, name) {
				return nil, fmt.Errorf("the integration %s has no token %q; nothing was revoked", integration, name)
			}
		}
		return kept, nil
	})
	if err != nil {
		return err
	}
	text := "No token has expired."
	if len(revoked) > 0 {
		text = fmt.Sprintf("Revoked %s of the integration %s.", strings.Join(revoked, ", "), integration)
	}
	_, err = fmt.Fprintln(o.Out, text)
	return err
}

// sortOut divides tokens into those that stay and the names of those that go.
func sortOut(tokens []v1alpha1.Token, goes func(*v1alpha1.Token) bool) (kept []v1alpha1.Token, revoked []string) {
	for i := range tokens {
		if goes(&tokens[i]) {
			revoked = append(revoked, tokens[i].Name)
			continue
		}
		kept = append(kept, tokens[i])
	}
	return kept, revoked
}

// revokeToken removes a token, if it is there.
func (c *cluster) revokeToken(ctx context.Context, integration, name string) error {
	return c.editTokens(ctx, integration, func(tokens []v1alpha1.Token) ([]v1alpha1.Token, error) {
		kept, _ := sortOut(tokens, func(token *v1alpha1.Token) bool { return token.Name == name })
		return kept, nil
	})
}

// completeTokens completes an integration, and then the names of its tokens.
func (p *plugin) completeTokens(command *cobra.Command, given []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(given) == 0 {
		return p.completeIntegrations(command, given, begun)
	}
	c, ctx, cancel, err := p.completing(command)
	if err != nil {
		return nothing(given)
	}
	defer cancel()
	integration := &v1alpha1.WebhookIntegration{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: given[0]}, integration); err != nil {
		return nothing(given)
	}
	words := []string{}
	for _, token := range integration.Spec.Tokens {
		if !slices.Contains(given[1:], token.Name) {
			words = append(words, token.Name)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
