package depthlimit

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	. "github.com/onsi/gomega"
)

func TestWhatIsTooDeepIsEmptied(t *testing.T) {
	for sentence, test := range map[string]struct{ in, out string }{
		"shallow JSON is as it was":            {` { "a" : [ 1 , {} ] } `, ` { "a" : [ 1 , {} ] } `},
		"an object at the limit is empty":      {`{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{}}}`},
		"so is an array":                       {`{"a":{"b":[1,[2],"]"]},"c":3}`, `{"a":{"b":[]},"c":3}`},
		"brackets in strings are text":         {`{"a":{"b":"[[[{{{"}}`, `{"a":{"b":"[[[{{{"}}`},
		"a quoted quote ends no string":        {`{"a":{"b":["\"]",1]},"\\":"\\\"{"}`, `{"a":{"b":[]},"\\":"\\\"{"}`},
		"an object of a watch follows another": {`{"a":[[1]]}` + "\n" + `{"b":[[2]]}`, `{"a":[[]]}` + "\n" + `{"b":[[]]}`},
		"what is not JSON passes":              {"404 page not found\n", "404 page not found\n"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			for _, body := range []io.Reader{strings.NewReader(test.in), iotest.OneByteReader(strings.NewReader(test.in))} {
				out, err := io.ReadAll(&depthFilter{ReadCloser: io.NopCloser(body), limit: 3})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(out)).To(Equal(test.out))
			}
		})
	}
}

func FuzzDepthFilter(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,{"c":"}"}]},"\\\"":[[[[]]]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			t.Skip()
		}
		g := NewWithT(t)
		out, err := io.ReadAll(&depthFilter{ReadCloser: io.NopCloser(bytes.NewReader(text)), limit: 3})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Valid(out)).To(BeTrue(), "%q", out)
		again, err := io.ReadAll(&depthFilter{ReadCloser: io.NopCloser(bytes.NewReader(out)), limit: 3})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again).To(Equal(out), "nothing is too deep any more")
	})
}
