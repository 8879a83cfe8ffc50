package mapping

import (
	"net/http"
	"slices"
	"strings"
)

// secretWords are parts of the names of headers that are kept from expressions: what an expression gives is
// stored, and a credential must never be. A header with an unusual name could still hold one; but only the
// owner of the integration, who also has its token, says what is read.
var secretWords = []string{
	"auth", "cookie", "token", "secret", "password", "passwd", "credential", "key", "signature", "session", "jwt", "cert",
}

// visibleHeaders returns the headers of a request that expressions see: the first value of each, by the name in
// lower case.
func visibleHeaders(header http.Header) map[string]string {
	names := make([]string, 0, len(header))
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	visible := make(map[string]string, min(len(names), maxHeaders))
	for _, name := range names {
		values := header[name]
		name = strings.ToLower(name)
		secret := slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
		if secret || len(values) == 0 || len(visible) == maxHeaders {
			continue
		}
		value := values[0]
		if len(value) > maxHeaderValue {
			value = value[:maxHeaderValue]
		}
		visible[name] = strings.ToValidUTF8(value, "\uFFFD")
	}
	return visible
}
