package cli

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// column is a column of a table.
type column struct {
	title string
	cell  func(*v1alpha1.Incident) cell
}

// cell is a sanitized text with a style.
type cell struct {
	text string
	look style
}

// incidentTable prints one Incident per line.
type incidentTable struct {
	columns []column
	widths  []int
	hidden  []bool // does not fit the terminal
	short   map[types.NamespacedName]string
	tableOptions

	screen *screen
	now    func() time.Time
}

// tableOptions select the columns.
type tableOptions struct {
	namespaces bool
	wide       bool
	noHeaders  bool
}

// optionalColumns are hidden on a narrow terminal, in this order.
var optionalColumns = []string{"LAST-SEEN", "COUNT", "OPENED", "ACK", "STATE"}

const (
	columnGap = 3 // as in kubectl

	// Columns are hidden until the titles have titleWidth cells. Then names are cut until titles have minTitleWidth.
	titleWidth    = 24
	minTitleWidth = 10

	// maxShortened is the number of Incidents among which names are shortened at most.
	maxShortened = 5000
)

func newIncidentTable(s *screen, now func() time.Time, o tableOptions) *incidentTable {
	t := &incidentTable{screen: s, now: now, tableOptions: o}
	if o.namespaces {
		t.add("NAMESPACE", func(i *v1alpha1.Incident) cell { return cell{text: i.Namespace} })
	}
	t.add("NAME", func(i *v1alpha1.Incident) cell {
		return cell{text: cmp.Or(t.short[client.ObjectKeyFromObject(i)], i.Name)}
	})
	t.add("STATE", stateCell)
	t.add("SEVERITY", severityCell)
	t.add("ACK", func(i *v1alpha1.Incident) cell { return cell{text: acknowledgedBy(i)} })
	t.add("COUNT", func(i *v1alpha1.Incident) cell { return cell{text: strconv.FormatInt(i.Status.AlertCount, 10)} })
	t.add("OPENED", func(i *v1alpha1.Incident) cell { return cell{text: t.ago(i.Status.OpenedTime)} })
	t.add("LAST-SEEN", func(i *v1alpha1.Incident) cell { return cell{text: t.ago(i.Status.LastAlertTime)} })
	if o.wide {
		t.add("INTEGRATION", func(i *v1alpha1.Incident) cell { return cell{text: i.Spec.IntegrationName} })
		t.add("DEDUP-KEY", func(i *v1alpha1.Incident) cell { return cell{text: safe(i.Spec.DedupKey)} })
		t.add("HOST", func(i *v1alpha1.Incident) cell { return cell{text: safe(i.Status.Alert.Hostname)} })
	}
	t.add("TITLE", func(i *v1alpha1.Incident) cell { return cell{text: safe(i.Status.Alert.Title)} })
	t.reset()
	return t
}

// reset makes the columns as wide as their titles.
func (t *incidentTable) reset() {
	t.widths, t.hidden = make([]int, len(t.columns)), make([]bool, len(t.columns))
	for n, c := range t.columns {
		t.widths[n] = len(c.title)
	}
}

// reserve widens the columns to typical contents, for rows that are printed before all Incidents are known.
func (t *incidentTable) reserve() {
	typical := map[string]int{"STATE": len("Resolved"), "SEVERITY": len("critical"), "NAME": 40, "NAMESPACE": 16}
	for n, c := range t.columns {
		t.widths[n] = max(t.widths[n], typical[c.title])
	}
}

func (t *incidentTable) add(title string, cell func(*v1alpha1.Incident) cell) {
	t.columns = append(t.columns, column{title, cell})
}

// fit widens the columns to the contents of these Incidents.
func (t *incidentTable) fit(incidents []*v1alpha1.Incident) {
	for _, incident := range incidents {
		for n, c := range t.columns {
			t.widths[n] = max(t.widths[n], runewidth.StringWidth(c.cell(incident).text))
		}
	}
	if t.screen.isTerminal() {
		t.squeeze()
	}
}

// shorten makes a table on a terminal print the shortest names that are unambiguous among all. Pipes and wide tables
// have full names, and so has a table of one of very many Incidents: finding the prefixes would take longer than reading the
// names.
func (t *incidentTable) shorten(all []types.NamespacedName) {
	if t.screen.isTerminal() && !t.wide && len(all) <= maxShortened {
		t.short = shortNames(all)
	}
}

