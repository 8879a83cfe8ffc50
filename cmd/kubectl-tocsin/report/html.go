package report

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed report.html
var pageText string

// pageTemplate escapes by context: text of senders stays text. The page's policy permits nothing but its own style.
var pageTemplate = template.Must(template.New("report").Parse(pageText))

// WriteHTML writes one self-contained page, without scripts and without external resources.
func (p *Page) WriteHTML(out io.Writer) error { return pageTemplate.Execute(out, p) }
