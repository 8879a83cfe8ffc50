package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/history"
	"github.com/tocsin-dev/tocsin/internal/records"
)

const (
	outputCSV = "csv"

	historySince = 7 * 24 * time.Hour
)

type historyOptions struct {
	archiveOptions
	output    string
	noHeaders bool
}

func (p *plugin) historyCommand() *cobra.Command {
	o := &historyOptions{archiveOptions: archiveOptions{plugin: p}}
	command := &cobra.Command{
		Use:   "history",
		Short: "List finished episodes of incidents, also of deleted incidents",
		RunE:  func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	o.addFlags(command)
	o.period.addFlags(command, historySince)
	flags := command.Flags()
	wordVar(flags, &o.output, "output", "o", "wide, json or csv",
		"Output format: wide, json (one document per line) or csv. Default: a table.")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "Do not print column titles.")
	return command
}

func (o *historyOptions) run(ctx context.Context) error {
	from, to, err := o.period.bounds(o.now())
	if err != nil {
		return err
	}
	printer, bar, found := o.printer(), o.newProgress(), 0
	o.flush = printer.flush
	query := history.Query{From: from, To: to}
	if o.output != outputJSON {
		query.Reduce = history.Brief
	}
	err = o.read(ctx, query, bar, func(record *records.Record) error {
		bar.clear()
		if found == 0 && !o.noHeaders {
			printer.header()
		}
		found++
		return printer.episode(record)
	})
	if printer.flush != nil {
		printer.flush()
	}
	if err = cmp.Or(err, o.screen.err); err != nil {
		return err
	}
	if found == 0 {
		o.notef("No episodes found.")
	}
	return o.finish()
}

type episodePrinter struct {
	header  func()
	episode func(*records.Record) error
	flush   func() // prints the episodes that wait for others; nil: none does
}

// fittingEpisodes is how many episodes a table on a terminal waits for before it prints them in columns of their widths.
const fittingEpisodes = 50

func (o *historyOptions) printer() episodePrinter {
	switch o.output {
	case outputJSON:
		return episodePrinter{header: func() {}, episode: o.printJSON}
	case outputCSV:
		lines := csv.NewWriter(o.Out)
		write := func(cells []string) error {
			_ = lines.Write(cells)
			lines.Flush()
			return lines.Error()
		}
		return episodePrinter{
			header:  func() { _ = write(csvHeader) }, // printing the first episode returns the error
			episode: func(r *records.Record) error { return write(csvCells(r)) },
		}
	}
	table := o.newTable()
	if !table.isTerminal() {
		return episodePrinter{header: table.printHeader, episode: func(r *records.Record) error {
			table.printRows(r)
			return table.err
		}}
	}
	var first []*records.Record
	printed := false
	flush := func() {
		if printed || len(first) == 0 {
			return
		}
		printed = true
		table.fit(first)
		if len(first) == fittingEpisodes { // a column that is empty so far may have contents later
			table.showAll()
		}
		table.printHeader()
		table.printRows(first...)
	}
	return episodePrinter{header: func() {}, flush: flush, episode: func(r *records.Record) error {
		if printed {
			table.printRows(r)
		} else if first = append(first, r); len(first) == fittingEpisodes {
			flush()
		}
		return table.err
	}}
}

