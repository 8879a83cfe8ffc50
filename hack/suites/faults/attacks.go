package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	fieldConnections = 300 // of an attacker, with header fields without end
	idleConnections  = 400 // of an attacker, at each port
	unreadAnswers    = 25  // of an attacker, at a time
	mappedSenders    = 50  // of an attacker
	tinyWriters      = 4   // of an attacker, who write AlertEvents by hand
	largeSpecs       = 300 // of an attacker: integrations of 250 KB
	dialTimeout      = 2 * time.Second
	mappedName       = "mapped"
)

// attack is what a tenant, or somebody without a token, does until the context ends.
type attack struct {
	name string
	run  func(context.Context, *run, tenant)
	most time.Duration // that nine in ten of the neighbour's alerts may take; 0: maxDelay
}

// attacks are those of hostile-bytes, each at another door.
var attacks = []attack{
	// etcd and the API servers take most of the time for objects of a megabyte.
	{"objects and alerts of 1 MB", func(ctx context.Context, r *run, t tenant) { r.attackByBytes(ctx, t) }, 3 * maxDelay},
	{"header fields without end", func(ctx context.Context, r *run, _ tenant) {
		r.atEveryPort(ctx, fieldConnections, requestStart, strings.Repeat("a:\n", 1<<10))
	}, 0},
	{"one header of 1 MiB", func(ctx context.Context, r *run, _ tenant) {
		r.atEveryPort(ctx, fieldConnections, requestStart, strings.Repeat("a", 4<<10))
	}, 0},
	{"idle connections", func(ctx context.Context, r *run, _ tenant) {
		r.atEveryPort(ctx, idleConnections, "", "")
	}, 0},
	{"requests without their bodies", func(ctx context.Context, r *run, _ tenant) {
		r.atEveryPort(ctx, idleConnections, requestStart+"Content-Length: 100\r\n\r\n", "")
	}, 0},
	{"answers that are not read", func(ctx context.Context, r *run, t tenant) { r.leaveAnswers(ctx, t) }, 0},
	{"small events with large answers", func(ctx context.Context, r *run, t tenant) { r.postSmallEvents(ctx, t) }, 0},
	{"mappings that take their whole budget", func(ctx context.Context, r *run, t tenant) { r.postMapped(ctx, t) }, 0},
	{"tiny AlertEvents by hand", func(ctx context.Context, r *run, t tenant) { r.createTinyEvents(ctx, t) }, 0},
	{"integrations of 250 KB", func(ctx context.Context, r *run, t tenant) { r.createLargeIntegrations(ctx, t) }, 0},
}

// requestStart is the start of a request.
const requestStart = "GET / HTTP/1.1\r\nHost: x\r\n"

// atEveryPort opens connections to the webhook server, the probes and the metrics of the replicas in turns, begins a request on
// each, and goes on with the same part of a header, if there is one, until it is closed.
func (r *run) atEveryPort(ctx context.Context, connections int, begin, part string) {
	var addresses []string
	for _, replica := range r.replicas {
		for _, address := range []string{replica.manager.WebhookURL, replica.manager.ReadyURL, replica.manager.MetricsURL} {
			if parsed, err := url.Parse(address); err == nil {
				addresses = append(addresses, parsed.Host)
			}
		}
	}
	repeat(ctx, connections, time.Second, func(n int) { flood(ctx, addresses[n%len(addresses)], begin, part) })
}

func flood(ctx context.Context, address, begin, part string) {
	connection, err := net.DialTimeout("tcp", address, dialTimeout)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	defer func() { _ = connection.Close() }()
	_, err = io.WriteString(connection, begin)
	if part == "" {
		_, _ = io.Copy(io.Discard, connection) // until it is closed
		return
	}
	for err == nil && pause(ctx, 10*time.Millisecond) {
		_, err = io.WriteString(connection, part)
	}
}

// leaveAnswers posts dry runs whose answers are about as large as their bodies, and reads none.
func (r *run) leaveAnswers(ctx context.Context, t tenant) {
	body := fmt.Sprintf(`{"dedup_key":"unread","custom":{"text":%q}}`, strings.Repeat("x", 160<<10))
	repeat(ctx, unreadAnswers, 0, func(n int) {
		target, err := url.Parse(r.replicas[n%len(r.replicas)].manager.WebhookURL + t.token)
		if err != nil {
			return
		}
		connection, err := net.DialTimeout("tcp", target.Host, dialTimeout)
		if err != nil {
			pause(ctx, time.Second)
			return
		}
		defer func() { _ = connection.Close() }()
		if socket, ok := connection.(*net.TCPConn); ok {
			_ = socket.SetReadBuffer(4 << 10)
		}
		_, _ = fmt.Fprintf(connection, "POST %s?dryRun=true HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
			target.Path, len(body), body)
		pause(ctx, 20*time.Second)
	})
}

// postSmallEvents posts 500 alerts as one CloudEvent with large attributes, a few hundred bytes as they are sent.
func (r *run) postSmallEvents(ctx context.Context, t tenant) {
	alerts := strings.TrimSuffix(strings.Repeat("{},", 500), ",")
	event := fmt.Sprintf(`{"specversion":"1.0","id":"1","source":"s","type":%q,"subject":%q,"data":[%s]}`,
		strings.Repeat("t", 80<<10), strings.Repeat("s", 80<<10), alerts)
	var body bytes.Buffer
	writer := gzip.NewWriter(&body)
	_, _ = io.WriteString(writer, event)
	_ = writer.Close()
	headers := map[string]string{"Content-Type": "application/cloudevents+json", "Content-Encoding": "gzip"}
	repeat(ctx, 2, hostilePause/4, func(n int) {
		_, _ = r.post(n, t.token+"?dryRun=true", bytes.NewReader(body.Bytes()), headers)
	})
}

// postMapped posts payloads to an integration whose mapping takes all the time that it may.
func (r *run) postMapped(ctx context.Context, t tenant) {
	_ = r.admin.Create(ctx, &v1alpha1.WebhookIntegration{
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
		event := hostage(t.namespace, 0)
		event.ObjectMeta = metav1.ObjectMeta{Namespace: t.namespace, GenerateName: "tiny-", Finalizers: event.Finalizers}
		_ = r.admin.Create(ctx, event)
	})
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
		_ = r.admin.Create(ctx, &v1alpha1.WebhookIntegration{
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
