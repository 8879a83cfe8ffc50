package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
)

const (
	slowConnections = 2000
	guessRate       = 10_000 // a second, of wrong tokens
	guesserCount    = 20
	guessPause      = 10 * time.Millisecond
	maxGrowth       = 16 << 20 // of the memory, by large bodies
	bodySize        = 1 << 30
	largeSenders    = 8 // of large bodies, and of bombs
	largePause      = 20 * time.Millisecond

	valueSenders = 64
	valueBody    = 256 << 10
	valuePause   = 500 * time.Millisecond
	valueGrowth  = 128 << 20 // of the memory, by bodies of many values
)

// hostileLoad attacks one replica in several ways while a few senders go on as usual.
func hostileLoad(ctx context.Context, s *suite) (*report, error) {
	run, err := s.startTrial(ctx)
	if err != nil {
		return nil, err
	}
	result := &report{}
	alone := run.usualLoad(ctx)
	result.acknowledged = alone.Acknowledged()
	result.notes = append(result.notes, fmt.Sprintf("alone p99 %s", alone.Quantile(0.99).Round(time.Millisecond)))
	for _, attack := range []struct {
		name   string
		run    func(context.Context, *report)
		growth int64 // by which the memory may grow, if not 0
		busy   bool  // it takes the processors that the manager and its senders share here
	}{
		{"slow headers", run.slowHeaders, 0, false},
		{"wrong tokens", run.wrongTokens, 0, false},
		{"1 GiB bodies", run.largeBodies, maxGrowth, false},
		{"gzip bombs", run.gzipBombs, maxGrowth, false},
		{"bodies of many values", run.bodiesOfManyValues, valueGrowth, true},
	} {
		if err := run.replicas[0].resetPeak(); err != nil {
			return result, err
		}
		before, _ := run.replicas[0].rss()
		attackCtx, stop := context.WithCancel(ctx)
		var attackers sync.WaitGroup
		attackers.Go(func() { attack.run(attackCtx, result) })
		pause(ctx, time.Second)
		account := run.usualLoad(ctx)
		stop()
		attackers.Wait()
		_, after := run.replicas[0].rss()
		total := 0
		for _, n := range account.Codes {
			total += n
		}
		result.acknowledged += account.Acknowledged()
		served := float64(account.Acknowledged()) / float64(max(1, total))
		result.notes = append(result.notes, fmt.Sprintf("%s: %.1f %% served, p99 %s, peak memory +%d MiB",
			attack.name, 100*served, account.Quantile(0.99).Round(time.Millisecond), (after-before)>>20))
		if served < 0.99 {
			result.findings.Add("E: %s: only %.1f %% of %d usual requests were served: %v", attack.name, 100*served, total, account.Codes)
		}
		if limit := 2 * alone.Quantile(0.99); account.Quantile(0.99) > limit && !attack.busy {
			result.findings.Add("E: %s: the slowest percent takes %s, alone %s", attack.name, account.Quantile(0.99), alone.Quantile(0.99))
		}
		if attack.growth > 0 && after-before > attack.growth {
			result.findings.Add("F: %s: the memory's peak grew by %d MiB", attack.name, (after-before)>>20)
		}
	}
	return result, nil
}

// usualLoad is four senders for five seconds.
func (r *run) usualLoad(ctx context.Context) *loadgen.Account {
	return loadgen.Run(ctx, loadgen.Load{
		URLs: []string{r.replicas[0].manager.WebhookURL + r.tenants[0].token}, Senders: 4, Duration: 5 * time.Second,
		Key: loadgen.RotatingKeys(10),
	})
}

func (r *run) address() string {
	return strings.Split(strings.TrimPrefix(r.replicas[0].manager.WebhookURL, "http://"), "/")[0]
}

// repeat has so many attackers do something again and again, with a rest after each time, until ctx ends.
func repeat(ctx context.Context, attackers int, rest time.Duration, do func(attacker int)) {
	var all sync.WaitGroup
	for n := range attackers {
		all.Go(func() {
			for ctx.Err() == nil {
				do(n)
				pause(ctx, rest)
			}
		})
	}
	all.Wait()
}

