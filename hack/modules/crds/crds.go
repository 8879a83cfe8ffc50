// Package crds depends on the modules whose CustomResourceDefinitions the components are tested against, so
// that their versions are pinned. The definitions lie beside the types or are generated from them.
package crds

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	_ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	_ "sigs.k8s.io/gateway-api/apis/v1"
)
