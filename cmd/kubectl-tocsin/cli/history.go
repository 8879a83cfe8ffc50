package cli

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/history"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

const (
	outputCSV = "csv"

	historySince = 7 * 24 * time.Hour
)

// historyOptions are the options of "history".
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
		Long: `List the finished episodes of incidents, those that ended last first. An episode is one continuous period in which
an incident is open.

The episodes come from the archive and from the incidents in the cluster; each is listed once. Without an archive,
the episodes of deleted incidents are missing. The command needs read access to the archive, with credentials from
the environment as the tools of its provider use them. -n and -A select among the episodes; who may read an archive
may read those of all namespaces.

The severity of an episode is its highest one. If parts cannot be read, the command prints warnings and the rest, and
exits with 1.`,
		Example: example(`
# List the episodes of the last 7 days in all namespaces
export TOCSIN_ARCHIVE=s3://incidents?region=eu-central-1
kubectl tocsin history -A

# List critical episodes of a host in May
kubectl tocsin history -A --from 2026-05-01 --to 2026-05-31 --severity critical --host db-1

# Find episodes by words and by an alert label
kubectl tocsin history --since 90d --search "disk full" -l team=storage

# Export a year as CSV, or as one JSON document per line
kubectl tocsin history -A --since 365d -o csv >history.csv
kubectl tocsin history -A --since 365d -o json >history.ndjson`),
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	o.addFlags(command)
	o.period.addFlags(command, historySince)
	flags := command.Flags()
	flags.StringVarP(&o.output, "output", "o", "", "Output format: wide, json (one document per line) or csv. Default: a table.")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "Do not print column titles.")
	completeFlags(command, map[string]completions{"output": fixedCompletions(outputWide, outputJSON, outputCSV)})
	return command
}

func (o *historyOptions) run(ctx context.Context) error {
	from, to, err := o.period.bounds(o.now())
	if err != nil {
		return err
	}
	printer, err := o.printer()
	if err != nil {
		return err
	}
	source, namespace, closeSource, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer closeSource()
	query := history.Query{
		From: from, To: to, Filter: history.Filter{Namespace: namespace}, Brief: o.output != outputJSON,
	}
	bar, missing, found := o.newProgress(), 0, 0
	for record, err := range o.episodes(ctx, source, query, bar, &missing) {
		if err != nil {
			return err
		}
		bar.clear()
		if found == 0 {
			printer.header()
		}
		found++
		if err := printer.print(record); err != nil {
			return err
		}
	}
	if err := printer.flush(); err != nil {
		return err
	}
	if found == 0 {
		_, _ = fmt.Fprintln(o.ErrOut, "No episodes found.")
	}
	return o.finish(source, missing)
}

// episodePrinter prints episodes in a format.
type episodePrinter interface {
	header()
	print(*records.Record) error
	flush() error
}

func (o *historyOptions) printer() (episodePrinter, error) {
	switch o.output {
	case "", outputWide:
		return newEpisodeTable(o), nil
	case outputJSON:
		return jsonLines{o.Out}, nil
	case outputCSV:
		return csvLines{csv.NewWriter(o.Out), o.noHeaders}, nil
	}
	return nil, fmt.Errorf("--output must be %s, %s or %s, not %q", outputWide, outputJSON, outputCSV, o.output)
}

// jsonLines prints one document per line.
type jsonLines struct{ out io.Writer }

func (jsonLines) header() {}

func (j jsonLines) print(r *records.Record) error {
	line, err := harmlessJSON(r)
	if err == nil {
		_, err = j.out.Write(append(line, '\n'))
	}
	return err
}

func (jsonLines) flush() error { return nil }

// csvLines prints lines of comma-separated values (RFC 4180).
type csvLines struct {
	*csv.Writer
	noHeaders bool
}

func (c csvLines) header() {
	if !c.noHeaders {
		_ = c.Write([]string{
			"namespace", "integration", "incident", "episode", "severity", "opened", "acknowledged", "acknowledged_by", "resolved",
			"resolved_by", "resolution", "seconds_open", "alerts", "host", "type", "dedup_key", "title",
		}) // Flush returns the error
	}
}

func (c csvLines) print(r *records.Record) error {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	return c.Write([]string{
		csvText(r.Namespace), csvText(r.Integration), csvText(r.Incident), strconv.FormatInt(r.Number, 10),
		csvText(string(history.Severity(r))), at(r.OpenedTime.Time), at(r.AcknowledgedTime.Time), csvText(r.AcknowledgedBy),
		at(r.ResolvedTime.Time), csvText(r.ResolvedBy), csvText(r.Resolution),
		strconv.FormatInt(int64(openFor(r)/time.Second), 10), strconv.FormatInt(r.AlertCount, 10), csvText(r.Alert.Hostname),
		csvText(r.Alert.Type), csvText(r.DedupKey), csvText(r.Alert.Title),
	})
}

func (c csvLines) flush() error {
	c.Flush()
	return c.Error()
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
