package report

import (
	_ "embed"
	htmltemplate "html/template"
	"io"
	"regexp"
	"strings"
	"text/template"

	"github.com/mattn/go-runewidth"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// minColumn is the width down to which columns of text are cut, in cells of the terminal.
	minColumn = 8
	textGap   = 2

	markdownBar = 20 // the width of the longest bar
)

// WriteText writes the page for a terminal with a number of columns. bold highlights the titles.
func (p *Page) WriteText(out io.Writer, width int, bold func(string) string) error {
	return template.Must(template.New("text").Funcs(template.FuncMap{
		"bold":  bold,
		"wrap":  func(line string) string { return runewidth.Wrap(plaintext.Wrap(line, width), width) }, // also words that are too long
		"lines": func(s Section) []string { return s.lines(width) },
	}).Parse(plainText)).Execute(out, p)
}

func (s *Section) lines(width int) []string {
	if len(s.Rows) == 0 {
		return []string{"None."}
	}
	widths := s.widths(width)
	header, used := []string{}, 0
	for i, column := range s.Columns {
		header = append(header, strings.ToUpper(column.Name))
		used += widths[i] + textGap
	}
	lines := []string{s.textLine(header, widths)}
	for i, row := range s.Rows {
		line := s.textLine(row, widths)
		if s.Bars != nil {
			line = runewidth.FillRight(line, used) + bar(s.Bars[i], width-used)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// widths returns the widths of the columns. It cuts the widest columns of text until the line fits.
func (s *Section) widths(width int) []int {
	widths := make([]int, len(s.Columns))
	sum := textGap * (len(widths) - 1)
	for i, column := range s.Columns {
		widths[i] = runewidth.StringWidth(column.Name)
		for _, row := range s.Rows {
			widths[i] = max(widths[i], runewidth.StringWidth(row[i]))
		}
		sum += widths[i]
	}
	for ; sum > width; sum-- {
		widest := -1
		for i, column := range s.Columns {
			if !column.Number && widths[i] > minColumn && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

func (s *Section) textLine(cells []string, widths []int) string {
	filled := make([]string, len(cells))
	for i, cell := range cells {
		fill := runewidth.FillRight
		if s.Columns[i].Number {
			fill = runewidth.FillLeft
		}
		filled[i] = fill(runewidth.Truncate(cell, widths[i], "…"), widths[i])
	}
	return strings.TrimRight(strings.Join(filled, strings.Repeat(" ", textGap)), " ")
}

// bar returns a bar of block characters for a part of the width, which shows eighths of a cell.
func bar(part float64, width int) string {
	const eighths = 8
	n := int(part*float64(max(0, width))*eighths + 0.5)
	if part > 0 {
		n = max(1, n)
	}
	text := strings.Repeat("█", n/eighths)
	if n%eighths > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[n%eighths-1])
	}
	return text
}

var (
	//go:embed report.txt.tmpl
	plainText string
	//go:embed report.html
	htmlText string
	//go:embed report.md.tmpl
	markdownText string

	// htmlTemplate escapes by context: text of senders stays text. The page's policy permits nothing but its own style.
	htmlTemplate = htmltemplate.Must(htmltemplate.New("html").Parse(htmlText))

	markdownTemplate = template.Must(template.New("markdown").Funcs(template.FuncMap{
		"markdown": markdown,
		"bar":      func(part float64) string { return bar(part, markdownBar) },
	}).Parse(markdownText))
)

// WriteHTML writes one self-contained page, without scripts and without external resources.
func (p *Page) WriteHTML(out io.Writer) error { return htmlTemplate.Execute(out, p) }

// WriteMarkdown writes the page in Markdown (CommonMark with tables).
func (p *Page) WriteMarkdown(out io.Writer) error { return markdownTemplate.Execute(out, p) }

// markdown escapes text: no punctuation of it is markup, neither for Markdown nor for the HTML in it. Addresses do not become
// links, and names do not notify users, since a word joiner (U+2060) separates their parts.
func markdown(text string) string {
	return harmlessMarkdown.Replace(markdownPunctuation.ReplaceAllString(text, `\$0`))
}

var (
	markdownPunctuation = regexp.MustCompile("[\\\\`*_{}\\[\\]()#+!|~$]")
	harmlessMarkdown    = strings.NewReplacer(
		"://", ":\u2060//", "www.", "www\u2060.", "@", "@\u2060", "<", "&lt;", ">", "&gt;", "&", "&amp;")
)
