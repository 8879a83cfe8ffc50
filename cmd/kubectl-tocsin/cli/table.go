package cli

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/live"
)

const (
	columnGap = 3 // as in kubectl

	// A narrow terminal hides lesser columns and abbreviates names to minNameWidth until the titles have titleWidth cells, and
	// hides others until they have minTitleWidth.
	titleWidth    = 24
	minTitleWidth = 16
	minNameWidth  = 12

	maxUserWidth = 16 // of the name of a user

	ellipsis  = "…"
	nameTitle = "NAME"

	// hashChars is the number of characters that a short name has of the hash at the end of a name. They have 30 bits: for 1000
	// Incidents of an integration, the probability that two have the same short name is 1 in 2000.
	hashChars = 6
)

// cell is a sanitized text with a style.
type cell struct {
	text string
	look style
}

type column[T any] struct {
	title   string
	typical int // width, for rows that are printed before all are known
	cell    func(T) cell
	width   int
	hidden  bool // does not fit the terminal
}

// table prints one T per line.
type table[T any] struct {
	*screen
	columns   []column[T]
	noHeaders bool
	wide      bool // has all columns; a terminal wraps its lines
	framed    bool // also one that is wide has lines that fit the terminal
}

// add adds a column of texts, and addCells one of sanitized texts with styles. They are as wide as their titles.
func (t *table[T]) add(title string, typical int, text func(T) string) {
	t.addCells(title, typical, func(item T) cell { return cell{text: safe(text(item))} })
}

func (t *table[T]) addCells(title string, typical int, cells func(T) cell) {
	t.columns = append(t.columns, column[T]{title: title, typical: typical, cell: cells, width: len(title)})
}

// reserve widens the columns to typical contents.
func (t *table[T]) reserve() {
	for n, c := range t.columns {
		t.columns[n].width = max(c.width, c.typical)
	}
}

// fit widens the columns to the contents of these items. A terminal shows no columns without contents.
func (t *table[T]) fit(items []T) {
	for n := range t.columns {
		c := &t.columns[n]
		widest := 0
		for _, item := range items {
			widest = max(widest, runewidth.StringWidth(c.cell(item).text))
		}
		c.width = max(c.width, widest)
		c.hidden = t.isTerminal() && !t.wide && len(items) > 0 && widest == 0
	}
	if t.isTerminal() && !t.wide {
		t.squeeze()
	}
}

// showAll shows the columns without contents, too.
func (t *table[T]) showAll() {
	for n := range t.columns {
		t.columns[n].hidden = false
	}
	if t.isTerminal() && !t.wide {
		t.squeeze()
	}
}

// squeeze hides columns and abbreviates names until the last column, the titles, fits on the terminal. Who is at it and since
// when matters more than the name of the integration, and whether people are told more than all of it.
func (t *table[T]) squeeze() {
	t.hide(titleWidth, "HOST", "LAST-SEEN", "COUNT")
	if at, missing := t.index(nameTitle), t.missing(titleWidth); at >= 0 && missing > 0 {
		name := &t.columns[at]
		name.width = max(min(minNameWidth, name.width), name.width-missing)
	}
	t.hide(minTitleWidth, "OPENED", "ASSIGNEE", "ACK")
}

// missing returns how many cells the last column lacks for its contents, or for this width if that is less.
func (t *table[T]) missing(width int) int {
	last := len(t.columns) - 1
	missing := min(width, t.columns[last].width) - t.width
	for _, c := range t.columns[:last] {
		if !c.hidden {
			missing += c.width + columnGap
		}
	}
	return missing
}

// hide hides columns in this order until the last one is as wide.
func (t *table[T]) hide(width int, titles ...string) {
	for _, title := range titles {
		if at := t.index(title); at >= 0 && t.missing(width) > 0 {
			t.columns[at].hidden = true
		}
	}
}

func (t *table[T]) index(title string) int {
	return slices.IndexFunc(t.columns, func(c column[T]) bool { return c.title == title })
}

// abbreviate cuts the middle of a name, since its end identifies it.
func abbreviate(name string, cells int) string {
	if runewidth.StringWidth(name) <= cells {
		return name
	}
	const end = 1 + hashChars
	return runewidth.Truncate(name, cells-1-end, "") + ellipsis + name[len(name)-end:]
}

func (t *table[T]) header() string {
	return t.line(func(c column[T]) cell { return cell{c.title, bold} })
}

func (t *table[T]) row(item T) string {
	return t.line(func(c column[T]) cell { return c.cell(item) })
}

