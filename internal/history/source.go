// Package history reads finished episodes: those of an archive, and those of the Incidents that are still in the cluster.
//
// The archive lacks the episodes of the last minute, those that its store did not accept, and all when there is no archive;
// the cluster lacks those of deleted Incidents. A Source joins both, so each episode appears once.
package history

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/records"
)

// maxRunBytes bounds the memory of the episodes of a day that are sorted together: 40,000, or few of more than 256 KiB each.
const maxRunBytes = 64 << 20

// Source joins an archive and a cluster.
type Source struct {
	// Cluster is nil to read the archive only, or because of ClusterErr, such as a missing kubeconfig.
	Cluster    client.Reader
	ClusterErr error
	// Bucket is that of the archive; nil to read the cluster only.
	Bucket *blob.Bucket

	// Open is how many open Incidents of the cluster the filter selects; nil if not all could be read. Episodes sets it.
	Open *int
	// Earlier is how many ended episodes of the selected Incidents, of whatever time, the cluster does not describe.
	// Episodes sets it.
	Earlier int64
}

// Query selects episodes.
type Query struct {
	// From and To select episodes with a resolvedTime in [From, To).
	From, To time.Time
	Filter   Filter
	// Most is the number of episodes after which the sequence ends; 0 for all. It bounds the memory for those of the cluster.
	Most int
	// Reduce removes from a record what the caller does not need, before it is kept; may be nil.
	Reduce func(*records.Record)
	// WithoutContent reads an archive faster: its records may have no more of the content than the title.
	WithoutContent bool
	// Progress is called after each object of the archive; may be nil.
	Progress func(records.Progress)
}

// NoticeError is an error that does not make the result incomplete.
type NoticeError string

func (n NoticeError) Error() string { return string(n) }

// Episodes returns the selected episodes, those that ended last first. A day of the archive with very many episodes is
// sorted in parts. Errors do not end the sequence, except when ctx ends: episodes are missing unless the error is a NoticeError.
//
// Memory: the selected episodes of the cluster, at most twice Most, and a part of one day of the archive.
func (s *Source) Episodes(ctx context.Context, q Query) iter.Seq2[*records.Record, error] {
	return func(yield func(*records.Record, error) bool) {
		s.Open, s.Earlier = nil, 0
		if s.ClusterErr != nil && !yield(nil, fmt.Errorf("reading the cluster: %w", s.ClusterErr)) {
			return
		}
		m, found := merger{Source: s, Query: &q, known: map[records.Key]bool{}}, 0
		m.yield = func(record *records.Record, err error) bool {
			if ctx.Err() != nil {
				yield(nil, ctx.Err())
				return false
			}
			if err == nil {
				found++
			}
			return yield(record, err) && (q.Most == 0 || found < q.Most)
		}
		if s.Cluster != nil && !m.readCluster(ctx) || s.Bucket != nil && !m.readArchive(ctx) {
			return
		}
		m.flush("")
	}
}

// merger joins the episodes of the cluster with those of the archive, which come by day, the newest first.
type merger struct {
	*Source
	*Query
	yield func(*records.Record, error) bool
	// known are all episodes of the cluster, selected or not.
	known map[records.Key]bool
	// cluster has the selected episodes of the cluster that are not yielded yet, the newest first once all are read.
	cluster []*records.Record
	// run has episodes of one day of the archive.
	run      []*records.Record
	runBytes int
	noticed  bool // a newer schema
	open     int  // Incidents of the cluster that the filter selects
}

func (m *merger) readCluster(ctx context.Context) bool {
	defer func() { slices.SortStableFunc(m.cluster, newestFirst) }()
	for page, err := range live.Pages(ctx, m.Cluster, &v1alpha1.IncidentList{}, client.InNamespace(m.Filter.Namespace),
		client.Limit(live.PageSize)) {
		if err != nil {
			return m.yield(nil, fmt.Errorf("listing the incidents of the cluster: %w", err))
		}
		for i := range page.Items {
			if !m.readIncident(&page.Items[i]) {
				return false
			}
		}
	}
	m.Open = &m.open
	return true
}

func (m *merger) readIncident(incident *v1alpha1.Incident) bool {
	episodes, errs := records.Of(incident)
	for _, err := range errs {
		if !m.yield(nil, fmt.Errorf("incident %s/%s: %w", incident.Namespace, incident.Name, err)) {
			return false
		}
	}
	if m.Filter.MatchesIncident(incident) {
		m.Earlier += undescribed(incident, episodes)
		if incident.Status.State == v1alpha1.IncidentOpen {
			m.open++
		}
	}
	for _, one := range episodes { // a copy: else one that is kept keeps the others of its Incident in memory
		m.known[one.Key()] = true
		if !one.ResolvedTime.Before(m.From) && one.ResolvedTime.Before(m.To) && m.Filter.Matches(&one) {
			m.keep(&one)
		}
	}
	return true
}

// keep adds an episode of the cluster. Of equal ones, those that were read first come first, as without Most.
func (m *merger) keep(record *records.Record) {
	m.reduce(record)
	m.cluster = append(m.cluster, record)
	if m.Most > 0 && len(m.cluster) > 2*m.Most {
		slices.SortStableFunc(m.cluster, newestFirst)
		m.cluster = slices.Delete(m.cluster, m.Most, len(m.cluster))
	}
}

