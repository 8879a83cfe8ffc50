package ui

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// policy is the Content-Security-Policy: it permits the page's own script, style and icon and connections to the server
// only, and prevents text from being parsed as script or markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard rejects requests for other hosts and other methods than GET and HEAD, and sets security headers.
func (s *Server) guard(next http.Handler) http.Handler {
	hosts := []string{fmt.Sprintf("127.0.0.1:%d", s.port), fmt.Sprintf("localhost:%d", s.port)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		switch {
		case !slices.Contains(hosts, r.Host):
			writeError(w, http.StatusMisdirectedRequest, fmt.Errorf("the host must be %s", strings.Join(hosts, " or ")))
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			writeError(w, http.StatusMethodNotAllowed, errors.New("the page is read-only"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// withKey rejects requests without the key.
func (s *Server) withKey(next http.Handler) http.Handler {
	want := []byte("Bearer " + s.key)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, http.StatusUnauthorized, errors.New("open the URL that kubectl tocsin ui has printed"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
