package page

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/action"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/live"
)

// The limits of a page with many users. Together they bound its memory: maxWatches times maxWatchBytes are 512 MiB, of which the
// limit of the component's Deployment leaves room for as much again. A user gets an eighth of it. These constants have no flags:
// whoever has more users runs more replicas.
const (
	maxWatches        = 32
	maxWatchesPerUser = 4
	// maxWatchBytes bounds the Incidents of one watch: about 8,000, without their descriptions and bags.
	maxWatchBytes = 16 << 20
	// maxStreams is the number of tabs that follow one watch.
	maxStreams = 32
	// maxRequests is the number of requests to the API server at a time, without the watches.
	maxRequests = 64
	// maxRequestsPerUser is how many of them may be of one user.
	maxRequestsPerUser = 8
	// reviewPlaces is how many tokens that are not known are asked about at a time, in turns by address, reviewWait how long one
	// waits for that, and maxTokens how many are remembered of each kind: one that was accepted for acceptedTime, another for
	// deniedTime.
	reviewPlaces = 8
	reviewWait   = 5 * time.Second
	maxTokens    = 4096
	acceptedTime = time.Minute
	deniedTime   = 5 * time.Second
	// linger is how long a watch is kept that no tab follows: a page is reloaded meanwhile, and asks for its chart every half
	// minute, with another token than that of its stream once a proxy has refreshed it.
	linger = 2 * time.Minute
	// bytesPerObject is what an Incident takes beside its content.
	bytesPerObject = 1000
)

// pageHeader is a header that the page's script sets. A form or a link of another site cannot, and a script of one would
// have to ask the server first, which permits no other origin.
const pageHeader = "X-Tocsin-Page"

// Connector returns a function that makes a client for the API server of config. The client bears the token and no other
// credential: those of config are dropped, also those that impersonate.
func Connector(config *rest.Config, scheme *runtime.Scheme, mapper meta.RESTMapper) func(token string) (client.WithWatch, error) {
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.QPS = -1 // the API server limits requests itself
	return func(token string) (client.WithWatch, error) {
		own := rest.CopyConfig(anonymous)
		own.BearerToken = token
		return client.NewWithWatch(own, client.Options{Scheme: scheme, Mapper: mapper})
	}
}

// watch is what the tabs of a user share.
type watch struct {
	feed    *live.Feed
	changes atomic.Int64 // of the feed's Incidents
	users   *users       // nil if there is one user, whose watch has no limits and does not end

	// The rest is for a page with many users, and guarded by users.mu.
	key     watchKey
	user    string
	began   time.Time
	cancel  context.CancelFunc
	streams int
	idle    *time.Timer
	bytes   fair.Budget[types.NamespacedName] // of each Incident
	ended   error

	sharing  sync.Mutex
	versions map[types.NamespacedName]string // of the Incidents, as a tab has sent them last
}

// share returns one map for all tabs that have sent the same: each would have one of its own otherwise.
func (w *watch) share(versions map[types.NamespacedName]string) map[types.NamespacedName]string {
	w.sharing.Lock()
	defer w.sharing.Unlock()
	if !maps.Equal(w.versions, versions) {
		w.versions = versions
	}
	return w.versions
}

func newWatch(c client.WithWatch, namespace string, u *users) *watch {
	w := &watch{users: u}
	w.feed = live.Follow(c, namespace, live.Prune, w.changed)
	return w
}

type tokenHash = [sha256.Size]byte

// watchKey identifies a watch. Two tokens of a user may have different rights, so each has its own watch.
type watchKey struct {
	token     tokenHash
	namespace string
}

// caller is who sent a request. Its client bears nothing but its credentials.
type caller struct {
	client    client.WithWatch
	namespace string // of the Incidents that the page lists; empty for all
	key       watchKey
	user      string // see users.identify; empty if there is one user
}

