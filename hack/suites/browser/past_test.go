//go:build browser

package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/page"
	"github.com/tocsin-dev/tocsin/internal/records"
	"github.com/tocsin-dev/tocsin/internal/report"
)

// archived returns a record of an episode that ended so many hours ago.
func archived(namespace, title string, severity v1alpha1.Severity, hoursAgo int) records.Record {
	ended := time.Now().Add(-time.Duration(hoursAgo) * time.Hour)
	r := records.Record{SchemaVersion: records.SchemaVersion, Namespace: namespace, Integration: "monitoring",
		Incident: "monitoring-x", UID: title, DedupKey: "key of " + title, ResourceVersion: "1"}
	r.Number, r.AlertCount, r.HighestSeverity, r.Severity = 1, 4, severity, severity
	r.OpenedTime, r.ResolvedTime = v1alpha1.NewTimestamp(ended.Add(-time.Hour)), v1alpha1.NewTimestamp(ended)
	r.StartTime = r.OpenedTime
	r.Alert = v1alpha1.AlertContent{Title: title, Severity: severity, Hostname: "db-1", Description: "What " + title + " is.",
		Labels: map[string]string{"team": "storage"}}
	r.Timeline = []v1alpha1.Transition{{Type: v1alpha1.TransitionOpened, Time: r.OpenedTime, Message: "Opened: " + title}}
	return r
}

func store(g *WithT, bucket *blob.Bucket, list ...records.Record) {
	for i := range list {
		_, _, err := records.Write(context.Background(), bucket, list[i].Day(), list[i:i+1])
		g.Expect(err).NotTo(HaveOccurred())
	}
}

// past returns the titles of the history.
func (b *tab) past() string {
	return b.eval(`[...document.querySelectorAll("#episodes summary")].map((a) => a.textContent).join("|")`)
}

func TestHistoryAndReport(t *testing.T) {
	c := newCluster(t)
	c.fill()
	bucket := memblob.OpenBucket(nil)
	t.Cleanup(func() { _ = bucket.Close() })
	store(c.g, bucket, archived(c.namespace, "Disk full", "critical", 30), archived(c.namespace, hostileTitle, "error", 40),
		archived("elsewhere", "Not mine", "error", 41), archived(c.namespace, "Long ago", "info", 24*20))
	c.g.Expect(bucket.WriteAll(t.Context(), "v1/day="+records.Day(time.Now())+"/x.ndjson.gz", []byte("torn"), nil)).To(Succeed())
	s, _ := serveWith(t, c, page.Options{Namespace: c.namespace, Archive: bucket})
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).Should(ContainSubstring("Disk 97 %"))

	// The history: of the cluster and of the archive, the newest first, with details.
	b.do(chromedp.Click("#to-history"))
	b.Eventually(b.past).Should(Equal("Backup of db-2 failed|Disk full|" + hostileTitle))
	b.Expect(b.text("#past-status")).To(Equal("3 episodes"))
	b.Expect(b.text("#episodes td.when")).To(HaveSuffix("UTC"), "a time with its zone")
	b.Expect(b.text("#episodes .mark.critical")).To(Equal("critical"))
	b.Expect(b.text("#past-problems")).To(ContainSubstring("x.ndjson.gz"))
	b.Expect(b.eval(`getComputedStyle(document.getElementById("list")).display`)).To(Equal("none"))
	b.do(chromedp.Click("#episodes tr:nth-child(2) summary"))
	b.Eventually(func() string { return b.text("#episodes tr:nth-child(2)") }).Should(And(
		ContainSubstring("What Disk full is."), ContainSubstring("Opened: Disk full"), ContainSubstring("key of Disk full")))
	b.Expect(b.eval(`document.querySelectorAll("main img, main script, main b").length`)).To(Equal("0"))

	// Filters, which are in the address.
	b.choose("days", "30")
	b.Eventually(b.past).Should(HaveSuffix("|Long ago"))
	b.choose("past-severity", "critical")
	b.Eventually(b.past).Should(Equal("Disk full"))
	b.choose("past-label", "team=web")
	b.Eventually(func() string { return b.text("#past-status") }).Should(Equal("No episodes found."))
	b.choose("past-label", "team in (")
	b.Eventually(func() string { return b.text("#past-problems") }).Should(ContainSubstring("label"))
	b.choose("past-label", "")
	b.choose("past-severity", "")
	b.choose("past-search", "DISK storage")
	b.Eventually(b.past).Should(Equal("Disk full"))
	b.do(chromedp.Reload())
	b.Eventually(b.past).Should(Equal("Disk full"))
	b.Expect(b.eval("location.hash")).To(Equal("#/history?days=30&search=DISK+storage"))

	// The report of the same period and filters, and of all.
	b.do(chromedp.Click("#to-report"))
	b.Eventually(func() string { return b.text("#report") }).Should(And(
		ContainSubstring("1 episode ended in this period."), ContainSubstring("Incomplete: 1 error")))
	b.choose("past-search", "")
	b.Eventually(func() string { return b.text("#report") }).Should(And(
		ContainSubstring("4 episodes ended in this period."), ContainSubstring("5 incidents open now."), ContainSubstring(hostileTitle)))
	b.Expect(b.eval(`document.querySelectorAll("#report meter").length >= 1`)).To(Equal("true"))
	b.Expect(b.eval(`document.querySelectorAll("#report .columns-chart rect.critical").length`)).To(Equal("1"), "the days are a chart")
	b.Expect(b.eval(`document.querySelector("#report .columns-chart:has(.critical) svg").ariaLabel`)).To(MatchRegexp(`^\d{4}-\d\d-\d\d: \d all(, \d{4}-\d\d-\d\d: \d all)*$`),
		"which has its numbers as a text, without days of zero")
	b.Expect(b.eval(`[...document.querySelectorAll("#report .columns-chart rect.part-1")].length >= 1`)).To(Equal("true"), "the times are a chart")
	b.Expect(b.eval(`document.querySelector("#report .columns-chart:has(.part-1) svg").ariaLabel`)).To(
		MatchRegexp(`^Time to acknowledge and to resolve: .*: \d+ resolved`))
	b.Expect(b.eval(`document.querySelectorAll("#report img, #report script").length`)).To(Equal("0"))
	b.Expect(b.eval("String(window.hacked)")).To(Equal("undefined"))
	for _, width := range []int64{1200, 420, 390} {
		b.do(chromedp.EmulateViewport(width, 800))
		b.Expect(b.eval("document.documentElement.scrollWidth <= innerWidth")).To(Equal("true"), "nothing sticks out at %d", width)
		b.Expect(b.eval(stacked)).To(BeEmpty(), "at %d: cells with few letters a line", width)
		b.Expect(b.eval(unnamed)).To(BeEmpty(), "at %d: cells without the name of their column", width)
	}
	b.do(chromedp.Click("#to-history"))
	b.Eventually(func() string { return b.text("#past-status") }).Should(Equal("4 episodes"))
	b.Expect(b.eval(stacked)).To(BeEmpty(), "the history: cells with few letters a line")
	b.do(chromedp.EmulateViewport(1200, 900), chromedp.Click(`nav a[href="#/"]`))
	b.Eventually(b.titles).Should(ContainSubstring("Disk 97 %"))
	b.Eventually(func() string { return b.eval(`document.getElementById("past").hidden`) }).Should(Equal("true"))
}

