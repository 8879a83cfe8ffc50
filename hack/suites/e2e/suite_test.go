//go:build e2e

// Package e2e installs Tocsin on a real cluster as a user does, and breaks it there under load. "make e2e" runs it on
// the cluster that KUBECONFIG names; "make e2e-local" makes one first.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	systemNamespace = "tocsin-system"
	leaseName       = "manager.tocsin.dev"

	// kubectlTimeout is for any command that waits for the cluster.
	kubectlTimeout = 4 * time.Minute
)

// podsSelector selects the pods of the Deployment.
var podsSelector = client.MatchingLabels{"app.kubernetes.io/name": "tocsin", "app.kubernetes.io/component": "manager"}

// suite is a cluster and what the environment says about the run.
type suite struct {
	client.Client
	config *rest.Config

	image         string        // IMG, which the cluster can pull
	nextImage     string        // NEXT_IMG, for the rolling update; without one the pods are only restarted
	baselineImage string        // BASELINE_IMG, of the version to upgrade from
	shellImage    string        // SHELL_IMG, with a shell and busybox's wget, for pods that look from inside
	url           string        // E2E_URL, where the webhook Service is reached from here; default: a node port
	phase         time.Duration // E2E_PHASE, how long is measured before and after each fault
	complete      bool          // E2E_COMPLETE, to fail rather than leave out what the cluster is not prepared for

	report report
}

// TestOnACluster goes through the life of an installation. The steps build on each other.
func TestOnACluster(t *testing.T) {
	ctrllog.SetLogger(logr.Discard()) // what the clients do is no news
	s := newSuite(t)
	t.Cleanup(func() { s.remove(t, "-k", "config/default") })
	passed := t.Run("five minutes on a cluster", s.testWalkthrough) &&
		t.Run("an alert from inside the cluster", s.testInside) &&
		t.Run("a CronJob and its heartbeat", s.testCronJob) &&
		t.Run("alerts from outside the cluster", s.testOutside) &&
		t.Run("components", s.testComponents) &&
		t.Run("pods as they run", s.testPodsAsTheyRun) &&
		t.Run("pod security", s.testPodSecurity) &&
		t.Run("what the service account may", s.testAllowed) &&
		t.Run("what the service account may not", s.testForbidden) &&
		t.Run("metrics", s.testMetrics) &&
		t.Run("pods at rest", s.testAtRest) &&
		t.Run("faults under load", s.testFaults) &&
		t.Run("uninstall and reinstall with the CRDs kept", s.testReinstall) &&
		t.Run("uninstall", s.testUninstall) &&
		t.Run("one namespace", s.testSingleNamespace) &&
		t.Run("upgrade from the baseline under load", s.testUpgrade)
	if !passed {
		s.printState(t) // the steps after the failed one would have told nothing
	}
	s.report.write(t)
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	g := NewWithT(t)
	image := os.Getenv("IMG")
	g.Expect(image).NotTo(BeEmpty(), "IMG names the image to test, one that the cluster can pull")
	phase, err := time.ParseDuration(cmp.Or(os.Getenv("E2E_PHASE"), "10s"))
	g.Expect(err).NotTo(HaveOccurred(), "E2E_PHASE")
	s := &suite{
		image:         image,
		nextImage:     os.Getenv("NEXT_IMG"),
		baselineImage: cmp.Or(os.Getenv("BASELINE_IMG"), image),
		shellImage:    cmp.Or(os.Getenv("SHELL_IMG"), "docker.io/library/busybox:1.37"),
		url:           os.Getenv("E2E_URL"),
		phase:         phase,
		complete:      os.Getenv("E2E_COMPLETE") != "",
	}
	s.config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	g.Expect(err).NotTo(HaveOccurred(), "KUBECONFIG names the cluster to test on")
	s.config.QPS = -1
	s.Client, err = client.New(s.config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	err = s.Get(t.Context(), client.ObjectKey{Name: systemNamespace}, &corev1.Namespace{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(),
		"Tocsin is on that cluster already; the suite installs and removes its own: %v", err)
	return s
}

// kubectl runs kubectl in the project's folder and returns what it prints.
func (s *suite) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	output, err := s.tryKubectl(t.Context(), args...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// tryKubectl is kubectl with an error, and for a context of its own.
func (s *suite) tryKubectl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kubectlTimeout)
	defer cancel()
	var output bytes.Buffer
	command := exec.CommandContext(ctx, "kubectl", args...)
	command.Dir = testenv.Root()
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return output.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output.String())
	}
	return output.String(), nil
}

