package clustercache

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"

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
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				guard := GuardStore(lister(func(list client.ObjectList) error {
					if len(test.versions) == 0 {
						cancel()
						return context.Canceled
					}
					version := test.versions[0]
					test.versions = test.versions[1:]
					list.SetResourceVersion(version)
					if version == "" {
						return errors.New("away")
					}
					return nil
				}), "")
				err := guard.Start(ctx)
				if test.failure == "" {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(ContainSubstring(test.failure)))
				}
			})
		})
	}
}

// lister is a client.Reader that lists.
type lister func(client.ObjectList) error

func (lister) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("no get")
}

func (l lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return l(list)
}

func TestTheVersionOfTheStoreGrows(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, c)
	var versions []string
	ctx, cancel := context.WithCancel(t.Context())
	guard := GuardStore(lister(func(list client.ObjectList) error {
		cancel() // one read is enough
		err := c.List(t.Context(), list, client.InNamespace(namespace), client.Limit(1))
		versions = append(versions, list.GetResourceVersion())
		return err
	}), namespace)
	g.Expect(guard.Start(ctx)).To(Succeed())
	testenv.Namespace(t, c) // any write
	g.Expect(guard.Start(ctx)).To(Succeed())
	g.Expect(versions).To(HaveLen(2))
	g.Expect(resourceversion.CompareResourceVersion(versions[1], versions[0])).To(BeNumerically(">", 0))
}
