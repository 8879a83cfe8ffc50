package requests

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestSourcesHaveNames(t *testing.T) {
	NewWithT(t).Expect(fmt.Sprint(Source[reconcile.Request]("silences", nil))).To(Equal("silences"))
}
