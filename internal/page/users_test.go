package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/httpserver"
)

// recorder is an API server that knows some tokens, and records the headers of all requests.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	headers  []http.Header
	watches  int
	created  []v1alpha1.AlertEvent
	expired  bool
	mayWrite bool
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	t.Cleanup(r.CloseClientConnections)
	return r
}

// expire has the tokens expire, or not any more.
func (r *recorder) expire(expired bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expired = expired
}

func status(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: code, Reason: reason, Message: message})
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	r.mu.Lock()
	r.headers = append(r.headers, q.Header.Clone())
	expired := r.expired
	r.mu.Unlock()
	token := strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
	items := []v1alpha1.Incident{*incidentNamed("shop", "a")}
	switch {
	case expired || token != "maria" && token != "nobody":
		status(w, 401, metav1.StatusReasonUnauthorized, "Unauthorized")
	case strings.HasSuffix(q.URL.Path, "/selfsubjectreviews"):
		_ = json.NewEncoder(w).Encode(authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview", APIVersion: "authentication.k8s.io/v1"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: token}},
		})
	case token == "nobody":
		status(w, 403, metav1.StatusReasonForbidden, "incidents.tocsin.dev is forbidden: User nobody cannot list")
	case q.URL.Query().Get("sendInitialEvents") != "":
		status(w, 422, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	case q.URL.Query().Get("watch") != "":
		r.mu.Lock()
		r.watches++
		r.mu.Unlock()
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	case q.Method == http.MethodPost:
		r.create(w, q)
	case strings.HasSuffix(q.URL.Path, "/incidents"):
		_ = json.NewEncoder(w).Encode(v1alpha1.IncidentList{
			TypeMeta: metav1.TypeMeta{Kind: "IncidentList", APIVersion: "tocsin.dev/v1alpha1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: items})
	default:
		items[0].TypeMeta = metav1.TypeMeta{Kind: "Incident", APIVersion: "tocsin.dev/v1alpha1"}
		_ = json.NewEncoder(w).Encode(items[0])
	}
}

func (r *recorder) create(w http.ResponseWriter, q *http.Request) {
	if !r.mayWrite {
		status(w, 403, metav1.StatusReasonForbidden, "alertevents.tocsin.dev is forbidden")
		return
	}
	var event v1alpha1.AlertEvent
	_ = json.NewDecoder(q.Body).Decode(&event)
	r.mu.Lock()
	r.created = append(r.created, event)
	r.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(event)
}

// startShared starts a page for many users, whose own configuration is full of credentials.
func startShared(t *testing.T, r *recorder) *Server {
	t.Helper()
	return startLogging(t, r, logr.Discard())
}

func startLogging(t *testing.T, r *recorder, log logr.Logger) *Server {
	t.Helper()
	g := NewWithT(t)
	s, err := ForUsers(t.Context(), NewConnector(&rest.Config{
		Host: r.URL, BearerToken: "own-token", Username: "own", Password: "own-password",
		Impersonate: rest.ImpersonationConfig{UserName: "admin", Groups: []string{"system:masters"}},
	}), "127.0.0.1:0", "prod-1")
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, log) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Expect(<-done).To(Succeed())
	})
	return s
}

// users is the access of a page for many users.
func (s *Server) users() *users { return s.access.(*users) }

// ask sends a request as the page does, with the token maria.
func (s *Server) ask(t *testing.T, method, path string, body io.Reader, change func(http.Header)) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.listener.Addr().String()+"/"+path, body)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer maria")
	request.Header.Set(pageHeader, "1")
	request.Header.Set("Sec-Fetch-Site", "same-origin")
	if change != nil {
		change(request.Header)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

const acknowledge = `{"action":"ack","comment":"mine","incidents":[{"namespace":"shop","name":"a"}]}`

// No request to the API server bears anything but the token of the request that caused it, whatever that request has beside it.
func TestNoRequestBearsAnythingButTheUsersToken(t *testing.T) {
	g := NewWithT(t)
	r := newRecorder(t)
	r.mayWrite = true
	s := startShared(t, r)
	extra := func(h http.Header) {
		h.Set("X-Remote-User", "admin")
		h.Set("X-Forwarded-User", "admin")
		h.Set("X-Forwarded-Access-Token", "other")
		h.Set("Cookie", "session=secret")
	}
	stream := bufio.NewScanner(s.ask(t, http.MethodGet, "api/stream", nil, extra).Body)
	g.Expect(stream.Scan()).To(BeTrue())
	for _, path := range []string{"api/incidents", "api/incidents/shop/a", "api/counts?hours=1", "api/history?days=1", "api/report?days=1"} {
		response := s.ask(t, http.MethodGet, path, nil, extra)
		g.Expect(response.StatusCode).To(Equal(200), path)
		_, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
	}
	response := s.ask(t, http.MethodPost, "api/actions", strings.NewReader(acknowledge), extra)
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(body)).To(MatchJSON(`{"namespace":"shop","name":"a","result":"requested"}`))
	silence := `{"action":"silence","for":"1h","incidents":[{"namespace":"shop","name":"a"}]}`
	_, err = bufio.NewReader(s.ask(t, http.MethodPost, "api/actions", strings.NewReader(silence), extra).Body).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	r.mu.Lock()
	defer r.mu.Unlock()
	g.Expect(len(r.headers)).To(BeNumerically(">=", 10))
	for _, header := range r.headers {
		g.Expect(header["Authorization"]).To(Equal([]string{"Bearer maria"}))
		for name := range header {
			g.Expect(name).To(BeElementOf("Authorization", "Accept", "Accept-Encoding", "User-Agent", "Content-Type", "Content-Length"), "%v", header)
		}
	}
	g.Expect(r.created).To(HaveLen(1))
	g.Expect(r.created[0].Spec.Report.By).To(Equal("maria"))
	g.Expect(r.created[0].Spec.Report.IncidentName).To(Equal("a"))
	g.Expect(r.created[0].Spec.Report.Comment).To(Equal("mine"))
}

