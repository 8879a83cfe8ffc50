// Package alertmanager calls the API v2 of Alertmanager: alerts and silences. It decides nothing.
package alertmanager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/silences"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// RequestTimeout bounds one request.
	RequestTimeout = 10 * time.Second

	// maxAnswerBytes is how much of an answer is read to describe a failure.
	maxAnswerBytes = 512

	// listTimeout, maxListBytes and maxElementBytes bound a list of silences or alerts, which is decoded element by element. The
	// silenced alerts of as many Incidents as there may be fit.
	listTimeout     = 30 * time.Second
	maxListBytes    = 1 << 30
	maxElementBytes = 1 << 20
)

// silenceTimeout bounds a request that changes one silence: others wait for it.
const silenceTimeout = 2 * time.Second

// Client calls one Alertmanager. All calls of one that is nil return ErrNoClient.
type Client struct {
	HTTP *http.Client
	URL  *url.URL // with the prefix of its routes
}

// Close closes connections that are not in use.
func (c *Client) Close() {
	if c != nil {
		c.HTTP.CloseIdleConnections()
	}
}

// PostAlerts posts encoded alerts. date is the time in any answer, cut to seconds; zero if there is none.
func (c *Client) PostAlerts(ctx context.Context, encoded []json.RawMessage, timeout time.Duration) (date time.Time, err error) {
	return c.send(ctx, timeout, http.MethodPost, "alerts", nil, encoded, nil)
}

// Labels calls use with the labels of each alert that fires, is a Tocsin's and has the external labels.
func (c *Client) Labels(ctx context.Context, externalLabels map[string]string, use func(labels map[string]string)) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	query := url.Values{}
	filterTocsins(query, externalLabels)
	return list(ctx, c, "alerts", query, func(alert *struct{ Labels map[string]string }) { use(alert.Labels) })
}

// SilencedAlerts calls use with each alert of a Tocsin that silences match, and the IDs of the silences.
func (c *Client) SilencedAlerts(
	ctx context.Context, externalLabels map[string]string, use func(labels map[string]string, silencedBy []string),
) error {
	query := url.Values{"active": {"false"}, "inhibited": {"false"}, "unprocessed": {"false"}, "silenced": {"true"}}
	filterTocsins(query, externalLabels)
	return list(ctx, c, "alerts", query, func(alert *struct {
		Labels map[string]string
		Status struct{ SilencedBy []string }
	}) {
		use(alert.Labels, alert.Status.SilencedBy)
	})
}

// filterTocsins adds filters for the alerts of Tocsins with the external labels.
func filterTocsins(query url.Values, externalLabels map[string]string) {
	query.Add("filter", alerts.LabelIncident+`!=""`)
	for name, value := range externalLabels {
		query.Add("filter", fmt.Sprintf("%s=%q", name, value))
	}
}

// Silences calls use with each silence.
func (c *Client) Silences(ctx context.Context, use func(*silences.Silence)) error {
	return list(ctx, c, "silences", nil, use)
}

// ChangeSilence creates, updates or ends a silence.
func (c *Client) ChangeSilence(ctx context.Context, call *silences.Call) error {
	if call.Expire == "" || call.Set.ID != "" {
		if _, err := c.send(ctx, silenceTimeout, http.MethodPost, "silences", nil, call.Set, nil); err != nil || call.Expire == "" {
			return err
		}
	}
	_, err := c.send(ctx, silenceTimeout, http.MethodDelete, "silence/"+url.PathEscape(call.Expire), nil, nil, nil)
	return err
}

// list gets a list, and calls use with one element after another. The list takes no memory, however long it is.
func list[T any](ctx context.Context, c *Client, path string, query url.Values, use func(*T)) error {
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

func (r *boundedReader) Read(into []byte) (n int, err error) {
	if r.left <= 0 {
		return 0, errors.New("an element of the list is too large")
	}
	n, err = r.from.Read(into[:min(len(into), r.left)])
	r.left -= n
	return n, err
}

// send sends a request with a JSON body to a path of the API v2, and has the body of the answer read if it is a success, unless
// read is nil. date is the time in any answer, cut to seconds; zero if there is none.
func (c *Client) send(
	ctx context.Context, timeout time.Duration, method, path string, query url.Values, body any, read func(answer io.Reader) error,
) (date time.Time, err error) {
	if c == nil {
		return date, ErrNoClient
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	encoded, err := json.Marshal(body)
	if err != nil {
		return date, fmt.Errorf("encoding the request: %w", err)
	}
	target := c.URL.JoinPath("api", "v2", path)
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(encoded))
	if err != nil {
		return date, fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.HTTP.Do(request)
	if err != nil {
		return date, err
	}
	defer func() { _ = response.Body.Close() }()
	if err := checkSource(response, method); err != nil {
		return date, fmt.Errorf("%s %s: %w", method, path, err)
	}
	date, _ = http.ParseTime(response.Header.Get("Date"))
	code := response.StatusCode
	if code/100 == 2 && read != nil {
		if err := read(response.Body); err != nil {
			return date, fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
		}
		return date, nil
	}
	// Also that of a success, so that the connection is used again.
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	switch {
	case code/100 == 2:
		return date, nil
	case err != nil:
		return date, fmt.Errorf("reading the answer %d to %s %s: %w", code, method, path, err)
	}
	return date, &answerError{code, method + " " + path, plaintext.ShortMessage(string(answer))}
}

// checkSource rejects the answer of something other than Alertmanager, such as the login page to which a proxy redirects. Its
// success would count as delivery, and nobody would be notified: after most redirects, the client repeats a POST as a GET without
// the body.
func checkSource(response *http.Response, method string) error {
	if last := response.Request; last != nil && last.Method != method {
		return fmt.Errorf("redirected to %s %s: %w", last.Method, last.URL.Host, errNotAlertmanager)
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if method != http.MethodGet && response.StatusCode/100 == 2 && kind == "text/html" {
		return fmt.Errorf("the answer is a web page: %w", errNotAlertmanager)
	}
	return nil
}
