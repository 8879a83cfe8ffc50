//go:build slow

package faults

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	fieldConnections = 300 // of an attacker, with header fields without end
	slowConnections  = 500 // of an attacker, with a byte of a header each second
	idleConnections  = 400 // of an attacker, at each port
	guessers         = 5   // of an attacker, who guess tokens
	largeSenders     = 4   // of an attacker, of large bodies and of bombs
	valueSenders     = 16  // of an attacker, of bodies of many values
	unreadAnswers    = 25  // of an attacker, at a time
	mappedSenders    = 50  // of an attacker
	tinyWriters      = 4   // of an attacker, who write AlertEvents by hand
	largeSpecs       = 300 // of an attacker: integrations of 250 KB
	dialTimeout      = 2 * time.Second
	mappedName       = "mapped"

	guessRate  = 10_000 // a second, of the wrong tokens of all attackers
	guessPause = 10 * time.Millisecond
	largePause = 20 * time.Millisecond
	bodySize   = 1 << 30
	bombSize   = 256 << 20
	valueBody  = 256 << 10
	valuePause = 500 * time.Millisecond
)

// attack is what a tenant, or somebody without a token, does until the context ends.
type attack struct {
	name   string
	run    func(*run, context.Context, tenant)
	most   time.Duration // that nine in ten of the neighbour's alerts may take; 0: maxDelay
	growth int64         // of the memory of a replica; 0: any
}

// requestAttacks come first, while the memory has little: its growth is judged.
var requestAttacks = []attack{
	{name: "slow headers", most: time.Second, run: connections(slowConnections, requestStart+"X-Slow: ", "a", time.Second)},
	{name: "wrong tokens", most: time.Second, run: (*run).guessTokens},
	{name: "bodies of 1 GiB", most: time.Second, growth: 16 << 20, run: (*run).postLargeBodies},
	// Bodies that decompress to 256 MiB.
	{name: "gzip bombs", most: time.Second, growth: 16 << 20, run: posts(largeSenders, largePause, "", gzipped, func() []byte {
		return compressed(io.LimitReader(blanks{}, bombSize))
	})},
	// Bodies that decode to fifty times their length.
	{name: "bodies of many values", growth: 128 << 20, run: posts(valueSenders, valuePause, "", nil, func() []byte {
		return []byte(`{"a":[` + strings.Repeat(`{"":0},`, valueBody/7-10) + `0]}`)
	})},
}

// attacks are those that also come all at once, each at another door.
var attacks = []attack{
	// etcd and the API servers take most of the time for objects of a megabyte.
	{name: "objects and alerts of 1 MB", most: 3 * maxDelay, run: (*run).attackByBytes},
	{name: "header fields without end",
		run: connections(fieldConnections, requestStart, strings.Repeat("a:\n", 1<<10), 10*time.Millisecond)},
	{name: "one header of 1 MiB", run: connections(fieldConnections, requestStart, strings.Repeat("a", 4<<10), 10*time.Millisecond)},
	{name: "idle connections", run: connections(idleConnections, "", "", 0)},
	{name: "requests without their bodies", run: connections(idleConnections, requestStart+"Content-Length: 100\r\n\r\n", "", 0)},
	{name: "answers that are not read", run: (*run).leaveAnswers},
	{name: "small events with large answers", run: posts(2, hostilePause/4, "?dryRun=true", gzippedEvent, smallEvent)},
	{name: "mappings that take their whole budget", run: (*run).postMapped},
	{name: "tiny AlertEvents by hand", run: (*run).createTinyEvents},
	{name: "integrations of 250 KB", run: (*run).createLargeIntegrations},
}

const requestStart = "GET / HTTP/1.1\r\nHost: x\r\n"

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