func TestWhatIsRejectedInACluster(t *testing.T) {
	r := newRecorder(t)
	s := startShared(t, r)
	set := func(name string, values ...string) func(http.Header) {
		return func(h http.Header) { h[name] = values }
	}
	for sentence, test := range map[string]struct {
		method, path, body string
		change             func(http.Header)
		code               int
		text               string
	}{
		"the page is there for everybody":           {"GET", "", "", set("Authorization"), 200, "<title>Tocsin"},
		"a valid token may read":                    {"GET", "api/incidents/shop/a", "", nil, 200, "Title of a"},
		"a proxy that strips the token":             {"GET", "api/stream", "", func(h http.Header) { h.Del("Authorization") }, 401, "no token reached the page"},
		"a proxy that authenticates in another way": {"GET", "api/stream", "", set("Authorization", "Basic bWFyaWE6eA=="), 401, "as: Bearer TOKEN"},
		"two tokens":                {"GET", "api/stream", "", set("Authorization", "Bearer maria", "Bearer nobody"), 401, "must be there once"},
		"a token of another syntax": {"GET", "api/stream", "", set("Authorization", "Bearer a b"), 401, "as: Bearer TOKEN"},
		"an expired token, or one of another cluster": {"GET", "api/stream", "", set("Authorization", "Bearer other"), 401, "has expired, or is of another cluster"},
		"also for one incident":                       {"GET", "api/incidents/shop/a", "", set("Authorization", "Bearer other"), 401, "has expired"},
		"a user without rights":                       {"GET", "api/stream", "", set("Authorization", "Bearer nobody"), 403, "cannot list"},
		"a token in the address is none":              {"GET", "api/stream?token=maria", "", func(h http.Header) { h.Del("Authorization") }, 401, "no token"},
		"impersonation":                               {"GET", "api/stream", "", set("Impersonate-User", "admin"), 400, "impersonation"},
		"impersonation by extra fields":               {"GET", "api/stream", "", set("Impersonate-Extra-Scopes", "x"), 400, "impersonation"},
		"the list for programs with an expired token": {"GET", "api/incidents", "", set("Authorization", "Bearer other"), 401, "has expired"},
		"the list for programs of another site":       {"GET", "api/incidents", "", set("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		"a request without the header of the page":    {"GET", "api/stream", "", func(h http.Header) { h.Del(pageHeader) }, 403, "X-Tocsin-Page is missing"},
		"a request of another site":                   {"POST", "api/actions", acknowledge, set("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		"a request of a sister domain":                {"POST", "api/actions", acknowledge, set("Sec-Fetch-Site", "same-site"), 403, "another site"},
		"another origin, from a browser without fetch metadata": {"POST", "api/actions", acknowledge, func(h http.Header) {
			h.Del("Sec-Fetch-Site")
			h.Set("Origin", "https://evil.example")
		}, 403, "cross-origin"},
		"a scope that is no namespace":        {"GET", "api/stream?scope=a/b", "", nil, 400, "namespace"},
		"an action that the user may not do":  {"POST", "api/actions", acknowledge, nil, 200, `"name":"a","error":"alertevents.tocsin.dev is forbidden"`},
		"the history with an invalid token":   {"GET", "api/history?days=1", "", set("Authorization", "Bearer garbage"), 401, "token"},
		"the report with an invalid token":    {"GET", "api/report?days=1", "", set("Authorization", "Bearer garbage"), 401, "token"},
		"an unknown action":                   {"POST", "api/actions", `{"action":"delete","incidents":[{}]}`, nil, 400, "must be ack"},
		"an unknown field":                    {"POST", "api/actions", `{"action":"ack","by":"admin"}`, nil, 400, "not an action"},
		"a note without a text":               {"POST", "api/actions", `{"action":"note","incidents":[{}]}`, nil, 400, "needs a text"},
		"a silence without an end":            {"POST", "api/actions", `{"action":"silence","for":"9999d","incidents":[{}]}`, nil, 400, "at most 30d"},
		"an acknowledgement of a moment":      {"POST", "api/actions", `{"action":"ack","for":"1s","incidents":[{}]}`, nil, 400, "from 1m to 30d"},
		"an acknowledgement without an end":   {"POST", "api/actions", `{"action":"ack","for":"1y","incidents":[{}]}`, nil, 400, "from 1m to 30d"},
		"a name that nobody sees":             {"POST", "api/actions", `{"action":"assign","to":"\u202e","incidents":[{}]}`, nil, 400, "printable"},
		"a name that is too long":             {"POST", "api/actions", `{"action":"assign","to":"` + strings.Repeat("x", 257) + `","incidents":[{}]}`, nil, 400, "1 to 256"},
		"no incidents":                        {"POST", "api/actions", `{"action":"ack"}`, nil, 400, "1 to 500"},
		"a body that is too long":             {"POST", "api/actions", `{"comment":"` + strings.Repeat("x", maxActionBytes) + `"}`, nil, 413, "too long"},
		"other paths cannot be posted to":     {"POST", "api/stream", "", nil, 405, "Method Not Allowed"},
		"the address of an incident leads on": {"GET", "incidents/shop/a", "", set("Authorization"), 302, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			response := s.ask(t, test.method, test.path, strings.NewReader(test.body), test.change)
			body, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.StatusCode).To(Equal(test.code), string(body))
			g.Expect(string(body)).To(ContainSubstring(test.text))
			g.Expect(response.Header.Get("Content-Security-Policy")).To(ContainSubstring("frame-ancestors 'none'"))
			g.Expect(response.Header.Get("Referrer-Policy")).To(Equal("no-referrer"))
			if test.code == 302 {
				g.Expect(response.Header.Get("Location")).To(Equal("../../#/shop/a"))
			}
		})
	}
	g := NewWithT(t)
	g.Expect(r.created).To(BeEmpty())
	for _, header := range r.headers {
		for name := range header {
			g.Expect(name).NotTo(HavePrefix("Impersonate"))
		}
	}
}

// No response and no log has the token of a request, whatever is wrong with it.
func TestTheTokenIsNeverRepeated(t *testing.T) {
	g := NewWithT(t)
	const secret = "eyJhbGciOiJSUzI1NiJ9.secret-of-maria.sig"
	logged := gbytes.NewBuffer()
	log.SetOutput(logged)
	klog.LogToStderr(false)
	klog.SetOutput(logged)
	t.Cleanup(func() {
		log.SetOutput(os.Stderr)
		klog.LogToStderr(true)
	})
	r := newRecorder(t)
	s := startLogging(t, r, funcr.New(func(_, line string) { _, _ = io.WriteString(logged, line) }, funcr.Options{Verbosity: 1}))
	for _, authorization := range []string{"Bearer " + secret, "Basic " + secret, "Bearer " + secret + " x", secret} {
		for method, path := range map[string]string{"GET": "api/stream", "POST": "api/actions", "DELETE": "api/incidents/shop/a", "HEAD": "incidents/shop/a"} {
			response := s.ask(t, method, path, strings.NewReader(acknowledge), func(h http.Header) { h.Set("Authorization", authorization) })
			g.Expect(response.Header.Write(logged)).To(Succeed())
			_, err := io.Copy(logged, response.Body)
			g.Expect(err).NotTo(HaveOccurred())
		}
	}
	r.CloseClientConnections()
	g.Expect(string(logged.Contents())).To(And(ContainSubstring("has expired"), Not(ContainSubstring("secret-of-maria"))))
}

// The page knows an accepted token for a minute. The answers with the history report errors in lines, but not this one.
func TestTheHistoryNeedsATokenThatStillCounts(t *testing.T) {
	g := NewWithT(t)
	r := newRecorder(t)
	s := startShared(t, r)
	for _, path := range []string{"api/history?days=1", "api/report?days=1"} {
		r.expire(false)
		g.Expect(s.ask(t, http.MethodGet, path, nil, nil).StatusCode).To(Equal(200), path)
		r.expire(true)
		g.Expect(s.ask(t, http.MethodGet, path, nil, nil).StatusCode).To(Equal(401), path)
	}
}

// A body that never ends is given up after httpserver.ReadTimeout.
func TestABodyThatNeverEnds(t *testing.T) {
	g := NewWithT(t)
	s := startShared(t, newRecorder(t))
	connection, err := net.Dial("tcp", s.listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = connection.Close() }()
	_, err = io.WriteString(connection, "POST /api/actions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer maria\r\nX-Tocsin-Page: 1\r\nContent-Length: 1000\r\n\r\n{")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(connection.SetReadDeadline(time.Now().Add(2 * httpserver.ReadTimeout))).To(Succeed())
	line, err := bufio.NewReader(connection).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(ContainSubstring("400"))
}

// A user gets a part of the requests to the API server only.
func TestRequestsAreBounded(t *testing.T) {
	g := NewWithT(t)
	s := startShared(t, newRecorder(t))
	ask := func() int { return s.ask(t, http.MethodGet, "api/incidents/shop/a", nil, nil).StatusCode }
	const maria = "maria"
	var releases []func()
	admit := func(user string) {
		release, err := s.users().admit(&caller{user: user})
		g.Expect(err).NotTo(HaveOccurred())
		releases = append(releases, release)
	}
	for range maxRequestsPerUser {
		admit(maria)
	}
	g.Expect(ask()).To(Equal(http.StatusTooManyRequests))
	for i := maxRequestsPerUser; i < maxRequests; i++ {
		admit(fmt.Sprint(i)) // others are not held up
	}
	releases[0]()
	g.Expect(ask()).To(Equal(http.StatusOK))
	admit("another")
	g.Expect(ask()).To(Equal(http.StatusServiceUnavailable))
	for _, release := range releases[1:maxRequestsPerUser] {
		release()
	}
	g.Eventually(func() bool { // a response is there before its request has ended
		s.users().mu.Lock()
		defer s.users().mu.Unlock()
		return s.users().busy.Used(maria) > 0
	}).Should(BeFalse())
}

// TestGarbageTokensHoldUpNoUser has very many of them come at once.
func TestGarbageTokensHoldUpNoUser(t *testing.T) {
	g := NewWithT(t)
	r := newRecorder(t)
	s := startShared(t, r)
	// The kernel may take megabytes of a body that nobody reads, unless the sender's buffer is bounded.
	bounded := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return connection, connection.(*net.TCPConn).SetWriteBuffer(64 << 10)
	}}
	defer bounded.CloseIdleConnections()
	ask := func(token, method, path string, body io.Reader) int {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.listener.Addr().String()+"/"+path, body)
		g.Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set(pageHeader, "1")
		response, err := (&http.Client{Transport: bounded}).Do(request)
		if err != nil {
			return 0
		}
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode
	}
	var garbage sync.WaitGroup
	for n := range 128 {
		garbage.Go(func() { ask(fmt.Sprint("garbage", n), http.MethodGet, "api/incidents/shop/a", nil) })
	}
	for range 40 {
		g.Expect(ask("maria", http.MethodGet, "api/incidents/shop/a", nil)).To(Equal(http.StatusOK))
	}
	garbage.Wait()
	g.Expect(s.users().busy.Sum()).To(BeZero())

	reader := &countingReader{}
	g.Expect(ask("garbage", http.MethodPost, "api/actions", reader)).To(BeElementOf(0, http.StatusUnauthorized))
	r.mu.Lock()
	asked := len(r.headers)
	r.mu.Unlock()
	g.Expect(ask("garbage", http.MethodGet, "api/incidents/shop/a", nil)).To(Equal(http.StatusUnauthorized))
	r.mu.Lock()
	defer r.mu.Unlock()
	g.Expect(r.headers).To(HaveLen(asked), "it is remembered")
	g.Expect(reader.read.Load()).To(BeNumerically("<", 4<<20), "the server does not read the body; kernels have taken some")
}

// countingReader is an endless body.
type countingReader struct{ read atomic.Int64 }

func (c *countingReader) Read(p []byte) (int, error) {
	c.read.Add(int64(len(p)))
	return len(p), nil
}

func TestServiceAccountsOfANamespaceAreOneUser(t *testing.T) {
	g := NewWithT(t)
	u := newUsers(nil)
	for n, name := range []string{"system:serviceaccount:shop:a", "system:serviceaccount:shop:b", "system:serviceaccount:other:a", "maria"} {
		c := interceptor.NewClient(newFake(), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				if review, ok := object.(*authenticationv1.SelfSubjectReview); ok {
					review.Status.UserInfo.Username = name
				}
				return nil
			},
		})
		user, err := u.nameOf(httptest.NewRequest(http.MethodGet, "/", nil), tokenHash{byte(n)}, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(user).To(Equal([]string{"system:serviceaccounts:shop", "system:serviceaccounts:shop", "system:serviceaccounts:other", "maria"}[n]))
	}
}
