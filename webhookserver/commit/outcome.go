package commit

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Reasons of a RefusedError, as status.lastRejection and the metric have them.
const (
	// ReasonPolicy: a ValidatingAdmissionPolicy or an admission webhook of the cluster denied the AlertEvent.
	ReasonPolicy = "RefusedByPolicy"
	// ReasonQuota: a ResourceQuota of the namespace does not allow another AlertEvent.
	ReasonQuota = "QuotaExceeded"
)

// RejectedError says that the schema of AlertEvents does not allow the submission. Nothing was stored, and a retry
// cannot succeed.
type RejectedError struct {
	Message string // names the fields at fault, in one printable line without anything of the alert
}

func (e *RejectedError) Error() string { return "the API server rejected the alert: " + e.Message }

// RefusedError says that the cluster does not allow the submission to be stored, and that the alert need not be at
// fault: a retry succeeds once the policy is changed, or the quota has capacity again. Nothing was stored.
type RefusedError struct {
	Reason string // ReasonPolicy or ReasonQuota

	// Message is the API server's message, in one printable line. It names policies and may quote the alert, so it is
	// for the owner of the integration and not for the sender.
	Message string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the cluster refused the AlertEvent (%s): %s", e.Reason, e.Message)
}

// notSentError is the error of an attempt that cannot have stored anything.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

// outcome says whether an attempt stored the AlertEvent.
type outcome int

const (
	writeDone          outcome = iota
	writeRefused               // the object is invalid, or a policy or quota refuses it
	writeFailed                // not stored, another attempt may succeed
	writeFailedForGood         // not stored, and no attempt within seconds can succeed
	writeUncertain             // possibly stored
)

func outcomeOf(err error) outcome {
	var notSent *notSentError
	var dial *net.OpError
	switch {
	case err == nil:
		return writeDone
	case errors.As(err, &notSent), errors.As(err, &dial) && dial.Op == "dial", apierrors.IsTooManyRequests(err):
		return writeFailed
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return writeFailedForGood
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return writeUncertain
	}
	switch code := status.Status().Code; {
	case refusalOf(err) != nil:
		return writeRefused
	case code == http.StatusConflict:
		return writeFailed // a ResourceQuota was counted by another request at the same time
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		return writeFailedForGood // no such namespace, no permission
	default:
		return writeUncertain
	}
}

// refusalOf returns the *RefusedError or *RejectedError that the API server's error stands for, nil for any other error.
// Only the message tells them apart: policies and webhooks choose code and reason themselves.
func refusalOf(err error) error {
	var apiStatus apierrors.APIStatus
	if !errors.As(err, &apiStatus) {
		return nil
	}
	status := apiStatus.Status()
	refused := func(reason string) error { return &RefusedError{Reason: reason, Message: printable(err.Error())} }
	switch message := status.Message; {
	case isSchemaRejection(status): // first, as it may quote the alert, and the alert may say anything
		return rejectionOf(status)
	case strings.Contains(message, " denied request"), strings.Contains(message, " denied the request"):
		return refused(ReasonPolicy)
	case status.Code == http.StatusForbidden &&
		(strings.Contains(message, "exceeded quota: ") || strings.Contains(message, "status unknown for quota: ")):
		return refused(ReasonQuota)
	case status.Code == http.StatusUnprocessableEntity, status.Code == http.StatusBadRequest:
		return refused(ReasonPolicy)
	case status.Code == http.StatusRequestEntityTooLarge:
		return &RejectedError{Message: "too large for the API server"}
	}
	return nil
}

// isSchemaRejection says whether the CustomResourceDefinition's schema or rules found the AlertEvent invalid: then
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

// rejectionOf names the fields that the schema does not allow, but neither their values nor the AlertEvent.
func rejectionOf(status metav1.Status) *RejectedError {
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

func printable(text string) string {
	text = v1alpha1.SanitizeLine(text)
	if len(text) > maxServerMessage {
		text = strings.ToValidUTF8(text[:maxServerMessage], "\uFFFD") // a cut rune becomes U+FFFD
	}
	return text
}
