package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

type tokenOptions struct {
	*plugin
	endpoint  string
	name      string
	expiresIn time.Duration
	quiet     bool
	expired   bool
	format    string // of the list
}

func (p *plugin) tokenCommand() *cobra.Command {
	o := &tokenOptions{plugin: p}
	create := p.ofIntegration("create INTEGRATION", "Create a token and print the webhook URL", nil, o.createAndPrint)
	create.Flags().StringVar(&o.name, "name", "", "Name of the token. Default: the current date, such as 2026-05-04.")
	o.addFlags(create)

	list := p.ofIntegration("list INTEGRATION", "List the tokens of an integration", nil, o.list)
	list.Aliases = []string{"ls"}
	wordVar(list.Flags(), &o.format, "output", "o", "json or yaml",
		"Output format: json or yaml, a list as in spec.tokens. Default: a table.")

	rotate := p.ofIntegration("rotate INTEGRATION [NAME]", "Create a token that replaces another one", tokenNames, o.rotate)
	rotate.Args = takes(1, 2, "an integration name, and the name of a token if there are several")
	rotate.Flags().StringVar(&o.name, "name", "", "Name of the new token. Default: the current date, such as 2026-05-04.")
	o.addFlags(rotate)

	revoke := p.ofIntegration("revoke INTEGRATION [NAME...]", "Revoke tokens of an integration", tokenNames, o.revokeAndPrint)
	revoke.Flags().BoolVar(&o.expired, "expired", false, "Revoke all expired tokens.")

	return parent(&cobra.Command{
		Use:   "token",
		Short: "Create, list, rotate and revoke tokens of an integration",
	}, create, list, rotate, revoke)
}

// addFlags adds the flags of commands that create a token.
func (o *tokenOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	durationVar(flags, &o.expiresIn, "expires-in", "Lifetime of the token, such as 12h or 90d. Default: unlimited.")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "Print the URL only.")
	addEndpointFlag(flags, &o.endpoint)
}

func (o *tokenOptions) createAndPrint(ctx context.Context, c *cluster, names []string) error {
	token, err := o.create(ctx, c, names[0])
	if err == nil {
		o.printURL(names[0], token)
	}
	return err
}

// rotate creates a token. The old one stays valid until somebody revokes it, since the sender still has it.
func (o *tokenOptions) rotate(ctx context.Context, c *cluster, args []string) error {
	integration, err := c.integration(ctx, args[0])
	if err != nil {
		return err
	}
	names := slices.DeleteFunc(tokenNames(&integration.Spec), func(name string) bool { return len(args) > 1 && args[1] != name })
	switch {
	case len(names) == 0 && len(args) == 1:
		return fmt.Errorf("integration %q has no token", integration.Name)
	case len(names) == 0:
		return fmt.Errorf("integration %q has no token %q", integration.Name, args[1])
	case len(names) > 1:
		return fmt.Errorf("integration %q has several tokens: specify one of %s", integration.Name, strings.Join(names, ", "))
	}
	if err := o.createAndPrint(ctx, c, args[:1]); err != nil || o.quiet {
		return err
	}
	o.notef("Give the sender this URL. When \"kubectl tocsin token list %[1]s -n %[3]s\" shows that %[2]q is no longer used, "+
		"revoke it; a use may take an hour to show:\nkubectl tocsin token revoke %[1]s %[2]s -n %[3]s",
		integration.Name, names[0], c.namespace)
	return nil
}

func tokenNames(spec *v1alpha1.WebhookIntegrationSpec) (names []string) {
	for i := range spec.Tokens {
		names = append(names, spec.Tokens[i].Name)
	}
	return names
}

// newToken is a token that has just been created, with the URL that contains it.
type newToken struct {
	v1alpha1.Token
	url string
}

func (o *tokenOptions) create(ctx context.Context, c *cluster, integration string) (token newToken, err error) {
	err = c.editIntegration(ctx, integration, func(i *v1alpha1.WebhookIntegration) error {
		token, err = o.addTo(i)
		return err
	})
	return token, err
}

// addTo adds a new token to an integration, which is not written.
func (o *tokenOptions) addTo(integration *v1alpha1.WebhookIntegration) (newToken, error) {
	endpoint, err := resolveEndpoint(o.endpoint)
	if err != nil {
		return newToken{}, err
	}
	secret := tokens.New(integration.Namespace, integration.Name)
	token := newToken{url: endpoint + webhookPath + "/" + secret}
	token.SHA256 = tokens.Hash(secret)
	if o.expiresIn > 0 {
		token.ExpirationTime = new(v1alpha1.NewTimestamp(o.now().Add(o.expiresIn)))
	}
	existing := tokenNames(&integration.Spec)
	token.Name = freeName(o.name, o.now(), func(name string) bool { return slices.Contains(existing, name) })
	if token.Name == "" {
		return token, fmt.Errorf("token %q already exists: revoke it first or choose another name", o.name)
	}
	integration.Spec.Tokens = append(integration.Spec.Tokens, token.Token)
	return token, nil
}

