// Package httpserver makes the HTTP servers of all programs: whoever reaches a port finds the same limits, without a token.
//
// A connection takes about 20 KiB, with TLS more, however its client behaves. The places of the manager's servers are 4,288, so
// at worst connections take about a tenth of the memory that its manifest allows.
package httpserver

import (
	"crypto/tls"
	stdlog "log"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// Limits of every server.
const (
	HeaderTimeout = 5 * time.Second  // from the first byte of a request to the end of its headers
	ReadTimeout   = 10 * time.Second // to the end of its body
	WriteTimeout  = 15 * time.Second // from the end of the headers to the end of the answer
	IdleTimeout   = 60 * time.Second // between two requests of a connection

	// MaxConnections is for the one port that many senders use, and FewConnections for the others.
	MaxConnections = 4096
	FewConnections = 64

	maxHeaderBytes = 16 << 10
	maxFields      = 100
	maxStreams     = 100 // requests at a time on one HTTP/2 connection

	// http2Part is the part of the connections, one in so many, that there are with HTTP/2. Then the fields of HTTP/1.1 are not
	// counted, and take 540 KiB at most.
	http2Part = 16
)

// Options say what differs between servers.
type Options struct {
	Handler     http.Handler
	Log         logr.Logger // gets what net/http says of connections, at level 1
	Connections int         // at a time

	TLS   *tls.Config // nil: plain HTTP
	HTTP2 bool        // over TLS

	// LongAnswers says that answers may take longer than requests, such as streams: ReadTimeout is for bodies only, and
	// WriteTimeout is this. Zero: both are for all of a request.
	LongAnswers time.Duration

	// Anonymous says that a request is nobody's until Busy is called: its connection is not busy, and may be closed for a new one.
	Anonymous bool
}

// Server is an HTTP server.
type Server struct {
	*http.Server
	limiter *connectionLimiter
}

// New makes a server.
func New(o Options) *Server {
	s := &Server{
		Server: &http.Server{
			Handler:           bounded(o),
			Protocols:         &http.Protocols{},
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
			ReadHeaderTimeout: HeaderTimeout,
			ReadTimeout:       ReadTimeout,
			WriteTimeout:      WriteTimeout,
			IdleTimeout:       IdleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          stdlog.New(&errorLog{o.Log}, "", 0),
		},
		limiter: &connectionLimiter{log: o.Log, limit: o.Connections, open: map[*connection]struct{}{}},
	}
	if o.LongAnswers != 0 {
		s.ReadTimeout, s.WriteTimeout = 0, o.LongAnswers
	}
	s.Protocols.SetHTTP1(true)
	switch {
	case o.TLS == nil:
	case o.HTTP2: // net/http has to see the connection of TLS
		s.Protocols.SetHTTP2(true)
		s.TLSConfig, s.limiter.encrypted, s.limiter.limit = o.TLS, true, max(1, o.Connections/http2Part)
	default:
		s.limiter.tls = o.TLS
	}
	s.limiter.attach(s.Server)
	return s
}

// Over returns a listener that serves this server's connections: only for its Serve.
func (s *Server) Over(listener net.Listener) net.Listener {
	s.limiter.Listener = listener
	return s.limiter
}

// Certificate returns the configuration of TLS with tls.crt and tls.key of a folder, and what reads them again when they change.
func Certificate(folder string) (*tls.Config, *certwatcher.CertWatcher, error) {
	watcher, err := certwatcher.New(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	if err != nil {
		return nil, nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate}, watcher, nil
}

// Serve serves until the server is shut down or closed; it hides that of http.Server.
func (s *Server) Serve(listener net.Listener) error {
	if s.limiter.encrypted {
		return s.ServeTLS(s.Over(listener), "", "")
	}
	return s.Server.Serve(s.Over(listener))
}

// errorLog logs net/http's messages about connections. As far as is known they never contain paths or headers, but
// nothing guarantees it.
type errorLog struct{ log logr.Logger }

// secretParts matches the places of a token: behind a route, and in an Authorization header.
var secretParts = regexp.MustCompile(`(?i)(/api/v1/events/webhook/+|(?:bearer|geniekey) +)[^\s"'?/]+`)

func (l *errorLog) Write(line []byte) (int, error) {
	text := secretParts.ReplaceAllString(strings.TrimSpace(string(line)), "${1}{token}")
	l.log.V(1).Info("net/http: " + text)
	return len(line), nil
}
