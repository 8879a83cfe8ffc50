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
	"private", "assertion", "hmac", "apikey", "api-key", "access-key", "app-key", "license-key",
}

// secretNames are whole words of the names of headers and parameters with credentials.
var secretNames = []string{"otp", "totp"}

// innocentKeys are the words before "key" in names of keys that identify something. Any other name that ends with "key" is that
// of a credential.
var innocentKeys = []string{
	"idempotency", "event", "dedup", "dedupe", "deduplication", "incident", "alert", "issue", "partition", "correlation", "cache",
	"surrogate",
}

// secretParameters are further parameters of the addresses of other services that have credentials.
var secretParameters = []string{"code", "sig", "pwd", "pass"}

// connectionHeaders belong to the connection or to the body as it was sent. A request that is read again must not have them.
var connectionHeaders = []string{
	"connection", "content-encoding", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade",
}

// secretValue matches values with credentials: a scheme of authentication, a URL with a user, a JSON Web Token.
var secretValue = regexp.MustCompile(`(?i)^(basic|bearer|digest|negotiate|token|geniekey|apikey|aws4-hmac-sha256)[ =]|` +
	`://[^/?#\s]*@|\beyJ[\w-]*\.[\w-]+\.`)

// address matches the beginning of a URL or a path, and queryMark what its query follows, escaped or not.
var (
	address   = regexp.MustCompile(`(?i)^[<"\s]*(?:[a-z][a-z0-9+.-]*(?::|%(?:25)*3a))?(?:/|%(?:25)*2f)`)
	queryMark = regexp.MustCompile(`(?i)\?|%(?:25)*3f`)
)

// ownToken matches tokens of Tocsin in a body.
var ownToken = regexp.MustCompile(regexp.QuoteMeta(tokens.Prefix) + `[0-9A-Za-z_]+`)

// redactedToken replaces a token in a body.
var redactedToken = []byte("REDACTED")

// Headers returns the headers that are kept, of those that expressions see, by their names in lower case.
func Headers(visible map[string]string) http.Header {
	kept := http.Header{}
	for name, value := range visible {
		if !isSecretName(name) && !slices.Contains(connectionHeaders, name) && !isSecret(name) && !isSecret(value) {
			kept.Set(name, withoutSecretQuery(value))
		}
	}
	return kept
}

// isSecretName reports whether what has the name, in lower case, may be a credential.
func isSecretName(name string) bool {
	if slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) }) {
		return true
	}
	words := strings.FieldsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	if slices.ContainsFunc(words, func(word string) bool { return slices.Contains(secretNames, word) }) {
		return true
	}
	before, isKey := strings.CutSuffix(strings.Join(words, " "), "key")
	if !isKey {
		return false
	}
	words = strings.Fields(before)
	return len(words) == 0 || !slices.Contains(innocentKeys, words[len(words)-1])
}

// withoutSecretQuery returns an address without its query if that may have a credential in it, and any other text as it is.
// Proxies put the address of a request into headers such as X-Original-URI.
func withoutSecretQuery(value string) string {
	mark := queryMark.FindStringIndex(value)
	if mark == nil || !address.MatchString(value) {
		return value
	}
	query := value[mark[1]:]
	for range 3 {
		for parameter := range strings.FieldsFuncSeq(query, func(r rune) bool { return strings.ContainsRune("?&;#", r) }) {
			name, _, _ := strings.Cut(strings.ToLower(parameter), "=")
			if isSecretName(name) || slices.Contains(secretParameters, name) {
				return value[:mark[0]]
			}
		}
		unescaped, err := url.QueryUnescape(query)
		if err != nil || unescaped == query {
			break
		}
		query = unescaped
	}
	return value
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
