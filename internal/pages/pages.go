// Package pages lists objects in pages that are bounded by their bytes, not by their number alone.
//
// A page of a thousand objects is small, or it has a thousand times the bytes that anyone thought of: every user who may create
// an object decides how large it is. Decoded, one page could take all the memory of the process, and that of its successor.
package pages

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/transport"
)

const (
	// maxBytes bounds a page, and aimedBytes is how large the next one is to be, going by the last. An object has at most 1.5 MiB
	// in etcd.
	maxBytes   = 8 << 20
	aimedBytes = maxBytes / 2

	// firstObjects is how many objects the first page has, and maxObjects the largest one. Nothing is known of the objects behind a
	// page: the API server may have to read as many of the largest ones.
	firstObjects = int64(64)
	maxObjects   = int64(1000)

	// growth is how many times as many objects as the last one a page has at most, and one in shrinking of one that was too large.
	// Large objects may lie behind small ones.
	growth    = 2
	shrinking = 8
)

// ErrTooLarge is the error of reading a page that exceeds the bound of bytes.
var ErrTooLarge = errors.New("the page is too large")

// Bound returns a wrapper for rest.Config.Wrap that bounds the answers to lists in pages of an API group. A Reader reads such
// lists.
func Bound(group string) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return &bounder{next: next, path: "/apis/" + group + "/"}
	}
}

type bounder struct {
	next http.RoundTripper
	path string // part of the paths of the API group
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (b *bounder) WrappedRoundTripper() http.RoundTripper { return b.next }

func (b *bounder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(request)
	query := request.URL.Query()
	isPage := request.Method == http.MethodGet && query.Has("limit") && !query.Has("watch")
	if err != nil || !isPage || !strings.Contains(request.URL.Path, b.path) {
		return response, err
	}
	body := &boundedBody{ReadCloser: response.Body, left: maxBytes}
	if query.Get("limit") == "1" {
		body.left = math.MaxInt // one object alone always fits
	}
	body.read, _ = request.Context().Value(sizeKey{}).(*atomic.Int64)
	response.Body = body
	return response, nil
}

// sizeKey is the key of the context's counter of the bytes of a page.
type sizeKey struct{}

// boundedBody fails after so many bytes.
type boundedBody struct {
	io.ReadCloser
	left int
	read *atomic.Int64 // the bytes so far; nil if nobody asks
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read != nil {
		b.read.Add(int64(n))
	}
	if b.left -= n; b.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}

// Reader lists one kind of objects again and again. It remembers how many of them make a page. The zero value is ready to use.
type Reader struct {
	size atomic.Int64 // objects in the next page; 0: not known
}

// Each calls list for one page after the other, and use with each page and its bytes. All are of one moment. The bytes of a page
// decide how many objects the next one has. A page that exceeds the bound is asked for again with fewer: the API server has made
// the whole page that nobody reads. list passes its context on to the client. Each returns the resourceVersion of the list.
func (r *Reader) Each(
	ctx context.Context, options metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error), use func(page runtime.Object, bytes int64) error,
) (resourceVersion string, err error) {
	size := cmp.Or(r.size.Load(), firstObjects)
	defer func() { r.size.Store(size) }()
	for {
		var read atomic.Int64
		options.Limit = size
		page, err := list(context.WithValue(ctx, sizeKey{}, &read), options)
		if errors.Is(err, ErrTooLarge) && size > 1 {
			size = max(1, size/shrinking)
			continue
		}
		if err != nil {
			return "", err
		}
		size = next(size, meta.LenList(page), read.Load())
		if err := use(page, read.Load()); err != nil {
			return "", err
		}
		accessor, err := meta.ListAccessor(page)
		if err != nil {
			return "", err
		}
		if options.Continue = accessor.GetContinue(); options.Continue == "" {
			return accessor.GetResourceVersion(), nil
		}
	}
}

// next returns how many objects to ask for after a page with so many, and so many bytes.
func next(size int64, objects int, bytes int64) int64 {
	if objects == 0 {
		return size
	}
	return min(growth*size, max(1, int64(objects)*aimedBytes/max(1, bytes)), maxObjects)
}
