package webhookserver

import (
	"net/http"
	"net/url"
	"strings"
)

// deliveryHeaders are the headers by which senders name a delivery, where the name stays the same when the
// delivery is repeated, and no other delivery of the sender bears it. CloudEvents have a key of their own, see package
// protocol. Headers that name something else (PagerDuty's X-Webhook-Id is a subscription, Sentry's Request-ID a
// request) are left alone: taking them would reject alerts.
var deliveryHeaders = []struct{ name, beside string }{
	// Standard Webhooks. Without the time, a header of this name may hold the subscription, the same for every alert.
	{name: "Webhook-Id", beside: "Webhook-Timestamp"},
	{name: "Svix-Id"},                        // Svix and the services built on it
	{name: "X-Github-Delivery"},              // GitHub
	{name: "X-Atlassian-Webhook-Identifier"}, // Jira and Confluence
	{name: "X-Amz-Sns-Message-Id"},           // Amazon SNS
}

// idempotencyKey returns the key that copies of a request share, empty when there is none. It rejects an Idempotency-Key that
// is too long, and ignores a delivery header that is: the user did not choose it.
func idempotencyKey(header http.Header) (string, *problem) {
	if key := strings.TrimSpace(header.Get("Idempotency-Key")); key != "" {
		if len(key) > maxIdempotencyKeyLength {
			return "", &problemKey
		}
		return key, nil
	}
	usable := func(name string) string {
		value := strings.TrimSpace(header.Get(name))
		if len(value) > maxIdempotencyKeyLength {
			return ""
		}
		return value
	}
	for _, delivery := range deliveryHeaders {
		id := usable(delivery.name)
		if id != "" && (delivery.beside == "" || usable(delivery.beside) != "") {
			return delivery.name + ": " + id, nil
		}
	}
	return "", nil
}

// operationKey returns an idempotency key with the method and the path of the operation: a request to close an alert is no
// copy of one that opens it, and a request about one alert no copy of one about another. The address of the integration itself
// adds nothing, so that copies keep their names across versions.
func (a *arrived) operationKey(key string) string {
	if a.operation.Path == "" {
		return key
	}
	return strings.Join([]string{a.Method, a.operation.Path, url.PathEscape(a.identifier), key}, "\x00")
}
