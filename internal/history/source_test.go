package history

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/records"
)

var begin = time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)

// incidents is a cluster that lists in chunks of two.
type incidents []v1alpha1.Incident

func (incidents) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("no get")
}

func (all incidents) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := &client.ListOptions{}
	o.ApplyOptions(options)
	at := 0
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &at); err != nil {
			return err
		}
	}
	into, ok := list.(*v1alpha1.IncidentList)
	if !ok {
		return fmt.Errorf("not incidents: %T", list)
	}
	const chunk = 2
	end := min(at+chunk, len(all))
	for _, one := range all[at:end] {
		if o.Namespace == "" || o.Namespace == one.Namespace {
			into.Items = append(into.Items, *one.DeepCopy())
		}
	}
	if end < len(all) {
		into.Continue = fmt.Sprint(end)
	}
	return nil
}

// resolved returns an Incident whose last episode ended at a time.
func resolved(namespace, name string, at time.Time) *v1alpha1.Incident {
	opened, ended := v1alpha1.NewTimestamp(at.Add(-time.Minute)), v1alpha1.NewTimestamp(at)
	return &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), ResourceVersion: "7"},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "mon", DedupKey: "key-" + name},
		Status: v1alpha1.IncidentStatus{
			State: v1alpha1.IncidentResolved, OpenedTime: &opened, ResolvedTime: &ended,
			Episode: &v1alpha1.Episode{Number: 1, StartTime: opened, AlertCount: 1},
			Alert:   v1alpha1.AlertContent{Title: "Title of " + name, Severity: v1alpha1.SeverityError},
		},
	}
}

func recordOf(incident *v1alpha1.Incident) records.Record {
	list, _ := records.Of(incident)
	return list[0]
}

func write(g *WithT, b *blob.Bucket, list ...records.Record) {
	byDay := map[string][]records.Record{}
	for i := range list {
		byDay[list[i].Day()] = append(byDay[list[i].Day()], list[i])
	}
	for day, one := range byDay {
		_, _, err := records.Write(context.Background(), b, day, one)
		g.Expect(err).NotTo(HaveOccurred())
	}
}

// name identifies an episode.
func name(r *records.Record) string {
	return fmt.Sprintf("%s/%s#%d", r.Namespace, r.Incident, r.Number)
}

func read(ctx context.Context, s *Source, q Query) (found []string, errs []error) {
	for record, err := range s.Episodes(ctx, q) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, name(record))
	}
	return found, errs
}

// TestEpisodesAgainstAModel mixes the records of two clusters in an archive, and Incidents in a cluster, some in both: each
// selected episode comes once, the newest first.
func TestEpisodesAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		bucket := memblob.OpenBucket(nil)
		defer func() { _ = bucket.Close() }()
		var cluster incidents
		var archived []records.Record
		ends := map[string]time.Time{}
		for i := range rapid.IntRange(0, 12).Draw(t, "episodes") {
			namespace := rapid.SampledFrom([]string{"shop", "web"}).Draw(t, "namespace")
			at := begin.Add(time.Duration(rapid.IntRange(0, 80).Draw(t, "hour"))*time.Hour + time.Duration(i)*time.Second)
			incident := resolved(namespace, fmt.Sprint("i", i), at)
			ends[namespace+"/"+incident.Name+"#1"] = at
			place := rapid.IntRange(0, 3).Draw(t, "place")
			if place != 1 {
				archived = append(archived, recordOf(incident))
			}
			switch place {
			case 1, 2:
				cluster = append(cluster, *incident)
			case 3: // another cluster has one with the same names
				other := incident.DeepCopy()
				other.UID = "other"
				other.Status.Episode.Number = 2
				archived = append(archived, recordOf(other))
				ends[namespace+"/"+incident.Name+"#2"] = at
			}
		}
		write(g, bucket, archived...)
		from := begin.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "from")) * time.Hour)
		to := from.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "length")) * time.Hour)
		namespace := rapid.SampledFrom([]string{"", "shop"}).Draw(t, "selected")
		var want []string
		for one, at := range ends {
			if !at.Before(from) && at.Before(to) && strings.HasPrefix(one, namespace) {
				want = append(want, one)
			}
		}
		found, errs := read(t.Context(), &Source{Cluster: cluster, Bucket: bucket},
			Query{From: from, To: to, Filter: Filter{Namespace: namespace}})
		g.Expect(errs).To(BeEmpty())
		g.Expect(found).To(ConsistOf(want))
		g.Expect(slices.IsSortedFunc(found, func(a, b string) int { return ends[b].Compare(ends[a]) })).To(BeTrue(), "%v", found)

		most := rapid.IntRange(1, 6).Draw(t, "most")
		limited, _ := read(t.Context(), &Source{Cluster: cluster, Bucket: bucket},
			Query{From: from, To: to, Most: most, Filter: Filter{Namespace: namespace}})
		g.Expect(limited).To(HaveExactElements(found[:min(most, len(found))]))
	})
}