// undescribed returns how many episodes of an Incident ended that none of these records describes or counts.
func undescribed(incident *v1alpha1.Incident, episodes []records.Record) int64 {
	if incident.Status.Episode == nil {
		return 0
	}
	ended := incident.Status.Episode.Number
	if incident.Status.State == v1alpha1.IncidentOpen {
		ended--
	}
	for i := range episodes {
		ended--
		if omitted := episodes[i].Omitted; omitted != nil {
			ended -= omitted.Episodes
		}
	}
	return max(0, ended)
}

func (q *Query) reduce(r *records.Record) {
	if q.Reduce != nil {
		q.Reduce(r)
	}
}

// Brief reduces a record to what a table shows: no timeline, and of the alert's content title, severity, type and hostname.
func Brief(r *records.Record) {
	r.Timeline = nil
	r.Alert = v1alpha1.AlertContent{
		Title: r.Alert.Title, Severity: r.Alert.Severity, Type: r.Alert.Type, Hostname: r.Alert.Hostname,
	}
}

// readArchive reads the archive, and yields the episodes of a day when the next one begins.
func (m *merger) readArchive(ctx context.Context) bool {
	// These look at fields that a record without content does not have.
	needsContent := len(m.Filter.Hosts)+len(m.Filter.Labels)+len(m.Filter.Words) > 0
	query := records.Query{
		From: m.From, To: m.To, WithoutContent: m.WithoutContent && !needsContent, Progress: m.Progress,
	}
	day := ""
	for record, err := range records.All(ctx, m.Bucket, query) {
		switch {
		case err != nil:
			if !m.yield(nil, err) {
				return false
			}
			continue
		case m.known[record.Key()] || !m.Filter.Matches(&record):
			continue
		}
		ends := len(m.run) > 0 && record.Day() != day || m.runBytes > maxRunBytes
		if !m.notice(&record) || ends && !m.flush(day) {
			return false
		}
		m.reduce(&record)
		day = record.Day()
		m.run = append(m.run, &record)
		m.runBytes += size(&record)
	}
	return true
}

// notice yields a NoticeError about the first record of a newer version.
func (m *merger) notice(record *records.Record) bool {
	if record.SchemaVersion <= records.SchemaVersion || m.noticed {
		return true
	}
	m.noticed = true
	return m.yield(nil, NoticeError(fmt.Sprintf(
		"the archive has records of schema version %d, and this plugin knows version %d: update the plugin to see all fields",
		record.SchemaVersion, records.SchemaVersion)))
}

// flush yields the run, whose day it is given, and the episodes of the cluster from that day on; all if day is empty.
func (m *merger) flush(day string) bool {
	end := slices.IndexFunc(m.cluster, func(r *records.Record) bool { return r.Day() < day })
	if end < 0 {
		end = len(m.cluster)
	}
	run := slices.Concat(m.run, m.cluster[:end])
	m.run, m.runBytes, m.cluster = nil, 0, m.cluster[end:]
	slices.SortStableFunc(run, newestFirst)
	for _, record := range run {
		if !m.yield(record, nil) {
			return false
		}
	}
	return true
}

func newestFirst(a, b *records.Record) int {
	return cmp.Or(b.ResolvedTime.Compare(a.ResolvedTime.Time), cmp.Compare(a.Incident, b.Incident))
}

// size estimates the memory of a record, in bytes.
func size(r *records.Record) int {
	const fixed, perEntry, perTransition = 1500, 128, 150 // a map takes more memory than short texts in it
	n := fixed + alertcontent.Size(&r.Alert) + perEntry*alertcontent.Keys(&r.Alert)
	for i := range r.Timeline {
		n += perTransition + len(r.Timeline[i].Message) + len(r.Timeline[i].By) + len(r.Timeline[i].Comment)
	}
	return n
}

// Filter selects episodes. An empty field selects all.
type Filter struct {
	live.Filter

	Namespace string
	Hosts     []string
	// Words must all be contained in the title or another field that the user sees, regardless of case.
	Words []string
}

// Matches reports whether the filter selects an episode.
func (f *Filter) Matches(r *records.Record) bool {
	return f.Selects(r.Integration, Severity(r), r.Assignee, !r.AcknowledgedTime.IsZero(), r.Alert.Labels) && f.matchesPlace(r)
}

// MatchesIncident reports whether the filter selects an Incident as it is now.
func (f *Filter) MatchesIncident(incident *v1alpha1.Incident) bool {
	alert := incident.Status.Alert
	r := records.New(incident, fold.EndedEpisode{Alert: alert, Severity: alert.Severity})
	return f.Filter.Matches(incident) && f.matchesPlace(&r)
}

// matchesPlace reports whether the filter selects the namespace, the host and the texts of an episode.
func (f *Filter) matchesPlace(r *records.Record) bool {
	if f.Namespace != "" && f.Namespace != r.Namespace || len(f.Hosts) > 0 && !slices.Contains(f.Hosts, r.Alert.Hostname) {
		return false
	}
	if len(f.Words) == 0 {
		return true
	}
	texts := []string{
		r.Alert.Title, r.Namespace, r.Incident, r.Integration, r.Alert.Hostname, r.DedupKey, string(Severity(r)), r.Alert.Description,
	}
	for name, value := range r.Alert.Labels {
		texts = append(texts, name+"="+value)
	}
	all := strings.ToLower(strings.Join(texts, "\n"))
	return !slices.ContainsFunc(f.Words, func(word string) bool { return !strings.Contains(all, strings.ToLower(word)) })
}

// Severity returns the highest severity of an episode.
func Severity(r *records.Record) v1alpha1.Severity { return cmp.Or(r.HighestSeverity, r.Severity) }