// squeeze hides columns and then cuts names until the titles fit on the terminal.
func (t *incidentTable) squeeze() {
	if t.wide {
		return
	}
	title := len(t.columns) - 1
	available := func() int {
		left := t.screen.width
		for n := range t.columns[:title] {
			if !t.hidden[n] {
				left -= t.widths[n] + columnGap
			}
		}
		return left
	}
	for _, name := range optionalColumns {
		if available() >= min(titleWidth, t.widths[title]) {
			return
		}
		at := slices.IndexFunc(t.columns, func(c column) bool { return c.title == name })
		t.hidden[at] = true
	}
	if missing := minTitleWidth - available(); missing > 0 {
		at := slices.IndexFunc(t.columns, func(c column) bool { return c.title == "NAME" })
		t.widths[at] = max(minTitleWidth, t.widths[at]-missing)
	}
}

// header returns the line of column titles.
func (t *incidentTable) header() string {
	cells := make([]cell, 0, len(t.columns))
	for _, c := range t.columns {
		cells = append(cells, cell{c.title, bold})
	}
	return t.line(cells)
}

func (t *incidentTable) printHeader() {
	if !t.noHeaders {
		t.screen.printf("%s\n", t.header())
	}
}

// row returns the line of an Incident.
func (t *incidentTable) row(incident *v1alpha1.Incident) string {
	cells := make([]cell, 0, len(t.columns))
	for _, c := range t.columns {
		content := c.cell(incident)
		if incident.Status.State == v1alpha1.IncidentResolved && content.look == plain {
			content.look = dim
		}
		cells = append(cells, content)
	}
	return t.line(cells)
}

// line joins cells, and cuts the line to the width of the terminal.
func (t *incidentTable) line(cells []cell) string {
	var line strings.Builder
	left := t.screen.width
	for n, c := range cells {
		if t.hidden[n] {
			continue
		}
		text := c.text
		if text == "" {
			text = "-"
		}
		if n < len(cells)-1 {
			text = pad(cut(text, t.widths[n]), t.widths[n]+columnGap)
		}
		if t.screen.isTerminal() {
			text = cut(text, left)
			left -= runewidth.StringWidth(text)
		}
		line.WriteString(t.screen.styled(c.look, text))
		if t.screen.isTerminal() && left <= 0 {
			break
		}
	}
	return strings.TrimRight(line.String(), " ")
}

// print prints the header and the rows.
func (t *incidentTable) print(incidents []*v1alpha1.Incident) {
	t.fit(incidents)
	t.printHeader()
	t.printRows(incidents)
}

// printRows prints rows in columns as wide as they are.
func (t *incidentTable) printRows(incidents []*v1alpha1.Incident) {
	if !t.screen.isTerminal() {
		t.fit(incidents) // a pipe gets whole texts
	}
	for _, incident := range incidents {
		t.screen.printf("%s\n", t.row(incident))
	}
}

func (t *incidentTable) ago(at *v1alpha1.Timestamp) string {
	return ago(at, t.now())
}

// ago returns the age of a time in kubectl's format.
func ago(at *v1alpha1.Timestamp, now time.Time) string {
	if at == nil || at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(at.Time)))
}

// timeOf returns the time of an optional timestamp.
func timeOf(at *v1alpha1.Timestamp) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.Time
}

// acknowledgedBy returns the user who acknowledged an Incident, "yes" if a sender did or the name is not known, or "-".
func acknowledgedBy(incident *v1alpha1.Incident) string {
	const widest = 16
	switch acknowledgement := incident.Status.Acknowledgement; {
	case !isAcknowledged(incident):
		return "-"
	case acknowledgement == nil || acknowledgement.By == "":
		return "yes"
	default:
		return cut(safe(acknowledgement.By), widest)
	}
}

func stateCell(incident *v1alpha1.Incident) cell {
	look := plain
	if incident.Status.State == v1alpha1.IncidentResolved {
		look = green
	}
	state := string(incident.Status.State)
	if isSilenced(incident) {
		state += ",Silenced"
	}
	return cell{state, look}
}

func severityCell(incident *v1alpha1.Incident) cell {
	severity := incident.Status.Alert.Severity
	if incident.Status.State == v1alpha1.IncidentResolved {
		return cell{text: string(severity)}
	}
	return cell{string(severity), severityStyles[severity]}
}
