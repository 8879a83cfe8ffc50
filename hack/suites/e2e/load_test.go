//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	// A run in which fewer alerts for each second of sending are acknowledged before the fault counts for nothing. On a
	// machine that is too busy the answers come late; the rates in the report are those up to the last answer.
	leastRate = 200

	// offeredRate is a little more than that; it does not wait for the answers.
	offeredRate = 220
	senders     = 32

	// keys is how many Incidents the load goes to. The first is busy: every other alert is its.
	keys = 40

	drainTimeout = 2 * time.Minute
)

// load is what the suite sends to an integration.
func (s *suite) load(namespace, integration string) loadgen.Load {
	rotating := loadgen.RotatingKeys(keys)
	return loadgen.Load{
		URLs:    []string{s.url + webhookPath + testenv.Token(namespace, integration)},
		Senders: senders,
		Rate:    offeredRate,
		Key: func(n int) string {
			if n%2 == 0 {
				return "busy"
			}
			return rotating(n / 2)
		},
	}
}

// phase is what was seen of the load for a while.
type phase struct {
	account *loadgen.Account
	lag     time.Duration // the greatest age of an AlertEvent
}

func (p phase) String() string {
	return fmt.Sprintf("%.0f/s, p99 %v, codes %v, lag %v",
		p.account.Rate(), p.account.Quantile(0.99).Round(time.Millisecond), p.account.Codes, p.lag.Round(100*time.Millisecond))
}

// observe sends the load until ctx ends or its duration is over.
func (s *suite) observe(ctx context.Context, namespace string, load loadgen.Load) phase {
	watching, stop := context.WithCancel(context.Background())
	var p phase
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for watching.Err() == nil {
			if age, err := s.oldest(watching, namespace); err == nil {
				p.lag = max(p.lag, age)
			}
			select {
			case <-watching.Done():
			case <-time.After(250 * time.Millisecond):
			}
		}
	})
	p.account = loadgen.Run(ctx, load)
	stop()
	watcher.Wait()
	return p
}

// oldest is the age of the oldest AlertEvent, which is the first one by name.
func (s *suite) oldest(ctx context.Context, namespace string) (time.Duration, error) {
	var events v1alpha1.AlertEventList
	if err := s.List(ctx, &events, client.InNamespace(namespace), client.Limit(1)); err != nil || len(events.Items) == 0 {
		return 0, err
	}
	return time.Since(events.Items[0].Spec.ReceivedTime.Time), nil
}

// check waits until everything is folded and compares the account with the Incidents, key by key.
func (s *suite) check(t *testing.T, namespace, integration string, account *loadgen.Account) time.Duration {
	t.Helper()
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), drainTimeout)
	defer cancel()
	drained, err := loadgen.Drained(ctx, s.Client, namespace)
	g.Expect(err).NotTo(HaveOccurred())
	wrong, err := loadgen.Check(t.Context(), s.Client, namespace, integration, account, 10)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(wrong).To(BeEmpty())
	return drained
}

// trial is a fault and the figures of the load around it.
type trial struct {
	name                  string
	start                 time.Time
	before, during, after phase
	took, drained         time.Duration
	pods                  map[string]usage
	total                 *loadgen.Account
}

// underLoad loads an integration of its own before, during and after the fault, and checks that no alert was
// lost or counted twice.
func (s *suite) underLoad(t *testing.T, name string, fault func(context.Context) error) trial {
	t.Helper()
	g := NewWithT(t)
	namespace := s.namespace(t, "e2e-"+strings.ReplaceAll(name, " ", "-"))
	s.integration(t, namespace, "load")
	steady := s.load(namespace, "load")
	steady.Duration = s.phase
	result := trial{name: name, start: time.Now(), total: loadgen.NewAccount()}
	sampler := s.sampleUsage(t.Context())

	result.before = s.observe(t.Context(), namespace, steady)
	t.Logf("before: %v", result.before)
	g.Expect(result.before.account.Codes).To(Equal(map[string]int{"202": result.before.account.Acknowledged()}), "all is well")
	acknowledged := float64(result.before.account.Acknowledged())
	g.Expect(acknowledged).To(BeNumerically(">=", leastRate*s.phase.Seconds()), "in %v", s.phase)

	ctx, stop := context.WithCancel(t.Context())
	var failure error
	start := time.Now()
	go func() {
		defer stop()
		failure = fault(ctx)
		result.took = time.Since(start)
	}()
	endless := s.load(namespace, "load")
	result.during = s.observe(ctx, namespace, endless)
	g.Expect(failure).NotTo(HaveOccurred())

	result.after = s.observe(t.Context(), namespace, steady)
	result.pods = sampler.stop()
	for _, p := range []phase{result.before, result.during, result.after} {
		result.total.Add(p.account)
	}
	result.drained = s.check(t, namespace, "load", result.total)
	t.Logf("during, %v: %v", result.took.Round(time.Second), result.during)
	t.Logf("after: %v; drained %v later", result.after, result.drained.Round(100*time.Millisecond))
	return result
}

