package live

import (
	"context"
	"errors"
	"net"
	"net/url"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// Sentence describes an error of a request to the API server for a person, without the address that was asked.
// It begins with a lower-case letter and ends without a full stop.
func Sentence(err error) string {
	var request *url.Error
	var timeout net.Error
	switch {
	case isStatus(err):
		return payload.SanitizeLine(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "the API server does not answer"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the API server refuses connections"
	case errors.As(err, &request):
		return "the API server cannot be reached: " + payload.SanitizeLine(request.Err.Error())
	}
	return payload.SanitizeLine(err.Error())
}

func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// Denied says whether the API server refuses what the caller asks for, which time does not change.
func Denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
