package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Page is a report as all formats show it. Its texts are single lines without control characters, otherwise as they were sent.
type Page struct {
	Title    string    `json:"title"`
	Lead     []string  `json:"lead"`
	Warnings []string  `json:"warnings"`
	Sections []Section `json:"sections"`
}

// Section is a table with a title.
type Section struct {
	Title   string     `json:"title"`
	Note    string     `json:"note,omitempty"`
	Columns []Column   `json:"columns"`
	Rows    [][]string `json:"rows"`

	// Bars are the lengths of a bar behind each row, from 0 to 1; absent if the table has none.
	Bars []float64 `json:"bars,omitempty"`
}

// section returns a Section without rows. The name of a column of numbers begins with #.
func section(title, note string, columns ...string) Section {
	s := Section{Title: title, Note: note}
	for _, name := range columns {
		trimmed := strings.TrimPrefix(name, "#")
		s.Columns = append(s.Columns, Column{Name: trimmed, Number: trimmed != name})
	}
	return s
}

// add adds a row, of which no cell is empty or has more than one line.
func (s *Section) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = safe(fmt.Sprint(cell))
	}
	s.Rows = append(s.Rows, row)
}

// Column is a column of a Section.
type Column struct {
	Name string `json:"name"`
	// Number aligns the column to the right.
	Number bool `json:"number,omitempty"`
}

// Page returns the report for people.
func (r *Report) Page() *Page {
	const minute = "2006-01-02 15:04"
	p := &Page{
		Title: fmt.Sprintf("Incidents from %s to %s %s", r.From.Format(minute), r.To.Format(minute), r.Zone),
		Sections: []Section{
			r.severitySection(), r.keySection(), r.flappingSection(), r.integrationSection(), r.durationSection(), r.daySection(),
		},
	}
	if r.Scope != "" {
		p.Lead = append(p.Lead, safe(r.Scope))
	}
	ended := count(r.Episodes, "episode") + " ended in this period"
	if r.Earlier > 0 {
		ended += fmt.Sprintf("; up to %d more would be known with an archive", r.Earlier)
	}
	p.Lead = append(p.Lead, ended+".")
	if r.Open != nil {
		p.Lead = append(p.Lead, count(int64(*r.Open), "incident")+" open now.")
	}
	if r.Implausible > 0 {
		p.Lead = append(p.Lead, count(r.Implausible, "episode")+" without plausible times: not part of the times to resolve.")
	}
	if r.Omitted > 0 {
		p.Lead = append(p.Lead, count(r.Omitted, "further episode")+" of flapping incidents have no record.")
	}
	for _, warning := range r.Warnings {
		p.Warnings = append(p.Warnings, safe(warning))
	}
	return p
}

func (r *Report) severitySection() Section {
	s := section("Severities",
		"Median and 90th percentile of the times to acknowledge and to resolve, and the number of episodes that have them.",
		"SEVERITY", "#EPISODES", "#PER DAY", "#ACK P50", "#P90", "#OF", "#RESOLVE P50", "#P90", "#OF")
	for _, row := range r.Severities {
		s.add(row.Severity, row.Episodes, fmt.Sprintf("%.1f", row.PerDay), row.Acknowledge.human(row.Acknowledge.Median),
			row.Acknowledge.human(row.Acknowledge.P90), row.Acknowledge.Count, row.Resolve.human(row.Resolve.Median),
			row.Resolve.human(row.Resolve.P90), row.Resolve.Count)
	}
	return s
}

func (q Quantiles) human(d time.Duration) string {
	if q.Count == 0 {
		return "-"
	}
	return duration.HumanDuration(d)
}

func (r *Report) daySection() Section {
	title := "Episodes per day"
	if r.DaysPerBar > 1 {
		title = fmt.Sprintf("Episodes per %d days", r.DaysPerBar)
	}
	columns := []string{"DATE", "#ALL"}
	severities := r.usedSeverities()
	for _, severity := range severities {
		columns = append(columns, "#"+string(severity))
	}
	s := section(title, "", columns...)
	for _, bar := range r.Bars {
		cells := []any{bar.Date, bar.Total}
		for i := range severities {
			cells = append(cells, bar.Counts[i])
		}
		s.add(cells...)
		s.Bars = append(s.Bars, float64(bar.Total))
	}
	return s.scaled()
}

// scaled returns the section with bars relative to the longest one.
func (s Section) scaled() Section {
	longest := max(1, slices.Max(s.Bars))
	for i := range s.Bars {
		s.Bars[i] /= longest
	}
	return s
}

// usedSeverities returns severities, without the last one if there is no unknown severity.
func (r *Report) usedSeverities() []v1alpha1.Severity {
	other := len(severities) - 1
	if slices.ContainsFunc(r.Bars, func(bar Bar) bool { return bar.Counts[other] > 0 }) {
		return severities
	}
	return severities[:other]
}

func (r *Report) durationSection() Section {
	s := section("Time to acknowledge and to resolve", "", "TIME", "#ACKNOWLEDGED", "#RESOLVED")
	for _, bin := range r.Histogram {
		s.add(bin.Label, bin.Acknowledge, bin.Resolve)
		s.Bars = append(s.Bars, float64(bin.Resolve))
	}
	return s.scaled()
}

func (r *Report) keySection() Section {
	s := section("Noisiest keys", "", "#EPISODES", "#ALERTS", "#OPEN", "INTEGRATION", "KEY", "TITLE")
	if r.Missed > 0 {
		s.Note = fmt.Sprintf("There were too many keys to count all: counts may be too low by up to %d.", r.Missed)
	}
	for _, k := range r.Keys {
		s.add(k.Episodes, k.Alerts, duration.HumanDuration(k.Open), k.integration(), k.Key, k.Title)
	}
	return s
}

func (r *Report) integrationSection() Section {
	s := section("Noisiest integrations", "", "#EPISODES", "#ALERTS", "#OPEN", "INTEGRATION")
	for _, k := range r.Integrations {
		s.add(k.Episodes, k.Alerts, duration.HumanDuration(k.Open), k.integration())
	}
	return s
}

func (r *Report) flappingSection() Section {
	s := section("Flapping keys", fmt.Sprintf("Keys with %d or more episodes in one day, and the day with the most.", flapping),
		"#MOST", "DAY", "#EPISODES", "#DAYS", "INTEGRATION", "KEY", "TITLE")
	for _, k := range r.Flapping {
		s.add(k.PeakEpisodes, k.PeakDay, k.Episodes, k.Days, k.integration(), k.Key, k.Title)
	}
	return s
}

func (k *Key) integration() string { return k.Namespace + "/" + k.Integration }

func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// safe returns text as one line without control characters.
func safe(text string) string { return cmp.Or(plaintext.SanitizeLine(text), "-") }
