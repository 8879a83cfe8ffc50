package report

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Page is a report as all formats show it. Its texts are single lines without control characters, and otherwise as the
// senders wrote them.
type Page struct {
	Title    string    `json:"title"`
	Lead     []string  `json:"lead"`
	Warnings []string  `json:"warnings"`
	Charts   []Chart   `json:"charts"`
	Sections []Section `json:"sections"`
}

// Section is a table with a title.
type Section struct {
	Title   string     `json:"title"`
	Note    string     `json:"note,omitempty"`
	Columns []Column   `json:"columns"`
	Rows    [][]string `json:"rows"`

	// bars are the lengths of a bar behind each row, from 0 to 1; nil if the table has none.
	bars []float64
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
		Charts: []Chart{
			r.perDayChart(),
			r.durationChart(),
		},
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
		s.Rows = append(s.Rows, append([]string{row.Severity, digits(row.Episodes), strconv.FormatFloat(row.PerDay, 'f', 1, 64)},
			append(row.Acknowledge.cells(), row.Resolve.cells()...)...))
	}
	return s
}

func (q Quantiles) cells() []string {
	if q.Count == 0 {
		return []string{"-", "-", "0"}
	}
	return []string{human(q.Median), human(q.P90), digits(int64(q.Count))}
}

func (r *Report) daySection() Section {
	s := Section{Title: "Episodes per day", Columns: []Column{text("DATE"), number("ALL")}}
	if r.DaysPerBar > 1 {
		s.Title = fmt.Sprintf("Episodes per %d days", r.DaysPerBar)
	}
	used := r.usedSeverities()
	for _, i := range used {
		s.Columns = append(s.Columns, number(string(severities[i])))
	}
	most := r.most()
	for _, bar := range r.Bars {
		row := []string{bar.Date, digits(bar.Total)}
		for _, i := range used {
			row = append(row, digits(bar.Counts[i]))
		}
		s.Rows = append(s.Rows, row)
		s.bars = append(s.bars, float64(bar.Total)/float64(most))
	}
	return s
}

// usedSeverities returns the indexes of the severities of the API, and of other ones if they occur.
func (r *Report) usedSeverities() (used []int) {
	for i := range severities {
		if i < len(severities)-1 {
			used = append(used, i)
			continue
		}
		for _, bar := range r.Bars {
			if bar.Counts[i] > 0 {
				return append(used, i)
			}
		}
	}
	return used
}

// most returns the highest total of a bar, or 1.
func (r *Report) most() int64 {
	most := int64(1)
	for _, bar := range r.Bars {
		most = max(most, bar.Total)
	}
	return most
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
		s.Rows = append(s.Rows, []string{bin.Label, digits(int64(bin.Acknowledge)), digits(int64(bin.Resolve))})
		s.bars = append(s.bars, float64(bin.Resolve)/float64(most))
	}
	return s
}

func (r *Report) keySection() Section {
	s := Section{
		Title: "Noisiest keys",
		Note:  r.missedNote(),
		Columns: []Column{
			number("EPISODES"), number("ALERTS"), number("OPEN"), text("INTEGRATION"), text("KEY"), text("TITLE"),
		},
	}
	for _, k := range r.Keys {
		s.Rows = append(s.Rows, append(k.counts(), k.integration(), safe(k.Key), safe(k.Title)))
	}
	return s
}

func (r *Report) integrationSection() Section {
	s := Section{
		Title:   "Noisiest integrations",
		Columns: []Column{number("EPISODES"), number("ALERTS"), number("OPEN"), text("INTEGRATION")},
	}
	for _, k := range r.Integrations {
		s.Rows = append(s.Rows, append(k.counts(), k.integration()))
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
		s.Rows = append(s.Rows, []string{
			digits(k.PeakEpisodes), k.PeakDay, digits(k.Episodes), strconv.Itoa(k.Days), k.integration(), safe(k.Key), safe(k.Title),
		})
	}
	return s
}

func (r *Report) missedNote() string {
	if r.Missed == 0 {
		return ""
	}
	return fmt.Sprintf("There were too many keys to count all: counts may be too low by up to %s.", digits(r.Missed))
}

func (k *Key) counts() []string {
	return []string{digits(k.Episodes), digits(k.Alerts), human(k.Open)}
}

func (k *Key) integration() string { return safe(k.Namespace + "/" + k.Integration) }

func human(d time.Duration) string { return duration.HumanDuration(d) }

func digits(n int64) string { return strconv.FormatInt(n, 10) }

func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return digits(n) + " " + noun + "s"
}

// safe returns text as one line without control characters.
func safe(text string) string { return cmp.Or(v1alpha1.SanitizeLine(text), "-") }
