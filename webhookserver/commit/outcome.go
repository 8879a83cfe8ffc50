package commit

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/internal/admission"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Reasons of a DeniedError, as status.lastRejection and the metric have them.
const (
	// ReasonPolicy: a ValidatingAdmissionPolicy or an admission webhook of the cluster denied the AlertEvent.
	ReasonPolicy = "DeniedByPolicy"
	// ReasonQuota: a ResourceQuota of the namespace does not allow another AlertEvent.
	ReasonQuota = "QuotaExceeded"
)

// InvalidError says that the schema of AlertEvents does not allow the submission. Nothing was stored; a retry cannot succeed.
type InvalidError struct {
	Message string // names the fields at fault, in one printable line without anything of the alert
}

func (e *InvalidError) Error() string { return "the alert is invalid: " + e.Message }

// DeniedError says that the cluster does not allow the submission to be stored, and that the alert need not be at
// fault: a retry succeeds once the policy is changed, or the quota has capacity again. Nothing was stored.
type DeniedError struct {
	Reason string // ReasonPolicy or ReasonQuota

	// Message is the API server's message, in one printable line. It names policies and may quote the alert, so it is
	// for the owner of the integration and not for the sender.
	Message string
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("the cluster denied the AlertEvent (%s): %s", e.Reason, e.Message)
}

// notStoredError is the error of an attempt that cannot have stored anything.
type notStoredError struct{ error }

func (e *notStoredError) Unwrap() error { return e.error }

// classify returns what the error of an attempt means. final is the error to give up with, the verdict of the API server or
// ErrUnavailable; if it is nil, another attempt within seconds can succeed. mayBeStored says that the attempt may have stored the
// AlertEvent anyway.
func classify(err error) (mayBeStored bool, final error) {
	var notStored *notStoredError
	var dial *net.OpError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &notStored), errors.As(err, &dial) && dial.Op == "dial", apierrors.IsTooManyRequests(err):
		return false, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case !errors.As(err, &status):
		return true, nil
	}
	verdict, code := verdictOf(err, status.Status()), status.Status().Code
	switch {
	case verdict != nil:
		return false, verdict
	case code == http.StatusConflict: // a ResourceQuota was counted by another request at the same time
		return false, nil
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout: // no such namespace, no permission
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return true, nil
}

// verdictOf returns the *DeniedError or *InvalidError that an answer of the API server stands for, nil for any other answer.
func verdictOf(err error, status metav1.Status) error {
	code, message := status.Code, status.Message
	_, isQuota := admission.Quota(err)
	switch {
	case isSchemaError(status): // first, as it may quote the alert, and the alert may say anything
		return invalidOf(status)
	case admission.IsDenied(err), code == http.StatusUnprocessableEntity, code == http.StatusBadRequest:
		return &DeniedError{Reason: ReasonPolicy, Message: printable(message)}
	case isQuota:
		return &DeniedError{Reason: ReasonQuota, Message: printable(message)}
	case code == http.StatusRequestEntityTooLarge:
		return &InvalidError{Message: "too large for the API server"}
	}
	return nil
}

// isSchemaError says whether the CustomResourceDefinition's schema or rules found the AlertEvent invalid: then
// each cause names a field. An admission policy's causes name none.
func isSchemaError(status metav1.Status) bool {
	if status.Code != http.StatusUnprocessableEntity || status.Reason != metav1.StatusReasonInvalid ||
		status.Details == nil || len(status.Details.Causes) == 0 {
		return false
	}
	return !slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "" || !strings.HasPrefix(string(cause.Type), "FieldValue")
	})
}

// invalidOf names the fields that the schema does not allow, but neither their values nor the AlertEvent.
func invalidOf(status metav1.Status) *InvalidError {
	var fields []string
	for _, cause := range status.Details.Causes {
		field, isSpec := strings.CutPrefix(cause.Field, "spec.")
		if !isSpec {
			continue // "<nil>": that the rules were not checked because the fields are not valid
		}
		fields = append(fields, field+" ("+strings.TrimPrefix(string(cause.Type), "FieldValue")+")")
	}
	return &InvalidError{Message: printable("not allowed by the schema: " + strings.Join(fields, ", "))}
}

func printable(text string) string {
	text = plaintext.SanitizeLine(text)
	if len(text) > maxServerMessage {
		text = strings.ToValidUTF8(text[:maxServerMessage], "\uFFFD") // a cut rune becomes U+FFFD
	}
	return text
}