func TestFilter(t *testing.T) {
	labels := func(text string) []live.LabelSelector {
		selector, err := live.ParseLabels(text)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return []live.LabelSelector{selector}
	}
	record := recordOf(resolved("shop", "disk", begin))
	record.HighestSeverity, record.Severity, record.Alert.Hostname = "critical", "warning", "db-1"
	record.Alert.Labels, record.Assignee = map[string]string{"team": "storage"}, "maria"
	for sentence, test := range map[string]struct {
		filter Filter
		want   bool
	}{
		"an empty filter selects all":              {Filter{}, true},
		"the highest severity counts":              {Filter{Filter: live.Filter{Severities: []string{"critical"}}}, true},
		"not the last one":                         {Filter{Filter: live.Filter{Severities: []string{"warning"}}}, false},
		"an integration":                           {Filter{Filter: live.Filter{Integrations: []string{"other", "mon"}}}, true},
		"another integration":                      {Filter{Filter: live.Filter{Integrations: []string{"other"}}}, false},
		"a host":                                   {Filter{Hosts: []string{"db-1"}}, true},
		"another host":                             {Filter{Hosts: []string{"db-2"}}, false},
		"a label":                                  {Filter{Filter: live.Filter{Labels: labels("team=storage")}}, true},
		"another label":                            {Filter{Filter: live.Filter{Labels: labels("team=storage,mount=/")}}, false},
		"words of several fields, in any case":     {Filter{Words: []string{"TITLE", "db-1", "team=STOR"}}, true},
		"a word that is nowhere":                   {Filter{Words: []string{"title", "nowhere"}}, false},
		"an episode that nobody acknowledged":      {Filter{Filter: live.Filter{Unacknowledged: true}}, true},
		"one of a person":                          {Filter{Filter: live.Filter{Assignees: []string{"alex", "maria"}}}, true},
		"one of somebody else":                     {Filter{Filter: live.Filter{Assignees: []string{"mari"}}}, false},
		"one of nobody":                            {Filter{Filter: live.Filter{Unassigned: true}}, false},
		"another namespace, of an archive of many": {Filter{Namespace: "web"}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			NewWithT(t).Expect(test.filter.Matches(&record)).To(Equal(test.want))
		})
	}
	record.Assignee = ""
	NewWithT(t).Expect((&Filter{Filter: live.Filter{Unassigned: true}}).Matches(&record)).To(BeTrue())
	record.AcknowledgedTime = v1alpha1.NewTimestamp(begin)
	NewWithT(t).Expect((&Filter{Filter: live.Filter{Unacknowledged: true}}).Matches(&record)).To(BeFalse())
}

