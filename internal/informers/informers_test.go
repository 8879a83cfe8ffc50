package informers_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tocsin-dev/tocsin/internal/informers"
)

func TestHandlerPassesObjectsOfItsKind(t *testing.T) {
	g := NewWithT(t)
	var calls []string
	handler := informers.Handler(
		func(pod *corev1.Pod, initial bool) {
			calls = append(calls, fmt.Sprintf("set %s %t", pod.Name, initial))
		},
		func(pod *corev1.Pod) { calls = append(calls, "remove "+pod.Name) },
	)
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}}
	}
	changed := pod("c")
	changed.ResourceVersion = "2"
	handler.OnAdd(pod("a"), true)
	handler.OnAdd(pod("b"), false)
	handler.OnUpdate(pod("c"), pod("c"))
	handler.OnUpdate(pod("c"), changed)
	other := pod("c")
	other.UID, other.ResourceVersion = "other", "3"
	handler.OnUpdate(changed, other)
	handler.OnDelete(pod("d"))
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "e", Obj: pod("e")})
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "f"})
	handler.OnAdd(&corev1.Node{}, false)
	g.Expect(calls).To(Equal([]string{"set a true", "set b false", "set c false", "remove c", "set c false", "remove d", "remove e"}))
}
