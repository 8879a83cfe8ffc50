package cli

import (
	"io"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// endedStream is the data of a pod that could not be reached.
type endedStream struct{}

func (endedStream) Read([]byte) (int, error)       { return 0, io.EOF }
func (endedStream) Write(data []byte) (int, error) { return len(data), nil }
func (endedStream) Close() error                   { return nil }

// Whether net/http first writes the request or notices the end of the connection is chance; the error is the same.
func TestPodConnTellsReadersAndWritersWhy(t *testing.T) {
	g := NewWithT(t)
	nothing := func() error { return nil }
	connection := newPodConn(endedStream{}, strings.NewReader("nothing listens on the port"), nothing, nothing)
	defer func() { g.Expect(connection.Close()).To(Succeed()) }()

	_, err := connection.Read(make([]byte, 1))
	g.Expect(err).To(MatchError("nothing listens on the port"))
	_, err = connection.Write([]byte("GET /"))
	g.Expect(err).To(MatchError("nothing listens on the port"))
}