// slowHeaders opens connections on which a byte comes every second.
func (r *run) slowHeaders(ctx context.Context, _ *report) {
	repeat(ctx, slowConnections, 0, func(int) { r.dribble(ctx) })
}

func (r *run) dribble(ctx context.Context) {
	connection, err := net.DialTimeout("tcp", r.address(), time.Second)
	if err != nil {
		pause(ctx, 100*time.Millisecond)
		return
	}
	defer func() { _ = connection.Close() }()
	if _, err := io.WriteString(connection, "POST / HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
		return
	}
	for pause(ctx, time.Second) {
		if _, err := io.WriteString(connection, "a"); err != nil {
			return
		}
	}
}

// wrongTokens guesses tokens, so many a second.
func (r *run) wrongTokens(ctx context.Context, result *report) {
	var answers atomic.Int64
	begin := time.Now()
	repeat(ctx, guesserCount, 100*time.Millisecond, func(g int) { r.guess(ctx, g, &answers) })
	result.notes = append(result.notes, fmt.Sprintf("%.0f wrong tokens/s", float64(answers.Load())/time.Since(begin).Seconds()))
}

// guess sends wrong tokens over one connection without waiting for the answers: that costs the processors, which it shares
// with the manager, least.
func (r *run) guess(ctx context.Context, g int, answers *atomic.Int64) {
	connection, err := net.DialTimeout("tcp", r.address(), time.Second)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	path := strings.TrimPrefix(r.replicas[0].manager.WebhookURL, "http://"+r.address())
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := bufio.NewScanner(connection)
		for lines.Scan() {
			if bytes.HasPrefix(lines.Bytes(), []byte("HTTP/1.1 401 ")) {
				answers.Add(1)
			}
		}
	})
	var burst bytes.Buffer
	for n := 0; pause(ctx, guessPause); n++ {
		burst.Reset()
		for i := range int(guessRate * guessPause / time.Second / guesserCount) {
			fmt.Fprintf(&burst, "POST %sguess-%d-%d-%d HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", path, g, n, i)
		}
		if _, err := connection.Write(burst.Bytes()); err != nil {
			break
		}
	}
	_ = connection.Close()
	reading.Wait()
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// largeBodies sends bodies of 1 GiB with good and bad tokens, with and without a length.
func (r *run) largeBodies(ctx context.Context, result *report) {
	var sent atomic.Int64
	repeat(ctx, largeSenders, largePause, func(n int) {
		token := []string{r.tenants[0].token, "wrong"}[n%2]
		body := io.LimitReader(zeros{}, bodySize)
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.replicas[0].manager.WebhookURL+token, body)
		if err != nil {
			return
		}
		if n%4 < 2 {
			request.ContentLength = bodySize
		}
		if response, err := harnessClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
		sent.Add(1)
	})
	result.notes = append(result.notes, fmt.Sprintf("%d large bodies", sent.Load()))
}

// gzipBombs sends small bodies that decompress to 256 MiB.
func (r *run) gzipBombs(ctx context.Context, result *report) {
	var bomb bytes.Buffer
	writer, err := gzip.NewWriterLevel(&bomb, gzip.BestCompression)
	if err != nil {
		result.findings.Add("E: %v", err)
		return
	}
	_, _ = io.Copy(writer, io.LimitReader(zeros{}, 256<<20))
	_ = writer.Close()
	repeat(ctx, largeSenders, largePause, func(int) {
		_, _ = r.post(0, r.tenants[0].token, bytes.NewReader(bomb.Bytes()), map[string]string{"Content-Encoding": "gzip"})
	})
}

// bodiesOfManyValues sends bodies, with the token of another tenant, that decode to fifty times their length.
func (r *run) bodiesOfManyValues(ctx context.Context, result *report) {
	body := `{"a":[` + strings.Repeat(`{"":0},`, valueBody/7-10) + `0]}`
	var mu sync.Mutex
	answers := map[int]int{}
	repeat(ctx, valueSenders, valuePause, func(int) {
		if a, err := r.post(0, r.tenants[1].token, strings.NewReader(body), nil); err == nil {
			mu.Lock()
			answers[a.code]++
			mu.Unlock()
		}
	})
	result.notes = append(result.notes, fmt.Sprintf("answers to bodies of many values: %v", answers))
	if answers[http.StatusAccepted] == 0 {
		result.findings.Add("E: no body of many values was accepted: %v", answers)
	}
}

