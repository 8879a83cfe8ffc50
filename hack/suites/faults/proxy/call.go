package proxy

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Call is what a request asks of the API server.
type Call struct {
	// Verb is create, update, patch, delete, deletecollection, get, list or watch.
	Verb string
	// Resource is the plural name, with a slash and the subresource where there is one.
	Resource string
	// Namespace and Name are empty where the request has none.
	Namespace, Name string
}

// Is says whether the call has this verb and resource.
func (c Call) Is(verb, resource string) bool { return c.Verb == verb && c.Resource == resource }

// IsTocsin says whether the call is about one of Tocsin's resources.
func (c Call) IsTocsin() bool {
	resource, _, _ := strings.Cut(c.Resource, "/")
	return resource == "alertevents" || resource == "incidents" || resource == "webhookintegrations"
}

func (c Call) String() string { return c.Verb + " " + c.Resource }

// callOf reads a path as the API server does: /api/v1/… or /apis/group/version/…, then
// namespaces/{namespace}, the resource, a name and a subresource.
func callOf(r *http.Request) Call {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return Call{Verb: strings.ToLower(r.Method), Resource: "discovery"}
	}
	var c Call
	if parts[0] == "namespaces" && len(parts) > 2 {
		c.Namespace = parts[1]
		parts = parts[2:]
	}
	c.Resource = parts[0]
	if len(parts) > 1 {
		c.Name = parts[1]
	}
	if len(parts) > 2 {
		c.Resource += "/" + parts[2]
	}
	c.Verb = verbOf(r, c.Name != "")
	return c
}

func verbOf(r *http.Request, named bool) string {
	switch {
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	case r.Method == http.MethodPatch:
		return "patch"
	case r.Method == http.MethodDelete && named:
		return "delete"
	case r.Method == http.MethodDelete:
		return "deletecollection"
	case isTrue(r.URL.Query().Get("watch")):
		return "watch"
	case named:
		return "get"
	default:
		return "list"
	}
}

// nameOf is the name of the object in a body, empty when it has none or is no JSON.
func nameOf(body []byte) string {
	var object struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if json.Unmarshal(body, &object) != nil {
		return ""
	}
	return object.Metadata.Name
}

func isTrue(value string) bool { return value == "true" || value == "1" }