// printURL prints the URL on stdout, and an explanation on stderr.
func (o *tokenOptions) printURL(integration string, token newToken) {
	if !o.quiet {
		expiry := "does not expire"
		if token.ExpirationTime != nil {
			expiry = "expires at " + token.ExpirationTime.Local().Format(localTime)
		}
		o.notef("Created token %q of integration %q, which %s. The webhook URL is shown only once:",
			token.Name, integration, expiry)
	}
	o.screen.printf("%s\n", token.url)
}

func (o *tokenOptions) list(ctx context.Context, c *cluster, names []string) error {
	integration, err := c.integration(ctx, names[0])
	if err != nil {
		return err
	}
	if o.format != "" {
		return writeObject(o.Out, o.format, append([]v1alpha1.Token{}, integration.Spec.Tokens...))
	}
	if len(integration.Spec.Tokens) == 0 {
		o.notef("No tokens found in integration %q.", integration.Name)
		return nil
	}
	const hashChars = 12
	t := &table[v1alpha1.Token]{screen: o.screen}
	t.add("NAME", 0, func(token v1alpha1.Token) string { return token.Name })
	t.addCells("EXPIRES", 0, o.expiry)
	t.add("LAST-USED", 0, func(token v1alpha1.Token) string { return o.lastUse(integration.Status.Tokens, &token) })
	t.add("SHA256", 0, func(token v1alpha1.Token) string { return token.SHA256[:hashChars] + "…" })
	if err := t.print(integration.Spec.Tokens); err != nil || len(integration.Status.Tokens) == 0 {
		return err
	}
	o.notef("A token may have been used up to an hour after its LAST-USED.")
	return nil
}

func (p *plugin) expiry(token v1alpha1.Token) cell {
	switch at, now := token.ExpirationTime, p.now(); {
	case at == nil || at.IsZero():
		return cell{text: "never"}
	case now.Before(at.Time):
		return cell{text: fromNow(at, now)}
	default:
		return cell{"expired " + ago(at, now), red}
	}
}

// lastUse is the age of a token's last use, which the operator updates at most once an hour.
func (p *plugin) lastUse(uses []v1alpha1.TokenUse, token *v1alpha1.Token) string {
	for i := range uses {
		if use := &uses[i]; use.Name == token.Name && use.SHA256 == token.SHA256 {
			return ago(&use.LastUsedTime, p.now()) + " ago"
		}
	}
	return "never"
}

func (o *tokenOptions) revokeAndPrint(ctx context.Context, c *cluster, args []string) error {
	integration, names := args[0], args[1:]
	if len(names) == 0 && !o.expired {
		return errors.New("specify a token name or --expired")
	}
	revoked, err := o.revoke(ctx, c, integration, names)
	switch {
	case err != nil:
		return err
	case len(revoked) == 0:
		o.screen.printf("No token has expired.\n")
	case len(revoked) == 1:
		o.screen.printf("Revoked token %q of integration %q.\n", revoked[0], integration)
	default:
		o.screen.printf("Revoked tokens \"%s\" of integration %q.\n", strings.Join(revoked, `", "`), integration)
	}
	return nil
}

// revoke removes the tokens with these names, and expired ones if --expired is set, and returns the names of all.
func (o *tokenOptions) revoke(
	ctx context.Context, c *cluster, integration string, names []string,
) (revoked []string, err error) {
	now := o.now()
	err = c.editIntegration(ctx, integration, func(i *v1alpha1.WebhookIntegration) error {
		revoked = nil
		i.Spec.Tokens = slices.DeleteFunc(i.Spec.Tokens, func(token v1alpha1.Token) bool {
			isExpired := token.ExpirationTime != nil && !now.Before(token.ExpirationTime.Time)
			if (!o.expired || !isExpired) && !slices.Contains(names, token.Name) {
				return false
			}
			revoked = append(revoked, token.Name)
			return true
		})
		for _, name := range names {
			if !slices.Contains(revoked, name) {
				return fmt.Errorf("integration %q has no token %q; nothing was revoked", integration, name)
			}
		}
		return nil
	})
	return revoked, err
}
