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
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/transport"

	"github.com/tocsin-dev/tocsin/internal/responses"
)

const (
	// maxBytes bounds a page. An object has at most 1.5 MiB in etcd.
	maxBytes = 8 << 20

	// maxObjects is how many objects the largest page has, and firstObjects the first one.
	maxObjects   = int64(5000)
	firstObjects = int64(1000)

	// shrink is the part that a page has after one that was too large, one in so many, and growth the part that pages have more in
	// the next list.
	shrink = 8
	growth = 8
)

// ErrTooLarge is the error of reading a page that exceeds the bound of bytes.
var ErrTooLarge = errors.New("the page is too large")

// Bound returns a wrapper for rest.Config.Wrap that bounds the answers to lists in pages of an API group. A Reader reads such
// lists.
func Bound(group string) transport.WrapperFunc {
	return responses.Wrap(group, func(request *http.Request, response *http.Response) {
		// One object alone always fits.
		if query := request.URL.Query(); query.Has("limit") && query.Get("limit") != "1" && !query.Has("watch") {
			response.Body = &boundedBody{ReadCloser: response.Body, left: maxBytes}
		}
	})
}

// boundedBody fails after so many bytes.
type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}

// Reader lists one kind of objects again and again. It remembers how many of them fit into a page. The zero value is ready to
// use.
type Reader struct {
	most atomic.Int64 // objects in a page; 0: not known
}

// Each calls list for one page after the other, and use with each page. All are of one moment. A page that exceeds the bound of
// bytes is asked for again with fewer objects; the following ones grow slowly, and those of later lists more slowly still: the
// API server has made the whole page that nobody reads. It returns the resourceVersion of the list.
func (r *Reader) Each(
	ctx context.Context, options metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error), use func(page runtime.Object) error,
) (resourceVersion string, err error) {
	most := cmp.Or(r.most.Load(), maxObjects)
	defer func() { r.most.Store(min(most+most/growth+1, maxObjects)) }()
	for size := min(firstObjects, most); ; {
		options.Limit = size
		page, err := list(ctx, options)
		if errors.Is(err, ErrTooLarge) && size > 1 {
			most = max(1, size/shrink)
			size = most
			continue
		}
		if err != nil {
			return "", err
		}
		if err := use(page); err != nil {
			return "", err
		}
		accessor, err := meta.ListAccessor(page)
		if err != nil {
			return "", err
		}
		if options.Continue = accessor.GetContinue(); options.Continue == "" {
			return accessor.GetResourceVersion(), nil
		}
		size = min(2*size, most)
	}
}
