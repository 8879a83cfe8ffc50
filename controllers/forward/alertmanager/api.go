package alertmanager

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/silences"
)

// silenceTimeout bounds a request that changes one silence: others wait for it.
const silenceTimeout = 2 * time.Second

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
