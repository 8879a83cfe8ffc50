package mapping

import (
	"net/http"
	"strings"
)

// hiddenHeaders are kept from expressions: what an expression gives is stored, and these hold credentials of the sender,
// or of a proxy between it and the operator. docs/mapping.md lists them.
var hiddenHeaders = map[string]bool{
	"api-key": true, "apikey": true, "authorization": true, "cf-access-jwt-assertion": true, "cookie": true,
	"dd-api-key": true, "private-token": true, "proxy-authorization": true, "set-cookie": true, "x-access-token": true,
	"x-amz-security-token": true, "x-amzn-oidc-accesstoken": true, "x-amzn-oidc-data": true, "x-api-key": true,
	"x-api-token": true, "x-auth-request-access-token": true, "x-auth-token": true, "x-csrf-token": true,
	"x-forwarded-access-token": true, "x-forwarded-authorization": true, "x-forwarded-client-cert": true,
	"x-gitlab-token": true, "x-goog-iap-jwt-assertion": true, "x-id-token": true, "x-ms-token-aad-access-token": true,
	"x-ms-token-aad-id-token": true, "x-secret": true, "x-token": true, "x-vault-token": true, "x-webhook-secret": true,
	"x-webhook-token": true,
}

// visibleHeaders returns the headers of a request that expressions see: the first value of each, by the name in
// lower case.
func visibleHeaders(header http.Header) map[string]string {
	visible := make(map[string]string, min(len(header), maxHeaders))
	for _, name := range sortedKeys(header) {
		values := header[name]
		name = strings.ToLower(name)
		if hiddenHeaders[name] || len(values) == 0 || len(visible) == maxHeaders {
			continue
		}
		visible[name] = strings.ToValidUTF8(values[0][:min(len(values[0]), maxHeaderValue)], "\uFFFD")
	}
	return visible
}
