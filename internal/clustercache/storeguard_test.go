package clustercache

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var config *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(c *rest.Config) { config = c }))
}

func TestAStoreThatGoesBackEndsTheProcess(t *testing.T) {
	for sentence, test := range map[string]struct {
		versions []string // empty: the API server is away
		failure  string
	}{
		"a store that goes on":                       {[]string{"9", "9", "10", "100"}, ""},
		"a store that goes back":                     {[]string{"100", "99"}, "from resourceVersion 100 to 99"},
		"a store that goes back during an outage":    {[]string{"100", "", "", "20"}, "from resourceVersion 100 to 20"},
		"an API server without comparable versions":  {[]string{"100", "abc", "def"}, ""},
		"an API server that is away from the start":  {[]string{"", "", "5"}, ""},
		"more digits are a newer version, not older": {[]string{"9", "10"}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ticks := make(chan time.Time, len(test.versions))
			guard := &StoreGuard{ticks: ticks, version: func(context.Context) (string, error) {
				if len(test.versions) == 0 {
					cancel()
					return "", context.Canceled
				}
				version := test.versions[0]
				test.versions = test.versions[1:]
				ticks <- time.Time{}
				if version == "" {
					return "", errors.New("away")
				}
				return version, nil
			}}
			err := guard.Start(ctx)
			if test.failure == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.failure)))
			}
		})
	}
}

func TestTheVersionOfTheStoreGrows(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, c)
	guard := NewStoreGuard(c, namespace)
	before, err := guard.version(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	testenv.Namespace(t, c) // any write
	after, err := guard.version(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resourceversion.CompareResourceVersion(after, before)).To(BeNumerically(">", 0))
}
