package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Page is a report as all formats show it. Its texts are single lines without control characters, and otherwise as the
// senders wrote them.
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

// add adds a row.
func (s *Section) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	s.Rows = append(s.Rows, row)
}

// Column is a column of a Section.
type Column struct {
	Name string `json:"name"`
	// Number aligns the column to the right.
	Number bool `json:"number,omitempty"`
}

func text(name string) Column   { return Column{Name: name} }
func number(name string) Column { return Column{Name: name, Number: true} }

// Page returns the report for people.
func (r *Report) Page() *Page {
	const minute = "2006-01-02 15:04"
	p := &Page{
		Title: fmt.Sprintf("Incidents from %s to %s %s", r.From.Format(minute), r.To.Format(minute), r.Zone),
		Lead:  []string{count(r.Episodes, "episode") + " ended in this period."},
		Sections: []Section{
			r.severitySection(), r.keySection(), r.flappingSection(), r.integrationSection(), r.durationSection(), r.daySection(),
		},
	}
	if r.Scope != "" {
		p.Lead = append([]string{safe(r.Scope)}, p.Lead...)
	}
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
	s := Section{
		Title: "Severities",
		Note:  "Median and 90th percentile of the times to acknowledge and to resolve, and the number of episodes that have them.",
		Columns: []Column{
			text("SEVERITY"), number("EPISODES"), number("PER DAY"), number("ACK P50"), number("P90"), number("OF"),
			number("RESOLVE P50"), number("P90"), number("OF"),
		},
	}
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
	s := Section{Title: "Episodes per day", Columns: []Column{text("DATE"), number("ALL")}}
	if r.DaysPerBar > 1 {
		s.Title = fmt.Sprintf("Episodes per %d days", r.DaysPerBar)
	}
	most := int64(1)
	for _, bar := range r.Bars {
		most = max(most, bar.Total)
	}
	severities := r.usedSeverities()
	for _, severity := range severities {
		s.Columns = append(s.Columns, number(string(severity)))
	}
	for _, bar := range r.Bars {
		cells := []any{bar.Date, bar.Total}
		for i := range severities {
			cells = append(cells, bar.Counts[i])
		}
		s.add(cells...)
		s.Bars = append(s.Bars, float64(bar.Total)/float64(most))
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
	s := Section{
		Title:   "Time to acknowledge and to resolve",
		Columns: []Column{text("TIME"), number("ACKNOWLEDGED"), number("RESOLVED")},
	}
	most := 1
	for _, bin := range r.Histogram {
		most = max(most, bin.Resolve)
	}
	for _, bin := range r.Histogram {
		s.add(bin.Label, bin.Acknowledge, bin.Resolve)
		s.Bars = append(s.Bars, float64(bin.Resolve)/float64(most))
	}
	return s
}

func (r *Report) keySection() Section {
	s := Section{
		Title: "Noisiest keys",
		Columns: []Column{
			number("EPISODES"), number("ALERTS"), number("OPEN"), text("INTEGRATION"), text("KEY"), text("TITLE"),
		},
	}
	if r.Missed > 0 {
		s.Note = fmt.Sprintf("There were too many keys to count all: counts may be too low by up to %d.", r.Missed)
	}
	for _, k := range r.Keys {
		s.add(k.Episodes, k.Alerts, duration.HumanDuration(k.Open), k.integration(), safe(k.Key), safe(k.Title))
	}
	return s
}

func (r *Report) integrationSection() Section {
	s := Section{
		Title:   "Noisiest integrations",
		Columns: []Column{number("EPISODES"), number("ALERTS"), number("OPEN"), text("INTEGRATION")},
	}
	for _, k := range r.Integrations {
		s.add(k.Episodes, k.Alerts, duration.HumanDuration(k.Open), k.integration())
	}
	return s
}

func (r *Report) flappingSection() Section {
	s := Section{
		Title: "Flapping keys",
		Note:  fmt.Sprintf("Keys with %d or more episodes in one day, and the day with the most.", flapping),
		Columns: []Column{
			number("MOST"), text("DAY"), number("EPISODES"), number("DAYS"), text("INTEGRATION"), text("KEY"), text("TITLE"),
		},
	}
	for _, k := range r.Flapping {
		s.add(k.PeakEpisodes, k.PeakDay, k.Episodes, k.Days, k.integration(), safe(k.Key), safe(k.Title))
	}
	return s
}

func (k *Key) integration() string { return safe(k.Namespace + "/" + k.Integration) }

func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// safe returns text as one line without control characters.
func safe(text string) string { return cmp.Or(plaintext.SanitizeLine(text), "-") }
