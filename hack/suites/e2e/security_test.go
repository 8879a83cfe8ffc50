//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// testPodsAsTheyRun looks at the manager's process from a container beside it, not at what its manifest says.
func (s *suite) testPodsAsTheyRun(t *testing.T) {
	g := NewWithT(t)
	pods, err := s.pods(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	pod := &pods[0]
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
		TargetContainerName: "manager",
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "look", Image: s.shellImage, SecurityContext: restricted(), Command: []string{"/bin/sh", "-c",
				"busybox cat /proc/1/status; busybox cat /proc/1/mountinfo; busybox touch /proc/1/root/written; " +
					"busybox tr '\\0' ' ' </proc/1/cmdline; echo; echo that was it"},
		},
	})
	g.Expect(s.SubResource("ephemeralcontainers").Update(t.Context(), pod)).To(Succeed())
	var seen string
	g.Eventually(func() string {
		seen, err = s.tryKubectl(t.Context(), "-n", systemNamespace, "logs", pod.Name, "-c", "look")
		return seen
	}, "1m", "500ms").Should(ContainSubstring("that was it"))
	g.Expect(seen).To(MatchRegexp(`(?m)^/manager --leader-elect`), "it is the manager that is looked at")
	for _, line := range []string{
		`^Uid:\s+65532\s+65532\s+65532\s+65532$`, `^Gid:\s+65532\s+65532\s+65532\s+65532$`,
		`^CapPrm:\s+0+$`, `^CapEff:\s+0+$`, `^CapBnd:\s+0+$`, `^NoNewPrivs:\s+1$`, `^Seccomp:\s+2$`,
		`^\d+ \d+ \S+ \S+ / ro\b`,
		`/proc/1/root/written: Read-only file system$`,
	} {
		g.Expect(seen).To(MatchRegexp("(?m)" + line))
	}
	// Its place is taken by a pod without an onlooker.
	g.Expect(s.deletePod(t.Context(), pod.Name)).To(Succeed())
}

// testPodSecurity tries to run what the namespace must not let in.
func (s *suite) testPodSecurity(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"as root": func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.RunAsNonRoot = new(bool) },
		"privileged": func(p *corev1.Pod) {
			yes, c := true, p.Spec.Containers[0].SecurityContext
			c.Privileged, c.AllowPrivilegeEscalation = &yes, &yes
		},
		"with a capability": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		},
		"without a seccomp filter": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
		},
		"with a way to new privileges": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		},
		"host network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"host folder": func(p *corev1.Pod) {
			source := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
			p.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: source}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := s.shell(systemNamespace, "intruder", "true")
			NewWithT(t).Expect(s.Create(t.Context(), pod.DeepCopy(), client.DryRunAll)).To(Succeed(), "it is the change that is refused")
			change(pod)
			err := s.Create(t.Context(), pod, client.DryRunAll)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(`violates PodSecurity "restricted:latest"`)))
		})
	}
}

// testAllowed does with the operator's own token what it lives on, one right after the other: a right that is missing
// shows here, and not in an hour when a lease or a retention has run out. Nothing is really written.
func (s *suite) testAllowed(t *testing.T) {
	g := NewWithT(t)
	pods, err := s.pods(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods[0].Spec.ServiceAccountName).To(Equal("tocsin"))
	namespace := s.namespace(t, "e2e-allowed")
	s.integration(t, namespace, "x")
	integration := integrationOf(namespace, "x")
	event := eventOf(namespace, "x")
	g.Expect(post(t, http.DefaultClient, s.url, testenv.Token(namespace, "x"), `{"dedup_key":"x"}`)).To(Equal(http.StatusAccepted))
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.IncidentName("x", "x")}}
	s.kubectl(t, "-n", namespace, "wait", "--for=create", "incident/"+incident.Name, "--timeout=30s")
	leased := client.ObjectKey{Namespace: systemNamespace, Name: leaseName}

	operator := s.as(t, systemNamespace, "tocsin")
	dry := client.NewDryRunClient(operator)
	for name, try := range map[string]func(context.Context) error{
		"store alerts":   func(ctx context.Context) error { return dry.Create(ctx, event.DeepCopy()) },
		"read the queue": func(ctx context.Context) error { return operator.List(ctx, &v1alpha1.AlertEventList{}) },
		"release alerts": func(ctx context.Context) error { return client.IgnoreNotFound(dry.Delete(ctx, event.DeepCopy())) },
		"read integrations": func(ctx context.Context) error {
			return operator.List(ctx, &v1alpha1.WebhookIntegrationList{})
		},
		"say how integrations are": func(ctx context.Context) error {
			return dry.Status().Patch(ctx, integration.DeepCopy(), client.MergeFrom(integration))
		},
		"fold": func(ctx context.Context) error {
			if err := operator.Get(ctx, client.ObjectKeyFromObject(incident), incident); err != nil {
				return err
			}
			return ignoreConflict(dry.Status().Update(ctx, incident))
		},
		"open incidents": func(ctx context.Context) error {
			another := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.IncidentName("x", "y")}}
			another.Spec = v1alpha1.IncidentSpec{IntegrationName: "x", DedupKey: "y"}
			return dry.Create(ctx, another)
		},
		"label incidents": func(ctx context.Context) error {
			return dry.Patch(ctx, incident.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
		},
		"delete incidents": func(ctx context.Context) error { return dry.Delete(ctx, incident.DeepCopy()) },
		"keep the lease": func(ctx context.Context) error {
			var lease coordinationv1.Lease
			if err := operator.Get(ctx, leased, &lease); err != nil {
				return err
			}
			return ignoreConflict(dry.Update(ctx, &lease))
		},
		"ask who reads metrics": func(ctx context.Context) error {
			review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}}
			return operator.Create(ctx, review)
		},
		"ask whether they may": func(ctx context.Context) error {
			return operator.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "x", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
			}})
		},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(try(t.Context())).To(Succeed()) })
	}
	g.Eventually(func() string {
		return s.kubectl(t, "-n", namespace, "get", "events", "-o", "jsonpath={.items[*].reason}")
	}, "30s", "500ms").Should(ContainSubstring("Opened"), "it says what it did")
}

