package live

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Sentence describes an error of a request to the API server without its URL. It begins with a lower-case letter and
// ends without a full stop.
func Sentence(err error) string {
	var request *url.Error
	var timeout net.Error
	switch {
	case isStatus(err):
		return v1alpha1.SanitizeLine(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "the API server does not respond"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the API server refuses connections"
	case errors.As(err, &request):
		return "the API server cannot be reached: " + v1alpha1.SanitizeLine(request.Err.Error())
	}
	return v1alpha1.SanitizeLine(err.Error())
}

func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// Denied reports whether the user lacks permission.
func Denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// Text returns a JSON value for people: a string without quotes, any other value as it is.
func Text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

// Labels implements fields.Fields for the labels of an alert.
type Labels v1alpha1.Bag

// Has implements fields.Fields.
func (l Labels) Has(name string) bool {
	_, has := l[name]
	return has
}

// Get implements fields.Fields.
func (l Labels) Get(name string) string { return Text(l[name]) }