// corpus are payloads that try everything that JSON and Unicode have to offer.
func corpus() []string {
	long := strings.Repeat("x", 100_000)
	texts := []string{
		`""`, `" "`, `"\u0000\u0001\u001b[31mred\u007f\u009b"`, `"\ud800"`, `"\udfff\ud800"`, `"\ud83d\ude00"`,
		`"\u202e\u2066evil\u2069"`, `"\r\nSet-Cookie: a"`, `"\u2028\u2029"`,
		`"` + long + `"`, `"` + strings.Repeat(`\u0007`, 20_000) + `"`,
		`"` + strings.Repeat("é", 20_000) + `"`, `1e400`, `-0`, `12345678901234567890`, `0.1e-400`, `true`, `null`,
		`[]`, `{}`, `[1,[2,[3]]]`, `{"a":{"b":{"c":null}}}`, "\"\xff\xfe\"", `"<script>"`, `"{{ .Values }}"`, `"$(reboot)"`,
	}
	fields := []string{
		"title", "subject", "description", "message", "severity", "priority", "status", "dedup_key", "type", "link", "hostname",
		"region", "labels", "annotations", "values", "custom", "starts_at", "ends_at", "", "\\u0000", "metadata", "apiVersion",
	}
	var all []string
	for _, field := range fields {
		for _, text := range texts {
			all = append(all, fmt.Sprintf(`{"dedup_key":"corpus","%s":%s}`, field, text))
		}
	}
	for _, text := range texts {
		all = append(all, fmt.Sprintf(`{"labels":{"a":%[1]s,"":%[1]s},"values":{"x":[%[1]s]},"custom":{"deep":{"er":%[1]s}}}`, text))
		all = append(all, text)
	}
	keys := strings.Builder{}
	for n := range 5000 {
		fmt.Fprintf(&keys, `"key-%d":%d,`, n, n)
	}
	return append(all, `{`+keys.String()+`"end":1}`, `{"labels":{`+keys.String()+`"end":1}}`,
		`{"a":`+strings.Repeat("[", 60)+strings.Repeat("]", 60)+`}`, strings.Repeat("[", 10_000), `{`, ``, "\xef\xbb\xbf{}")
}

// postCorpus posts the corpus. The endpoint may refuse a payload; the API server may not, once the endpoint
// has taken it.
func postCorpus(ctx context.Context, s *suite) (*report, error) {
	run, err := s.startTrial(ctx)
	if err != nil {
		return nil, err
	}
	result := &report{}
	allowed := []int{http.StatusAccepted, http.StatusBadRequest, http.StatusRequestEntityTooLarge}
	for n, body := range corpus() {
		a, err := run.post(n, run.tenants[0].token, strings.NewReader(body), nil)
		switch {
		case err != nil:
			result.findings.Add("E: %.60q: %v", body, err)
		case a.code == http.StatusServiceUnavailable:
			result.unknown++
		case !slices.Contains(allowed, a.code):
			result.findings.Add("E: %.60q is answered %d %s", body, a.code, a.Type)
		case a.code == http.StatusAccepted:
			result.acknowledged++
		default:
			result.refused++
		}
	}
	if _, err := loadgen.Drained(ctx, run.admin, run.tenants[0].namespace); err != nil {
		return result, err
	}
	var list v1alpha1.IncidentList
	if err := run.admin.List(ctx, &list, client.InNamespace(run.tenants[0].namespace)); err != nil {
		return result, err
	}
	for i := range list.Items {
		incident := &list.Items[i]
		alert := &incident.Status.Alert
		for _, text := range []string{alert.Title, alert.Type, alert.Link, alert.Hostname, alert.Region, incident.Spec.DedupKey} {
			if strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) }) {
				result.findings.Add("F: %s has the control characters of %.60q", incident.Name, text)
			}
		}
	}
	for _, replica := range run.replicas {
		result.findings = append(result.findings, prefixed("F: ", replica.alarms())...)
	}
	return result, nil
}
