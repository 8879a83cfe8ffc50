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
	// Title describes the bar.
	Title string `json:"title"`
}

// ChartText is a text at a position.
type ChartText struct {
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
	Text string  `json:"text"`
	// Anchor is start, middle or end (SVG's text-anchor).
	Anchor string `json:"anchor"`
}

// Dimensions of a chart.
const (
	chartWidth, chartHeight = 960, 220
	chartLeft, chartRight   = 60, 950
	chartTop, chartBottom   = 12, 190
	chartGap                = 0.15 // between bars, as a part of a bar's width
)

// newChart returns a chart with an axis from 0 to a round number, and a function that returns the height of a value.
func newChart(title string, most float64) (chart Chart, height func(float64) float64) {
	step := math.Pow(10, math.Floor(math.Log10(max(1, most))))
	for _, part := range []float64{5, 2} {
		if most <= 2*step && step/part >= 1 {
			step /= part
		}
	}
	highest := max(1, math.Ceil(most/step)) * step
	height = func(value float64) float64 { return round(value / highest * (chartBottom - chartTop)) }
	chart = Chart{Title: title, Width: chartWidth, Height: chartHeight}
	for value := 0.0; value <= highest; value += step {
		y := round(chartBottom - height(value))
		chart.Lines = append(chart.Lines, ChartLine{chartLeft, chartRight, y})
		chart.Texts = append(chart.Texts, ChartText{chartLeft - 8, y + 4, fmt.Sprint(value), "end"})
	}
	return chart, height
}

// round rounds to hundredths.
func round(x float64) float64 { return math.Round(x*100) / 100 }

// slot returns the position and the width of a bar, the i-th of n.
func slot(i, n int) (x, width float64) {
	whole := (chartRight - chartLeft) / float64(n)
	return round(chartLeft + float64(i)*whole + whole*chartGap/2), round(whole * (1 - chartGap))
}

func (r *Report) perDayChart() Chart {
	title := "Episodes that ended, per day"
	if r.DaysPerBar > 1 {
		title = fmt.Sprintf("Episodes that ended, per %d days", r.DaysPerBar)
	}
	chart, height := newChart(title, float64(r.most()))
	used := r.usedSeverities()
	for _, i := range used {
		chart.Legend = append(chart.Legend, string(severities[i]))
	}
	const labels = 10
	every := max(1, (len(r.Bars)+labels-1)/labels)
	for n, bar := range r.Bars {
		x, width := slot(n, len(r.Bars))
		sum := int64(0)
		for _, i := range used {
			if bar.Counts[i] == 0 {
				continue
			}
			sum += bar.Counts[i]
			chart.Bars = append(chart.Bars, ChartBar{
				x, round(chartBottom - height(float64(sum))), width, height(float64(bar.Counts[i])), string(severities[i]),
				fmt.Sprintf("%s: %d %s", bar.Date, bar.Counts[i], severities[i]),
			})
		}
		if n%every == 0 {
			monthAndDay := bar.Date[len(bar.Date)-len("01-02"):]
			chart.Texts = append(chart.Texts, ChartText{round(x + width/2), chartHeight - 12, monthAndDay, "middle"})
		}
	}
	return chart
}

func (r *Report) durationChart() Chart {
	const acknowledged, resolved = "acknowledged", "resolved"
	most := 1
	for _, bin := range r.Histogram {
		most = max(most, bin.Acknowledge, bin.Resolve)
	}
	chart, height := newChart("Time to acknowledge and to resolve, in episodes", float64(most))
	chart.Legend = []string{acknowledged, resolved}
	for n, bin := range r.Histogram {
		x, width := slot(n, len(r.Histogram))
		for i, value := range []int{bin.Acknowledge, bin.Resolve} {
			chart.Bars = append(chart.Bars, ChartBar{
				round(x + float64(i)*width/2), round(chartBottom - height(float64(value))), round(width / 2), height(float64(value)),
				chart.Legend[i], fmt.Sprintf("%s in %s: %d", chart.Legend[i], bin.Label, value),
			})
		}
		chart.Texts = append(chart.Texts, ChartText{round(x + width/2), chartHeight - 12, bin.Label, "middle"})
	}
	return chart
}