// ignoreConflict: somebody else was allowed to write first.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func eventOf(namespace, name string) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: name, Alerts: testenv.Text(v1alpha1.Alert{DedupKey: name, Status: v1alpha1.AlertFiring}),
		},
	}
}

// testForbidden uses the operator's own token for what it must not do.
func (s *suite) testForbidden(t *testing.T) {
	namespace := s.namespace(t, "e2e-account")
	operator := s.as(t, systemNamespace, "tocsin")
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "x"}
	event := eventOf(namespace, "x")
	NewWithT(t).Expect(s.Create(t.Context(), event.DeepCopy(), client.DryRunAll)).To(Succeed(), "it is the change that is refused")
	for name, try := range map[string]func(context.Context) error{
		"read secrets": func(ctx context.Context) error { return operator.List(ctx, &corev1.SecretList{}) },
		"read its own secret": func(ctx context.Context) error {
			return operator.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "x"}, &corev1.Secret{})
		},
		"read config maps":    func(ctx context.Context) error { return operator.List(ctx, &corev1.ConfigMapList{}) },
		"read pods":           func(ctx context.Context) error { return operator.List(ctx, &corev1.PodList{}) },
		"run pods":            func(ctx context.Context) error { return operator.Create(ctx, s.shell(namespace, "x", "true")) },
		"change alert events": func(ctx context.Context) error { return operator.Update(ctx, event) },
		"change integrations": func(ctx context.Context) error {
			return operator.Update(ctx, &v1alpha1.WebhookIntegration{ObjectMeta: meta})
		},
		"create integrations": func(ctx context.Context) error {
			return operator.Create(ctx, &v1alpha1.WebhookIntegration{ObjectMeta: meta})
		},
		"give itself rights": func(ctx context.Context) error {
			return operator.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
		},
		"change incidents' specs": func(ctx context.Context) error {
			return operator.Update(ctx, &v1alpha1.Incident{ObjectMeta: meta})
		},
		"take other leases": func(ctx context.Context) error {
			return operator.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "x"}, &coordinationv1.Lease{})
		},
		"change its own Deployment": func(ctx context.Context) error {
			return operator.Update(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "tocsin"}})
		},
		"read nodes": func(ctx context.Context) error { return operator.List(ctx, &corev1.NodeList{}) },
		"request tokens": func(ctx context.Context) error {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
			return operator.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
		},
		"delete namespaces": func(ctx context.Context) error {
			return operator.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := try(t.Context())
			NewWithT(t).Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		})
	}
}

// as is a client with the token of a service account.
func (s *suite) as(t *testing.T, namespace, name string) client.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = s.accountToken(t, namespace, name)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func (s *suite) accountToken(t *testing.T, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{}
	NewWithT(t).Expect(s.SubResource("token").Create(t.Context(), account, request)).To(Succeed())
	return request.Status.Token
}

// testMetrics reads the metrics as nobody, as somebody, and as somebody with the role for it.
func (s *suite) testMetrics(t *testing.T) {
	g := NewWithT(t)
	namespace := s.namespace(t, "e2e-metrics")
	for _, name := range []string{"stranger", "prometheus"} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		g.Expect(s.Create(t.Context(), account)).To(Succeed())
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tocsin-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "prometheus"}},
	}
	g.Expect(s.Create(t.Context(), binding)).To(Succeed())
	t.Cleanup(func() { g.Expect(s.Delete(context.Background(), binding)).To(Succeed()) })

	url := "https://" + s.forward(t, "service/tocsin-metrics", "8443") + "/metrics"
	g.Expect(scrape(t.Context(), url, "")).To(HavePrefix("401 "))
	g.Expect(scrape(t.Context(), url, s.accountToken(t, namespace, "stranger"))).To(HavePrefix("403 "))
	g.Expect(scrape(t.Context(), url, s.accountToken(t, namespace, "prometheus"))).To(And(
		HavePrefix("200 "), ContainSubstring("\ntocsin_alertevents_pending ")))
}

// scrape returns the status and the body of the answer to a request for metrics.
func scrape(ctx context.Context, url, token string) (string, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // self-signed
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.Status + "\n" + string(body), err
}

// forwarded is what kubectl says when it listens.
var forwarded = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) `)

// forward forwards a port of this machine to one of the cluster while the step runs and returns its address.
func (s *suite) forward(t *testing.T, target, port string) string {
	t.Helper()
	g := NewWithT(t)
	command := exec.CommandContext(t.Context(), "kubectl", "-n", systemNamespace, "port-forward", target, ":"+port)
	output, err := command.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(command.Start()).To(Succeed())
	t.Cleanup(func() { _ = command.Wait() }) // the step's context has ended it
	line, err := bufio.NewReader(output).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	match := forwarded.FindStringSubmatch(line)
	g.Expect(match).NotTo(BeNil(), strings.TrimSpace(line))
	return match[1]
}

// freePort is a port of this machine that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	_, port, err := net.SplitHostPort(listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listener.Close()).To(Succeed())
	return port
}
