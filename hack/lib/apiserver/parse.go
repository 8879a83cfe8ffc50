package apiserver

import (
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// parse reads what a request is about. The request is never nil; the error is the answer to one that cannot be served.
func (s *Server) parse(q *http.Request, body []byte) (*request, error) {
	query := q.URL.Query()
	r := &request{
		Call: &Call{Body: body, Header: q.Header, Query: query}, ctx: q.Context(),
		dryRun: query.Has("dryRun"), manager: managerOf(q),
	}
	accepted, _, _ := strings.Cut(q.Header.Get("Accept"), ",")
	r.asMetadata = strings.Contains(accepted, "as=PartialObjectMetadata")
	r.asProtobuf = strings.HasPrefix(accepted, runtime.ContentTypeProtobuf)
	s.locate(r, q.URL.Path)
	r.Watch, _ = strconv.ParseBool(query.Get("watch"))
	r.Watch = r.Watch && q.Method == http.MethodGet && r.Name == ""
	r.Verb = verbOf(q.Method, r.Name != "", r.Watch)
	r.Quorum = (r.Verb == "get" || r.Verb == "list") && query.Get("resourceVersion") == ""
	if r.table == nil {
		return r, errNotServed
	}
	if !r.table.serves(r.Subresource) {
		return r, apierrors.NewNotFound(r.table.groupResource(), r.Name)
	}
	if r.Verb != "create" {
		return r, nil
	}
	var err error
	if r.content, err = decode(r); err == nil {
		r.Name = text(metaOf(r.content), "name")
	}
	return r, err
}

// locate sets what the path tells of a request. The table is nil if the server has no such path.
func (s *Server) locate(r *request, urlPath string) {
	group, version, path := splitPath(urlPath)
	if len(path) > 2 && path[0] == "namespaces" && path[2] != "status" {
		r.Namespace, path = path[1], path[2:]
	}
	var plural string
	for i, to := range []*string{&plural, &r.Name, &r.Subresource} {
		if i < len(path) {
			*to = path[i]
		}
	}
	r.Resource = plural
	if group != "" {
		r.Resource += "." + group
	}
	if len(path) <= 3 {
		r.table = s.table(group, version, plural)
	}
}

// splitPath splits /api/v1/... and /apis/group/version/...
func splitPath(path string) (group, version string, rest []string) {
	rest = strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case rest[0] == "api" && len(rest) > 2:
		return "", rest[1], rest[2:]
	case rest[0] == "apis" && len(rest) > 3:
		return rest[1], rest[2], rest[3:]
	default:
		return "", "", nil
	}
}

func verbOf(method string, named, watch bool) string {
	switch {
	case watch:
		return "watch"
	case method == http.MethodGet && named:
		return "get"
	case method == http.MethodGet:
		return "list"
	case method == http.MethodPost:
		return "create"
	case method == http.MethodPut:
		return "update"
	case method == http.MethodPatch:
		return "patch"
	case method == http.MethodDelete && named:
		return "delete"
	case method == http.MethodDelete:
		return "deletecollection"
	default:
		return strings.ToLower(method)
	}
}

// managerOf returns the manager that a write gets in managedFields.
func managerOf(q *http.Request) string {
	if manager := q.URL.Query().Get("fieldManager"); manager != "" {
		return manager
	}
	manager, _, _ := strings.Cut(q.UserAgent(), "/")
	return manager[:min(len(manager), 128)]
}
