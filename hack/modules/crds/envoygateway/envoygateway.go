// Package envoygateway depends on Envoy Gateway, so that the version of its CustomResourceDefinitions is pinned. They
// lie in its charts.
package envoygateway

import (
	_ "github.com/envoyproxy/gateway/api/v1alpha1"
)
