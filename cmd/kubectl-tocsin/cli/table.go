package cli

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// column is one column of a table.
type column struct {
	title string
	cell  func(*v1alpha1.Incident) cell
}

// cell is a text, safe to print, and how it looks.
type cell struct {
	text string
	look style
}

// incidentTable prints Incidents, a line each.
type incidentTable struct {
	columns []column
	widths  []int
	left    []bool // out of a narrow terminal
	short   map[types.NamespacedName]string
	tableOptions

	screen *screen
	now    func() time.Time
}

// tableOptions say which columns there are.
type tableOptions struct {
	namespaces bool
	wide       bool
	noHeaders  bool
}

// expendable are the columns that a narrow terminal does without, the most expendable first.
var expendable = []string{"LAST-SEEN", "COUNT", "OPENED", "ACK", "STATE"}

const (
	columnGap = 3 // as kubectl has it
	// titleRoom is how many cells the titles get at least before columns are left out for them.
	titleRoom = 24
	// leastTitle is how many they get in any case.
	leastTitle = 10
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
	t.widths, t.left = make([]int, len(t.columns)), make([]bool, len(t.columns))
	for n, c := range t.columns {
		t.widths[n] = len(c.title)
	}
}

// reserve makes the columns as wide as what is usually in them, for lines that are printed before all is known.
func (t *incidentTable) reserve() {
	usual := map[string]int{"STATE": len("Resolved"), "SEVERITY": len("critical"), "NAME": 40, "NAMESPACE": 16}
	for n, c := range t.columns {
		t.widths[n] = max(t.widths[n], usual[c.title])
	}
}

func (t *incidentTable) add(title string, cell func(*v1alpha1.Incident) cell) {
	t.columns = append(t.columns, column{title, cell})
}

// fit makes the columns wide enough.
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

// shorten has the table print the shortest names that are clear among all these, where a person reads them:
// programs, and whoever wants it wide, get the whole names.
func (t *incidentTable) shorten(all []types.NamespacedName) {
	if t.screen.isTerminal() && !t.wide {
		t.short = shortNames(all)
	}
}

// squeeze leaves columns out until the titles have room on the terminal, and at last cuts the names.
func (t *incidentTable) squeeze() {
	if t.wide {
		return
	}
	title := len(t.columns) - 1
	room := func() int {
		left := t.screen.width
		for n := range t.columns[:title] {
			if !t.left[n] {
				left -= t.widths[n] + columnGap
			}
		}
		return left
	}
	for _, name := range expendable {
		if room() >= min(titleRoom, t.widths[title]) {
			return
		}
		at := slices.IndexFunc(t.columns, func(c column) bool { return c.title == name })
		t.left[at] = true
	}
	if missing := leastTitle - room(); missing > 0 {
		at := slices.IndexFunc(t.columns, func(c column) bool { return c.title == "NAME" })
		t.widths[at] = max(leastTitle, t.widths[at]-missing)
	}
}

// header is the line of titles.
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

// row is the line of an Incident.
func (t *incidentTable) row(incident *v1alpha1.Incident) string {
	cells := make([]cell, 0, len(t.columns))
	for _, c := range t.columns {
		made := c.cell(incident)
		if incident.Status.State == v1alpha1.IncidentResolved && made.look == plain {
			made.look = dim
		}
		cells = append(cells, made)
	}
	return t.line(cells)
}

// line puts cells side by side, cut to the terminal.
func (t *incidentTable) line(cells []cell) string {
	var line strings.Builder
	left := t.screen.width
	for n, c := range cells {
		if t.left[n] {
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
	for _, incident := range incidents {
		t.screen.printf("%s\n", t.row(incident))
	}
}

func (t *incidentTable) ago(moment *v1alpha1.Timestamp) string {
	return ago(moment, t.now())
}

// ago is how long ago a moment was, as kubectl says it.
func ago(at *v1alpha1.Timestamp, now time.Time) string {
	if at == nil || at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(at.Time)))
}

// moment is the time of a timestamp that may be absent.
func moment(at *v1alpha1.Timestamp) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.Time
}

// acknowledgedBy names the person who acknowledged an Incident, if a person did.
func acknowledgedBy(incident *v1alpha1.Incident) string {
	const widest = 16
	condition := meta.FindStatusCondition(incident.Status.Conditions, v1alpha1.ConditionAcknowledged)
	switch {
	case condition == nil || condition.Status != metav1.ConditionTrue:
		return "-"
	case condition.Reason == v1alpha1.ReasonAcknowledgedByUser:
		if who, _, found := strings.Cut(condition.Message, " acknowledged "); found {
			return cut(safe(who), widest)
		}
	}
	return "yes"
}

func stateCell(incident *v1alpha1.Incident) cell {
	look := plain
	if incident.Status.State == v1alpha1.IncidentResolved {
		look = green
	}
	return cell{string(incident.Status.State), look}
}

func severityCell(incident *v1alpha1.Incident) cell {
	severity := incident.Status.Alert.Severity
	if incident.Status.State == v1alpha1.IncidentResolved {
		return cell{text: string(severity)}
	}
	return cell{string(severity), severityStyles[severity]}
}

// wanted are the Incidents that a filter wants, the most urgent first.
func wanted(items []v1alpha1.Incident, f *filter) []*v1alpha1.Incident {
	var list []*v1alpha1.Incident
	for i := range items {
		if f.wants(&items[i]) {
			list = append(list, &items[i])
		}
	}
	slices.SortFunc(list, byUrgency)
	return list
}
