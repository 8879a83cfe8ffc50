package apiserver

import (
	"errors"
	"io"
	"maps"
	"net/http"
)

// Handler returns the server as an http.Handler, for clients that need a network, such as kubectl or another process. A fault
// breaks the connection.
func (s *Server) Handler(client string, faults Faults) http.Handler {
	transport := s.Transport(client, faults)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		response, err := transport.RoundTrip(q)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = response.Body.Close() }()
		maps.Copy(w.Header(), response.Header)
		w.WriteHeader(response.StatusCode)
		if err := copyFlushing(w, response.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
}

// copyFlushing sends the header and each event of a watch at once.
func copyFlushing(w http.ResponseWriter, body io.Reader) error {
	controller := http.NewResponseController(w)
	buffer := make([]byte, 64<<10)
	if err := controller.Flush(); err != nil {
		return err
	}
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = controller.Flush()
		}
		if err != nil {
			return err
		}
	}
}
