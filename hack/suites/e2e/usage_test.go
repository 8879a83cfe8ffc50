//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

const sampleInterval = 2 * time.Second

// usage is what a pod used between two looks at it.
type usage struct {
	memory      uint64 // most bytes of the working set
	last        uint64 // bytes of the working set at the last look
	cpuNanos    uint64 // nanoseconds of CPU between the first and the last look
	first       uint64 // nanoseconds of CPU at the first look
	since, till time.Time
	led         bool // it held the lease at the last look
}

// cpu is the mean use of processors.
func (u usage) cpu() float64 {
	if elapsed := u.till.Sub(u.since); elapsed > 0 {
		return float64(u.cpuNanos) / float64(elapsed.Nanoseconds())
	}
	return 0
}

// summary is the part of the kubelet's /stats/summary that is needed.
type summary struct {
	Pods []struct {
		PodRef struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"podRef"`
		Containers []struct {
			CPU struct {
				Time                 time.Time `json:"time"`
				UsageCoreNanoSeconds uint64    `json:"usageCoreNanoSeconds"`
			} `json:"cpu"`
			Memory struct {
				WorkingSetBytes uint64 `json:"workingSetBytes"`
			} `json:"memory"`
		} `json:"containers"`
	} `json:"pods"`
}

// sampler asks the kubelets for what the pods use.
type sampler struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	pods   map[string]usage
}

// sampleUsage begins to sample. Samples that fail, as they do while an API server restarts, are left out.
func (s *suite) sampleUsage(ctx context.Context) *sampler {
	ctx, cancel := context.WithCancel(ctx)
	m := &sampler{cancel: cancel, pods: map[string]usage{}}
	m.done.Go(func() {
		for ctx.Err() == nil {
			_ = s.sample(ctx, m.pods)
			select {
			case <-ctx.Done():
			case <-time.After(sampleInterval):
			}
		}
	})
	return m
}

// stop ends the sampling and returns the usage by the pods' names.
func (m *sampler) stop() map[string]usage {
	m.cancel()
	m.done.Wait()
	return m.pods
}

// sample takes one look at all nodes.
func (s *suite) sample(ctx context.Context, pods map[string]usage) error {
	clients, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := s.List(ctx, &nodes); err != nil {
		return err
	}
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		raw, err := clients.CoreV1().RESTClient().Get().Resource("nodes").Name(node.Name).
			SubResource("proxy").Suffix("stats", "summary").DoRaw(ctx)
		if err != nil {
			return err
		}
		var seen summary
		if err := json.Unmarshal(raw, &seen); err != nil {
			return err
		}
		for _, pod := range seen.Pods {
			if pod.PodRef.Namespace != systemNamespace || len(pod.Containers) == 0 {
				continue
			}
			u, container := pods[pod.PodRef.Name], pod.Containers[0]
			u.led = pod.PodRef.Name == leader
			u.last = container.Memory.WorkingSetBytes
			u.memory = max(u.memory, u.last)
			// A container that starts again counts from zero.
			if u.since.IsZero() || container.CPU.UsageCoreNanoSeconds < u.first {
				u.since, u.first = container.CPU.Time, container.CPU.UsageCoreNanoSeconds
			}
			u.till, u.cpuNanos = container.CPU.Time, container.CPU.UsageCoreNanoSeconds-u.first
			pods[pod.PodRef.Name] = u
		}
	}
	return nil
}
