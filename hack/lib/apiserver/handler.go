package apiserver

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
)

// Handler returns the server as an http.Handler, for clients that need a network, such as kubectl or another process. A fault
// breaks the connection.
func (s *Server) Handler(client string, faults Faults) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, Transport: s.Transport(client, faults),
		FlushInterval: -1, // the header and each event of a watch are sent at once
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}
