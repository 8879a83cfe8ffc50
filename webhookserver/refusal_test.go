package webhookserver

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/memorystore"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// refusals are ways to make a cluster refuse the AlertEvents of one namespace. Each returns what undoes it.
var refusals = map[string]struct {
	reason string
	words  string // for the owner
	refuse func(t *testing.T, c *cluster)
}{
	"a policy":                                 {commit.ReasonPolicy, "no alerts on Sundays", policy("")},
	"a policy that forbids":                    {commit.ReasonPolicy, "no alerts on Sundays", policy(metav1.StatusReasonForbidden)},
	"a policy that says 413":                   {commit.ReasonPolicy, "no alerts on Sundays", policy(metav1.StatusReasonRequestEntityTooLarge)},
	"an admission webhook without a code":      {commit.ReasonPolicy, "no alerts on Sundays", admissionWebhook(0)},
	"an admission webhook that says 400":       {commit.ReasonPolicy, "no alerts on Sundays", admissionWebhook(http.StatusBadRequest)},
	"an admission webhook that says 403":       {commit.ReasonPolicy, "no alerts on Sundays", admissionWebhook(http.StatusForbidden)},
	"an admission webhook that says 422":       {commit.ReasonPolicy, "no alerts on Sundays", admissionWebhook(http.StatusUnprocessableEntity)},
	"an admission webhook that says 500":       {commit.ReasonPolicy, "no alerts on Sundays", admissionWebhook(http.StatusInternalServerError)},
	"a ResourceQuota of the number of objects": {commit.ReasonQuota, "exceeded quota: internal-name", quota},
}

func TestRefusalsOfTheClusterAskToTryAgain(t *testing.T) {
	c := startManager(t)
	for sentence, test := range refusals {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			c := &cluster{Client: c.Client, Server: c.Server, logs: c.logs, namespace: testenv.Namespace(t, c.Client)}
			w, token := c.integrate(t, "prometheus")
			test.refuse(t, c)
			var response *http.Response
			var body string
			g.Eventually(func() int {
				response, body = c.send(t, token, `{"title":"x"}`)
				return response.StatusCode
			}, "20s", "100ms").ShouldNot(Equal(http.StatusAccepted))
			g.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), body)
			g.Expect(response.Header.Get("Retry-After")).To(Equal(fmt.Sprint(retryAfterDenied)))
			for _, internal := range []string{"internal-name", "Sundays", "alertevents", "tocsin.dev\"", "quota", "olicy", "webhook \""} {
				g.Expect(body).NotTo(ContainSubstring(internal))
			}
			g.Eventually(func() *v1alpha1.Rejection {
				g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(w), w)).To(Succeed())
				return w.Status.LastRejection
			}, "10s", "50ms").ShouldNot(BeNil())
			g.Expect(w.Status.LastRejection.Reason).To(Equal(test.reason))
			g.Expect(w.Status.LastRejection.Message).To(ContainSubstring(test.words))
			g.Expect(testutil.ToFloat64(deniedTotal.WithLabelValues(c.namespace, "prometheus", test.reason))).To(BeNumerically(">", 0))
		})
	}
}

func TestAPolicyThatQuotesTheTokenIsNotRepeated(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.store.Before = memorystore.FailAlways(memorystore.ServerError(http.StatusForbidden, metav1.StatusReasonForbidden,
		`admission webhook "x" denied the request: no link `+testPath))
	response := b.post(testPath, firing)
	g.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	g.Expect(b.reports.texts).To(ConsistOf(ContainSubstring("cluster refused the alert")))
	g.Expect(b.reports.texts[0] + b.logs.String()).NotTo(ContainSubstring(testToken))
}

func TestAnAlertThatIsNotValidIsRejectedForGood(t *testing.T) {
	g := NewWithT(t)
	c := startManager(t)
	s := commit.Submission{
		Integration: types.NamespacedName{Namespace: c.namespace, Name: "x"}, Received: time.Now(),
		Alerts: []v1alpha1.Alert{{ID: "1", DedupKey: "1", Status: v1alpha1.AlertFiring}},
	}
	s.Alerts[0].Title = strings.Repeat("x", v1alpha1.MaxLineChars+1)
	_, err := c.committer.Commit(t.Context(), s)
	p := commitProblem(err, testToken)
	g.Expect(p.Status).To(Equal(http.StatusUnprocessableEntity))
	g.Expect(p.Detail).To(Equal("The alert is not valid: alert 0: title has more than 1024 characters."))
}

// inNamespace selects the test's namespace.
func (c *cluster) inNamespace() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.namespace}}
}

func (c *cluster) make(t *testing.T, object client.Object) {
	t.Helper()
	NewWithT(t).Expect(c.Create(t.Context(), object)).To(Succeed())
	t.Cleanup(func() { _ = c.Delete(t.Context(), object) })
}

// policy is a ValidatingAdmissionPolicy that denies AlertEvents for a reason.
func policy(reason metav1.StatusReason) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		t.Helper()
		validation := admissionregistrationv1.Validation{Expression: "false", Message: "no alerts on Sundays"}
		if reason != "" {
			validation.Reason = &reason
		}
		name := "internal-name-" + c.namespace
		c.make(t, &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: alertEventCreates}},
				},
				Validations: []admissionregistrationv1.Validation{validation},
			},
		})
		c.make(t, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				MatchResources:    &admissionregistrationv1.MatchResources{NamespaceSelector: c.inNamespace()},
			},
		})
	}
}

var alertEventCreates = admissionregistrationv1.RuleWithOperations{
	Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
	Rule: admissionregistrationv1.Rule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"alertevents"},
	},
}

// admissionWebhook denies AlertEvents with a code.
func admissionWebhook(code int32) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		t.Helper()
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			body, _ := io.ReadAll(r.Body)
			if json.Unmarshal(body, &review) != nil || review.Request == nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{
				UID: review.Request.UID, Result: &metav1.Status{Code: code, Message: "no alerts on Sundays"},
			}
			review.Request = nil
			answer, _ := json.Marshal(review)
			_, _ = w.Write(answer)
		}))
		t.Cleanup(server.Close)
		none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
		c.make(t, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "internal-name-" + c.namespace},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "internal-name.example.com",
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					URL:      new(server.URL),
					CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
				},
				Rules:                   []admissionregistrationv1.RuleWithOperations{alertEventCreates},
				NamespaceSelector:       c.inNamespace(),
				SideEffects:             &none,
				FailurePolicy:           &fail,
				AdmissionReviewVersions: []string{"v1"},
			}},
		})
	}
}

// quota is a ResourceQuota that lets no AlertEvent in. There is no controller that would fill in its status.
func quota(t *testing.T, c *cluster) {
	t.Helper()
	hard := corev1.ResourceList{"count/alertevents.tocsin.dev": resource.MustParse("0")}
	object := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "internal-name"},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	}
	c.make(t, object)
	object.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard}
	NewWithT(t).Expect(c.Status().Update(t.Context(), object)).To(Succeed())
}
