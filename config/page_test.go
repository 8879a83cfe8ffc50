package config

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// checkPage checks that the page has no permissions, and that its pod has no token by which it could get some.
func (c *cluster) checkPage(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	var deployment appsv1.Deployment
	var account corev1.ServiceAccount
	var service corev1.Service
	var policy networkingv1.NetworkPolicy
	for _, object := range []client.Object{&deployment, &account, &service, &policy} {
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin-page"}, object)).To(Succeed())
	}
	pod, manager := deployment.Spec.Template.Spec, c.deployment(t, namespace).Spec.Template.Spec
	g.Expect(pod.ServiceAccountName).To(Equal("tocsin-page"))
	g.Expect(pod.AutomountServiceAccountToken).To(Equal(new(false)))
	g.Expect(account.AutomountServiceAccountToken).To(Equal(new(false)))
	g.Expect(c.rulesOf(t, namespace, "tocsin-page")).To(BeEmpty())
	g.Expect(pod.Volumes).To(ConsistOf(HaveField("ConfigMap.Name", "kube-root-ca.crt")), "neither a token nor a Secret")
	g.Expect(pod.Containers[0].EnvFrom).To(BeEmpty())
	g.Expect(pod.SecurityContext.RunAsNonRoot).To(Equal(manager.SecurityContext.RunAsNonRoot))
	g.Expect(pod.SecurityContext.SeccompProfile).To(Equal(manager.SecurityContext.SeccompProfile))
	g.Expect(pod.Containers[0].SecurityContext).To(Equal(manager.Containers[0].SecurityContext))
	g.Expect(pod.Containers[0].Resources.Limits).To(HaveKey(corev1.ResourceMemory))
	g.Expect(pod.Containers[0].Args).To(ConsistOf("--certificate-authority=" + mountPath(pod, "cluster") + "/ca.crt"))
	g.Expect(labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(deployment.Spec.Template.Labels))).To(BeTrue())
	g.Expect(labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels).Matches(labels.Set(deployment.Spec.Template.Labels))).To(BeTrue())
	g.Expect(policy.Spec.Ingress).To(ConsistOf(HaveField("Ports", ConsistOf(HaveField("Port.StrVal", "http")))))
	g.Expect(service.Spec.Ports).To(ConsistOf(HaveField("TargetPort.StrVal", pod.Containers[0].Ports[0].Name)))
}
