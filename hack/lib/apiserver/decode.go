package apiserver

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// decode returns the body of a request: JSON, or protobuf of a built-in kind.
func decode(r *request) (map[string]any, error) {
	if strings.HasPrefix(r.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		typed, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return nil, err
		}
		version, kind := typed.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
		content["apiVersion"], content["kind"] = version, kind
		return content, nil
	}
	content := map[string]any{}
	if err := json.Unmarshal(r.Body, &content); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return content, nil
}

// decodeObject returns the object that a create or an update sends, in the namespace of the request.
func decodeObject(r *request) (map[string]any, error) {
	content := r.content
	if content == nil {
		var err error
		if content, err = decode(r); err != nil {
			return nil, err
		}
	}
	kind, version := text(content, "kind"), text(content, "apiVersion")
	switch {
	case kind == "":
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Object 'Kind' is missing in '%s'", r.Body))
	case kind != r.table.Kind && !r.table.custom || version != r.table.GroupVersion().String():
		return nil,
			apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s, Kind=%s) "+
				"does not match the expected API version (%s, Kind=%s)",
				version, kind, r.table.GroupVersion(), r.table.Kind))
	}
	meta := metaOf(content)
	if namespace := text(meta, "namespace"); namespace != "" && namespace != r.Namespace {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if r.table.namespaced {
		meta["namespace"] = r.Namespace
	}
	if name := text(meta, "name"); name != r.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name,
			r.Name))
	}
	return content, checkFields(r, content)
}

// checkFields drops unknown fields; if the client asks for strict validation, they are an error.
func checkFields(r *request, content map[string]any) error {
	if r.table.validation == nil {
		return nil
	}
	unknown := r.table.validation.prune(content)
	if len(unknown) == 0 || r.Query.Get("fieldValidation") != metav1.FieldValidationStrict {
		return nil
	}
	var wrong []error
	for _, path := range unknown {
		wrong = append(wrong, fmt.Errorf("unknown field %q", path))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s",
		r.table.Kind, r.table.Version, r.table.Kind, runtime.NewStrictDecodingError(wrong)))
}

// mergePatch applies a JSON merge patch (RFC 7386). It changes neither argument, but the result may share parts of them.
func mergePatch(to, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, _ := to.(map[string]any)
	merged := shallow(object)
	for name, change := range changes {
		if change == nil {
			delete(merged, name)
		} else {
			merged[name] = mergePatch(merged[name], change)
		}
	}
	return merged
}

// errUnsupportedPatch is the error for a patch that is not a merge patch.
var errUnsupportedPatch = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
	Message: "the body of the request was in an unknown format - accepted media types include: application/merge-patch+json",
}}
