package plaintext_test

import (
	"strings"
	"testing"

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