// leaveOut ends a step that the cluster is not prepared for.
func (s *suite) leaveOut(t *testing.T, reason string) {
	t.Helper()
	if s.complete {
		t.Fatal(reason)
	}
	t.Skip("NOT TESTED: " + reason)
}

// remove deletes what is there, when the test's own context may be over.
func (s *suite) remove(t *testing.T, args ...string) {
	t.Helper()
	output, err := s.tryKubectl(context.Background(), append([]string{"delete", "--ignore-not-found"}, args...)...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), output)
}

// pods are those of the Deployment that are not on their way out.
func (s *suite) pods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := s.List(ctx, &list, client.InNamespace(systemNamespace), podsSelector); err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			pods = append(pods, list.Items[i])
		}
	}
	return pods, nil
}

// leader is the name of the pod that holds the lease.
func (s *suite) leader(ctx context.Context) (string, error) {
	var lease coordinationv1.Lease
	if err := s.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: leaseName}, &lease); err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return name, nil
}

// roles are the names of the pod that leads and of another one.
func (s *suite) roles(ctx context.Context) (leader, follower string, err error) {
	pods, err := s.pods(ctx)
	if err != nil {
		return "", "", err
	}
	leader, err = s.leader(ctx)
	led := false
	for i := range pods {
		if pods[i].Name == leader {
			led = true
		} else {
			follower = pods[i].Name
		}
	}
	if err == nil && (!led || follower == "") {
		err = fmt.Errorf("of %d pods, the lease is held by %q", len(pods), leader)
	}
	return leader, follower, err
}

// settled waits until the Deployment is rolled out, only its pods are left and one of them leads.
func (s *suite) settled(ctx context.Context, replicas int) error {
	if _, err := s.tryKubectl(ctx, "-n", systemNamespace, "rollout", "status", "deployment/tocsin", "--timeout=3m"); err != nil {
		return err
	}
	return testenv.Await(ctx, 2*time.Minute, func(context.Context) error {
		var list corev1.PodList
		if err := s.List(ctx, &list, client.InNamespace(systemNamespace), podsSelector); err != nil {
			return err
		}
		if len(list.Items) != replicas {
			return fmt.Errorf("%d pods, not %d", len(list.Items), replicas)
		}
		leader, err := s.leader(ctx)
		for i := range list.Items {
			pod := &list.Items[i]
			if !ready(pod) {
				return fmt.Errorf("pod %s is not ready", pod.Name)
			}
			if pod.Name == leader {
				return nil
			}
		}
		return fmt.Errorf("the lease is held by %q: %w", leader, err)
	})
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// namespace makes a namespace that lives as long as the step.
func (s *suite) namespace(t *testing.T, name string) string {
	t.Helper()
	g := NewWithT(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
	}}}
	g.Expect(s.Create(t.Context(), namespace)).To(Succeed())
	t.Cleanup(func() { g.Expect(client.IgnoreNotFound(s.Delete(context.Background(), namespace))).To(Succeed()) })
	return name
}

// printState logs what a person would look at first.
func (s *suite) printState(t *testing.T) {
	t.Helper()
	for _, command := range []string{
		"get all,pdb,lease,events -o wide", "describe pods", "logs -l app.kubernetes.io/name=tocsin --tail=50 --prefix",
	} {
		output, err := s.tryKubectl(context.Background(), append([]string{"-n", systemNamespace}, strings.Fields(command)...)...)
		t.Logf("kubectl %s\n%s%v", command, output, err)
	}
}

// relativeRoot is the project's folder as seen from another one: kustomize wants no absolute paths.
func relativeRoot(t *testing.T, from string) string {
	t.Helper()
	path, err := filepath.Rel(from, testenv.Root())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return path
}
