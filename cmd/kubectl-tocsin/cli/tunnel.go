package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	streamhttp "k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// lookupTimeout bounds the search for the name of a Service, which a resolver outside the cluster may hand on
	// to others that do not answer.
	lookupTimeout = 3 * time.Second

	// connectTimeout bounds how long it takes to be connected to a pod.
	connectTimeout = 10 * time.Second
)

// serviceAddress is the name of a Service and one of its ports.
type serviceAddress struct {
	namespace, name string
	port            int
}

// parseService reads host:port as the address of a Service, NAME.NAMESPACE.svc with or without the domain of the
// cluster behind it.
func parseService(hostPort string) (service serviceAddress, is bool) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return service, false
	}
	labels := strings.Split(host, ".")
	number, err := strconv.Atoi(port)
	if err != nil || len(labels) < 3 || labels[2] != "svc" || slices.Contains(labels[:2], "") {
		return service, false
	}
	return serviceAddress{namespace: labels[1], name: labels[0], port: number}, true
}

// errClearText says why an address is not posted to.
var errClearText = errors.New("the token would be sent unencrypted: use https://, or the address of the Service, to which a " +
	"port is forwarded, or --allow-plain-http")

// poster posts alerts. Services of the cluster it reaches from outside as well.
type poster struct{ plain, encrypted *http.Transport }

// RoundTrip implements http.RoundTripper.
func (p *poster) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme == "https" {
		return p.encrypted.RoundTrip(request)
	}
	return p.plain.RoundTrip(request)
}

// CloseIdleConnections is what http.Client looks for.
func (p *poster) CloseIdleConnections() {
	p.plain.CloseIdleConnections()
	p.encrypted.CloseIdleConnections()
}

