package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/prometheus/common/model"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/mcp"
	"github.com/tocsin-dev/tocsin/internal/history"
	"github.com/tocsin-dev/tocsin/internal/records"
	"github.com/tocsin-dev/tocsin/internal/report"
)

// past returns the options of a command that reads finished episodes, by default of a usual period.
func (m *mcpCommands) past(said io.Writer, p *mcp.Past, usual time.Duration) (o archiveOptions, err error) {
	c, f, err := m.selected(&p.Selection)
	if err != nil {
		return o, err
	}
	o = archiveOptions{plugin: m.call(said), archive: m.archive, filter: f, hosts: p.Hosts, search: p.Search}
	if !f.allNamespaces {
		o.namespace = c.namespace
	}
	o.period = period{since: usual, from: p.From, to: p.To}
	switch {
	case p.Since != "" && p.From != "":
		return o, errors.New("since and from cannot be used together")
	case p.Since != "":
		err = days{(*model.Duration)(&o.period.since)}.Set(p.Since)
	}
	return o, err
}

// History implements mcp.Commands.
func (m *mcpCommands) History(ctx context.Context, said io.Writer, p *mcp.Past, most int) (found []*records.Record, err error) {
	o, err := m.past(said, p, historySince)
	if err != nil {
		return nil, err
	}
	from, to, err := o.period.bounds(o.now())
	if err != nil {
		return nil, err
	}
	query := history.Query{From: from, To: to, Most: most, Reduce: history.Brief}
	err = o.read(ctx, query, nil, func(record *records.Record) error {
		found = append(found, record)
		return nil
	})
	if err != nil {
		return nil, err
	}
	_ = o.finish() // it has said what is missing
	return found, nil
}

// Report implements mcp.Commands.
func (m *mcpCommands) Report(ctx context.Context, said io.Writer, p *mcp.Past) (*report.Page, error) {
	past, err := m.past(said, p, reportSince)
	if err != nil {
		return nil, err
	}
	o := &reportOptions{archiveOptions: past, top: reportTop}
	result, err := o.report(ctx)
	if err != nil {
		return nil, err
	}
	_ = o.finish() // it has said what is missing
	return result.Page(), nil
}
