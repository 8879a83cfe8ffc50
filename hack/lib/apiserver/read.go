package apiserver

import (
	"bytes"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// notOlder returns the revision of the state that a read gets which gives a resourceVersion, or none. The lock is held.
func (s *Server) notOlder(r *request, wanted int64) int64 {
	staleness, ok := r.faults.(Staleness)
	if !ok || r.Query.Get("resourceVersion") == "" {
		return s.revision
	}
	return max(wanted, s.revision-staleness.Lag(r.Call), r.table.expired, 1)
}

// get serves one object.
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
	r.Revision = s.notOlder(r, wanted)
	o := r.table.was(r.Namespace, r.Name, r.Revision)
	if o == nil {
		return nil, apierrors.NewNotFound(r.table.groupResource(), r.Name)
	}
	return &reply{code: http.StatusOK, body: o.encoded(r.asMetadata)}, nil
}

// page is what a list asks for: a state, and the part of it from a key on.
type page struct {
	revision int64 // zero: the newest
	from     string
	limit    int
}

// continuation is the content of a continue token, as a real server encodes it. Start is relative to the namespace of the list.
type continuation struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"` // negative: the newest one, whatever the pages before were of
	Start    string `json:"start"`
}

const continuationVersion = "meta.k8s.io/v1"

// continueToken returns the token of the page that begins after an object.
func continueToken(revision int64, namespace, key string) string {
	start := strings.TrimPrefix(key, namespace+"/") + "\x00"
	return base64.RawURLEncoding.EncodeToString(encode(continuation{continuationVersion, revision, start}))
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
		p.revision = s.notOlder(r, wanted)
	}
	if p.revision < r.table.expired {
		if p.from != "" {
			return nil, expiredPage(r, p)
		}
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("The resourceVersion for the provided list is too old: %d", p.revision))
	}
	r.Revision = p.revision
	objects := r.table.snapshot(selected.namespace, p.revision)
	from, _ := slices.BinarySearchFunc(objects, p.from, func(o *object, key string) int { return strings.Compare(o.key, key) })
	return s.answerList(r, selected, objects[from:], p), nil
}

// expiredPage is the error for a page of a state that is gone. It has the token of the same page of the newest state.
func expiredPage(r *request, p page) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the " +
		"remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were " +
		"created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	err.ErrStatus.Continue = continueToken(-1, r.Namespace, strings.TrimSuffix(p.from, "\x00"))
	return err
}

func (s *Server) answerList(r *request, selected *selection, objects []*object, p page) *reply {
	items := make([]*object, 0, len(objects))
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(p.revision, 10)}
	for i, o := range objects {
		if p.limit > 0 && len(items) == p.limit {
			meta.Continue = continueToken(p.revision, r.Namespace, items[len(items)-1].key)
			if remaining := int64(len(objects) - i); selected.labels.Empty() && selected.fields.Empty() {
				meta.RemainingItemCount = &remaining
			}
			break
		}
		if selected.matches(o) {
			items = append(items, o)
		}
	}
	return encodeList(r, meta, items)
}

// encodeList returns the answer with some objects.
func encodeList(r *request, meta metav1.ListMeta, items []*object) *reply {
	kind := metav1.TypeMeta{Kind: r.table.Kind + "List", APIVersion: r.table.GroupVersion().String()}
	if r.asMetadata {
		kind = metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: metav1.SchemeGroupVersion.String()}
	}
	if r.asMetadata && r.asProtobuf {
		return &reply{code: http.StatusOK, body: encodeMetadata(kind, meta, items), format: runtime.ContentTypeProtobuf}
	}
	return &reply{code: http.StatusOK, body: joinEncoded(r, kind, meta, items)}
}

// encodeMetadata returns the protobuf of a list of metadata.
func encodeMetadata(kind metav1.TypeMeta, meta metav1.ListMeta, items []*object) []byte {
	list := &metav1.PartialObjectMetadataList{
		TypeMeta: kind, ListMeta: meta, Items: make([]metav1.PartialObjectMetadata, len(items)),
	}
	for i, o := range items {
		list.Items[i].ObjectMeta = *o.decodedMetadata()
	}
	var body bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(list, &body); err != nil {
		panic(fmt.Sprintf("encoding a list of metadata: %v", err))
	}
	return body.Bytes()
}

// joinEncoded joins the JSON of the objects.
func joinEncoded(r *request, kind metav1.TypeMeta, meta metav1.ListMeta, items []*object) []byte {
	head := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind.Kind, kind.APIVersion, encode(&meta))
	size := len(head) + 2
	for _, o := range items {
		size += len(o.encoded(r.asMetadata)) + 1
	}
	body := append(make([]byte, 0, size), head...)
	for i, o := range items {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, o.encoded(r.asMetadata)...)
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
		err := p.resume(r.Namespace, token)
		return p, 0, err
	case match == metav1.ResourceVersionMatchExact || match == "" && p.limit > 0 && wanted > 0:
		p.revision = wanted
	}
	return p, wanted, nil
}

// resume sets the state and the beginning of the page that a continue token names.
func (p *page) resume(namespace, token string) error {
	text, err := base64.RawURLEncoding.DecodeString(token)
	c := continuation{}
	if err != nil || json.Unmarshal(text, &c) != nil || c.Version != continuationVersion || c.Revision == 0 || c.Start == "" {
		return apierrors.NewBadRequest("continue key is not valid")
	}
	p.revision, p.from = max(c.Revision, 0), keyOf(namespace, c.Start)
	return nil
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
