package capture

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/tokens"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// secretWords are parts of the names of headers with credentials. Expressions do not see the best known of these headers, but a
// mapping chooses what it stores of the others, and a capture would store them all.
var secretWords = []string{
	"auth", "token", "secret", "passw", "passphrase", "cookie", "credential", "signature", "session", "jwt", "csrf", "xsrf", "cert",
	"private", "apikey", "api-key", "access-key", "app-key", "license-key", "assertion", "hmac",
}

// connectionHeaders belong to the connection or to the body as it was sent. A request that is read again must not have them.
var connectionHeaders = []string{
	"connection", "content-encoding", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade",
}

// secretValue matches values with credentials: a scheme of authentication, a URL with a user, a JSON Web Token.
var secretValue = regexp.MustCompile(`(?i)^(basic|bearer|digest|negotiate|token|geniekey|apikey|aws4-hmac-sha256)[ =]|` +
	`://[^/?#\s]*@|\beyJ[\w-]*\.[\w-]+\.`)

// ownToken matches tokens of Tocsin in a body.
var ownToken = regexp.MustCompile(regexp.QuoteMeta(tokens.Prefix) + `[0-9A-Za-z_]+`)

// redactedToken replaces a token in a body.
var redactedToken = []byte("REDACTED")

// Headers returns the headers that are kept, of those that expressions see, by their names in lower case.
func Headers(visible map[string]string) http.Header {
	kept := http.Header{}
	for name, value := range visible {
		isPart := func(word string) bool { return strings.Contains(name, word) }
		if !slices.ContainsFunc(secretWords, isPart) && !slices.Contains(connectionHeaders, name) && !isSecret(name) &&
			!isSecret(value) {
			kept.Set(name, value)
		}
	}
	return kept
}

// AddParameter adds a parameter of a query if it is one that an alert is read from: a field of it, or one of the APIs.
func AddParameter(kept url.Values, name, value string) {
	_, isField, _ := payload.FieldOf(name)
	if (isField || name == "identifierType") && !isSecret(value) {
		kept.Add(name, value)
	}
}

// isSecret reports whether a text may have a credential in it. Proxies put the path of a request, with its token, into headers
// such as X-Original-URI, escaped or not.
func isSecret(text string) bool {
	for range 3 {
		if secretValue.MatchString(text) || strings.Contains(strings.ToLower(text), tokens.Prefix) {
			return true
		}
		unescaped, err := url.QueryUnescape(text)
		if err != nil || unescaped == text {
			break
		}
		text = unescaped
	}
	return false
}

// withoutTokens returns the body without tokens of Tocsin. It is the same one if it has none.
func withoutTokens(body []byte) []byte {
	if !bytes.Contains(body, []byte(tokens.Prefix)) {
		return body
	}
	return ownToken.ReplaceAll(body, redactedToken)
}
