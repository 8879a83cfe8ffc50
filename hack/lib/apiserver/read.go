package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	optionsvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// get serves one object, always in its newest state.
func (s *Server) get(r *request) (*reply, error) {
	wanted, err := revisionOf(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkReached(wanted); err != nil {
		return nil, err
	}
	o := r.table.find(r.Namespace, r.Name)
	if o == nil {
		return nil, apierrors.NewNotFound(r.table.groupResource(), r.Name)
	}
	return &reply{code: http.StatusOK, body: o.encoded(r.variant)}, nil
}

// page is what a list asks for: a state, and the part of it after a key.
type page struct {
	revision int64 // zero: the newest
	after    string
	limit    int
}

// continuation is the content of a continue token.
type continuation struct {
	Revision int64  `json:"rv"`
	After    string `json:"after"`
}

// list serves the objects of a snapshot, or a page of it.
func (s *Server) list(r *request) (*reply, error) {
	selected, err := selectionOf(r)
	if err != nil {
		return nil, err
	}
	p, wanted, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkReached(max(wanted, p.revision)); err != nil {
		return nil, err
	}
	if p.revision == 0 {
		p.revision = s.revision
	}
	if p.revision < r.table.expired {
		if p.after != "" {
			return nil, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
				"You must start a new list without the continue parameter.")
		}
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("The resourceVersion for the provided list is too old: %d", p.revision))
	}
	objects := r.table.snapshot(selected.namespace, p.revision)
	from, found := slices.BinarySearchFunc(objects, p.after, func(o *object, key string) int { return strings.Compare(o.key, key) })
	if found {
		from++
	}
	return s.answerList(r, selected, objects[from:], p), nil
}

func (s *Server) answerList(r *request, selected *selection, objects []*object, p page) *reply {
	items, size := make([]*object, 0, len(objects)), 0
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(p.revision, 10)}
	for i, o := range objects {
		if p.limit > 0 && len(items) == p.limit {
			token := encode(continuation{p.revision, items[len(items)-1].key})
			meta.Continue = base64.RawURLEncoding.EncodeToString(token)
			if remaining := int64(len(objects) - i); selected.labels.Empty() && selected.fields.Empty() {
				meta.RemainingItemCount = &remaining
			}
			break
		}
		if selected.matches(o) {
			items = append(items, o)
			size += len(o.encoded(r.variant)) + 1
		}
	}
	return &reply{code: http.StatusOK, body: encodeList(r, meta, items, size)}
}

// encodeList joins the encoded objects.
func encodeList(r *request, meta metav1.ListMeta, items []*object, size int) []byte {
	kind, version := r.table.Kind+"List", r.table.GroupVersion().String()
	if r.variant == variantMetadata {
		kind, version = "PartialObjectMetadataList", metav1.SchemeGroupVersion.String()
	}
	head := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind, version, encode(&meta))
	body := make([]byte, 0, len(head)+size+2)
	body = append(body, head...)
	for i, o := range items {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, o.encoded(r.variant)...)
	}
	return append(body, "]}"...)
}

// checkReached fails if the server has never had a revision. The lock is held. A real server waits for it for 3 seconds.
func (s *Server) checkReached(revision int64) error {
	if revision <= s.revision {
		return nil
	}
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", revision, s.revision), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// revisionOf returns the parameter resourceVersion; zero if it is unset.
func revisionOf(r *request) (int64, error) {
	text := r.Query.Get("resourceVersion")
	if text == "" {
		return 0, nil
	}
	revision, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q: %v", text, err))
	}
	return int64(revision), nil
}

// pageOf returns which page a list asks for, and the revision that the state must have reached.
func pageOf(r *request) (p page, wanted int64, err error) {
	if wanted, err = revisionOf(r); err != nil {
		return p, 0, err
	}
	if text := r.Query.Get("limit"); text != "" {
		if p.limit, err = strconv.Atoi(text); err != nil {
			return p, 0, apierrors.NewBadRequest(err.Error())
		}
	}
	match := metav1.ResourceVersionMatch(r.Query.Get("resourceVersionMatch"))
	token := r.Query.Get("continue")
	if err := checkOptions(r); err != nil {
		return p, 0, err
	}
	switch {
	case token != "" && r.Query.Get("resourceVersion") != "" && wanted != 0:
		return p, 0, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	case token != "":
		text, err := base64.RawURLEncoding.DecodeString(token)
		c := continuation{}
		if err != nil || json.Unmarshal(text, &c) != nil {
			return p, 0, apierrors.NewBadRequest("continue key is not valid")
		}
		p.revision, p.after = c.Revision, c.After
		return p, 0, nil
	case match == metav1.ResourceVersionMatchExact || match == "" && p.limit > 0 && wanted > 0:
		p.revision = wanted
	}
	return p, wanted, nil
}

// checkOptions fails if parameters of a list or a watch contradict each other.
func checkOptions(r *request) error {
	options := &internalversion.ListOptions{
		Watch: r.Watch, ResourceVersion: r.Query.Get("resourceVersion"), Continue: r.Query.Get("continue"),
		ResourceVersionMatch: metav1.ResourceVersionMatch(r.Query.Get("resourceVersionMatch")),
	}
	if r.Query.Has("sendInitialEvents") {
		options.SendInitialEvents = new(true) // its value does not matter here
	}
	if wrong := optionsvalidation.ValidateListOptions(options, true); len(wrong) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", wrong)
	}
	return nil
}

// selectionOf returns what the parameters and the path select.
func selectionOf(r *request) (*selection, error) {
	byLabel, err := labels.Parse(r.Query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(r.Query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for _, requirement := range byField.Requirements() {
		if !r.table.selectable(requirement.Field) {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", requirement.Field))
		}
	}
	return &selection{namespace: r.Namespace, labels: byLabel, fields: byField}, nil
}
