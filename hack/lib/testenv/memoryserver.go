package testenv

import (
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
)

// MemoryServer starts an API server in memory with the CustomResourceDefinitions, which answers in a fraction of the processor
// time of a real one, and returns the configuration of its clients. What it decides, the conformance tests of package apiserver
// compare with a real one. With TOCSIN_TEST_SERVER=real, as in CI, it returns nil: the test is to use a real one.
func MemoryServer() (*rest.Config, error) {
	if os.Getenv("TOCSIN_TEST_SERVER") == "real" {
		return nil, nil
	}
	definitions, err := apiserver.ReadDefinitions(os.DirFS(filepath.Join(Root(), "config", "crd", "bases")))
	if err != nil {
		return nil, err
	}
	server, err := apiserver.New(apiserver.Options{Definitions: definitions})
	if err != nil {
		return nil, err
	}
	return server.Config("test", nil), nil
}