func TestProblemsDoNotHideTheRest(t *testing.T) {
	g := NewWithT(t)
	bucket := memblob.OpenBucket(nil)
	defer func() { _ = bucket.Close() }()
	newer := recordOf(resolved("shop", "newer", begin.Add(time.Hour)))
	newer.SchemaVersion = records.SchemaVersion + 1
	write(g, bucket, newer, recordOf(resolved("shop", "good", begin.Add(30*time.Hour))))
	g.Expect(bucket.WriteAll(t.Context(), "v1/day=2026-05-05/bad.ndjson.gz", []byte("no gzip"), nil)).To(Succeed())
	g.Expect(bucket.WriteAll(t.Context(), "v1/day=2026-05-01/outside.ndjson.gz", []byte("no gzip"), nil)).To(Succeed())
	query := Query{From: begin, To: begin.AddDate(0, 0, 3)}
	denied := errors.New("denied")

	found, errs := read(t.Context(), &Source{ClusterErr: denied, Bucket: bucket}, query)
	g.Expect(found).To(Equal([]string{"shop/good#1", "shop/newer#1"}))
	g.Expect(errs).To(ConsistOf(
		MatchError(denied), MatchError(ContainSubstring("bad.ndjson.gz")), MatchError(ContainSubstring("schema version 2"))))
	g.Expect(errors.As(errs[len(errs)-1], new(NoticeError))).To(BeTrue())

	// The end of the context ends the sequence, with its error only.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found, errs = read(ctx, &Source{Cluster: incidents{}, Bucket: bucket}, query)
	g.Expect(found).To(BeEmpty())
	g.Expect(errs).To(ConsistOf(MatchError(context.Canceled)))
}

func TestOpenIncidentsAreCountedAndNotListed(t *testing.T) {
	g := NewWithT(t)
	open := resolved("shop", "open", begin.Add(time.Hour))
	open.Status.State, open.Status.ResolvedTime = v1alpha1.IncidentOpen, nil
	query := Query{From: begin, To: begin.AddDate(0, 0, 1), Filter: Filter{Filter: live.Filter{Severities: []string{"error"}}}}
	source := &Source{Cluster: incidents{*open}}
	found, errs := read(t.Context(), source, query)
	g.Expect(found).To(BeEmpty())
	g.Expect(errs).To(BeEmpty())
	g.Expect(source.Open).To(HaveValue(Equal(1)))
	query.Filter.Severities = []string{"info"}
	_, _ = read(t.Context(), source, query)
	g.Expect(source.Open).To(HaveValue(Equal(0)))
}

func TestASecondReadCountsAnew(t *testing.T) {
	g := NewWithT(t)
	incident := resolved("shop", "flapping", begin.Add(time.Hour))
	incident.Status.Episode.Number = 3
	source := &Source{Cluster: incidents{*incident}}
	for range 2 {
		_, errs := read(t.Context(), source, Query{From: begin, To: begin.AddDate(0, 0, 1)})
		g.Expect(errs).To(BeEmpty())
		g.Expect(source.Earlier).To(BeEquivalentTo(2))
	}
}

// Who may not list has no number of open Incidents, rather than none.
func TestOpenIncidentsOfAClusterThatCannotBeReadAreNotCounted(t *testing.T) {
	g := NewWithT(t)
	source := &Source{Cluster: denying{}}
	_, errs := read(t.Context(), source, Query{From: begin, To: begin.AddDate(0, 0, 1)})
	g.Expect(source.Open).To(BeNil())
	g.Expect(errs).To(ConsistOf(MatchError(ContainSubstring("denied"))))
}

// denying is a cluster that nobody may read.
type denying struct{ incidents }

func (denying) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("denied")
}

// TestManyLargeRecordsTakeBoundedMemory reads a day of records as large as an Incident can be, with very many labels.
func TestManyLargeRecordsTakeBoundedMemory(t *testing.T) {
	const count, labels, mebibyte = 150, 12_000, 1 << 20
	incident := resolved("shop", "large", begin)
	incident.Status.Alert.Labels = map[string]string{}
	for i := range labels {
		incident.Status.Alert.Labels[fmt.Sprintf("l%d", i)] = "v"
	}
	list := make([]records.Record, count)
	for i := range list {
		list[i] = recordOf(incident)
		list[i].UID = fmt.Sprint(i)
	}
	g := NewWithT(t)
	bucket := memblob.OpenBucket(nil)
	defer func() { _ = bucket.Close() }()
	write(g, bucket, list...)
	heap := func() int {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc)
	}
	for sentence, test := range map[string]struct {
		brief bool
		limit int
	}{
		"whole records are held in parts": {false, maxRunBytes + 16*mebibyte},
		"a table needs little of each":    {true, 16 * mebibyte},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, before, most, found := NewWithT(t), heap(), 0, 0
			query := Query{From: begin, To: begin.Add(time.Hour)}
			if test.brief {
				query.Reduce = Brief
			}
			for record, err := range (&Source{Bucket: bucket}).Episodes(t.Context(), query) {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(record.Alert.Title).To(Equal("Title of large"))
				if found%15 == 0 {
					most = max(most, heap()-before)
				}
				found++
			}
			g.Expect(found).To(Equal(count))
			g.Expect(most).To(BeNumerically("<", test.limit))
		})
	}
}

