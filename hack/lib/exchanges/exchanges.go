// Package exchanges keeps what handlers are asked in tests and what they answer, for a suite to check afterwards.
package exchanges

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
)

// Variable names the environment variable with the file that the exchanges are added to. Without it none are kept.
const Variable = "TOCSIN_EXCHANGES"

// Exchange is a request and its answer.
type Exchange struct {
	Method, URL, Host string
	Header            http.Header
	Body              []byte // as far as the handler read it
	Status            int
	AnswerHeader      http.Header
	Answer            []byte
}

// writing is held while an exchange is written.
var writing sync.Mutex

// Serve has the handler answer the request, and keeps both if the environment variable says where.
func Serve(handler http.Handler, w http.ResponseWriter, r *http.Request) {
	path := os.Getenv(Variable)
	if path == "" {
		handler.ServeHTTP(w, r)
		return
	}
	if err := add(path, Observe(handler, w, r)); err != nil {
		panic(err) // there is no exchange too few
	}
}

// Observe has the handler answer the request and returns both.
func Observe(handler http.Handler, w http.ResponseWriter, r *http.Request) Exchange {
	e := Exchange{Method: r.Method, URL: r.URL.String(), Host: r.Host, Header: r.Header.Clone()}
	var body bytes.Buffer
	if r.Body != nil {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, &body), r.Body}
	}
	answer := &answer{ResponseWriter: w}
	handler.ServeHTTP(answer, r)
	e.Body, e.Status, e.AnswerHeader, e.Answer = body.Bytes(), answer.status, w.Header().Clone(), answer.body.Bytes()
	return e
}

// add adds an exchange to a file.
func add(path string, e Exchange) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	writing.Lock()
	defer writing.Unlock()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// Read calls check with each exchange of a file.
func Read(path string, check func(Exchange)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for decoder := json.NewDecoder(bufio.NewReader(file)); ; {
		var e Exchange
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		check(e)
	}
}

// answer keeps a copy of what is answered.
type answer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	a.body.Write(b)
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController and http.MaxBytesReader.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
