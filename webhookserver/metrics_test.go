package webhookserver

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestTheExpirationsOfTokensShow(t *testing.T) {
	g := NewWithT(t)
	tokenExpirations.Reset() // of the series of other tests
	index := newTokenIndex()
	shows := func(series ...string) {
		t.Helper()
		expected := ""
		if len(series) > 0 {
			expected = "# HELP tocsin_webhook_token_expiration_timestamp_seconds " +
				"Unix time at which a token expires or has expired; absent for tokens that do not expire.\n" +
				"# TYPE tocsin_webhook_token_expiration_timestamp_seconds gauge\n"
			for _, s := range series {
				expected += "tocsin_webhook_token_expiration_timestamp_seconds{integration=\"shop\",namespace=\"expirations\"," + s + "\n"
			}
		}
		g.Expect(testutil.CollectAndCompare(tokenExpirations, strings.NewReader(expected))).To(Succeed())
	}
	at := v1alpha1.NewTimestamp(noon)
	w := integration("expirations", "shop", "first", "second", "third")
	w.Spec.Tokens[0].ExpirationTime, w.Spec.Tokens[1].ExpirationTime = &at, &at
	seconds := "1.7672688e+09"
	index.set(w)
	shows(`token="a"} `+seconds, `token="b"} `+seconds)

	w = w.DeepCopy()
	w.Spec.Tokens[0].ExpirationTime, w.Spec.Tokens = nil, w.Spec.Tokens[:1]
	index.set(w)
	shows()
	w = w.DeepCopy()
	w.Spec.Tokens[0].ExpirationTime = &at
	index.set(w)
	shows(`token="a"} ` + seconds)
	named.Forget(types.NamespacedName{Namespace: "expirations", Name: "shop"})
	shows()
}
