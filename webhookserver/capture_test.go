package webhookserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/capture"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
	"github.com/tocsin-dev/tocsin/webhookserver/heartbeat"
)

// capturing has the requests to an integration be captured.
func (b *bench) capturing(change func(*v1alpha1.WebhookIntegration)) *v1alpha1.WebhookIntegration {
	w := integration("team-a", "prometheus")
	w.UID, w.ResourceVersion = "uid", "1"
	w.Spec.Capture = &v1alpha1.Capture{Payloads: 100}
	if change != nil {
		change(w)
	}
	b.captures = capture.NewRecorder(b.live, b.live, events.NewFakeRecorder(100), nil, logr.Discard())
	b.captures.Set(w)
	b.tokens.set(w)
	return w
}

// captured ends the capture, and returns the requests.
func (b *bench) captured(g *WithT) (all []*capture.Request) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.captures.Run(ctx)
	found := &v1alpha1.RequestCapture{}
	err := b.live.Get(context.Background(), client.ObjectKey{Namespace: "team-a", Name: "prometheus"}, found)
	g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	for i := range found.Spec.Requests {
		request, err := capture.Decode(&found.Spec.Requests[i])
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, request)
	}
	return all
}

func TestWhichRequestsAreCaptured(t *testing.T) {
	other := func(method, path string) func(*http.Request) {
		return func(r *http.Request) { r.Method, r.URL.Path = method, testPath+path }
	}
	suspended := func(w *v1alpha1.WebhookIntegration) { w.Spec.Suspend = true }
	for name, test := range map[string]struct {
		target, body string
		change       func(*http.Request)
		integration  func(*v1alpha1.WebhookIntegration)
		want         string // the code, the method, the target and the body; empty: none
	}{
		"one that is accepted":         {testPath, firing, nil, nil, "202 POST /api/v1/events/webhook " + firing},
		"JSON that is not valid":       {testPath, `{"a":`, nil, nil, `400 POST /api/v1/events/webhook {"a":`},
		"a body that is compressed":    {testPath, gzipped(firing), with("Content-Encoding", "gzip"), nil, "202 POST /api/v1/events/webhook " + firing},
		"parameters that are fields":   {testPath + "?severity=info&x=1", firing, nil, nil, "202 POST /api/v1/events/webhook?severity=info " + firing},
		"one too deep":                 {testPath, strings.Repeat("[", 100), nil, nil, "400 POST /api/v1/events/webhook " + strings.Repeat("[", 100)},
		"an API of another service":    {testPath, `{}`, other("POST", "/v2/alerts/a b/close"), nil, "202 POST /api/v1/events/webhook/v2/alerts/a%20b/close {}"},
		"a dry run":                    {testPath + "?dryRun=true", firing, nil, nil, ""},
		"a body that is too large":     {testPath, `"` + strings.Repeat("x", 3<<20) + `"`, nil, nil, ""},
		"a body that is no gzip":       {testPath, firing, with("Content-Encoding", "gzip"), nil, ""},
		"an encoding that is unknown":  {testPath, firing, with("Content-Encoding", "br"), nil, ""},
		"a token that is not valid":    {testPath + "x", firing, nil, nil, ""},
		"a suspended integration":      {testPath, firing, nil, suspended, ""},
		"a question":                   {testPath, "", other("OPTIONS", ""), nil, ""},
		"a ping":                       {testPath, "", other("POST", "/heartbeat/x"), nil, ""},
		"a method that is not allowed": {testPath, "", other("PUT", ""), nil, ""},
		"an integration that keeps none": {testPath, firing, nil,
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Capture = nil }, ""},
		"a signature that is not valid": {testPath, firing, func(r *http.Request) {
			signed("m1", time.Now(), "v1a,AAAA")(r)
		}, func(w *v1alpha1.WebhookIntegration) {
			w.Spec.Verify = &v1alpha1.Verification{PublicKeys: []v1alpha1.PublicKey{{
				Name: "a", Key: standardKey(senderKey)}}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, b := NewWithT(t), newBench()
			b.capturing(test.integration)
			change := func(r *http.Request) {
				if test.change != nil {
					test.change(r)
				}
			}
			b.post(test.target, test.body, change)
			var want, got []string
			if test.want != "" {
				want = []string{test.want}
			}
			for _, request := range b.captured(g) {
				target := request.Path
				if len(request.Query) > 0 {
					target += "?" + request.Query.Encode()
				}
				got = append(got, fmt.Sprint(request.Code, " ", request.Method, " ", target, " ", string(request.Body)))
			}
			g.Expect(got).To(Equal(want))
		})
	}
}

