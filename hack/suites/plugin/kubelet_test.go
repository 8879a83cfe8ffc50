package plugin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kubelet "k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// The namespace of config/default, and the port on which its pods take alerts.
const (
	systemNamespace = "tocsin-system"
	podPort         = 8080
)

// startNode gives the cluster a node with a pod of the manager and its Service, as the manifests have them. What the
// node has of a kubelet is the ports of pods, in the kubelet's own code: a connection to the pod's port 8080 ends at
// the given address, and one to any other port fails.
func startNode(t *testing.T, address string) {
	t.Helper()
	g := NewWithT(t)
	node := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !strings.HasPrefix(request.URL.Path, "/portForward/"+systemNamespace+"/tocsin-") {
			http.NotFound(w, request)
			return
		}
		const idle, creation = time.Minute, 10 * time.Second
		kubelet.ServePortForward(w, request, podPorts(address), "tocsin", "", nil, idle, creation,
			kubelet.SupportedProtocols)
	}))
	node.StartTLS()
	t.Cleanup(node.Close)

	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	host, port, err := net.SplitHostPort(node.Listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	number, err := strconv.ParseInt(port, 10, 32)
	g.Expect(err).NotTo(HaveOccurred())
	machine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	g.Expect(c.Create(t.Context(), machine)).To(Succeed())
	machine.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	machine.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	g.Expect(c.Status().Update(t.Context(), machine)).To(Succeed())

	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}})).To(Succeed())
	var service corev1.Service
	manifest(t, "services.yaml", &service)
	g.Expect(c.Create(t.Context(), &service)).To(Succeed())
	for _, name := range []string{"tocsin-starting", "tocsin-ready"} {
		createPod(t, c, name, name == "tocsin-ready")
	}
}

// createPod makes a pod of the Deployment on the node.
func createPod(t *testing.T, c client.Client, name string, ready bool) {
	t.Helper()
	g := NewWithT(t)
	var deployment appsv1.Deployment
	manifest(t, "deployment.yaml", &deployment)
	template := deployment.Spec.Template
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name, Labels: template.Labels}, Spec: template.Spec,
	}
	pod.Spec.NodeName = "node"
	g.Expect(c.Create(t.Context(), pod)).To(Succeed())
	pod.Status.Phase = corev1.PodRunning
	if ready {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	g.Expect(c.Status().Update(t.Context(), pod)).To(Succeed())
}

// manifest reads the first document of a file of config/manager.
func manifest(t *testing.T, file string, into client.Object) {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "manager", file))
	g.Expect(err).NotTo(HaveOccurred())
	document, _, _ := strings.Cut(string(text), "\n---\n")
	g.Expect(yaml.UnmarshalStrict([]byte(document), into)).To(Succeed())
}

// podPorts is the address behind the pods' port.
type podPorts string

// PortForward implements the kubelet's PortForwarder.
func (p podPorts) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer func() { _ = stream.Close() }()
	if port != podPort {
		return errors.New("nothing listens on the port")
	}
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", string(p))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	go func() { _, _ = io.Copy(connection, stream) }()
	_, err = io.Copy(stream, connection)
	return err
}

// startProxy starts a proxy before the API server that lets no WebSockets pass, as some do, and acts as the
// administrator.
func startProxy(t *testing.T) *httptest.Server {
	t.Helper()
	g := NewWithT(t)
	plain := rest.CopyConfig(config)
	plain.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
	transport, err := rest.TransportFor(plain)
	g.Expect(err).NotTo(HaveOccurred())
	server, err := url.Parse(config.Host)
	g.Expect(err).NotTo(HaveOccurred())
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(request *httputil.ProxyRequest) { request.SetURL(server) },
		Transport: transport,
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if strings.EqualFold(request.Header.Get(httpstream.HeaderUpgrade), "websocket") {
			http.Error(w, "no WebSockets here", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, request)
	}))
	t.Cleanup(front.Close)
	return front
}
