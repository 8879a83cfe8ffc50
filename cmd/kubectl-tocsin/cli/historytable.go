package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/history"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

// episodeColumn is a column with a fixed width, since the rows are printed before all are known. Longer cells are cut on a
// terminal.
type episodeColumn struct {
	title string
	width int
	cell  func(*records.Record) cell
}

// episodeTable prints one episode per line.
type episodeTable struct {
	*screen
	columns   []episodeColumn
	noHeaders bool
}

func newEpisodeTable(o *historyOptions) *episodeTable {
	const (
		timeWidth, severityWidth, shortWidth, nameWidth, keyWidth = 16, 8, 6, 16, 30
		minute                                                    = "2006-01-02 15:04"
	)
	t := &episodeTable{screen: o.screen, noHeaders: o.noHeaders}
	add := func(title string, width int, text func(*records.Record) string) {
		t.columns = append(t.columns, episodeColumn{title, width, func(r *records.Record) cell { return cell{text: safe(text(r))} }})
	}
	if o.filter.allNamespaces {
		add("NAMESPACE", nameWidth, func(r *records.Record) string { return r.Namespace })
	}
	add("ENDED", timeWidth, func(r *records.Record) string { return r.ResolvedTime.Local().Format(minute) })
	add("OPEN", shortWidth, humanOpenFor)
	t.columns = append(t.columns, episodeColumn{"SEVERITY", severityWidth, func(r *records.Record) cell {
		severity := history.Severity(r)
		return cell{safe(string(severity)), severityStyles[severity]}
	}})
	wide := o.output == outputWide
	if wide {
		add("ACK", nameWidth, func(r *records.Record) string { return r.AcknowledgedBy })
	} else {
		add("ACK", len("yes"), func(r *records.Record) string {
			return map[bool]string{true: "yes"}[!r.AcknowledgedTime.IsZero()]
		})
	}
	add("COUNT", shortWidth, func(r *records.Record) string { return strconv.FormatInt(r.AlertCount, 10) })
	if wide {
		add("RESOLVED-BY", nameWidth, func(r *records.Record) string {
			if r.ResolvedBy != "" {
				return r.ResolvedBy
			}
			return r.Resolution
		})
		add("INCIDENT", keyWidth, func(r *records.Record) string { return r.Incident })
		add("EPISODE", shortWidth, func(r *records.Record) string { return strconv.FormatInt(r.Number, 10) })
		add("HOST", nameWidth, func(r *records.Record) string { return r.Alert.Hostname })
		add("DEDUP-KEY", keyWidth, func(r *records.Record) string { return r.DedupKey })
	}
	add("TITLE", 0, func(r *records.Record) string { return r.Alert.Title })
	return t
}

func (t *episodeTable) header() {
	if t.noHeaders {
		return
	}
	var cells []cell
	for _, c := range t.columns {
		cells = append(cells, cell{c.title, bold})
	}
	t.line(cells)
}

func (t *episodeTable) print(r *records.Record) error {
	var cells []cell
	for _, c := range t.columns {
		cells = append(cells, c.cell(r))
	}
	t.line(cells)
	return t.err
}

func (t *episodeTable) flush() error { return t.err }

func (t *episodeTable) line(cells []cell) {
	var line strings.Builder
	left := t.width
	for i, c := range cells {
		text, width := c.text, t.columns[i].width
		if text == "" {
			text = "-"
		}
		if t.isTerminal() && width > 0 {
			text = cut(text, width)
		}
		if i < len(cells)-1 {
			text = pad(text, width) + strings.Repeat(" ", columnGap)
		}
		if t.isTerminal() {
			text = cut(text, max(0, left))
			left -= width + columnGap
		}
		line.WriteString(t.styled(c.look, text))
	}
	t.printf("%s\n", strings.TrimRight(line.String(), " "))
}

// harmlessJSON returns a value as JSON in which characters that control a terminal or its direction of writing are escaped.
func harmlessJSON(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	text := bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
	escaped := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if !unicode.In(r, unicode.Cc, unicode.Cf) {
			escaped = utf8.AppendRune(escaped, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			escaped = fmt.Appendf(escaped, `\u%04x`, unit)
		}
	}
	return escaped, nil
}
