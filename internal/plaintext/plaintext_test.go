package plaintext_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		" \n\t ":                 "",
		"a  b\nc":                "a b c",
		"a\x00\x1b\u009b\u202eb": "ab",
		"\xff":                   "\ufffd",
		"12345678":               "1234567…",
		"1234567":                "1234567",
		"123456 8":               "123456…",
		"<<<<<<":                 "<<<…",
		strings.Repeat("😀", 7):   "😀😀😀😀…",
		"\u202e" + "xxx":         "xxx",
	} {
		NewWithT(t).Expect(plaintext.OneLine(text, 8, 21)).To(Equal(want), "of %q", text)
	}
}

func TestFew(t *testing.T) {
	g := NewWithT(t)
	g.Expect(plaintext.Few(nil, 2)).To(BeEmpty())
	g.Expect(plaintext.Few([]string{"b", "a"}, 2)).To(Equal("a, b"))
	g.Expect(plaintext.Few([]string{"c", "b", "a"}, 2)).To(Equal("a, b and 1 more"))
}

func TestADurationHasNoZeroUnits(t *testing.T) {
	for text, expected := range map[string]string{
		"2h": "2h", "90m": "1h30m", "10m": "10m", "10h": "10h", "720h": "720h", "1h0m5s": "1h0m5s", "30s": "30s", "1500ms": "1.5s",
	} {
		d, err := time.ParseDuration(text)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(plaintext.Duration(d)).To(Equal(expected))
	}
}
