// Package admission recognizes why the API server did not admit an object.
package admission

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// unreachable precedes the name of a webhook that could not be asked.
const unreachable = "failed calling webhook "

// IsDenied reports whether a policy or a webhook denied the object. Only the message tells: policies and webhooks choose code and
// reason themselves, also those of a conflict, of a missing object, and of an API server in trouble.
func IsDenied(err error) bool {
	words, denied := beforeDenial(err)
	return denied && !strings.Contains(words, unreachable)
}

// IsOutdated reports whether a write failed since the object has another version or UID than the one that was read, or is gone.
func IsOutdated(err error) bool {
	return !IsDenied(err) && (apierrors.IsConflict(err) || apierrors.IsNotFound(err))
}

// UnreachableWebhook returns the name of the webhook that could not be asked, as the message has it; empty if that is not why.
func UnreachableWebhook(err error) string {
	words, _ := beforeDenial(err)
	_, words, _ = strings.Cut(words, unreachable)
	name, _, _ := strings.Cut(words, ": ")
	return name
}

// Quota returns the ResourceQuota that does not allow the object, or whose use the API server does not know.
func Quota(err error) (name string, ok bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusForbidden || IsDenied(err) {
		return "", false
	}
	for _, words := range []string{"exceeded quota: ", "status unknown for quota: "} {
		if _, rest, found := strings.Cut(status.Status().Message, words); found {
			name, _, _ = strings.Cut(rest, ",")
			return name, true
		}
	}
	return "", false
}

// beforeDenial returns the message of an answer, up to where it says that the object was denied. What follows are the words of
// the policy or webhook, which may quote the object.
func beforeDenial(err error) (words string, denied bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", false
	}
	words = status.Status().Message
	for _, verb := range []string{" denied request", " denied the request"} {
		var found bool
		words, _, found = strings.Cut(words, verb)
		denied = denied || found
	}
	return words, denied
}
