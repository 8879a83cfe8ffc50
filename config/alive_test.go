package config

import (
	"testing"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// checkAlive checks that the CronJob has no permissions, and passes the restricted pod security standard as the manager does.
func (c *cluster) checkAlive(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	var job batchv1.CronJob
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin-alive"}, &job)).To(Succeed())
	pod, manager := job.Spec.JobTemplate.Spec.Template.Spec, c.deployment(t, namespace).Spec.Template.Spec
	g.Expect(pod.AutomountServiceAccountToken).To(Equal(new(false)))
	security := pod.SecurityContext.DeepCopy()
	security.FSGroup = manager.SecurityContext.FSGroup // with a certificate the manager has a key to read
	g.Expect(security).To(Equal(manager.SecurityContext))
	g.Expect(pod.Containers[0].SecurityContext).To(Equal(manager.Containers[0].SecurityContext))
	g.Expect(pod.Containers[0].Resources.Limits).To(HaveKey(corev1.ResourceMemory))
	g.Expect(pod.Containers[0].Args[0]).To(Equal("send"))
	g.Expect(pod.Containers[0].Env).To(ContainElement(HaveField("ValueFrom.SecretKeyRef", HaveValue(
		Equal(corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "tocsin-alive"}, Key: "url"})))))
	for _, volume := range pod.Volumes {
		g.Expect(volume.Secret.Items).To(ConsistOf(HaveField("Key", "ca.crt")), "not the key of the certificate")
	}
}
