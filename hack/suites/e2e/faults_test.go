//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// testAtRest looks at what the pods use when nothing happens.
func (s *suite) testAtRest(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), max(2*s.phase, 20*time.Second))
	defer cancel()
	sampler := s.sampleUsage(t.Context())
	<-ctx.Done()
	s.report.rest = sampler.stop()
	g.Expect(s.report.rest).To(HaveLen(2))
}

// testFaults breaks the installation in every way that pods and nodes are broken. What is orderly must not cost a
// single refusal.
func (s *suite) testFaults(t *testing.T) {
	faults := []struct {
		name    string
		orderly bool
		fault   func(context.Context) error
		hook    string // the variable that says how, where no Kubernetes API can do it
	}{
		{"no fault", true, s.nothing, ""},
		{"rolling update", true, s.rollingUpdate, ""},
		{"follower deleted", true, s.deleteFollower, ""},
		{"leader deleted", true, s.deleteLeader, ""},
		{"pods evicted", true, s.evictAll, ""},
		{"scaled 1 3 2", true, s.scale, ""},
		{"leader killed", false, s.killLeader, ""},
		{"out of memory", false, s.outOfMemory, ""},
		{"api server restarted", false, s.restartAPIServer, "E2E_RESTART_APISERVER"},
		{"node rebooted", false, s.reboot, "E2E_REBOOT_NODE"},
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if f.hook != "" && os.Getenv(f.hook) == "" {
				s.leaveOut(t, f.hook+" must be a shell command that does it on this cluster")
			}
			result := s.underLoad(t, f.name, f.fault)
			NewWithT(t).Expect(s.settled(t.Context(), 2)).To(Succeed())
			if f.orderly {
				result.undisturbed(t)
				s.checkRestarts(t)
			}
			wrong := unwanted
			if f.hook != "" {
				wrong = unwantedEver
			}
			s.checkLogs(t, result.start, wrong)
			s.report.trials = append(s.report.trials, result)
		})
		if t.Failed() {
			return
		}
	}
}

// nothing gives the load as much time as before and after a fault.
func (s *suite) nothing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.phase)
	defer cancel()
	<-ctx.Done()
	return nil
}

// rollingUpdate changes the image, or at least restarts the pods.
func (s *suite) rollingUpdate(ctx context.Context) error {
	change := []string{"-n", systemNamespace, "rollout", "restart", "deployment/tocsin"}
	if s.nextImage != "" {
		change = []string{"-n", systemNamespace, "set", "image", "deployment/tocsin", "manager=" + s.nextImage}
	}
	if _, err := s.tryKubectl(ctx, change...); err != nil {
		return err
	}
	return s.settled(ctx, 2)
}

func (s *suite) deleteLeader(ctx context.Context) error {
	leader, _, err := s.roles(ctx)
	if err != nil {
		return err
	}
	return s.deletePod(ctx, leader)
}

func (s *suite) deleteFollower(ctx context.Context) error {
	_, follower, err := s.roles(ctx)
	if err != nil {
		return err
	}
	return s.deletePod(ctx, follower)
}

// deletePod deletes a pod and waits until another one has taken its place.
func (s *suite) deletePod(ctx context.Context, name string, args ...string) error {
	if _, err := s.tryKubectl(ctx, append([]string{"-n", systemNamespace, "delete", "pod", name}, args...)...); err != nil {
		return err
	}
	return s.settled(ctx, 2)
}

// killLeader ends the leader without a chance to say goodbye.
func (s *suite) killLeader(ctx context.Context) error {
	leader, _, err := s.roles(ctx)
	if err != nil {
		return err
	}
	return s.deletePod(ctx, leader, "--grace-period=0", "--force")
}

// evictAll evicts both pods as a drain does. The disruption budget must refuse the second eviction until the first
// pod is replaced.
func (s *suite) evictAll(ctx context.Context) error {
	pods, err := s.pods(ctx)
	if err != nil {
		return err
	}
	refused := 0
	for i := range pods {
		err := testenv.Await(ctx, 2*time.Minute, func(context.Context) error {
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: pods[i].Name}}
			err := s.SubResource("eviction").Create(ctx, &pods[i], eviction)
			if apierrors.IsTooManyRequests(err) {
				refused++
			}
			return client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("evicting %s: %w", pods[i].Name, err)
		}
	}
	if refused == 0 {
		return errors.New("both pods were evicted at once: the disruption budget did not hold")
	}
	return s.settled(ctx, 2)
}