// users holds the watches of all users.
type users struct {
	ctx   context.Context // of the server; watches outlive the request that starts them
	tasks sync.WaitGroup

	mu      sync.Mutex
	watches map[watchKey]*watch
	busy    fair.Budget[string] // the requests to the API server, by users

	reviews          *fair.Places                // for tokens that are not known
	accepted, denied *expirecache.LRUExpireCache // tokens, by their hashes; those that are accepted with their users
}

func newUsers() *users {
	return &users{
		watches: map[watchKey]*watch{}, reviews: fair.NewPlaces(reviewPlaces),
		accepted: expirecache.NewLRUExpireCache(maxTokens), denied: expirecache.NewLRUExpireCache(maxTokens),
	}
}

// identify returns the user of a token, by which requests and watches count: nothing counts for anybody before the API server has
// accepted the token. All service accounts of a namespace are one user, since whoever may make one may make many.
func (u *users) identify(r *http.Request, token tokenHash, c client.Client) (string, error) {
	if user, ok := u.accepted.Get(token); ok {
		name, _ := user.(string)
		return name, nil
	}
	if _, ok := u.denied.Get(token); ok {
		return "", errReject
	}
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	place, err := u.reviews.Enter(r.Context(), address, reviewWait)
	if err != nil {
		return "", statusError{http.StatusServiceUnavailable, "the page has too many tokens to check"}
	}
	defer place.Leave()
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	name, err := action.User(ctx, c)
	switch {
	case apierrors.IsUnauthorized(err):
		u.denied.Add(token, nil, deniedTime)
		return "", err
	case err != nil:
		return "", err
	}
	if account, ok := strings.CutPrefix(name, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		name = "system:serviceaccounts:" + namespace
	}
	u.accepted.Add(token, name, acceptedTime)
	return name, nil
}

// statusError is an error with the code of its response.
type statusError struct {
	code int
	text string
}

func (e statusError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return statusError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

var (
	errKey     = statusError{http.StatusUnauthorized, "open the URL that kubectl tocsin ui has printed"}
	errNoToken = statusError{http.StatusUnauthorized,
		"no token reached the page: sign in, have the proxy pass Authorization: Bearer, or paste a token"}
	errToken  = statusError{http.StatusUnauthorized, "the header Authorization must be there once, as: Bearer TOKEN"}
	errReject = statusError{http.StatusUnauthorized,
		"the API server rejects the token: it has expired, or is of another cluster"}
	errHeader = statusError{http.StatusForbidden,
		"the header " + pageHeader + " is missing: a proxy removed it, or another site sent the request"}
	errOthers = statusError{http.StatusServiceUnavailable, "other users need the place: you have most tabs open on the page"}

	errTooMany = statusError{http.StatusInsufficientStorage,
		"there are more incidents than the page holds for one user: choose a namespace"}

	// bearer is the syntax of a token (RFC 6750, 2.1).
	bearer = regexp.MustCompile(`^(?i:bearer) +([A-Za-z0-9._~+/-]+=*)$`)
)

// tokenOf returns the token of a request.
func tokenOf(r *http.Request) (string, error) {
	for name := range r.Header {
		// A proxy that authenticates as itself and impersonates would give every user its own rights.
		if strings.HasPrefix(name, "Impersonate-") {
			return "", badRequest("headers of impersonation are not accepted: have the proxy pass the token of the user")
		}
	}
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", errNoToken
	}
	match := bearer.FindStringSubmatch(values[0])
	if len(values) > 1 || match == nil {
		return "", errToken
	}
	return match[1], nil
}

// sameSite returns an error if another site may have sent a request.
func sameSite(r *http.Request) error {
	site := r.Header.Get("Sec-Fetch-Site")
	switch {
	case r.Header.Get(pageHeader) == "":
		return errHeader
	case site != "" && site != "same-origin":
		return statusError{http.StatusForbidden, "another site has sent the request"}
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return statusError{http.StatusForbidden, err.Error()}
	}
	return nil
}

