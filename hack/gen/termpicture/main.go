// Command termpicture draws what a command printed on a terminal as an SVG: it reads text with the SGR sequences
// that kubectl tocsin uses (ECMA-48, section 8.3.117) from standard input and prints the picture.
package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/mattn/go-runewidth"
)

// Measures of the picture in pixels.
const (
	cellWidth  = 8.43 // of a monospaced font at this size; textLength holds each piece to it
	lineHeight = 20
	fontSize   = 14
	margin     = 16
)

// Colours of the terminal.
const (
	ground = "#1b1b1f"
	ink    = "#e6e6ea"
)

// colours are those of the SGR parameters.
var colours = map[string]string{
	"31": "#ff7b72", "32": "#7ee787", "33": "#f2cc60", "34": "#79c0ff",
}

var sequence = regexp.MustCompile("\x1b\\[([0-9;]*)m")

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = io.WriteString(os.Stdout, draw(string(text)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "termpicture:", err)
		os.Exit(1)
	}
}

// draw makes the SVG.
func draw(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	widest := 0
	for _, line := range lines {
		widest = max(widest, runewidth.StringWidth(sequence.ReplaceAllString(line, "")))
	}
	var svg strings.Builder
	width, height := float64(widest)*cellWidth+2*margin, len(lines)*lineHeight+2*margin
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" `+
		`font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="%d">`+"\n",
		width, height, width, height, fontSize)
	fmt.Fprintf(&svg, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", ground)
	for i, line := range lines {
		drawLine(&svg, line, margin+float64(i)*lineHeight+fontSize)
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// drawLine draws the pieces of a line, each in its style and at its place.
func drawLine(svg *strings.Builder, line string, y float64) {
	column, style := 0, ""
	for line != "" {
		piece, rest, parameters := line, "", ""
		if at := sequence.FindStringSubmatchIndex(line); at != nil {
			piece, parameters, rest = line[:at[0]], line[at[2]:at[3]], line[at[1]:]
		}
		cells := runewidth.StringWidth(piece)
		if strings.TrimSpace(piece) != "" {
			var escaped strings.Builder
			_ = xml.EscapeText(&escaped, []byte(piece)) // a Builder takes everything
			fmt.Fprintf(svg, `<text x="%.2f" y="%.0f" textLength="%.2f" xml:space="preserve" %s>%s</text>`+"\n",
				margin+float64(column)*cellWidth, y, float64(cells)*cellWidth, attributes(style), escaped.String())
		}
		column, line, style = column+cells, rest, parameters
	}
}

// attributes are how a style looks in SVG.
func attributes(style string) string {
	fill, more := ink, ""
	for parameter := range strings.SplitSeq(style, ";") {
		switch parameter {
		case "1":
			more += ` font-weight="bold"`
		case "2":
			more += ` opacity="0.6"`
		}
		if colour, known := colours[parameter]; known {
			fill = colour
		}
	}
	return fmt.Sprintf(`fill="%s"%s`, fill, more)
}