// newTable returns a table. In a pipe, its columns have typical widths, since rows are printed before all are known.
func (o *historyOptions) newTable() *table[*records.Record] {
	const nameWidth, countWidth, keyWidth = 16, 6, 30
	const minute = "2006-01-02 15:04"
	t := &table[*records.Record]{screen: o.screen, wide: o.output == outputWide, noHeaders: o.noHeaders}
	if o.filter.allNamespaces {
		t.add("NAMESPACE", nameWidth, func(r *records.Record) string { return r.Namespace })
	}
	t.add("ENDED", len(minute), func(r *records.Record) string { return r.ResolvedTime.Local().Format(minute) })
	t.add("OPEN", countWidth, humanOpenFor)
	t.addCells("SEVERITY", len("critical"), func(r *records.Record) cell {
		severity := history.Severity(r)
		return cell{safe(string(severity)), severityStyles[severity]}
	})
	if t.wide {
		t.add("ACK", nameWidth, func(r *records.Record) string { return r.AcknowledgedBy })
	} else {
		t.add("ACK", len("yes"), func(r *records.Record) string { return map[bool]string{true: "yes"}[!r.AcknowledgedTime.IsZero()] })
	}
	t.add("COUNT", countWidth, func(r *records.Record) string { return strconv.FormatInt(r.AlertCount, 10) })
	if t.wide {
		t.add("ASSIGNEE", nameWidth, func(r *records.Record) string { return r.Assignee })
		t.add("RESOLVED-BY", nameWidth, func(r *records.Record) string { return cmp.Or(r.ResolvedBy, r.Resolution) })
		t.add("INCIDENT", keyWidth, func(r *records.Record) string { return r.Incident })
		t.add("EPISODE", countWidth, func(r *records.Record) string { return strconv.FormatInt(r.Number, 10) })
		t.add("HOST", nameWidth, func(r *records.Record) string { return r.Alert.Hostname })
		t.add("DEDUP-KEY", keyWidth, func(r *records.Record) string { return r.DedupKey })
	}
	t.add("TITLE", 0, func(r *records.Record) string { return r.Alert.Title })
	if !t.isTerminal() {
		t.reserve()
	}
	return t
}

// printJSON prints an episode as JSON in which characters that control a terminal or its direction of writing are escaped.
func (o *historyOptions) printJSON(r *records.Record) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return err
	}
	text := controlCharacters.ReplaceAllStringFunc(strings.TrimSpace(line.String()), func(character string) string {
		var escaped strings.Builder
		for _, unit := range utf16.Encode([]rune(character)) {
			fmt.Fprintf(&escaped, `\u%04x`, unit)
		}
		return escaped.String()
	})
	_, err := fmt.Fprintln(o.Out, text)
	return err
}

var controlCharacters = regexp.MustCompile(`[\p{Cc}\p{Cf}]`)

var csvHeader = []string{
	"namespace", "integration", "incident", "episode", "severity", "opened", "acknowledged", "acknowledged_by", "resolved",
	"resolved_by", "resolution", "seconds_open", "alerts", "host", "type", "dedup_key", "title", "assignee",
}

// csvCells returns the cells of csvHeader's columns.
func csvCells(r *records.Record) []string {
	at := func(t v1alpha1.Timestamp) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	cells := []string{
		r.Namespace, r.Integration, r.Incident, strconv.FormatInt(r.Number, 10), string(history.Severity(r)), at(r.OpenedTime),
		at(r.AcknowledgedTime), r.AcknowledgedBy, at(r.ResolvedTime), r.ResolvedBy, r.Resolution,
		strconv.FormatInt(int64(openFor(r)/time.Second), 10), strconv.FormatInt(r.AlertCount, 10), r.Alert.Hostname, r.Alert.Type,
		r.DedupKey, r.Alert.Title, r.Assignee,
	}
	for i, text := range cells {
		cells[i] = csvText(text)
	}
	return cells
}

// csvText returns text as a cell that a spreadsheet does not run as a formula: an apostrophe precedes those that begin like
// one (https://owasp.org/www-community/attacks/CSV_Injection).
func csvText(text string) string {
	text = safe(text)
	if first, _ := utf8.DecodeRuneInString(text); strings.ContainsRune("=+-@＝＋－＠", first) {
		return "'" + text
	}
	return text
}

// openFor returns how long the episode was open; 0 if its times are implausible.
func openFor(r *records.Record) time.Duration { return max(0, r.ResolvedTime.Sub(r.OpenedTime.Time)) }

func humanOpenFor(r *records.Record) string {
	if r.OpenedTime.IsZero() || r.ResolvedTime.Before(r.OpenedTime.Time) {
		return "?"
	}
	return duration.HumanDuration(openFor(r))
}
