package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tocsin-dev/tocsin/internal/live"
)

type statusError struct {
	code int
	text string
}

func (e statusError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return statusError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

var (
	errKey     = statusError{http.StatusUnauthorized, "open the URL that kubectl tocsin ui has printed"}
	errNoToken = statusError{http.StatusUnauthorized,
		"no token reached the page: sign in, have the proxy pass Authorization: Bearer, or paste a token"}
	errToken  = statusError{http.StatusUnauthorized, "the header Authorization must be there once, as: Bearer TOKEN"}
	errReject = statusError{http.StatusUnauthorized,
		"the API server rejects the token: it has expired, or is of another cluster"}
	errHeader = statusError{http.StatusForbidden,
		"the header " + pageHeader + " is missing: a proxy removed it, or another site sent the request"}
	errOthers = statusError{http.StatusServiceUnavailable, "other users need the place: you have most tabs open on the page"}

	errTooMany = statusError{http.StatusInsufficientStorage,
		"there are more incidents than the page holds for one user: choose a namespace"}
)

func (s *Server) writeProblem(w http.ResponseWriter, err error) {
	code, text := problemOf(err)
	switch code {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", s.challenge)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, code, map[string]string{"error": text})
}

func problemOf(err error) (code int, text string) {
	var own statusError
	var status apierrors.APIStatus
	if apierrors.IsUnauthorized(err) {
		err = errReject
	}
	switch {
	case errors.As(err, &own):
		code = own.code
	case errors.As(err, &status) && status.Status().Code != 0:
		code = int(status.Status().Code)
	case errors.Is(err, context.DeadlineExceeded):
		code = http.StatusGatewayTimeout
	default:
		code = http.StatusBadGateway
	}
	return code, live.Sentence(err)
}
