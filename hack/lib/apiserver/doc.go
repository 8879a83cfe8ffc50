// Package apiserver is a Kubernetes API server in memory, for deterministic tests of whole replicas.
//
// A Server keeps objects in the order of one resourceVersion, as a real API server with one etcd does, and serves the REST API
// through an http.RoundTripper, without a network and without goroutines of its own. It takes time only from package time, so
// that a test can run it and its clients in a bubble of testing/synctest; New must be called in the bubble, ReadDefinitions
// need not. What it does depends only on the requests, their order and the clock.
//
// # What it decides as a real API server does
//
//   - create, get, list, update, merge patch, delete, deletecollection and watch of custom resources, namespaces, configmaps,
//     secrets and leases; events are accepted and forgotten
//   - conflicts by resourceVersion and UID, preconditions of deletes, AlreadyExists, NotFound, writes that change nothing, dry
//     runs
//   - metadata: uid, generation, creationTimestamp, deletionTimestamp, finalizers, generateName, managers in managedFields
//   - the status subresource, pruning and unknown fields, and validation by the schemas of the CustomResourceDefinitions with
//     their CEL rules: the code is the API server's own
//   - label and field selectors, pages of one snapshot, 410 Expired, PartialObjectMetadata, initial events and bookmarks of
//     watches, and the DELETED of an object that a selector no longer matches
//   - admission: the life cycle of namespaces, quotas of objects (SetQuota) and denials by policies (Deny)
//
// # What it does not decide
//
//   - There is no authentication, authorization, discovery but for schemas as OpenAPI (without descriptions), flow control,
//     defaulting, conversion, server-side apply or JSON patch.
//   - Every answer is JSON, but lists of metadata for clients that prefer protobuf. Bodies may be protobuf.
//   - Objects of built-in kinds are not validated.
//   - Every read gets the newest state, unless it may be stale and its Faults implement Staleness.
//   - managedFields names the manager and the top-level fields that it wrote, no more.
//   - It is its own namespace controller: the content of a deleted namespace is deleted after a second.
//   - Invalid objects are not ratcheted: an update must be valid as a whole.
package apiserver
