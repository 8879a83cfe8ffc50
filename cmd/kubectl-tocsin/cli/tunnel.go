package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// lookupTimeout bounds looking up the name of a Service, which a resolver outside the cluster may forward to others
	// that do not respond.
	lookupTimeout = 3 * time.Second

	connectTimeout = 10 * time.Second
)

// parseService parses the host name of a Service: NAME.NAMESPACE.svc, optionally with the cluster's domain.
func parseService(host string) (service client.ObjectKey, ok bool) {
	labels := strings.Split(host, ".")
	if len(labels) < 3 || labels[2] != "svc" || slices.Contains(labels[:2], "") {
		return service, false
	}
	return client.ObjectKey{Namespace: labels[1], Name: labels[0]}, true
}

// errClearText rejects a URL that would send the token unencrypted over the network.
var errClearText = errors.New("the token would be sent unencrypted: use https://, a Service, or --allow-plain-http")

// newClient returns an HTTP client for a URL, which may be that of a Service, also from outside the cluster. Unless allowPlain
// is set, it rejects plain HTTP to other machines; it then reaches Services only through the API server.
func (p *plugin) newClient(target *url.URL, allowPlain bool) (*http.Client, error) {
	direct := target.Scheme == "https" || allowPlain
	service, isService := parseService(target.Hostname())
	isLocal := target.Hostname() == "localhost" || net.ParseIP(target.Hostname()).IsLoopback()
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: connectTimeout}
	switch {
	case isService:
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return p.dialService(ctx, service, direct, network, address)
		}
	case !direct && !isLocal:
		return nil, errClearText
	}
	return &http.Client{
		Transport: transport,
		// A redirect would send the token to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// dialService connects to a Service: if direct is set and its name can be resolved here, as to any other host, and otherwise to
// one of its pods as "kubectl port-forward" does.
func (p *plugin) dialService(
	ctx context.Context, service client.ObjectKey, direct bool, network, address string,
) (net.Conn, error) {
	if direct {
		connection, err := (&net.Dialer{Timeout: lookupTimeout}).DialContext(ctx, network, address)
		if _, unknown := errors.AsType[*net.DNSError](err); !unknown {
			return connection, err
		}
	}
	_, servicePort, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	c, err := p.cluster()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	pod, port, err := c.backend(ctx, service, servicePort)
	if err != nil {
		return nil, err
	}
	connection, err := dialPod(c.config, pod, port)
	if err != nil {
		return nil, fmt.Errorf("connecting to pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return connection, nil
}

// backend returns a ready pod of a Service, and the port of the pod.
func (c *cluster) backend(ctx context.Context, key client.ObjectKey, port string) (*corev1.Pod, int, error) {
	service := &corev1.Service{}
	if err := c.Get(ctx, key, service); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, 0, fmt.Errorf("there is no Service %s in namespace %s; set --endpoint or $%s to the address of Tocsin",
				key.Name, key.Namespace, endpointVariable)
		}
		return nil, 0, fmt.Errorf("reading the Service: %w", err)
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return fmt.Sprint(p.Port) == port })
	if at < 0 {
		return nil, 0, fmt.Errorf("the Service %s has no port %s", key, port)
	}
	var pods corev1.PodList
	err := c.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels(service.Spec.Selector))
	if err != nil {
		return nil, 0, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if port := targetPort(pod, service.Spec.Ports[at].TargetPort); port > 0 && isReady(pod) {
			return pod, port, nil
		}
	}
	return nil, 0, fmt.Errorf("no pod of the Service %s is ready", key)
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning &&
		slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
}

// targetPort returns the number of a Service's target port on a pod; 0 if the pod has no such port.
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

// dialPod connects to a port of a pod through the API server, by WebSocket or, where a proxy does not support it, by
// SPDY. The protocol is that of "kubectl port-forward": one stream for data and one for an error message.
func dialPod(config *rest.Config, pod *corev1.Pod, port int) (net.Conn, error) {
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
	webSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, config)
	if err != nil {
		return nil, err
	}
	dialer := portforward.NewFallbackDialerForStreaming(webSocket,
		spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, address),
		func(error) bool { return true })
	streams, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(port))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	failure, err := streams.CreateStream(header)
	if err == nil {
		err = failure.Close() // nothing is written to it
	}
	if err != nil {
		return nil, errors.Join(err, streams.Close())
	}
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := streams.CreateStream(header)
	if err != nil {
		return nil, errors.Join(err, streams.Close())
	}
	return newPodConn(data, failure, data.Reset, streams.Close), nil
}

// podConn is a connection to a port of a pod. The pipe gives the streams the deadlines and addresses of a net.Conn.
type podConn struct {
	net.Conn
	closeStreams func() error
	failure      atomic.Value // error
}

// newPodConn connects a pipe to the data stream. After the end of the data, it reads why the pod could not be reached
// from the failure stream. reset ends the data stream, and closeStreams both.
func newPodConn(data io.ReadWriteCloser, failure io.Reader, reset, closeStreams func() error) *podConn {
	local, remote := net.Pipe()
	c := &podConn{Conn: local, closeStreams: closeStreams}
	go func() {
		_, _ = io.Copy(data, remote)
		_ = data.Close()
	}()
	go func() {
		_, _ = io.Copy(remote, data)
		_ = reset() // unsent data would block the failure stream
		if message, _ := io.ReadAll(failure); len(message) > 0 {
			c.failure.Store(errors.New(string(message)))
		}
		_ = remote.Close()
	}()
	return c
}

// Read implements net.Conn. Its error tells why the pod could not be reached.
func (c *podConn) Read(buffer []byte) (int, error) {
	n, err := c.Conn.Read(buffer)
	return n, c.explain(err)
}

// Write implements net.Conn. Its error is that of Read: whoever writes may notice the end first.
func (c *podConn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	return n, c.explain(err)
}

// explain returns why the pod could not be reached, in place of an error of the pipe.
func (c *podConn) explain(err error) error {
	if failure, ok := c.failure.Load().(error); ok && err != nil {
		return failure
	}
	return err
}

// Close implements net.Conn.
func (c *podConn) Close() error { return errors.Join(c.Conn.Close(), c.closeStreams()) }