// newPoster makes the client that posts alerts. Without encryption it connects to this machine, and to Services through the
// API server, and to anything else only if allowPlain is set.
func (p *plugin) newPoster(allowPlain bool) *http.Client {
	encrypted := &http.Transport{
		DialContext: p.dial,
		Proxy: func(request *http.Request) (*url.URL, error) {
			if _, is := parseService(net.JoinHostPort(request.URL.Hostname(), "0")); is {
				return nil, nil
			}
			return http.ProxyFromEnvironment(request)
		},
		TLSHandshakeTimeout: connectTimeout,
	}
	plain := encrypted.Clone()
	if !allowPlain {
		plain.DialContext, plain.Proxy = p.dialGuarded, nil
	}
	return &http.Client{
		Transport: &poster{plain: plain, encrypted: encrypted},
		// A redirect would lead the token to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dialGuarded connects to an address on which nobody else can listen in.
func (p *plugin) dialGuarded(ctx context.Context, network, address string) (net.Conn, error) {
	if service, is := parseService(address); is {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		return p.forward(ctx, service)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("reading the address: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, errClearText
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// dial connects to an address. A Service whose name is not known here is reached through the API server.
func (p *plugin) dial(ctx context.Context, network, address string) (net.Conn, error) {
	service, is := parseService(address)
	if !is {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	connection, err := (&net.Dialer{Timeout: lookupTimeout}).DialContext(ctx, network, address)
	if _, unknown := errors.AsType[*net.DNSError](err); !unknown {
		return connection, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return p.forward(ctx, service)
}

// forward connects to a pod of a Service as "kubectl port-forward" does.
func (p *plugin) forward(ctx context.Context, service serviceAddress) (net.Conn, error) {
	c, err := p.cluster()
	if err != nil {
		return nil, err
	}
	pod, port, err := c.backend(ctx, service)
	if err != nil {
		return nil, err
	}
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	dialer, err := podDialer(config, pod)
	if err != nil {
		return nil, fmt.Errorf("connecting to pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	connection, err := forwardTo(ctx, dialer, port)
	if err != nil {
		return nil, fmt.Errorf("connecting to pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return connection, nil
}

// backend is a pod of a Service that is ready, and the port there.
func (c *cluster) backend(ctx context.Context, address serviceAddress) (*corev1.Pod, int, error) {
	service := &corev1.Service{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: address.namespace, Name: address.name}, service); err != nil {
		return nil, 0, fmt.Errorf("looking for the Service in the cluster: %w", err)
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return int(p.Port) == address.port })
	if at < 0 {
		return nil, 0, fmt.Errorf("the Service %s/%s has no port %d", address.namespace, address.name, address.port)
	}
	var pods corev1.PodList
	err := c.List(ctx, &pods, client.InNamespace(address.namespace), client.MatchingLabels(service.Spec.Selector))
	if err != nil {
		return nil, 0, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if port := targetPort(pod, service.Spec.Ports[at].TargetPort); port > 0 && isReady(pod) {
			return pod, port, nil
		}
	}
	return nil, 0, fmt.Errorf("no pod of the Service %s/%s is ready", address.namespace, address.name)
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning &&
		slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
}

// targetPort is the number of a Service's port on a pod; 0 when the pod has none of that name.
func targetPort(pod *corev1.Pod, port intstr.IntOrString) int {
	if port.Type == intstr.Int {
		return port.IntValue()
	}
	for i := range pod.Spec.Containers {
		for _, candidate := range pod.Spec.Containers[i].Ports {
			if candidate.Name == port.StrVal {
				return int(candidate.ContainerPort)
			}
		}
	}
	return 0
}

// podDialer connects to the ports of a pod: by WebSockets or, where something on the way does not let them pass,
// by SPDY, as kubectl does.
func podDialer(config *rest.Config, pod *corev1.Pod) (streamhttp.Dialer, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	server, path, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	address := server.JoinPath(path, "namespaces", pod.Namespace, "pods", pod.Name, "portforward")
	roundTripper, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	webSockets, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, config)
	if err != nil {
		return nil, err
	}
	spdyOnly := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, address)
	return portforward.NewFallbackDialerForStreaming(webSockets, spdyOnly, func(err error) bool {
		return streamhttp.IsUpgradeFailure(err) || streamhttp.IsHTTPSProxyError(err)
	}), nil
}

// forwardTo forwards a free port of this machine and connects to it. The connection's end is the end of both.
func forwardTo(ctx context.Context, dialer streamhttp.Dialer, port int) (net.Conn, error) {
	var said problems
	forwarding, stop := context.WithCancel(logr.NewContext(context.WithoutCancel(ctx), said.logger()))
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(
		forwarding, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ready, nil, nil)
	if err != nil {
		stop()
		return nil, err
	}
	var failure error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failure = forwarder.ForwardPorts()
	}()
	select {
	case <-ready:
	case <-ended:
		stop()
		return nil, failure
	case <-ctx.Done():
		stop()
		return nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		stop()
		return nil, err
	}
	local := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local)))
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", local)
	if err != nil {
		stop()
		return nil, err
	}
	return &forwarded{Conn: connection, stop: stop, ended: ended, said: &said}, nil
}

// forwarded is a connection through a forwarded port, which ends with it.
type forwarded struct {
	net.Conn
	stop  context.CancelFunc
	ended <-chan struct{}
	said  *problems
}

// Read implements net.Conn. When the pod could not be reached, it says why.
func (f *forwarded) Read(buffer []byte) (int, error) {
	n, err := f.Conn.Read(buffer)
	if problem := f.said.last(); err != nil && problem != nil {
		err = problem
	}
	return n, err
}

// Close implements net.Conn.
func (f *forwarded) Close() error {
	err := f.Conn.Close()
	f.stop()
	<-f.ended
	return err
}

// problems keeps the last error that is logged: a PortForwarder tells it nowhere else.
type problems struct {
	mu  sync.Mutex
	err error
}

func (p *problems) logger() logr.Logger { return logr.New(p) }

func (p *problems) last() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Init implements logr.LogSink.
func (p *problems) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (p *problems) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (p *problems) Info(int, string, ...any) {}

// Error implements logr.LogSink.
func (p *problems) Error(err error, _ string, _ ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// WithValues implements logr.LogSink.
func (p *problems) WithValues(...any) logr.LogSink { return p }

// WithName implements logr.LogSink.
func (p *problems) WithName(string) logr.LogSink { return p }