// generated is a cluster of Incidents that are made when they are listed, each one resolved a minute later than the one before.
type generated struct {
	client.Reader
	count, chunk int
	annotation   string
	listed       func()
}

func (c *generated) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	c.listed()
	at, _ := strconv.Atoi(o.Continue)
	into := list.(*v1alpha1.IncidentList)
	for ; at < c.count && len(into.Items) < c.chunk; at++ {
		incident := resolved("shop", fmt.Sprint("i", at), begin.Add(time.Duration(at)*time.Minute))
		incident.Status.Alert.Annotations = map[string]string{"text": c.annotation}
		incident.Status.Timeline = []v1alpha1.Transition{{Type: v1alpha1.TransitionResolved, Message: "Resolved"}}
		into.Items = append(into.Items, *incident)
	}
	if at < c.count {
		into.Continue = fmt.Sprint(at)
	}
	return nil
}

// However many Incidents there are, and whatever is in them, little is kept of those that the caller does not ask for.
func TestManyLargeIncidentsTakeBoundedMemory(t *testing.T) {
	g := NewWithT(t)
	const count, most, kibibyte = 4000, 100, 1 << 10
	query := Query{From: begin, To: begin.AddDate(0, 0, 30), Most: most, Reduce: Brief}
	m := &merger{Source: &Source{}, Query: &query, known: map[records.Key]bool{}}
	m.yield = func(_ *records.Record, err error) bool { return err == nil }
	highest := 0
	kept := func() {
		bytes := 0
		for _, record := range m.cluster[:cap(m.cluster)] {
			if record != nil {
				bytes += size(record)
			}
		}
		highest = max(highest, bytes)
	}
	c := &generated{count: count, chunk: 90, annotation: strings.Repeat("x", 100*kibibyte), listed: kept}
	m.Cluster = c
	g.Expect(m.readCluster(t.Context())).To(BeTrue())
	kept()
	g.Expect(highest).To(And(BeNumerically(">", most*kibibyte), BeNumerically("<", 2*(most+1)*2*kibibyte)))

	found, errs := read(t.Context(), &Source{Cluster: c}, query)
	g.Expect(errs).To(BeEmpty())
	g.Expect(found).To(HaveLen(most))
	g.Expect(found[0]).To(Equal("shop/i3999#1"), "the newest")
	g.Expect(found[most-1]).To(Equal("shop/i3900#1"))
}

func TestUndescribedEpisodesAreCounted(t *testing.T) {
	for sentence, test := range map[string]struct {
		state    v1alpha1.IncidentState
		number   int64
		episodes []records.Record
		want     int64
	}{
		"the seventh episode is resolved and described": {v1alpha1.IncidentResolved, 7, make([]records.Record, 1), 6},
		"the seventh episode is open":                   {v1alpha1.IncidentOpen, 7, nil, 6},
		"the first episode is open":                     {v1alpha1.IncidentOpen, 1, nil, 0},
		"others wait for the archive":                   {v1alpha1.IncidentOpen, 4, make([]records.Record, 3), 0},
		"one counts those without a record": {v1alpha1.IncidentOpen, 9, []records.Record{{
			EndedEpisode: fold.EndedEpisode{Omitted: &fold.OmittedEpisodes{Episodes: 5}}}}, 2},
		"there are more records than episodes": {v1alpha1.IncidentOpen, 1, make([]records.Record, 3), 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			incident := &v1alpha1.Incident{}
			incident.Status.State, incident.Status.Episode = test.state, &v1alpha1.Episode{Number: test.number}
			NewWithT(t).Expect(undescribed(incident, test.episodes)).To(Equal(test.want))
		})
	}
}
