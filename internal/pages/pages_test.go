package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// store has objects of these sizes, and lists them as an API server does.
type store []int

// RoundTrip implements http.RoundTripper.
func (s store) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	from, _ := strconv.Atoi(query.Get("continue"))
	size := 0
	for _, object := range s[from:min(from+limit, len(s))] {
		size += object
	}
	return &http.Response{Body: io.NopCloser(bytes.NewReader(make([]byte, size)))}, nil
}

// list reads a page by way of the transport.
func (s store) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	url := fmt.Sprintf("http://server/apis/tocsin.dev/v1alpha1/incidents?limit=%d&continue=%s", options.Limit, options.Continue)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := Bound("tocsin.dev")(s).RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	from, _ := strconv.Atoi(options.Continue)
	to := min(from+int(options.Limit), len(s))
	page := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for i := from; i < to; i++ {
		page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}})
	}
	if to < len(s) {
		page.Continue = strconv.Itoa(to)
	}
	return page, nil
}

func TestEach(t *testing.T) {
	const large = 3 << 19 // as large as an object can be
	tests := map[string]func() store{
		"none":                    func() store { return nil },
		"small ones":              func() store { return make(store, 12_345) },
		"large ones":              func() store { return sized(300, large) },
		"large ones behind small": func() store { return append(make(store, 9_000), sized(300, large)...) },
		"one that is too large":   func() store { return sized(3, maxBytes+1) },
	}
	for name, objects := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects, seen, largest := objects(), 0, 0
			version, err := new(Reader).Each(t.Context(), metav1.ListOptions{}, objects.list, func(page runtime.Object, _ int64) error {
				list, ok := page.(*metav1.PartialObjectMetadataList)
				g.Expect(ok).To(BeTrue())
				size := 0
				for i := range list.Items {
					g.Expect(list.Items[i].Name).To(Equal(strconv.Itoa(seen)))
					size += objects[seen]
					seen++
				}
				largest = max(largest, size)
				return nil
			})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(version).To(Equal("7"))
			g.Expect(seen).To(Equal(len(objects)))
			g.Expect(largest).To(BeNumerically("<=", max(maxBytes, slices.Max(append(objects, 0)))))
		})
	}
}

func TestReaderGoesByTheBytes(t *testing.T) {
	const (
		whole = 3 << 19 // as large as an object can be
		large = 64 << 10
		small = 1 << 10
	)
	var reader Reader
	for _, test := range []struct {
		objects store
		pages   int
	}{
		{sized(5_000, small), 4 + 5}, // 64, 128, 256, 512, and then the most that a page has
		{sized(5_000, small), 5},
		{sized(300, whole), 4 + 150}, // three tries that are too large, one object, then two in a page
		{sized(300, whole), 150},
		{sized(3_000, large), 5 + 46}, // 2, 4, 8, 16, 32, and then as many as come to the bytes that are aimed at
		{sized(3_000, large), 47},
		{append(sized(64, large), sized(2_000, small)...), 1 + 4 + 2}, // 64, 64, 128, 256, 512, and then the most
	} {
		pages := 0
		list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			pages++
			return test.objects.list(ctx, options)
		}
		_, err := reader.Each(t.Context(), metav1.ListOptions{}, list, func(runtime.Object, int64) error { return nil })
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pages).To(Equal(test.pages), "%d objects, the first of %d bytes", len(test.objects), test.objects[0])
	}
}

func sized(n, size int) store {
	s := make(store, n)
	for i := range s {
		s[i] = size
	}
	return s
}

func TestEachFails(t *testing.T) {
	g := NewWithT(t)
	broken := errors.New("broken")
	_, err := new(Reader).Each(t.Context(), metav1.ListOptions{}, make(store, 1).list, func(runtime.Object, int64) error { return broken })
	g.Expect(err).To(MatchError(broken))
	_, err = new(Reader).Each(t.Context(), metav1.ListOptions{},
		func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, broken },
		func(runtime.Object, int64) error { return nil })
	g.Expect(err).To(MatchError(broken))
}