// withToken returns the user of the token of a request, if it is of this page.
func (s *Server) withToken(r *http.Request) (*caller, error) {
	token, err := tokenOf(r)
	if err != nil {
		return nil, err
	}
	if err := sameSite(r); err != nil {
		return nil, err
	}
	scope := r.URL.Query().Get("scope")
	if scope != "" && len(validation.IsDNS1123Label(scope)) > 0 {
		return nil, badRequest("the scope is not the name of a namespace")
	}
	c, err := s.Connect(token)
	if err != nil {
		return nil, err
	}
	who := &caller{client: c, namespace: scope, key: watchKey{sha256.Sum256([]byte(token)), scope}}
	who.user, err = s.users.identify(r, who.key.token, c)
	return who, err
}

// limited bounds the number of requests to the API server at a time.
func (s *Server) limited(next endpoint) endpoint {
	if s.users == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request, who *caller) error {
		if err := s.users.admit(who.user); err != nil {
			return err
		}
		defer s.users.release(who.user)
		return next(w, r, who)
	}
}

// admit counts a request that begins, unless there are too many.
func (u *users) admit(user string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.busy.Used(user) >= maxRequestsPerUser:
		return statusError{http.StatusTooManyRequests, fmt.Sprintf("you have %d requests at a time already", maxRequestsPerUser)}
	case u.busy.Sum() >= maxRequests:
		return statusError{http.StatusServiceUnavailable, "the page has too many requests"}
	}
	u.busy.Add(user, 1)
	return nil
}

func (u *users) release(user string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy.Add(user, -1)
}

// join returns the watch of a caller, until its leave is called.
func (s *Server) join(ctx context.Context, c *caller) (*watch, error) {
	if s.users == nil {
		return s.watch, nil
	}
	if w, err := s.users.attach(c, false); w != nil || err != nil {
		return w, err
	}
	// Nobody starts a watch without a valid token that may list.
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout)
	defer cancel()
	if err := live.Check(ctx, c.client, c.namespace); err != nil {
		return nil, err
	}
	return s.users.attach(c, true)
}

// attach returns the watch of a caller for one more tab. If there is none, it starts one, or returns nil if it must not.
func (u *users) attach(c *caller, may bool) (*watch, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.watches[c.key]
	switch {
	case w == nil && !may:
		return nil, nil
	case w == nil:
		if err := u.makeRoom(c.user); err != nil {
			return nil, err
		}
		w = u.start(c)
	case w.streams >= maxStreams:
		return nil, statusError{http.StatusTooManyRequests, fmt.Sprintf("the page is open in %d tabs already", maxStreams)}
	}
	w.streams++
	return w, nil
}

// start starts a watch. The caller holds users.mu.
func (u *users) start(c *caller) *watch {
	w := newWatch(c.client, c.namespace, u)
	ctx, cancel := context.WithCancel(u.ctx)
	w.key, w.user, w.began, w.cancel = c.key, c.user, time.Now(), cancel
	w.idle = time.AfterFunc(linger, w.expire)
	u.watches[c.key] = w
	u.tasks.Go(func() { w.feed.Run(ctx) })
	return w
}

// makeRoom ends a watch if there are too many: of the user, one that no tab follows; of all, one that no tab follows, or else the
// oldest of the user who has most, if that is more than this one will have.
func (u *users) makeRoom(user string) error {
	all, byUser := slices.Collect(maps.Values(u.watches)), map[string][]*watch{}
	for _, w := range all {
		byUser[w.user] = append(byUser[w.user], w)
	}
	own := byUser[user]
	if len(own) >= maxWatchesPerUser && !dropIdle(own) {
		return statusError{http.StatusTooManyRequests, fmt.Sprintf(
			"you follow %d namespaces or sessions already: close a tab", maxWatchesPerUser)}
	}
	if len(u.watches) < maxWatches || dropIdle(all) {
		return nil
	}
	most := slices.MaxFunc(slices.Collect(maps.Values(byUser)), func(a, b []*watch) int { return cmp.Compare(len(a), len(b)) })
	if len(most) <= len(own)+1 {
		return statusError{http.StatusServiceUnavailable, "the page has too many users"}
	}
	slices.MinFunc(most, func(a, b *watch) int { return a.began.Compare(b.began) }).drop(errOthers)
	return nil
}