// connections returns an attack that opens connections to the webhook server, the probes and the metrics of the replicas in
// turns, begins a request on each, and goes on with the same part of a header every so often, if there is one, until it is
// closed.
func connections(count int, begin, part string, every time.Duration) func(*run, context.Context, tenant) {
	return func(r *run, ctx context.Context, _ tenant) {
		var servers []string
		for _, replica := range r.replicas {
			servers = append(servers, replica.manager.WebhookURL, replica.manager.ReadyURL, replica.manager.MetricsURL)
		}
		repeat(ctx, count, time.Second, func(n int) {
			connect(ctx, servers[n%len(servers)], func(connection net.Conn, _ string) {
				_, err := io.WriteString(connection, begin)
				if part == "" {
					_, _ = io.Copy(io.Discard, connection) // until it is closed
					return
				}
				for err == nil && pause(ctx, every) {
					_, err = io.WriteString(connection, part)
				}
			})
		})
	}
}

// connect uses a connection to the server of a URL, which is closed when the context ends, and the path of the URL.
func connect(ctx context.Context, server string, use func(connection net.Conn, path string)) {
	target, err := url.Parse(server)
	if err != nil {
		return
	}
	connection, err := net.DialTimeout("tcp", target.Host, dialTimeout)
	if err != nil {
		pause(ctx, time.Second)
		return
	}
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	defer func() { _ = connection.Close() }()
	use(connection, target.Path)
}

// guessTokens guesses tokens, guessRate a second with the other attackers. It does not wait for the answers: that costs the
// processors, which it shares with the manager, least.
func (r *run) guessTokens(ctx context.Context, _ tenant) {
	repeat(ctx, guessers, 100*time.Millisecond, func(n int) {
		connect(ctx, r.replicas[n%len(r.replicas)].manager.WebhookURL, func(connection net.Conn, path string) {
			go func() { _, _ = io.Copy(io.Discard, connection) }()
			guess := fmt.Sprintf("POST %sguess-%d HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", path, n)
			burst := strings.Repeat(guess, int(guessRate*guessPause/time.Second/(guessers*hostileTenants)))
			var err error
			for err == nil && pause(ctx, guessPause) {
				_, err = io.WriteString(connection, burst)
			}
		})
	})
}

// blanks is an endless body.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// postLargeBodies posts bodies of 1 GiB with good and wrong tokens, with and without a length.
func (r *run) postLargeBodies(ctx context.Context, t tenant) {
	repeat(ctx, largeSenders, largePause, func(n int) {
		address := r.replicas[n%len(r.replicas)].manager.WebhookURL + []string{t.token, "wrong"}[n/2%2]
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, io.LimitReader(blanks{}, bodySize))
		if err != nil {
			return
		}
		if rand.IntN(2) == 0 {
			request.ContentLength = bodySize
		}
		if response, err := harnessClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	})
}

// posts returns an attack that posts a body, which is made once it is needed, again and again.
func posts(
	attackers int, rest time.Duration, query string, headers map[string]string, body func() []byte,
) func(*run, context.Context, tenant) {
	made := sync.OnceValue(body)
	return func(r *run, ctx context.Context, t tenant) {
		repeat(ctx, attackers, rest, func(n int) { _, _ = r.post(n, t.token+query, bytes.NewReader(made()), headers) })
	}
}

var (
	gzipped      = map[string]string{"Content-Encoding": "gzip"}
	gzippedEvent = map[string]string{"Content-Type": "application/cloudevents+json", "Content-Encoding": "gzip"}
)

func compressed(body io.Reader) []byte {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = io.Copy(writer, body)
	_ = writer.Close()
	return packed.Bytes()
}

// smallEvent is 500 alerts as one CloudEvent with large attributes, a few hundred bytes as they are sent.
func smallEvent() []byte {
	alerts := strings.TrimSuffix(strings.Repeat("{},", 500), ",")
	return compressed(strings.NewReader(fmt.Sprintf(`{"specversion":"1.0","id":"1","source":"s","type":%q,"subject":%q,"data":[%s]}`,
		strings.Repeat("t", 80<<10), strings.Repeat("s", 80<<10), alerts)))
}

