package page

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/history"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/records"
	"github.com/tocsin-dev/tocsin/internal/report"
)

const (
	// maxEpisodes bounds the episodes of the history, and episodeChunk those of one message.
	maxEpisodes  = 500
	episodeChunk = 50
	// maxDescription bounds the description of an episode.
	maxDescription   = 2000
	progressInterval = 200 * time.Millisecond
	// maxProblems bounds the messages about problems.
	maxProblems = 20

	reportTop, reportBars = 10, 92
)

// pastMessage is one line of the answer about finished episodes.
type pastMessage struct {
	// Progress is the read part of the archive, from 0 to 1.
	Progress float64           `json:"progress,omitempty"`
	Episodes []*records.Record `json:"episodes,omitempty"`
	Report   *report.Page      `json:"report,omitempty"`
	Problem  string            `json:"problem,omitempty"`
	// Done marks the last message.
	Done bool `json:"done,omitempty"`
	// More means that there are more episodes.
	More bool `json:"more,omitempty"`
	// Archived means that the server reads an archive.
	Archived bool `json:"archived,omitempty"`
}

// pastQuery reads the period and the filters from the query of a URL.
func pastQuery(values url.Values, namespace string) (history.Query, error) {
	const maxDays = 3660
	days, err := strconv.Atoi(values.Get("days"))
	if err != nil || days < 1 || days > maxDays {
		return history.Query{}, badRequest("days must be a number from 1 to %d", maxDays)
	}
	to := time.Now()
	q := history.Query{From: to.AddDate(0, 0, -days), To: to, Filter: history.Filter{
		Namespace: namespace, Words: strings.Fields(values.Get("search")),
	}}
	q.Filter.Unacknowledged = values.Get("unacknowledged") != ""
	if namespace == "" {
		q.Filter.Namespace = values.Get("namespace")
	}
	for name, list := range map[string]*[]string{
		"severity": &q.Filter.Severities, "integration": &q.Filter.Integrations, "host": &q.Filter.Hosts,
	} {
		if value := values.Get(name); value != "" {
			*list = []string{value}
		}
	}
	if label := values.Get("label"); label != "" {
		selector, err := live.ParseLabels(label)
		if err != nil {
			return q, badRequest("label: %s", err)
		}
		q.Filter.Labels = []live.LabelSelector{selector}
	}
	return q, nil
}

type pastStream struct {
	*lines
	source   history.Source
	next     time.Time // of a message about the progress
	problems int
	missing  int // errors because of which episodes are missing
}

func (p *pastStream) progress(read records.Progress) {
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(progressInterval)
		p.send(&pastMessage{Progress: read.Part})
	}
}

// episodes yields the episodes of a query until the browser disconnects, which ends ctx, and sends the problems in reading them.
func (p *pastStream) episodes(ctx context.Context, q history.Query) iter.Seq[*records.Record] {
	q.Progress = p.progress
	return func(yield func(*records.Record) bool) {
		for record, err := range p.source.Episodes(ctx, q) {
			if err == nil {
				if !yield(record) {
					return
				}
				continue
			}
			if p.problems++; p.problems <= maxProblems {
				p.send(&pastMessage{Problem: live.Sentence(err)})
			}
			if !errors.As(err, new(history.NoticeError)) {
				p.missing++
			}
		}
	}
}

// past returns an endpoint of finished episodes, which answers with lines of JSON, of which answer returns the last one.
func (s *Server) past(answer func(*pastStream, context.Context, history.Query) *pastMessage) endpoint {
	return func(w http.ResponseWriter, r *http.Request, who *caller) error {
		q, err := pastQuery(r.URL.Query(), who.namespace)
		if err != nil {
			return err
		}
		if err := verify(r.Context(), who); err != nil {
			return err
		}
		stream := &pastStream{lines: newLines(w), source: history.Source{Cluster: who.client, Bucket: s.Archive}}
		last := answer(stream, r.Context(), q)
		last.Done, last.Archived = true, s.Archive != nil
		stream.send(last)
		return nil
	}
}

func (p *pastStream) history(ctx context.Context, q history.Query) *pastMessage {
	q.Most, q.Reduce = maxEpisodes+1, reduceEpisode
	var chunk []*records.Record
	found := 0
	for record := range p.episodes(ctx, q) {
		if found == maxEpisodes {
			return &pastMessage{Episodes: chunk, More: true}
		}
		found++
		if chunk = append(chunk, record); len(chunk) == episodeChunk {
			p.send(&pastMessage{Episodes: chunk})
			chunk = nil
		}
	}
	return &pastMessage{Episodes: chunk}
}

// reduceEpisode leaves of an episode what the page shows.
func reduceEpisode(r *records.Record) {
	description := firstChars(r.Alert.Description, maxDescription)
	r.Alert = v1alpha1.AlertContent{Title: r.Alert.Title, Hostname: r.Alert.Hostname, Description: description}
}

func (p *pastStream) report(ctx context.Context, q history.Query) *pastMessage {
	q.WithoutContent, q.Reduce = true, history.Brief
	builder := report.NewBuilder(q.From, q.To, time.Local)
	for record := range p.episodes(ctx, q) {
		builder.Add(record)
	}
	builder.Warn(p.missing)
	result := builder.Report(reportTop, reportBars)
	result.Open = p.source.Open
	return &pastMessage{Report: result.Page()}
}

// verify returns an error if the token of one of many users has expired since it was accepted. The answer, in lines, reports all
// other errors. Of a single user, the kubeconfig is the same for all requests, and the archive can be read without the cluster.
func verify(ctx context.Context, who *caller) error {
	if who.key == (watchKey{}) { // the single user
		return nil
	}
	if err := live.Check(ctx, who.client, who.namespace); apierrors.IsUnauthorized(err) {
		return err
	}
	return nil
}