// Without a turn at a processor, a tenant cannot have it look for credentials, nor keep memory for that.
func TestARequestWithoutAPlaceIsNotCaptured(t *testing.T) {
	g, b := NewWithT(t), newBench()
	b.capturing(nil)
	_, leave := b.postWithoutPlace(t)
	leave()
	b.post(testPath, `{"a":`)
	all := b.captured(g)
	g.Expect(all).To(HaveExactElements(HaveField("Code", http.StatusBadRequest)))
}

// Whatever a sender, or a proxy before the operator, puts into a request: no credential is stored, but what the tool itself puts
// into the body.
func TestNoCredentialIsCaptured(t *testing.T) {
	g, b := NewWithT(t), newBench()
	b.capturing(nil)
	b.post(eventsPath+"?title=x&token="+testToken+"&hostname="+testToken, `{"title":"Disk full","routing_key":"`+testToken+`"}`,
		func(r *http.Request) {
			for name, value := range map[string]string{
				"Authorization": "Bearer " + testToken, "Cookie": "session=s3cret", "X-Api-Key": "s3cret", "X-Acme-Token": "s3cret",
				"X-Original-Uri": testPath, "X-Forwarded-Uri": testPath, "Referer": "https://user:s3cret@example.com/", "Signature": "s3cret",
				"Proxy-Authorization": "Basic s3cret", "X-Functions-Key": "s3cret", "X-Routing-Key": "s3cret", "X-Event": "disk", "Content-Type": "application/json",
			} {
				r.Header.Set(name, value)
			}
		})
	all := b.captured(g)
	g.Expect(all).To(HaveLen(1))
	g.Expect(all[0].Header).To(Equal(http.Header{"X-Event": {"disk"}, "Content-Type": {"application/json"}}))
	g.Expect(all[0].Query.Encode()).To(Equal("title=x"))
	whole := fmt.Sprint(all[0].Path, all[0].Header, all[0].Query, string(all[0].Body))
	g.Expect(whole).NotTo(ContainSubstring(testToken[len("tocsin_"):]))
	g.Expect(whole).NotTo(ContainSubstring("s3cret"))
}

// With signatures, only what is signed is kept, and a replay reads it as the request was read.
func TestOnlySignedHeadersAreCaptured(t *testing.T) {
	g, b := NewWithT(t), newBench()
	w := b.capturing(func(w *v1alpha1.WebhookIntegration) {
		w.Spec.Verify = &v1alpha1.Verification{PublicKeys: []v1alpha1.PublicKey{{Name: "a", Key: standardKey(senderKey)}}}
		w.Spec.Mapping = &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Region: `headers[?"x-region"].orValue("none")`}}
	})
	now := time.Now()
	response := b.post(testPath, firing, signed("m1", now, sign(t, senderKey, "m1", now)), with("X-Region", "eu"))
	g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
	all := b.captured(g)
	g.Expect(all).To(HaveLen(1))
	g.Expect(all[0].Header).To(And(HaveLen(2), HaveKey("Webhook-Id"), HaveKey("Webhook-Timestamp")))
	code, answer, _ := Replay(t.Context(), Reader{WebhookIntegration: w}, all[0], DefaultMaxBodyBytes)
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(string(answer)).To(ContainSubstring(`"region":"none"`))
}