// undisturbed wants every request of the trial acknowledged.
func (r *trial) undisturbed(t *testing.T) {
	t.Helper()
	codes := slices.Collect(maps.Keys(r.total.Codes))
	NewWithT(t).Expect(codes).To(Equal([]string{"202"}), "no request is refused: %v", r.total.Codes)
}

// unwanted is what the pods must not log: something that their account is not allowed, or a panic. An API server that
// has just started refuses for a moment what roles allow that it has not read yet; a panic is never in order.
var (
	unwanted     = regexp.MustCompile(`(?i)forbidden|panic|goroutine \d+`)
	unwantedEver = regexp.MustCompile(`panic|goroutine \d+`)
)

// checkLogs looks for that in the logs of all containers since then, those that were ended included.
func (s *suite) checkLogs(t *testing.T, since time.Time, wrong *regexp.Regexp) {
	t.Helper()
	g := NewWithT(t)
	pods, err := s.pods(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	for i := range pods {
		for _, previous := range []bool{false, true} {
			if previous && pods[i].Status.ContainerStatuses[0].LastTerminationState.Terminated == nil {
				continue
			}
			log := s.kubectl(t, "-n", systemNamespace, "logs", pods[i].Name, "--since-time="+since.Format(time.RFC3339),
				fmt.Sprintf("--previous=%t", previous))
			g.Expect(wrong.FindString(log)).To(BeEmpty(), "%s logs:\n%s", pods[i].Name, log)
		}
	}
}

// checkRestarts wants every container to be the first one of its pod.
func (s *suite) checkRestarts(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	pods, err := s.pods(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	for i := range pods {
		g.Expect(pods[i].Status.ContainerStatuses[0].RestartCount).To(BeZero(), pods[i].Name)
	}
}

// report collects the figures for docs/internals/reliability.md.
type report struct {
	trials []trial
	rest   map[string]usage
}

// write prints the report as Markdown, into the file E2E_REPORT when there is one.
func (r *report) write(t *testing.T) {
	t.Helper()
	var b strings.Builder
	b.WriteString("| Fault | Took | Acknowledged a second | p99 | 503 | Oldest AlertEvent " +
		"| Acknowledged | Refused | Unknown | Lost or twice |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range r.trials {
		r.trials[i].write(&b)
	}
	b.WriteString("\n| Pod | Most memory | Mean CPU |\n|---|---|---|\n")
	writeUsage(&b, "at rest", r.rest)
	for _, trial := range r.trials {
		writeUsage(&b, trial.name, trial.pods)
	}
	t.Log("\n" + b.String())
	if path := os.Getenv("E2E_REPORT"); path != "" {
		NewWithT(t).Expect(os.WriteFile(path, []byte(b.String()), 0o600)).To(Succeed())
	}
}

// write writes a row: what has three numbers is before, during and after the fault.
func (r *trial) write(b *strings.Builder) {
	var rate, p99, overload, lag []string
	for _, p := range []phase{r.before, r.during, r.after} {
		rate = append(rate, fmt.Sprintf("%.0f", p.account.Rate()))
		p99 = append(p99, p.account.Quantile(0.99).Round(time.Millisecond).String())
		overload = append(overload, strconv.Itoa(p.account.Codes["503"]))
		lag = append(lag, fmt.Sprintf("%.1f s", p.lag.Seconds()))
	}
	_, all := r.total.Snapshot()
	fmt.Fprintf(b, "| %s | %.0f s |", r.name, r.took.Seconds())
	for _, three := range [][]string{rate, p99, overload, lag} {
		fmt.Fprintf(b, " %s |", strings.Join(three, " / "))
	}
	fmt.Fprintf(b, " %d | %d | %d | 0 |\n", r.total.Acknowledged(), all.Refused, all.Unknown)
}

func writeUsage(b *strings.Builder, when string, pods map[string]usage) {
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		u := pods[name]
		role := "follows"
		if u.led {
			role = "leads"
		}
		fmt.Fprintf(b, "| %s: %s, %s | %d MiB | %.2f |\n", when, name, role, u.memory>>20, u.cpu())
	}
}
