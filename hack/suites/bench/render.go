package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// render writes the figures of a report as Markdown tables, and as a plot into an SVG file.
func render(w io.Writer, path, plotPath string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	renderTables(w, &r)
	renderSteps(w, r.Results)
	if plotPath == "" {
		return nil
	}
	return os.WriteFile(plotPath, []byte(plot(r.Results)), 0o600)
}

func renderTables(w io.Writer, r *report) {
	ms := func(seconds float64) string { return fmt.Sprintf("%.1f", seconds*1000) }
	row := func(cells ...any) {
		texts := make([]string, len(cells))
		for i, cell := range cells {
			switch cell := cell.(type) {
			case float64:
				texts[i] = fmt.Sprintf("%.2f", cell)
			default:
				texts[i] = fmt.Sprint(cell)
			}
		}
		_, _ = fmt.Fprintf(w, "| %s |\n", strings.Join(texts, " | "))
	}
	whole := func(f float64) string { return fmt.Sprintf("%.0f", f) }
	table := func(titles ...any) {
		row(titles...)
		row(slices.Repeat([]any{"---"}, len(titles))...)
	}
	table("Senders", "Keys", "Accepted/s", "Creates/s", "Ratio", "Alertmanager/s", "Ratio", "p50 ms", "p90 ms", "p99 ms",
		"Max ms", "Create p50 ms")
	for _, s := range r.Results {
		row(s.Senders, s.Keys, whole(s.AcceptedRate), whole(s.YardstickRate), s.Ratio, whole(s.Alertmanager), s.alertmanagerRatio(),
			ms(s.P50), ms(s.P90), ms(s.P99), ms(s.Max), ms(s.YardstickP50))
	}
	_, _ = fmt.Fprintln(w)
	table("Senders", "Keys", "Alerts", "Alerts/event", "Writes/alert", "Lag p50 s", "Lag p99 s", "Drain s", "Folded/s",
		"Manager CPU s", "API server CPU s", "Manager MiB", "API server MiB")
	for _, s := range r.Results {
		row(s.Senders, s.Keys, s.Acknowledged, s.AlertsPerEvent, s.WritesPerAlert, s.LagP50, s.LagP99, s.Drain,
			whole(s.FoldedRate), s.ManagerCPU, s.APIServerCPU, s.ManagerPeakRSS>>20, s.APIServerRSS>>20)
	}
	_, _ = fmt.Fprintln(w)
	renderTargets(w, r.Results)
	table(scaleTitles...)
	renderCells(w, r.Scale, scaleRow.cells)
	table(takeoverTitles...)
	renderCells(w, r.Takeovers, takeoverRow.cells)
	table(leaseTitles...)
	renderCells(w, r.Leases, leaseRow.cells)
	table("A few alerts", "Storm/s", "Answers", "p50 ms", "p99 ms", "Folded after p50 s", "at most s", "Not within 30 s")
	renderNoisy(w, r)
}

// renderNoisy writes the rows of the alerts beside a storm.
func renderNoisy(w io.Writer, r *report) {
	rows := r.Noisy
	if r.Repeats != nil {
		rows = append(rows, *r.Repeats)
	}
	for i := range rows {
		_, _ = fmt.Fprintf(w, "| %s |\n", strings.Join(rows[i].cells(), " | "))
	}
}

// renderCells writes the rows of a table.
func renderCells[row any](w io.Writer, rows []row, cells func(row) []string) {
	for _, r := range rows {
		_, _ = fmt.Fprintf(w, "| %s |\n", strings.Join(cells(r), " | "))
	}
	_, _ = fmt.Fprintln(w)
}

// renderTargets writes the targets as a Markdown table.
func renderTargets(w io.Writer, results []*result) {
	_, _ = fmt.Fprint(w, "| Target | At least or at most | Measured | Reached |\n| --- | --- | --- | --- |\n")
	for _, t := range judge(results) {
		_, _ = fmt.Fprintf(w, "| %s | %s | %.2f | %s |\n", t.name, t.bound(), t.measured, t.verdict())
	}
	_, _ = fmt.Fprintln(w)
}

