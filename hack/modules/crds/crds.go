// Package crds depends on the modules whose CustomResourceDefinitions the components are tested against, so
// that their versions are pinned. The definitions lie in the modules.
package crds

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	_ "github.com/prometheus-operator/prometheus-operator/example"
	_ "sigs.k8s.io/gateway-api/apis/v1"
)