// leaveAnswers posts dry runs whose answers are about as large as their bodies, and reads none.
func (r *run) leaveAnswers(ctx context.Context, t tenant) {
	body := fmt.Sprintf(`{"dedup_key":"unread","custom":{"text":%q}}`, strings.Repeat("x", 160<<10))
	repeat(ctx, unreadAnswers, 0, func(n int) {
		connect(ctx, r.replicas[n%len(r.replicas)].manager.WebhookURL+t.token, func(connection net.Conn, path string) {
			if socket, ok := connection.(*net.TCPConn); ok {
				_ = socket.SetReadBuffer(4 << 10)
			}
			_, _ = fmt.Fprintf(connection, "POST %s?dryRun=true HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
				path, len(body), body)
			pause(ctx, 20*time.Second)
		})
	})
}

// postMapped posts payloads to an integration whose mapping takes all the time that it may.
func (r *run) postMapped(ctx context.Context, t tenant) {
	_ = r.Client.Create(ctx, &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: mappedName},
		Spec: v1alpha1.WebhookIntegrationSpec{
			Tokens: testenv.Tokens(t.namespace, mappedName),
			Mapping: &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{
				Title: "string(alert.items.filter(x, alert.items.exists(y, y < 0)).size())",
			}},
		},
	})
	body := `{"dedup_key":"mapped","items":[` + strings.TrimSuffix(strings.Repeat("1,", 2000), ",") + `]}`
	token := testenv.Token(t.namespace, mappedName)
	repeat(ctx, mappedSenders, 0, func(n int) {
		if a, err := r.post(n, token+"?dryRun=true", strings.NewReader(body), nil); err != nil || a.code != http.StatusOK {
			pause(ctx, time.Second)
		}
	})
}

// createTinyEvents creates AlertEvents of an integration that does not exist, which stay.
func (r *run) createTinyEvents(ctx context.Context, t tenant) {
	repeat(ctx, tinyWriters, 0, func(int) {
		_ = r.Client.Create(ctx, hostage(metav1.ObjectMeta{Namespace: t.namespace, GenerateName: "tiny-"}, 0))
	})
}

// hostage is an AlertEvent that a finalizer keeps.
func hostage(metadata metav1.ObjectMeta, n int) *v1alpha1.AlertEvent {
	metadata.Finalizers = []string{"example.com/hostage"}
	return &v1alpha1.AlertEvent{
		ObjectMeta: metadata,
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: integrationName, Alerts: v1alpha1.AlertsText(fmt.Sprintf(`[{"dedupKey":"key-%d","status":"firing"}]`, n%20)),
		},
	}
}

// createLargeIntegrations creates integrations whose texts are as large as the schema allows, of characters of four bytes.
func (r *run) createLargeIntegrations(ctx context.Context, t tenant) {
	text := func(characters int) string { return strings.Repeat("𝄞", characters) }
	labels := map[string]v1alpha1.LabelValue{}
	for n := range 64 {
		labels[fmt.Sprint(text(126), n)] = v1alpha1.LabelValue(text(256))
	}
	expression := v1alpha1.Expression(text(2048))
	for n := 0; n < largeSpecs && pause(ctx, hostilePause/10); n++ {
		name := fmt.Sprint("spec-", n)
		_ = r.Client.Create(ctx, &v1alpha1.WebhookIntegration{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name},
			Spec: v1alpha1.WebhookIntegrationSpec{
				Tokens:   testenv.Tokens(t.namespace, name),
				Defaults: &v1alpha1.AlertDefaults{Title: text(1024), Labels: labels},
				Mapping: &v1alpha1.Mapping{Alerts: expression, Drop: expression, Fields: v1alpha1.MappingFields{
					Title: expression, Description: expression, Severity: expression, Status: expression, DedupKey: expression,
					Link: expression, Hostname: expression, Region: expression, Labels: expression, Annotations: expression,
					Values: expression, Type: expression, Custom: expression,
				}},
			},
		})
	}
	<-ctx.Done()
}