// stacked has the texts of the cells that are broken into lines of fewer than eight letters, or that stick out of the page.
const stacked = `[...document.querySelectorAll("td, th")].filter((cell) => cell.offsetParent && cell.parentElement.parentElement.clientWidth > 1).filter((cell) => {
	const text = cell.textContent.trim(), range = document.createRange();
	range.selectNodeContents(cell);
	const boxes = [...range.getClientRects()].filter((box) => box.width > 0);
	const lines = new Set(boxes.map((box) => Math.round(box.top)));
	return lines.size > 1 && text.length / lines.size < 8 || boxes.some((box) => box.right > innerWidth);
}).map((cell) => cell.textContent).join("|")`

// unnamed has the texts of the cells that have the name of their column neither above nor before them.
const unnamed = `[...document.querySelectorAll("tbody td:not(.bar)")].filter((cell) => cell.offsetParent).filter((cell) => {
	const heading = cell.closest("table").tHead.rows[0].cells[cell.cellIndex], name = heading.textContent;
	const above = heading.getClientRects()[0], box = cell.getBoundingClientRect();
	const isAbove = above && above.bottom <= box.top + 1 && above.left < box.right && box.left < above.right;
	const before = getComputedStyle(cell, "::before").content;
	return name && !isAbove && before !== JSON.stringify(name);
}).map((cell) => cell.textContent).join("|")`

// TestReportPage opens the page that "kubectl tocsin report -o html" writes, as a file.
func TestReportPage(t *testing.T) {
	b := openTab(t)
	now := time.Now()
	builder := report.NewBuilder(now.AddDate(0, 0, -7), now, time.UTC)
	long := "production/eu-central-1/" + strings.Repeat("very-long-key-", 12)
	for i, title := range []string{hostileTitle, "Disk full", "Queue stalls", long} {
		record := archived("shop", title, v1alpha1.Severities()[i], 10+i)
		builder.Add(&record)
	}
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(builder.Report(10, 92).Page().WriteHTML(file)).To(Succeed())
	b.Expect(file.Close()).To(Succeed())
	for _, scheme := range []string{"light", "dark"} {
		b.media(scheme)
		b.do(chromedp.Navigate("file://" + path))
		b.Expect(b.text("main")).To(And(ContainSubstring("4 episodes ended"), ContainSubstring(hostileTitle)))
		b.Expect(b.eval(contrast+" >= 4.5")).To(Equal("true"), "%s: %s", scheme, b.eval(contrast))
		b.Expect(b.eval(`performance.getEntriesByType("resource").length`)).To(Equal("0"), "it loads nothing")
		b.Expect(b.eval("String(window.hacked)")).To(Equal("undefined"))
		b.Expect(b.eval(`document.querySelectorAll("img, script").length`)).To(Equal("0"))
		for _, width := range []int64{1200, 420, 390} {
			b.do(chromedp.EmulateViewport(width, 800))
			b.Expect(b.eval("document.documentElement.scrollWidth <= innerWidth")).To(Equal("true"), "%d", width)
			b.Expect(b.eval(`document.querySelectorAll("tbody td").length > 20`)).To(Equal("true"))
			b.Expect(b.eval(stacked)).To(BeEmpty(), "at %d: cells with few letters a line", width)
			b.Expect(b.eval(unnamed)).To(BeEmpty(), "at %d: cells without the name of their column", width)
			b.picture(fmt.Sprintf("report-%s-%d.png", scheme, width))
		}
	}
	b.noTrouble()
}
