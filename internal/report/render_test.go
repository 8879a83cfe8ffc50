package report

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	. "github.com/onsi/gomega"
)

func render(g *WithT, p *Page, format string) string {
	var out bytes.Buffer
	switch format {
	case "text":
		g.Expect(p.WriteText(&out, 80, func(s string) string { return s })).To(Succeed())
	case "markdown":
		g.Expect(p.WriteMarkdown(&out)).To(Succeed())
	case "html":
		g.Expect(p.WriteHTML(&out)).To(Succeed())
	}
	return out.String()
}

func longestLine(text string) (longest int) {
	for line := range strings.Lines(text) {
		longest = max(longest, runewidth.StringWidth(strings.TrimSuffix(line, "\n")))
	}
	return longest
}

// example is a report of three days.
func example() *Report {
	b := NewBuilder(from, from.Add(3*24*time.Hour), time.UTC)
	for i := range 7 {
		disk := episode(from, from.Add(time.Duration(i)*time.Minute), from.Add(time.Duration(20+i)*time.Minute))
		disk.Namespace, disk.Integration, disk.DedupKey, disk.Alert.Title = "shop", "mon", "disk/db-1", "Disk full"
		disk.Severity, disk.AlertCount = "critical", 3
		b.Add(disk)
	}
	queue := episode(from, time.Time{}, from.Add(30*time.Hour))
	queue.Namespace, queue.Integration, queue.DedupKey, queue.Alert.Title = "shop", "mon", "queue", "Queue stalls"
	queue.Severity, queue.AlertCount = "error", 1
	b.Add(queue)
	r := b.Report(5, 31)
	r.Scope = "Namespace shop."
	r.Open = new(2)
	return r
}

func TestText(t *testing.T) {
	NewWithT(t).Expect(render(NewWithT(t), example().Page(), "text")).To(Equal(`Incidents from 2026-03-20 12:00 to 2026-03-23 12:00 UTC
Namespace shop.
8 episodes ended in this period.
2 incidents open now.

Severities
Median and 90th percentile of the times to acknowledge and to resolve, and the
number of episodes that have them.
SEVERITY  EPISODES  PER DAY  ACK P50  P90  OF  RESOLVE P50  P90  OF
critical         7      2.3       3m   6m   7          23m  26m   7
error            1      0.3        -    -   0          30h  30h   1
all              8      2.7       3m   6m   7          23m  30h   8

Noisiest keys
EPISODES  ALERTS  OPEN  INTEGRATION  KEY        TITLE
       7      21  161m  shop/mon     disk/db-1  Disk full
       1       1   30h  shop/mon     queue      Queue stalls

Flapping keys
Keys with 5 or more episodes in one day, and the day with the most.
MOST  DAY         EPISODES  DAYS  INTEGRATION  KEY        TITLE
   7  2026-03-20         7     1  shop/mon     disk/db-1  Disk full

Noisiest integrations
EPISODES  ALERTS  OPEN  INTEGRATION
       8      22   32h  shop/mon

Time to acknowledge and to resolve
TIME        ACKNOWLEDGED  RESOLVED
under 1m               1         0
1m to 5m               4         0
5m to 15m              2         0
15m to 1h              0         7  ████████████████████████████████████████████
1h to 4h               0         0
4h to 1d               0         0
1d or more             0         1  ██████▎

Episodes per day
DATE        ALL  CRITICAL  ERROR  WARNING  INFO
2026-03-20    7         7      0        0     0  ███████████████████████████████
2026-03-21    1         0      1        0     0  ████▍
2026-03-22    0         0      0        0     0
2026-03-23    0         0      0        0     0
`))
}

const hostile = "<script>alert(1)</script> | **b** [x](javascript:alert(1)) `c` \x1b[2J\r\n# t @team https://evil.example \u202e ![i](x)"

func TestHostileTexts(t *testing.T) {
	g := NewWithT(t)
	b := NewBuilder(from, to, time.UTC)
	for range 10 {
		e := episode(from, time.Time{}, from)
		e.Namespace, e.Integration, e.DedupKey, e.Alert.Title, e.Severity = hostile, hostile, hostile, hostile, hostile
		b.Add(e)
	}
	r := b.Report(5, 31)
	r.Scope, r.Warnings = hostile, []string{hostile}
	p := r.Page()

	text := render(g, p, "text")
	g.Expect(text).NotTo(MatchRegexp(`[^\P{C}\n]`), "no control character")
	g.Expect(longestLine(text)).To(BeNumerically("<=", 80))

	md := render(g, p, "markdown")
	g.Expect(md).NotTo(ContainSubstring("<script"))
	g.Expect(md).NotTo(MatchRegexp(`[^\\]\[x`))
	g.Expect(md).NotTo(ContainSubstring("https://"), "it would become a link")
	g.Expect(md).NotTo(ContainSubstring("@team"))
	columns := regexp.MustCompile(`[^\\]\|`)
	for _, section := range strings.Split(md, "\n## ")[1:] {
		lines := regexp.MustCompile(`(?m)^\|.*$`).FindAllString(section, -1)
		for _, line := range lines {
			g.Expect(columns.FindAllString(" "+line, -1)).To(HaveLen(len(columns.FindAllString(" "+lines[0], -1))), line)
		}
	}

	page := render(g, p, "html")
	elements := map[string]int{}
	for _, tag := range regexp.MustCompile(`<([a-z0-9]+)([^>]*)>`).FindAllStringSubmatch(page, -1) {
		elements[tag[1]]++
		g.Expect(tag[2]).NotTo(MatchRegexp(`\s(on\w+|src|href|style)=`), "nothing runs, nothing is loaded")
	}
	g.Expect(elements).NotTo(HaveKey("script"))
	g.Expect(elements["meter"]).To(BeNumerically(">", 1))
	g.Expect(elements["title"]).To(Equal(1))
	g.Expect(page).To(ContainSubstring("&lt;script&gt;"))
}

func TestPageHasBothSchemes(t *testing.T) {
	g := NewWithT(t)
	page := render(g, example().Page(), "html")
	g.Expect(page).To(ContainSubstring("prefers-color-scheme: dark"))
	g.Expect(strings.Count(page, "<meter value=\"1\"")).To(Equal(2), "the longest bar of a table")
	g.Expect(strings.Count(page, "<table ")).To(Equal(6))
	g.Expect(page).To(ContainSubstring(fmt.Sprintf("<title>%s</title>", example().Page().Title)))
}

func TestEarlierEpisodesAreToldInTheSameLine(t *testing.T) {
	g := NewWithT(t)
	r := example()
	r.Earlier = 6
	for _, format := range []string{"text", "markdown", "html"} {
		g.Expect(render(g, r.Page(), format)).To(
			ContainSubstring("8 episodes ended in this period; up to 6 more would be known with an archive."), format)
	}
}