func (s *suite) scale(ctx context.Context) error {
	for _, replicas := range []int{1, 3, 2} {
		count := fmt.Sprintf("--replicas=%d", replicas)
		if _, err := s.tryKubectl(ctx, "-n", systemNamespace, "scale", "deployment/tocsin", count); err != nil {
			return err
		}
		if err := s.settled(ctx, replicas); err != nil {
			return fmt.Errorf("scaled to %d: %w", replicas, err)
		}
	}
	return nil
}

// outOfMemory takes the memory away from the leader while it runs: its limit is set to a little more than it uses,
// until the kernel kills it. Then it is given back.
func (s *suite) outOfMemory(ctx context.Context) error {
	leader, _, err := s.roles(ctx)
	if err != nil {
		return err
	}
	err = testenv.Await(ctx, 2*time.Minute, func(context.Context) error {
		used := map[string]usage{}
		if err := s.sample(ctx, used); err != nil {
			return err
		}
		if err := s.resize(ctx, leader, fmt.Sprint(used[leader].last+1<<20)); err != nil {
			return err
		}
		return testenv.Await(ctx, 5*time.Second, func(context.Context) error { return s.killedForMemory(ctx, leader) })
	})
	if err != nil {
		return err
	}
	if err := s.resize(ctx, leader, "1Gi"); err != nil {
		return err
	}
	return s.settled(ctx, 2)
}

// killedForMemory is nil when the kernel has killed a container of the pod.
func (s *suite) killedForMemory(ctx context.Context, name string) error {
	var pod corev1.Pod
	if err := s.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: name}, &pod); err != nil {
		return err
	}
	for _, status := range pod.Status.ContainerStatuses {
		for _, state := range []corev1.ContainerState{status.LastTerminationState, status.State} {
			if state.Terminated != nil && state.Terminated.Reason == "OOMKilled" {
				return nil
			}
		}
	}
	return fmt.Errorf("pod %s was not killed", name)
}

// resize gives the pod other memory, without a restart.
func (s *suite) resize(ctx context.Context, pod, memory string) error {
	request := memory
	if memory == "1Gi" {
		request = "128Mi"
	}
	resources := fmt.Sprintf(`{"requests":{"memory":%q},"limits":{"memory":%q}}`, request, memory)
	patch := `{"spec":{"containers":[{"name":"manager","resources":` + resources + `}]}}`
	_, err := s.tryKubectl(ctx, "-n", systemNamespace, "patch", "pod", pod, "--subresource=resize", "--patch", patch)
	return err
}

func (s *suite) restartAPIServer(ctx context.Context) error {
	return s.runHook(ctx, "E2E_RESTART_APISERVER")
}

// reboot waits until every container is another one, too: until the kubelet has looked, the pods seem to be well.
func (s *suite) reboot(ctx context.Context) error {
	before, err := s.pods(ctx)
	if err != nil {
		return err
	}
	if err := s.runHook(ctx, "E2E_REBOOT_NODE"); err != nil {
		return err
	}
	gone := map[string]bool{}
	for i := range before {
		for _, status := range before[i].Status.ContainerStatuses {
			gone[status.ContainerID] = true
		}
	}
	err = testenv.Await(ctx, 2*time.Minute, func(context.Context) error {
		pods, err := s.pods(ctx)
		for i := range pods {
			for _, status := range pods[i].Status.ContainerStatuses {
				if gone[status.ContainerID] {
					return fmt.Errorf("pod %s has not been started again", pods[i].Name)
				}
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.settled(ctx, 2)
}

// runHook runs the shell command of the environment variable.
func (s *suite) runHook(ctx context.Context, variable string) error {
	hook := exec.CommandContext(ctx, "sh", "-c", os.Getenv(variable))
	hook.Dir = testenv.Root()
	if output, err := hook.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", variable, err, output)
	}
	return s.settled(ctx, 2)
}
