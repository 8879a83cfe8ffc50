package capture

import (
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// token is one of the size and form of all tokens.
var token = tokens.New("team-a", "disks")

func TestWhichHeadersAreKept(t *testing.T) {
	for name, test := range map[string]struct {
		header, value string
		kept          bool
	}{
		"the type of an event":                   {"x-github-event", "push", true},
		"the type of the body":                   {"content-type", "application/json", true},
		"an attribute of a CloudEvent":           {"ce-type", "com.example.alert", true},
		"an event whose name has the word key":   {"x-event-key", "deploy.failed", true},
		"the address of a sender":                {"x-forwarded-for", "192.0.2.1", true},
		"the name of a program":                  {"user-agent", "Alertmanager/0.31", true},
		"an idempotency key":                     {"idempotency-key", "17", true},
		"authorization":                          {"authorization", "Basic eA==", false},
		"authorization of a proxy":               {"proxy-authorization", "x", false},
		"a cookie":                               {"cookie", "session=1", false},
		"a token of a tool":                      {"x-acme-token", "x", false},
		"a shared secret":                        {"x-shop-webhook-secret", "x", false},
		"a password":                             {"x-password", "x", false},
		"an API key":                             {"x-acme-api-key", "x", false},
		"a signature":                            {"x-hub-signature-256", "sha256=00", false},
		"an HMAC":                                {"x-shopify-hmac-sha256", "x", false},
		"a session":                              {"x-session-id", "x", false},
		"a client's certificate":                 {"x-forwarded-tls-client-cert", "x", false},
		"a token of cross-site protection":       {"x-xsrf-token", "x", false},
		"a credential under an innocent name":    {"x-data", "Bearer abc", false},
		"a password in a URL":                    {"referer", "https://user:secret@example.com/", false},
		"a JSON Web Token":                       {"x-data", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", false},
		"the path of the request":                {"x-original-uri", "/api/v1/events/webhook/" + token, false},
		"the path of the request, escaped":       {"x-forwarded-uri", url.QueryEscape(url.QueryEscape("/" + token)), false},
		"the path of the request, % for letters": {"x-uri", "/%74ocsin%5F" + strings.TrimPrefix(token, tokens.Prefix), false},
		"a key of Azure Functions":               {"x-functions-key", "x", false},
		"a key of Azure API Management":          {"ocp-apim-subscription-key", "x", false},
		"a key of a webhook":                     {"x-webhook-key", "x", false},
		"a key that routes, as of PagerDuty":     {"x-routing-key", "x", false},
		"a shared key":                           {"x-shared-key", "x", false},
		"a key alone":                            {"key", "x", false},
		"a key in one word":                      {"x-hookkey", "x", false},
		"a password of one time":                 {"x-otp", "123456", false},
		"a key of a CloudEvent's partition":      {"ce-partitionkey", "eu", true},
		"a dedup key":                            {"x-dedup_key", "disk", true},
		"a word with otp in it":                  {"x-hotpatch", "1", true},
		"the encoding of the body as sent":       {"content-encoding", "gzip", false},
		"the length of the body as sent":         {"content-length", "1", false},
		"what belongs to the connection":         {"connection", "close", false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Headers(map[string]string{test.header: test.value})).To(HaveLen(map[bool]int{true: 1}[test.kept]))
		})
	}
}

func TestTheQueryOfAnAddressIsKeptWithoutCredentials(t *testing.T) {
	for value, want := range map[string]string{
		"/hook?code=abc":                               "/hook",
		"/hook?a=b&CODE=abc":                           "/hook",
		"https://example.com/hook?apikey=abc":          "https://example.com/hook",
		"https://example.com/?x=1;subscription-key=a#": "https://example.com/",
		"<https://example.com/?sig=abc>; rel=next":     "<https://example.com/",
		"/hook%3Fcode%3Dabc":                           "/hook",
		"%2Fhook%253Fx%253D1%2526access_token%253Dabc": "%2Fhook",
		"/hook?next=%2Fx%3Fkey%3Dabc":                  "/hook",
		"https://example.com/?page=2&event_key=deploy": "https://example.com/?page=2&event_key=deploy",
		"/hook?a=b":                 "/hook?a=b",
		"really? code=blue":         "really? code=blue",
		"text/plain; charset=utf-8": "text/plain; charset=utf-8",
	} {
		NewWithT(t).Expect(Headers(map[string]string{"referer": value}).Get("Referer")).To(Equal(want), value)
	}
}

func TestWhichParametersAreKept(t *testing.T) {
	g := NewWithT(t)
	kept := url.Values{}
	for name, value := range map[string]string{
		"severity": "critical", "dedupKey": "disk", "identifierType": "alias", "title": "A " + token, "token": "x", "key": "x", "env": "prod",
	} {
		AddParameter(kept, name, value)
	}
	g.Expect(slices.Sorted(maps.Keys(kept))).To(Equal([]string{"dedupKey", "identifierType", "severity"}))
}