// dropIdle ends one of the watches that no tab follows, and reports whether there is one.
func dropIdle(watches []*watch) bool {
	i := slices.IndexFunc(watches, func(w *watch) bool { return w.streams == 0 })
	if i >= 0 {
		watches[i].drop(nil)
	}
	return i >= 0
}

// leave gives the watch back after join.
func (w *watch) leave() {
	if w.users == nil {
		return
	}
	w.users.mu.Lock()
	defer w.users.mu.Unlock()
	if w.streams--; w.streams == 0 {
		w.idle.Reset(linger)
	}
}

// expire ends the watch if no tab follows it.
func (w *watch) expire() {
	w.users.mu.Lock()
	defer w.users.mu.Unlock()
	if w.streams == 0 {
		w.drop(nil)
	}
}

// drop ends the watch, because of an error that its tabs get, if any. The caller holds users.mu.
func (w *watch) drop(err error) {
	w.ended = cmp.Or(w.ended, err)
	w.changes.Add(1)
	w.idle.Stop()
	w.cancel()
	if w.users.watches[w.key] == w {
		delete(w.users.watches, w.key)
	}
}

// problem returns why the watch has ended; nil while it runs. A user who may not list any more gets no more rows.
func (w *watch) problem() error {
	if w.users == nil {
		return nil
	}
	w.users.mu.Lock()
	defer w.users.mu.Unlock()
	if denied := w.feed.Problem(); live.Denied(denied) {
		w.drop(denied)
	}
	return w.ended
}

// changed counts the changes of the Incidents, and their memory.
func (w *watch) changed(change live.Change) {
	w.changes.Add(1)
	if w.users == nil {
		return
	}
	w.users.mu.Lock()
	defer w.users.mu.Unlock()
	size := 0
	if !change.Deleted {
		size = sizeOf(change.Incident)
	}
	w.bytes.Set(client.ObjectKeyFromObject(change.Incident), int64(size))
	if w.bytes.Sum() > maxWatchBytes {
		w.drop(errTooMany)
	}
}

// sizeOf estimates the memory of an Incident.
func sizeOf(incident *v1alpha1.Incident) int {
	size := bytesPerObject + alertcontent.Size(&incident.Status.Alert) + len(incident.Spec.DedupKey)
	for i := range incident.Status.Timeline {
		entry := &incident.Status.Timeline[i]
		size += 100 + len(entry.Message) + len(entry.By) + len(entry.Comment)
	}
	return size
}

// writeProblem answers with an error of the API server or of the page.
func (s *Server) writeProblem(w http.ResponseWriter, err error) {
	code, text := problemOf(err)
	switch {
	case code == http.StatusUnauthorized && s.users != nil:
		w.Header().Set("WWW-Authenticate", `Bearer realm="cluster"`) // the page asks for a token
	case code == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, code, map[string]string{"error": text})
}

// problemOf returns the code and the sentence of an error.
func problemOf(err error) (code int, text string) {
	var own statusError
	var status apierrors.APIStatus
	if apierrors.IsUnauthorized(err) {
		err = errReject
	}
	switch {
	case errors.As(err, &own):
		code = own.code
	case errors.As(err, &status) && status.Status().Code != 0:
		code = int(status.Status().Code)
	case errors.Is(err, context.DeadlineExceeded):
		code = http.StatusGatewayTimeout
	default:
		code = http.StatusBadGateway
	}
	return code, live.Sentence(err)
}
