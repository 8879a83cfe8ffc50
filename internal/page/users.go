package page

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/action"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// The limits of the requests of users. They have no flags: whoever has more users runs more replicas.
const (
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
)

// pageHeader is a header that the page's script sets. A form or a link of another site cannot, and a script of one would
// have to ask the server first, which permits no other origin.
const pageHeader = "X-Tocsin-Page"

// Connector returns a client of a user, which bears the token and no other credential.
type Connector func(token string) (client.WithWatch, error)

// NewConnector returns a Connector for the API server of config, of which it drops all credentials, also those that impersonate.
func NewConnector(config *rest.Config) Connector {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(authenticationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	mapper := meta.NewDefaultRESTMapper(nil) // saves discovery
	for _, kind := range []string{"AlertEvent", "Heartbeat", "Incident", "WebhookIntegration"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.QPS = -1 // the API server limits requests itself
	return func(token string) (client.WithWatch, error) {
		own := rest.CopyConfig(anonymous)
		own.BearerToken = token
		return client.NewWithWatch(own, client.Options{Scheme: scheme, Mapper: mapper})
	}
}

// users is the access to a page of many users: a request bears the token of its user, and all that it causes bears nothing else.
type users struct {
	connect Connector
	ctx     context.Context // of follow: watches outlive the request that starts them
	tasks   sync.WaitGroup

	mu      sync.Mutex
	watches map[watchKey]*watch
	busy    fair.Budget[string] // the requests to the API server, by users

	reviews          *fair.Places                // for tokens that are not known
	accepted, denied *expirecache.LRUExpireCache // tokens, by their hashes; those that are accepted with their users
}

func newUsers(c Connector) *users {
	return &users{
		connect: c, watches: map[watchKey]*watch{}, reviews: fair.NewPlaces(reviewPlaces),
		accepted: expirecache.NewLRUExpireCache(maxTokens), denied: expirecache.NewLRUExpireCache(maxTokens),
	}
}

func (u *users) follow(ctx context.Context) (wait func()) {
	u.ctx = ctx
	return u.tasks.Wait
}

// identify implements access: it returns the user of the token of a request, if the request is of this page.
func (u *users) identify(r *http.Request) (*caller, error) {
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
	c, err := u.connect(token)
	if err != nil {
		return nil, err
	}
	who := &caller{client: c, namespace: scope, key: watchKey{sha256.Sum256([]byte(token)), scope}}
	who.user, err = u.nameOf(r, who.key.token, c)
	return who, err
}

// nameOf returns the user of a token, by which requests and watches count: nothing counts for anybody before the API server has
// accepted the token. All service accounts of a namespace are one user, since whoever may make one may make many.
func (u *users) nameOf(r *http.Request, token tokenHash, c client.Client) (string, error) {
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

// bearer is the syntax of a token (RFC 6750, 2.1).
var bearer = regexp.MustCompile(`^(?i:bearer) +([A-Za-z0-9._~+/-]+=*)$`)

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

func (u *users) admit(c *caller) (release func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.busy.Used(c.user) >= maxRequestsPerUser:
		return nil, statusError{http.StatusTooManyRequests, fmt.Sprintf("you have %d requests at a time already", maxRequestsPerUser)}
	case u.busy.Sum() >= maxRequests:
		return nil, statusError{http.StatusServiceUnavailable, "the page has too many requests"}
	}
	u.busy.Add(c.user, 1)
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.busy.Add(c.user, -1)
	}, nil
}
