package testenv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Send sends a request with a JSON body, or none, and returns the status code and the body of the answer.
func Send(ctx context.Context, method, url, body string) (code int, answer string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	read, err := io.ReadAll(response.Body)
	return response.StatusCode, string(read), errors.Join(err, response.Body.Close())
}

// httpClient takes the certificates that API servers have signed themselves.
var httpClient = &http.Client{Transport: &http.Transport{
	Proxy:           http.ProxyFromEnvironment,
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // of the tests' own servers
}}

// Call sends a request with a JSON body, or none, and returns the body of the answer, if it is a success.
func Call(ctx context.Context, method, url, body string) (string, error) {
	code, answer, err := Send(ctx, method, url, body)
	if err == nil && code/100 != 2 {
		err = fmt.Errorf("%s %s: %d %.300s", method, url, code, answer)
	}
	return answer, err
}

// Metric returns the sum of the series at a URL that match a regular expression, and how many they are.
func Metric(ctx context.Context, url, series string) (sum float64, count int, err error) {
	ctx, cancel := context.WithTimeout(ctx, metricTimeout)
	defer cancel()
	text, err := Call(ctx, http.MethodGet, url, "")
	if err != nil {
		return 0, 0, err
	}
	for _, match := range regexp.MustCompile(`(?m)^`+series+` (\S+)$`).FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			return 0, 0, fmt.Errorf("reading %s: %w", series, err)
		}
		sum, count = sum+value, count+1
	}
	return sum, count, nil
}

// metricTimeout is how long a program may take to answer with its metrics, or whether it is ready.
const metricTimeout = 4 * time.Second

// Leads is the series, as for Metric, that is 1 of the manager that holds the lease.
const Leads = `leader_election_master_status\{[^}]*\}`

// Leader waits until one of the managers leads and returns its number.
func Leader(ctx context.Context, timeout time.Duration, managers []*Manager) (int, error) {
	at := -1
	return at, AwaitThat(ctx, timeout, "no manager leads", func(ctx context.Context) bool {
		for i, m := range managers {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			leading, _, err := Metric(ctx, m.MetricsURL, Leads)
			cancel()
			if err == nil && leading == 1 {
				at = i
				return true
			}
		}
		return false
	})
}
