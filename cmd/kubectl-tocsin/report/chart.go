package report

import (
	"fmt"
	"math"
)

// Chart is a drawing in units of the viewBox of an SVG image, with the origin at the top left.
type Chart struct {
	Title  string      `json:"title"`
	Width  int         `json:"width"`
	Height int         `json:"height"`
	Lines  []ChartLine `json:"lines"`
	Bars   []ChartBar  `json:"bars"`
	Texts  []ChartText `json:"texts"`
	Legend []string    `json:"legend"`

	unit float64 // the height of one episode
}

// ChartLine is a horizontal line.
type ChartLine struct {
	X1 float64 `json:"x1"`
	X2 float64 `json:"x2"`
	Y  float64 `json:"y"`
}

// ChartBar is a rectangle.
type ChartBar struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Width  float64 `json:"width"`
	Height float64 `json:"height"`
	// Class is an element of Chart.Legend.
	Class string `json:"class"`
	Title string `json:"title"`
}

// ChartText is a text at a position. Anchor is SVG's text-anchor.
type ChartText struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Text   string  `json:"text"`
	Anchor string  `json:"anchor"`
}

// Dimensions of a chart.
const (
	chartWidth, chartHeight = 960, 220
	chartLeft, chartRight   = 60, 950
	chartTop, chartBottom   = 12, 190
	chartGap                = 0.15 // between bars, as a part of a bar's width
)

// newChart returns a chart with an axis from 0 to a round number.
func newChart(title string, most int64, legend ...string) Chart {
	step := math.Pow(10, math.Floor(math.Log10(float64(most))))
	for _, part := range []float64{5, 2} {
		if float64(most) <= 2*step && step/part >= 1 {
			step /= part
		}
	}
	highest := math.Ceil(float64(most)/step) * step
	c := Chart{
		Title: title, Width: chartWidth, Height: chartHeight, Legend: legend, unit: (chartBottom - chartTop) / highest,
	}
	for value := 0.0; value <= highest; value += step {
		y := round(chartBottom - value*c.unit)
		c.Lines = append(c.Lines, ChartLine{chartLeft, chartRight, y})
		c.Texts = append(c.Texts, ChartText{chartLeft - 8, y + 4, fmt.Sprint(value), "end"})
	}
	return c
}

// round rounds to hundredths.
func round(x float64) float64 { return math.Round(x*100) / 100 }

// slot returns the position and the width of the i-th of n groups of bars.
func slot(i, n int) (x, width float64) {
	whole := (chartRight - chartLeft) / float64(n)
	return chartLeft + float64(i)*whole + whole*chartGap/2, whole * (1 - chartGap)
}

// addBar adds a bar of n episodes above others.
func (c *Chart) addBar(x, width float64, below, n int64, class, title string) {
	c.Bars = append(c.Bars, ChartBar{
		round(x), round(chartBottom - float64(below+n)*c.unit), round(width), round(float64(n) * c.unit), class, title,
	})
}

// addLabel adds a text below a bar.
func (c *Chart) addLabel(x, width float64, text string) {
	c.Texts = append(c.Texts, ChartText{round(x + width/2), chartHeight - 12, text, "middle"})
}

func (r *Report) perDayChart() Chart {
	severities := r.usedSeverities()
	c := newChart("Episodes that ended, "+r.perDays(), r.most())
	for _, severity := range severities {
		c.Legend = append(c.Legend, string(severity))
	}
	const labels = 10
	every := (len(r.Bars) + labels - 1) / labels
	for n, bar := range r.Bars {
		x, width := slot(n, len(r.Bars))
		var below int64
		for i, severity := range severities {
			if count := bar.Counts[i]; count > 0 {
				c.addBar(x, width, below, count, string(severity), fmt.Sprintf("%s: %d %s", bar.Date, count, severity))
				below += count
			}
		}
		if n%every == 0 {
			c.addLabel(x, width, bar.Date[len(bar.Date)-len("01-02"):])
		}
	}
	return c
}

func (r *Report) durationChart() Chart {
	const acknowledged, resolved = "acknowledged", "resolved"
	most := 1
	for _, bin := range r.Histogram {
		most = max(most, bin.Acknowledge, bin.Resolve)
	}
	c := newChart("Time to acknowledge and to resolve, in episodes", int64(most), acknowledged, resolved)
	for n, bin := range r.Histogram {
		x, width := slot(n, len(r.Histogram))
		for i, count := range []int{bin.Acknowledge, bin.Resolve} {
			title := fmt.Sprintf("%s in %s: %d", c.Legend[i], bin.Label, count)
			c.addBar(x+float64(i)*width/2, width/2, 0, int64(count), c.Legend[i], title)
		}
		c.addLabel(x, width, bin.Label)
	}
	return c
}