// renderSteps writes how much of the processor time for an alert each step took, in loads of which there are profiles.
func renderSteps(w io.Writer, results []*result) {
	profiled := slices.DeleteFunc(slices.Clone(results), func(r *result) bool { return len(r.Steps.Manager) == 0 })
	if len(profiled) == 0 {
		return
	}
	head, rule := "| Step, ms for each alert |", "| --- |"
	for _, r := range profiled {
		head, rule = head+fmt.Sprintf(" %d %s |", r.Senders, r.Keys), rule+" --- |"
	}
	_, _ = fmt.Fprintf(w, "%s\n%s\n", head, rule)
	rows := func(process string, list []step, shares func(*result) []share, milliseconds func(*result) float64) {
		for _, name := range append(namesOf(list), otherStep) {
			_, _ = fmt.Fprintf(w, "| %s: %s |", process, name)
			for _, r := range profiled {
				cell := ""
				if i := slices.IndexFunc(shares(r), func(s share) bool { return s.Step == name }); i >= 0 {
					cell = fmt.Sprintf("%.3f", shares(r)[i].Part*milliseconds(r))
				}
				_, _ = fmt.Fprintf(w, " %s |", cell)
			}
			_, _ = fmt.Fprintln(w)
		}
	}
	rows("manager", managerSteps, func(r *result) []share { return r.Steps.Manager },
		func(r *result) float64 { return r.ManagerCPU })
	rows("API server", apiServerSteps, func(r *result) []share { return r.Steps.APIServer },
		func(r *result) float64 { return r.APIServerCPU })
	_, _ = fmt.Fprintln(w)
}

// plot draws the accepted alerts a second of the closed loops beside the plain creates.
func plot(results []*result) string {
	const (
		left, top, height, bar, gap = 60, 30, 220, 26, 34
		labels                      = 40 // below the bars
	)
	colours := map[string]string{"shared": "#2563eb", "rotating": "#0d9488", "unique": "#9333ea"}
	closed := slices.DeleteFunc(slices.Clone(results), func(r *result) bool { return r.OfferedRate > 0 })
	highest := 1.0
	for _, r := range closed {
		highest = max(highest, r.AcceptedRate, r.YardstickRate)
	}
	var b strings.Builder
	x := left
	scale := func(v float64) float64 { return v / highest * height }
	column := func(value float64, colour, title string) {
		h := scale(value)
		fmt.Fprintf(&b, `<rect x="%d" y="%.1f" width="%d" height="%.1f" fill="%s"><title>%s: %.0f/s</title></rect>`+"\n",
			x, top+height-h, bar, h, colour, title, value)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="middle">%.0f</text>`+"\n", x+bar/2, top+height-h-4, value)
		x += bar + 4
	}
	for i, r := range closed {
		if i == 0 || closed[i-1].Senders != r.Senders {
			x += gap
			fmt.Fprintf(&b, `<text x="%d" y="%d">%d senders</text>`+"\n", x, top+height+18, r.Senders)
			column(r.YardstickRate, "#9ca3af", "plain creates")
		}
		column(r.AcceptedRate, colours[r.Keys], r.Keys+" keys")
	}
	legend := left
	for _, entry := range []struct{ name, colour string }{
		{"plain creates of one alert", "#9ca3af"}, {"shared key", colours["shared"]},
		{"1,000 keys", colours["rotating"]}, {"unique keys", colours["unique"]},
	} {
		fmt.Fprintf(&b, `<rect x="%d" y="6" width="10" height="10" fill="%s"/><text x="%d" y="15">%s</text>`+"\n",
			legend, entry.colour, legend+14, entry.name)
		legend += 34 + 7*len(entry.name)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`font-family="sans-serif" font-size="11" fill="#374151">`+
		"\n<title>Alerts accepted a second</title>\n"+`<rect width="100%%" height="100%%" fill="#ffffff"/>`+
		"\n%s</svg>\n", x+gap, top+height+labels, b.String())
}