// line joins the cells of the columns, and cuts the line to the width of the terminal.
func (t *table[T]) line(of func(column[T]) cell) string {
	var line strings.Builder
	cuts, left := t.isTerminal() && (t.framed || !t.wide), t.width
	for n, c := range t.columns {
		if c.hidden || cuts && left <= 0 {
			continue
		}
		one := of(c)
		text := cmp.Or(one.text, "-")
		if n < len(t.columns)-1 {
			if c.title == nameTitle {
				text = abbreviate(text, c.width)
			}
			text = runewidth.FillRight(cut(text, c.width), c.width+columnGap)
		}
		if cuts {
			text = cut(text, left)
			left -= runewidth.StringWidth(text)
		}
		line.WriteString(t.styled(one.look, text))
	}
	return strings.TrimRight(line.String(), " ")
}

// print prints a whole table.
func (t *table[T]) print(items []T) error {
	t.fit(items)
	t.printHeader()
	t.printRows(items...)
	return t.err
}

func (t *table[T]) printHeader() {
	if !t.noHeaders {
		t.printf("%s\n", t.header())
	}
}

// printRows prints rows in columns as wide as they are. A pipe gets whole texts.
func (t *table[T]) printRows(items ...T) {
	if !t.isTerminal() {
		t.fit(items)
	}
	for _, item := range items {
		t.printf("%s\n", t.row(item))
	}
}

func (o *getOptions) newTable() *table[*v1alpha1.Incident] {
	t := &table[*v1alpha1.Incident]{
		screen: o.screen, wide: *o.output.OutputFormat == outputWide, noHeaders: o.output.noHeaders,
	}
	if o.filter.allNamespaces {
		t.add("NAMESPACE", 16, func(i *v1alpha1.Incident) string { return i.Namespace })
	}
	t.add(nameTitle, 40, func(i *v1alpha1.Incident) string {
		if t.isTerminal() && !t.wide {
			return shortName(i.Name)
		}
		return i.Name
	})
	t.addCells("STATE", len("Resolved"), stateCell)
	t.addCells("SEVERITY", len("critical"), severityCell)
	t.add("ACK", 0, acknowledgedBy)
	t.add("COUNT", 0, func(i *v1alpha1.Incident) string { return strconv.FormatInt(i.Status.AlertCount, 10) })
	t.add("OPENED", 0, func(i *v1alpha1.Incident) string { return ago(i.Status.OpenedTime, o.now()) })
	t.add("LAST-SEEN", 0, func(i *v1alpha1.Incident) string { return ago(i.Status.LastAlertTime, o.now()) })
	t.add("ASSIGNEE", 0, func(i *v1alpha1.Incident) string { return cut(safe(fold.AssigneeOf(&i.Status)), maxUserWidth) })
	if t.wide {
		t.add("INTEGRATION", 0, func(i *v1alpha1.Incident) string { return i.Spec.IntegrationName })
		t.add("DEDUP-KEY", 0, func(i *v1alpha1.Incident) string { return i.Spec.DedupKey })
	}
	t.add("HOST", 0, func(i *v1alpha1.Incident) string { return i.Status.Alert.Hostname })
	t.add("TITLE", 0, func(i *v1alpha1.Incident) string { return i.Status.Alert.Title })
	for n, c := range t.columns {
		t.columns[n].cell = func(i *v1alpha1.Incident) cell {
			content := c.cell(i)
			if i.Status.State == v1alpha1.IncidentResolved && content.look == plain {
				content.look = dim
			}
			return content
		}
	}
	return t
}

// shortName returns a prefix of the name of an Incident: the name of its integration and the beginning of the hash.
func shortName(name string) string {
	return name[:min(len(name), strings.LastIndex(name, "-")+1+hashChars)]
}

// ago returns the age of a time in kubectl's format.
func ago(at *v1alpha1.Timestamp, now time.Time) string {
	if at == nil || at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(at.Time)))
}

// acknowledgedBy returns the user who acknowledged an Incident, "yes" if a sender did or the name is not known, or "-".
func acknowledgedBy(incident *v1alpha1.Incident) string {
	switch acknowledgement := incident.Status.Acknowledgement; {
	case !live.IsAcknowledged(incident):
		return "-"
	case acknowledgement == nil || acknowledgement.By == "":
		return "yes"
	default:
		return cut(safe(acknowledgement.By), maxUserWidth)
	}
}

func stateCell(incident *v1alpha1.Incident) cell {
	state, look := string(incident.Status.State), plain
	if incident.Status.State == v1alpha1.IncidentResolved {
		look = green
	}
	untold := live.Untold(incident)
	if untold != "" {
		state += "," + string(untold)
	}
	if untold == v1alpha1.ForwardingFailing {
		look = boldRed
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
