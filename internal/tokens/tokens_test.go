package tokens_test

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/internal/tokens"
)

func TestNewToken(t *testing.T) {
	g := NewWithT(t)
	form := regexp.MustCompile(`^tocsin_[0-9a-f]{32}_[0-9A-Za-z]{49}$`)
	seen := map[string]bool{}
	for range 1000 {
		token := tokens.New("shop", "monitoring")
		g.Expect(token).To(MatchRegexp(form.String()))
		g.Expect(tokens.Check(token)).To(Succeed())
		g.Expect(seen[token]).To(BeFalse())
		seen[token] = true
	}
}

func TestCheckToken(t *testing.T) {
	// The form is for ever: tokens are in use, and scanners know them by it.
	const token = "tocsin_b85b4b0a1c4a2de6c0b35b5cb3a12345_" + "0000000000000000000000000000000000000000000" + "2CZclj"
	flip := func(i int) string {
		other := "x"
		if token[i] == 'x' {
			other = "y"
		}
		return token[:i] + other + token[i+1:]
	}
	for sentence, test := range map[string]struct {
		token string
		whole bool
	}{
		"one of ours passes":                       {token, true},
		"a secret without a tag does not":          {"this-is-no-token", false},
		"a mistyped digit is found":                {flip(45), false},
		"so is one in the checksum":                {flip(85), false},
		"two digits that changed places are found": {strings.Replace(token, "2CZ", "C2Z", 1), false},
		"a token that was cut is found":            {token[:len(token)-1], false},
		"so is one with something behind it":       {token + "0", false},
		"one of a shell passes":                    {token[:40] + strings.Repeat("0f", 32), true},
		"the prefix alone does not":                {tokens.Prefix, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			err := tokens.Check(test.token)
			if test.whole {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(tokens.ErrInvalid))
		})
	}
	t.Run("every single mistyped character behind the tag is found", func(t *testing.T) {
		for i := len(tokens.Prefix) + 33; i < len(token); i++ {
			NewWithT(t).Expect(tokens.Check(flip(i))).To(MatchError(tokens.ErrInvalid))
		}
	})
}

func TestTokenTag(t *testing.T) {
	g := NewWithT(t)
	// As printf %s shop/monitoring | openssl dgst -sha256 -r | cut -c-32 prints it, in the docs for ever.
	sum := sha256.Sum256([]byte("shop/monitoring"))
	g.Expect(tokens.Tag("shop", "monitoring")).To(Equal(hex.EncodeToString(sum[:])[:32]))
	tag := tokens.TagOf(tokens.New("shop", "monitoring"))
	g.Expect(tag).To(Equal(tokens.Tag("shop", "monitoring")))
	for _, other := range []string{
		"", "tocsin_", "tocsin_secret", "TOCSIN_" + tag + "_x", "tocsin_" + tag, "tocsin_" + tag + "_",
		"tocsin_" + tag[1:] + "__x", "tocsin_" + tag + "0_x",
	} {
		g.Expect(tokens.TagOf(other)).To(BeEmpty(), other)
	}
}
