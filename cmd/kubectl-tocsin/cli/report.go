package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/history"
	"github.com/tocsin-dev/tocsin/internal/records"
	"github.com/tocsin-dev/tocsin/internal/report"
)

const (
	outputMarkdown = "markdown"
	outputHTML     = "html"

	reportSince = 30 * 24 * time.Hour
	reportTop   = 10

	// textBars and pageBars are the numbers of bars for episodes per day. In a longer period, a bar has several days.
	textBars, pageBars = 31, 92
)

type reportOptions struct {
	archiveOptions
	output string
	top    int
}

func (p *plugin) reportCommand() *cobra.Command {
	o := &reportOptions{archiveOptions: archiveOptions{plugin: p}, output: "text"}
	command := &cobra.Command{
		Use:   "report",
		Short: "Report statistics of finished episodes of incidents",
		RunE:  func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	o.addFlags(command)
	o.period.addFlags(command, reportSince)
	flags := command.Flags()
	wordVar(flags, &o.output, "output", "o", "text, markdown, html or json", "Output format: text, markdown, html or json.")
	flags.IntVar(&o.top, "top", reportTop, "Number of keys and integrations in each list.")
	return command
}

func (o *reportOptions) run(ctx context.Context) error {
	result, err := o.report(ctx)
	if err != nil {
		return err
	}
	if err := o.write(result); err != nil {
		return err
	}
	return o.finish()
}

func (o *reportOptions) report(ctx context.Context) (*report.Report, error) {
	from, to, err := o.period.bounds(o.now())
	if err != nil {
		return nil, err
	}
	if o.top < 1 {
		return nil, fmt.Errorf("--top must be at least 1, not %d", o.top)
	}
	bars := textBars
	if o.output == outputHTML || o.output == outputJSON {
		bars = pageBars
	}
	query := history.Query{From: from, To: to, WithoutContent: true, Reduce: history.Brief}
	builder := report.NewBuilder(from, to, time.Local)
	err = o.read(ctx, query, o.newProgress(), func(record *records.Record) error {
		builder.Add(record)
		return nil
	})
	if err != nil {
		return nil, err
	}
	builder.Warn(o.missing)
	result := builder.Report(o.top, bars)
	result.Scope = o.scope()
	result.Open = o.source.Open
	if o.source.Bucket == nil {
		result.Earlier = o.source.Earlier
	}
	return result, nil
}

func (o *reportOptions) write(result *report.Report) error {
	switch o.output {
	case outputJSON:
		encoder := json.NewEncoder(o.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(result)
	case outputMarkdown:
		return result.Page().WriteMarkdown(o.Out)
	case outputHTML:
		return result.Page().WriteHTML(o.Out)
	}
	const defaultWidth = 80
	width := cmp.Or(o.screen.width, defaultWidth) // of a terminal, if it is one
	return result.Page().WriteText(o.Out, width, func(text string) string { return o.screen.styled(bold, text) })
}

func (o *reportOptions) scope() string {
	text := "All namespaces"
	if o.namespace != "" {
		text = "Namespace " + o.namespace
	}
	for _, part := range []struct {
		name   string
		values []string
	}{
		{"severity", o.filter.Severities}, {"integration", o.filter.Integrations}, {"host", o.hosts},
		{"label", o.filter.labels}, {"text", strings.Fields(o.search)},
	} {
		if len(part.values) > 0 {
			text += ", " + part.name + " " + strings.Join(part.values, " ")
		}
	}
	if o.filter.Unacknowledged {
		text += ", unacknowledged"
	}
	return text + "."
}
