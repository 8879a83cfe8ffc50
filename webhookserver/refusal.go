package webhookserver

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// Reasons of a RefusedError, as status.lastRejection and the metric have them.
const (
	// refusedByPolicy: a ValidatingAdmissionPolicy or an admission webhook of the cluster denied the AlertEvent.
	refusedByPolicy = "RefusedByPolicy"
	// quotaExceeded: a ResourceQuota of the namespace has no room for another AlertEvent.
	quotaExceeded = "QuotaExceeded"
)

// RefusedError says that the cluster does not let the submission be stored, and that the alert need not be at fault:
// somebody changes the policy, or the quota has room again. Nothing was stored.
type RefusedError struct {
	// Reason is refusedByPolicy or quotaExceeded.
	Reason string

	// Message is what the API server said, in one printable line. It names policies and may quote the alert, so it is
	// for the owner of the integration and not for the sender.
	Message string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the cluster refused the AlertEvent (%s): %s", e.Reason, e.Message)
}

// refusalOf returns the reason of a RefusedError for what the API server said, or nothing when it said anything else.
// Only the words tell: policies and webhooks choose code and reason themselves.
func refusalOf(status metav1.Status) string {
	switch message := status.Message; {
	case isSchemaRejection(status): // it may quote the alert, and the alert may say anything
		return ""
	case strings.Contains(message, " denied request"), strings.Contains(message, " denied the request"):
		return refusedByPolicy
	case status.Code == http.StatusForbidden &&
		(strings.Contains(message, "exceeded quota: ") || strings.Contains(message, "status unknown for quota: ")):
		return quotaExceeded
	case status.Code == http.StatusUnprocessableEntity, status.Code == http.StatusBadRequest:
		return refusedByPolicy
	}
	return ""
}

// isSchemaRejection tells whether the CustomResourceDefinition's schema or rules found the AlertEvent invalid: then
// each cause names a field. An admission policy's causes name none.
func isSchemaRejection(status metav1.Status) bool {
	if status.Code != http.StatusUnprocessableEntity || status.Reason != metav1.StatusReasonInvalid ||
		status.Details == nil || len(status.Details.Causes) == 0 {
		return false
	}
	for _, cause := range status.Details.Causes {
		if cause.Field == "" || !strings.HasPrefix(string(cause.Type), "FieldValue") {
			return false
		}
	}
	return true
}

// refusedBy makes a *RefusedError or a *RejectedError of what the API server said, nil when it said anything else.
func refusedBy(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	switch reason := refusalOf(status.Status()); {
	case reason != "":
		return &RefusedError{Reason: reason, Message: printable(err.Error())}
	case isSchemaRejection(status.Status()):
		return rejectedBy(status.Status())
	case status.Status().Code == http.StatusRequestEntityTooLarge:
		return &RejectedError{Message: "too large for the API server"}
	}
	return nil
}

// rejectedBy names the fields that the schema does not allow. Neither their values nor the name of the AlertEvent are
// in it.
func rejectedBy(status metav1.Status) *RejectedError {
	var fields []string
	for _, cause := range status.Details.Causes {
		field, isSpec := strings.CutPrefix(cause.Field, "spec.")
		if !isSpec {
			continue // "<nil>": that the rules were not checked because the fields are not valid
		}
		fields = append(fields, field+" ("+strings.TrimPrefix(string(cause.Type), "FieldValue")+")")
	}
	return &RejectedError{Message: printable("not allowed by the schema: " + strings.Join(fields, ", "))}
}

// printable makes one line of bounded length.
func printable(text string) string {
	text = payload.SanitizeLine(text)
	if len(text) > maxServerMessage {
		text = strings.ToValidUTF8(text[:maxServerMessage], "\uFFFD") // a cut rune becomes U+FFFD
	}
	return text
}
