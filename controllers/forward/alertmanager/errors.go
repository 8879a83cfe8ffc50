package alertmanager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	"crypto/tls"
)

// ErrNoClient says that a client cannot be made of the configuration.
var ErrNoClient = errors.New("http_config cannot be used")

// errNotAlertmanager says that something else has answered.
var errNotAlertmanager = errors.New("the answer is not Alertmanager's")

// answerError is an answer of Alertmanager that is no success.
type answerError struct {
	code    int
	request string
	answer  string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%s: Alertmanager answers %d: %s", e.request, e.code, e.answer)
}

// IsTocsins reports whether the error of a request about silences is the answer of a Tocsin, which has none.
func IsTocsins(err error) bool {
	answer, ok := errors.AsType[*answerError](err)
	return ok && answer.code == http.StatusNotFound && strings.Contains(answer.answer, "tag:tocsin.dev,")
}

// Describe returns the kind of a failure without anything that changes from one request to the next.
func Describe(err error) string {
	var answer *answerError
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &answer):
		return strings.TrimSpace(fmt.Sprint("HTTP ", answer.code, " ", http.StatusText(answer.code)))
	case errors.Is(err, ErrNoClient):
		return ErrNoClient.Error()
	case errors.Is(err, errNotAlertmanager):
		return errNotAlertmanager.Error()
	case errors.As(err, &name):
		return "the host name is not resolved"
	case errors.As(err, &certificate):
		return "the certificate is not valid"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	default:
		return "the manager's log has the error"
	}
}