// A replay of what was captured has the answer of a dry run then.
func TestAReplayIsADryRunOfThen(t *testing.T) {
	for name, test := range map[string]struct {
		path, body string
		change     []func(*http.Request)
	}{
		"a payload":                 {"", firing, nil},
		"a parameter":               {"?region=eu", firing, nil},
		"a header":                  {"", firing, []func(*http.Request){with("X-Region", "eu")}},
		"lines":                     {"", firing + "\n" + firing, []func(*http.Request){with("Content-Type", "application/x-ndjson")}},
		"a CloudEvent":              {"", firing, []func(*http.Request){with("Ce-Specversion", "1.0"), with("Ce-Type", "t"), with("Ce-Id", "1"), with("Ce-Source", "s")}},
		"an API of another service": {"/v2/alerts/a%2Fb/close?identifierType=alias", `{"note":"x"}`, nil},
		"a payload without times":   {"", `{"title":"x","dedup_key":"x"}`, nil},
		"what is rejected":          {"", `[1]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g, b := NewWithT(t), newBench()
			then := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			b.options.Clock, b.options.Health = timeFunc(func() time.Time { return then }), timeFunc(func() time.Time { return then })
			w := b.capturing(func(w *v1alpha1.WebhookIntegration) {
				w.Spec.Mapping = &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{
					Region: `headers[?"x-region"]`, StartTime: `received`, DedupKey: `alert.?dedup_key`}}
			})
			b.post(testPath+test.path, test.body, test.change...)
			all := b.captured(g)
			g.Expect(all).To(HaveLen(1))
			dryRun := testPath + test.path + "?dryRun=true"
			if strings.Contains(test.path, "?") {
				dryRun = testPath + test.path + "&dryRun=true"
			}
			response := b.post(dryRun, test.body, test.change...)
			want, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			code, answer, _ := Replay(t.Context(), Reader{WebhookIntegration: w}, all[0], DefaultMaxBodyBytes)
			g.Expect(code).To(Equal(response.StatusCode))
			if code == http.StatusOK {
				g.Expect(withoutMadeUp(string(answer))).To(MatchJSON(withoutMadeUp(string(want))))
			}
		})
	}
}

// A crafted RequestCapture makes the plugin do nothing else.
func TestAReplayAnswersPayloadsOnly(t *testing.T) {
	reader := Reader{integration("team-a", "prometheus"), []feature.Feature{heartbeat.New()}}
	for name, request := range map[string]capture.Request{
		"a question":      {Method: http.MethodOptions, Path: eventsPath},
		"a ping":          {Method: http.MethodGet, Path: eventsPath + "/heartbeat/x", Query: map[string][]string{"dryRun": {"false"}}},
		"a read":          {Method: http.MethodGet, Path: eventsPath + "/v2/alerts/requests/x"},
		"another method":  {Method: "BREW", Path: eventsPath},
		"no method":       {Method: "\n", Path: eventsPath},
		"no path":         {Method: http.MethodPost, Path: "http://["},
		"another path":    {Method: http.MethodPost, Path: "/metrics"},
		"a wet run":       {Method: http.MethodPost, Path: eventsPath, Query: map[string][]string{"DRYRUN": {"false"}}, Body: []byte(firing)},
		"one after a run": {Method: http.MethodPost, Path: eventsPath + "?dryRun=false", Body: []byte(firing)},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, _ := Replay(t.Context(), reader, &request, DefaultMaxBodyBytes)
			NewWithT(t).Expect(code).To(BeNumerically(">=", http.StatusBadRequest))
		})
	}
}

// A whole server captures the requests of an integration as soon as that says so, and no longer.
func TestAServerCapturesRequests(t *testing.T) {
	g := NewWithT(t)
	c := startManager(t)
	w, token := c.integrate(t, "prometheus")
	c.amend(t, w, func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Capture = &v1alpha1.Capture{Payloads: 5} })
	found := &v1alpha1.RequestCapture{}
	read := func() error { return c.Get(t.Context(), client.ObjectKeyFromObject(w), found) }
	g.Eventually(func() error {
		c.post(t, token, `{"title":`)
		return read()
	}, "20s", "50ms").Should(Succeed())
	g.Expect(found.Spec.Requests).NotTo(BeEmpty())
	g.Expect(found.Spec.Requests[0].Code).To(BeEquivalentTo(http.StatusBadRequest))
	g.Expect(found.OwnerReferences[0].UID).To(Equal(w.UID))
	c.amend(t, w, func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Capture = nil })
	g.Eventually(func() bool { return apierrors.IsNotFound(read()) }, "20s", "50ms").Should(BeTrue())
	g.Expect(c.logs.String()).NotTo(ContainSubstring("Could not store captured"))
}
