package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	promconfig "github.com/prometheus/common/config"

	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// clientName is a label of connection metrics that prometheus/common keeps and Tocsin does not serve.
const clientName = "alertmanager"

// httpClient calls the API v2 of one Alertmanager.
type httpClient struct {
	http *http.Client
	base *url.URL
}

// dialer is that of net.Dialer.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newClient returns a client of the Alertmanager at an address of the target's host. The host stays in the URL, so
// certificates and virtual hosts work. If the address is the host itself, the connection or the proxy resolves it.
func newClient(t *target, address string, dial dialer) (*httpClient, error) {
	host := hostPort(t.url)
	client, err := promconfig.NewClientFromConfig(t.http, clientName,
		promconfig.WithUserAgent("tocsin/"+buildinfo.Read().Version),
		promconfig.WithDialContextFunc(func(ctx context.Context, network, to string) (net.Conn, error) {
			if to == host {
				to = address
			}
			return dial(ctx, network, to)
		}))
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	return &httpClient{http: client, base: t.url}, nil
}

// hostPort returns the host and port of a URL; the port is that of the scheme by default.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// list gets a list, and calls use with one element after another. The list takes no memory, however long it is.
func list[T any](ctx context.Context, c *httpClient, path string, query url.Values, use func(*T)) error {
	_, err := c.send(ctx, listTimeout, http.MethodGet, path, query, nil, func(answer io.Reader) error {
		bounded := &boundedReader{from: io.LimitReader(answer, maxListBytes), left: maxElementBytes}
		decoder := json.NewDecoder(bounded)
		switch start, err := decoder.Token(); {
		case err == nil && start == nil: // null
			return nil
		case err != nil || start != json.Delim('['):
			return errors.Join(errors.New("not a list"), err)
		}
		for decoder.More() {
			bounded.left = maxElementBytes
			var element T
			if err := decoder.Decode(&element); err != nil {
				return err
			}
			use(&element)
		}
		_, err := decoder.Token() // the end; a list that was cut has none
		return err
	})
	return err
}

// boundedReader reads at most left bytes. A decoder keeps what it has read of an element in memory.
type boundedReader struct {
	from io.Reader
	left int
}

// Read implements io.Reader.
func (r *boundedReader) Read(into []byte) (n int, err error) {
	if r.left <= 0 {
		return 0, errors.New("an element of the list is too large")
	}
	n, err = r.from.Read(into[:min(len(into), r.left)])
	r.left -= n
	return n, err
}

// send sends a request with a JSON body to a path of the API v2, and has the body of the answer read if it is a success, unless
// read is nil. told is the time in any answer, cut to seconds; zero if there is none.
func (c *httpClient) send(
	ctx context.Context, timeout time.Duration, method, path string, query url.Values, body any, read func(answer io.Reader) error,
) (told time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	encoded, err := json.Marshal(body)
	if err != nil {
		return told, fmt.Errorf("encoding the request: %w", err)
	}
	target := c.base.JoinPath("api", "v2", path)
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(encoded))
	if err != nil {
		return told, fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return told, err
	}
	defer func() { _ = response.Body.Close() }()
	told, _ = http.ParseTime(response.Header.Get("Date"))
	code := response.StatusCode
	if code/100 == 2 && read != nil {
		if err := read(response.Body); err != nil {
			return told, fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
		}
		return told, nil
	}
	// Also that of a success, so that the connection is used again.
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	switch {
	case code/100 == 2:
		return told, nil
	case err != nil:
		return told, fmt.Errorf("reading the answer %d to %s %s: %w", code, method, path, err)
	}
	return told, &answerError{code, method + " " + path, plaintext.ShortMessage(string(answer))}
}
