// Command archiveyear fills an archive with random episodes: a year of 10,000 episodes a day by default, to measure what
// "kubectl tocsin history" and "report" cost.
//
// The distribution resembles that of real alerts: few dedup keys have most of the episodes, every tenth episode has a key of
// its own, most episodes last minutes and some last days, and two of five are acknowledged.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/bucket"
	"github.com/tocsin-dev/tocsin/internal/records"
)

func main() {
	url := flag.String("archive", "", "URL of the archive, such as file:///tmp/archive")
	days := flag.Int("days", 365, "number of days")
	perDay := flag.Int("per-day", 10_000, "number of episodes that end in a day")
	end := flag.String("end", time.Now().UTC().Format(time.DateOnly), "the last day")
	seed := flag.Uint64("seed", 1, "seed of the random numbers")
	flag.Parse()
	if err := run(context.Background(), *url, *days, *perDay, *end, *seed); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string, days, perDay int, end string, seed uint64) error {
	last, err := time.Parse(time.DateOnly, end)
	if err != nil {
		return err
	}
	opened, err := bucket.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	g := newGenerator(seed)
	bytes := 0
	for i := range days {
		day := last.AddDate(0, 0, i+1-days)
		list := make([]records.Record, 0, perDay)
		for range perDay {
			list = append(list, g.episode(day))
		}
		_, size, err := records.Write(ctx, opened, records.Day(day), list)
		if err != nil {
			return err
		}
		bytes += size
	}
	log.Printf("%d episodes in %d objects of %d bytes", days*perDay, days, bytes)
	return nil
}

const (
	namespaces   = 12
	integrations = 40
	keys         = 20_000
	hosts        = 1_500
)

type generator struct {
	*rand.Rand
	key, integration *rand.Zipf
	source           *rand.ChaCha8
}

func newGenerator(seed uint64) *generator {
	var key [32]byte
	key[0] = byte(seed)
	r := rand.New(rand.NewPCG(seed, seed))
	return &generator{
		Rand: r, source: rand.NewChaCha8(key),
		key: rand.NewZipf(r, 1.1, 20, keys-1), integration: rand.NewZipf(r, 1.3, 3, integrations-1),
	}
}

var problems = []string{
	"Disk %d %% full", "95 %% of the requests take longer than %d ms", "Queue has %d waiting messages", "Pod restarted %d times",
	"Certificate ends in %d days", "Backup is %d hours old", "Target down for %d s", "Replication lags %d s",
}

// episode returns an episode that ended on a day.
func (g *generator) episode(day time.Time) records.Record {
	integration := int(g.integration.Uint64())
	number := int(g.key.Uint64())
	host := fmt.Sprintf("node-%d.eu-west.example.com", number%hosts)
	key := fmt.Sprintf("alert-%d/%s", number, host)
	if g.IntN(10) == 0 {
		key = g.uuid()
	}
	problem := fmt.Sprintf(problems[number%len(problems)], g.IntN(100))
	const median, spread = 9, 1.9 // minutes, and of their logarithm
	open := 2*time.Second + time.Duration(median*math.Exp(g.NormFloat64()*spread)*float64(time.Minute))
	resolved := day.Add(time.Duration(g.Int64N(int64(24 * time.Hour))))
	started := resolved.Add(-open)
	severity := v1alpha1.Severities()[[]int{0, 1, 1, 2, 2, 2, 2, 2, 3, 3}[g.IntN(10)]]
	r := records.Record{
		SchemaVersion: records.SchemaVersion, Namespace: fmt.Sprintf("team-%d", integration%namespaces),
		Integration: fmt.Sprintf("monitoring-%d", integration), UID: g.uuid(), DedupKey: key,
		ResourceVersion: fmt.Sprint(g.IntN(1 << 30)),
	}
	r.Incident = v1alpha1.IncidentName(r.Integration, key)
	r.Number, r.StartTime, r.OpenedTime = int64(1+g.IntN(20)), at(started), at(started.Add(time.Second))
	r.ResolvedTime, r.LastAlertTime, r.Resolution = at(resolved), at(resolved), v1alpha1.ReasonResolvedByAlert
	r.AlertCount = int64(2 + open/(5*time.Minute))
	r.InitialSeverity, r.HighestSeverity, r.Severity = severity, severity, severity
	r.Digest = fmt.Sprintf("%016x%016x", g.Uint64(), g.Uint64())
	r.Timeline = []v1alpha1.Transition{{Type: v1alpha1.TransitionOpened, Time: r.OpenedTime, Severity: severity,
		Message: fmt.Sprintf("Opened with severity %s: %s", severity, problem)}}
	if g.IntN(5) < 2 {
		r.AcknowledgedTime = at(started.Add(time.Duration(g.Float64() * float64(open))))
		r.AcknowledgedBy = fmt.Sprintf("user-%d@example.com", g.IntN(30))
		r.Timeline = append(r.Timeline, v1alpha1.Transition{Type: v1alpha1.TransitionAcknowledged, Time: r.AcknowledgedTime,
			Message: "Acknowledged by " + r.AcknowledgedBy, By: r.AcknowledgedBy})
	}
	r.Timeline = append(r.Timeline, v1alpha1.Transition{Type: v1alpha1.TransitionResolved, Time: r.ResolvedTime,
		Message: "Resolved by an alert"})
	r.Alert = v1alpha1.AlertContent{
		Title: problem + " on " + host, Severity: severity, Type: "metric", Hostname: host, Region: "eu-west",
		Description: problem + ". It began at " + started.Format(time.RFC3339) + ", see the runbook.",
		Link:        fmt.Sprintf("https://grafana.example.com/d/%x?from=%d", number, started.UnixMilli()),
		Labels: map[string]string{"alertname": fmt.Sprintf("Alert%d", number%300), "instance": host + ":9100", "job": "node",
			"team": fmt.Sprintf("team-%d", number%namespaces), "pod": fmt.Sprintf("app-%x-%05x", number%97, g.IntN(1<<20))},
		Annotations: map[string]string{"summary": problem,
			"runbook_url": fmt.Sprintf("https://runbooks.example.com/%d", number%300)},
		Values: v1alpha1.Bag{"value": json.RawMessage(fmt.Sprintf("%.3f", g.Float64()*100))},
	}
	startTime, endTime := r.StartTime, r.ResolvedTime
	r.Alert.StartTime, r.Alert.EndTime = &startTime, &endTime
	return r
}

// uuid returns a random UUID that the seed determines.
func (g *generator) uuid() string {
	id, err := uuid.NewRandomFromReader(g.source)
	if err != nil {
		panic(err) // the source does not fail
	}
	return id.String()
}

func at(t time.Time) v1alpha1.Timestamp { return v1alpha1.NewTimestamp(t) }