func TestTokensLeaveABody(t *testing.T) {
	g := NewWithT(t)
	body := []byte(`{"url":"https://x/api/v1/events/webhook/` + token + `","own":"` + token + `"}`)
	g.Expect(string(withoutTokens(body))).To(Equal(`{"url":"https://x/api/v1/events/webhook/REDACTED","own":"REDACTED"}`))
	same := []byte(`{"title":"x"}`)
	g.Expect(&withoutTokens(same)[0]).To(BeIdenticalTo(&same[0]), "without a copy")
}

// kept makes the request of what a sender sent.
func kept(method, path string, headers, parameters map[string]string, body []byte) Request {
	r := Request{
		Time: time.Date(2026, 5, 4, 10, 0, 0, 123456000, time.UTC), Code: 202, Method: method, Path: path, Query: url.Values{},
		Header: Headers(headers), Body: withoutTokens(body),
	}
	for name, value := range parameters {
		AddParameter(r.Query, name, value)
	}
	return r
}

func TestARequestIsReadAsItWasKept(t *testing.T) {
	names := []string{"content-type", "x-event", "x-github-event", "ce-id"}
	rapid.Check(t, func(t *rapid.T) {
		headers, parameters := map[string]string{}, map[string]string{}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			headers[rapid.SampledFrom(names).Draw(t, "name")] = rapid.StringMatching(`[!-~]([ -~]{0,20}[!-~])?`).Draw(t, "value")
		}
		for range rapid.IntRange(0, 3).Draw(t, "parameters") {
			parameters[rapid.SampledFrom([]string{"severity", "title", "identifierType"}).Draw(t, "parameter")] = rapid.String().Draw(t, "text")
		}
		request := kept(rapid.SampledFrom([]string{http.MethodPost, http.MethodPut}).Draw(t, "method"),
			"/api/v1/events/webhook"+rapid.SampledFrom([]string{"", "/v2/alerts", "/v2/alerts/a%2Fb/close"}).Draw(t, "path"),
			headers, parameters, rapid.SliceOf(rapid.Byte()).Draw(t, "body"))
		stored := request.encode()
		read, err := Decode(&stored)
		if err != nil {
			t.Fatal(err)
		}
		NewWithT(t).Expect(bytes.Equal(read.Body, request.Body)).To(BeTrue())
		read.Body, request.Body = nil, nil
		NewWithT(t).Expect(*read).To(Equal(request))
	})
}

func TestWhatIsNoRequestIsAnError(t *testing.T) {
	whole := (&Request{Method: http.MethodPost, Path: "/x", Body: []byte("body")}).encode()
	for name, content := range map[string]string{
		"no base64":          "§",
		"no gzip":            "AAAA",
		"a part of the gzip": whole.Content[:len(whole.Content)/2],
		"nothing":            "",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(&v1alpha1.CapturedRequest{Content: content})
			NewWithT(t).Expect(err).To(HaveOccurred())
		})
	}
}

// FuzzNoCredentialIsKept puts a token and a password, escaped or not, wherever a sender can put a text.
func FuzzNoCredentialIsKept(f *testing.F) {
	f.Add("x-original-uri", "/api/%s?x", "title", "%s", `{"a":"%s"}`)
	f.Add("authorization", "Basic %s", "severity", "https://u:%s@x", "%s%s")
	f.Add("x\r\ny: ", "a\r\nAuthorization: %s", "dedup_key", "\x00%s", "\xff%s")
	f.Add("transfer-encoding", "chunked", "q", "%s", "")
	f.Add("x-%s", "x", "title%s", "x", "")
	f.Fuzz(func(t *testing.T, header, value, parameter, text, body string) {
		put := func(text string) string { return strings.ReplaceAll(text, "%s", token) }
		request := kept(http.MethodPost, "/api/v1/events/webhook",
			map[string]string{strings.ToLower(put(header)): put(value), "authorization": "Bearer " + token, "cookie": "a=" + token},
			map[string]string{parameter: put(text)}, []byte(put(body)))
		stored := request.encode()
		read, err := Decode(&stored)
		if err != nil {
			t.Fatalf("%v in %q", err, header)
		}
		secret := strings.ToLower(token[len(tokens.Prefix)+33:])
		whole := read.Method + read.target() + string(read.Body)
		for name, values := range read.Header {
			whole += name + strings.Join(values, "")
			if strings.EqualFold(name, "authorization") || strings.EqualFold(name, "cookie") {
				t.Errorf("the header %s is kept", name)
			}
		}
		whole = strings.ToLower(whole)
		unescaped, _ := url.QueryUnescape(whole)
		if strings.Contains(whole, secret) || strings.Contains(unescaped, secret) {
			t.Errorf("the token is kept in %q", whole)
		}
	})
}
