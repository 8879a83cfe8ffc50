package loadgen

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// sender makes one request after the other on one connection. It does without the goroutines and hand-overs
// of net/http's client: a load that shares its processors with the server must leave them to it.
type sender struct {
	address string
	conn    net.Conn
	reader  *bufio.Reader
	writer  *bufio.Writer
}

// do makes a request and returns the status code and the body of the answer; the code is 0 when none came. The
// request outlives the load's context: one that was begun is waited for.
func (s *sender) do(request *http.Request) (code int, body []byte, err error) {
	if err := s.dial(request.URL.Host); err != nil {
		return 0, nil, err
	}
	keep := false
	defer func() {
		if !keep {
			s.close()
		}
	}()
	if err := s.conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return 0, nil, err
	}
	if err = request.Write(s.writer); err == nil {
		err = s.writer.Flush()
	}
	if err != nil {
		return 0, nil, fmt.Errorf("sending: %w", err)
	}
	response, err := http.ReadResponse(s.reader, request)
	if err != nil {
		return 0, nil, fmt.Errorf("waiting for the answer: %w", err)
	}
	body, err = io.ReadAll(response.Body)
	err = errors.Join(err, response.Body.Close())
	keep = err == nil && !response.Close
	return response.StatusCode, body, err
}

// dial connects, unless there is a connection to the address.
func (s *sender) dial(address string) error {
	if s.conn != nil && s.address == address {
		return nil
	}
	s.close()
	conn, err := net.DialTimeout("tcp", address, requestTimeout) //nolint:gosec // the load goes where it is told to
	if err != nil {
		return err
	}
	s.address, s.conn = address, conn
	s.reader, s.writer = bufio.NewReader(conn), bufio.NewWriter(conn)
	return nil
}

func (s *sender) close() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}
