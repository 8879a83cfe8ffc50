package payload_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

func TestFromForm(t *testing.T) {
	multipart := func(fields ...string) string {
		var b strings.Builder
		for i := 0; i < len(fields); i += 2 {
			b.WriteString("--x-1\r\nContent-Disposition: form-data; name=\"" + fields[i] + "\"\r\n\r\n" + fields[i+1] + "\r\n")
		}
		return b.String() + "--x-1--\r\n"
	}
	many := func(n int) []string { return slices.Repeat([]string{"a", ""}, n) }
	for sentence, test := range map[string]struct {
		body, json string
		ok         bool
	}{
		"the JSON is in payload":                           {`payload=%7B%22title%22%3A%22a+b%22%7D`, `{"title":"a b"}`, true},
		"or in data":                                       {`x=1&data=%7B%7D&y=2`, `{}`, true},
		"payload goes before data":                         {`data=%7B%7D&payload=%7B%22a%22%3A1%7D`, `{"a":1}`, true},
		"a blank payload leaves it to data":                {`payload=+&data=%7B%7D`, `{}`, true},
		"the first of two counts":                          {`payload=1&payload=2`, `1`, true},
		"a value that is not encoded is taken as it is":    {`payload={"title":"100% CPU"}`, `{"title":"100% CPU"}`, true},
		"the JSON may be wrong, that is for Parse to tell": {`payload=oops`, `oops`, true},
		"a form without either is an object of its fields": {`title=a+b%21&Tags=`, `{"Tags":"","title":"a b!"}`, true},
		"equal names become a list":                        {`t=1&t=2&n=3`, `{"n":"3","t":["1","2"]}`, true},
		"a blank payload is no field":                      {`payload=&title=a`, `{"title":"a"}`, true},
		"a text with a space is no form":                   {`disk=97 % full`, ``, false},
		"a form as people type it":                         {`title=Disk full&severity=critical`, `{"severity":"critical","title":"Disk full"}`, true},
		"a text that has a field's name elsewhere":         {`the title=a&b=c`, ``, false},
		"JSON in a file":                                   {strings.ReplaceAll(multipart("payload", `{"a":1}`), `name="payload"`, `name="payload"; filename="a.json"`), `{"a":1}`, true},
		"another file":                                     {strings.ReplaceAll(multipart("x", "1", "log", "2"), `name="log"`, `name="log"; filename="a"`), `{"x":"1"}`, true},
		"nor is one with a part without a name":            {`title=a&=b`, ``, false},
		"nor is one with a part without a value":           {`title=a&oops`, ``, false},
		"neither is one where both are blank":              {`payload=&data=%20`, ``, false},
		"nothing is no form":                               {``, ``, false},
		"JSON is no form, whatever is in its strings":      {` {"a":"x&payload=1"}`, ``, false},
		"nor is JSON behind a byte order mark":             {"\uFEFF{\"a\":\"&data=1\"}", ``, false},
		"nor is an array":                                  {`["&data=1"]`, ``, false},
		"a multipart form has the same fields":             {multipart("x", "1", "data", `{"a":"&=%"}`), `{"a":"&=%"}`, true},
		"there too payload goes first":                     {multipart("data", "1", "payload", "2"), `2`, true},
		"a multipart form without either is an object too": {multipart("title", "a", "x", "&="), `{"title":"a","x":"\u0026="}`, true},
		"a truncated multipart form is none":               {strings.TrimSuffix(multipart("data", "{}"), "\r\n--x-1--\r\n"), ``, false},
		"dashes are no multipart form":                     {"--", ``, false},
		"a boundary longer than RFC 2046 allows is none":   {strings.ReplaceAll(multipart("data", "{}"), "x-1", strings.Repeat("x", 71)), ``, false},
		"a form with 1,000 fields is one":                  {strings.Repeat("a=&", 999) + "data=1", `1`, true},
		"a form with more fields is none":                  {strings.Repeat("a=&", 1_000) + "data=1", ``, false},
		"a multipart form with 1,000 fields is one":        {multipart(append(many(999), "data", "1")...), `1`, true},
		"a multipart form with more fields is none":        {multipart(append(many(1_000), "data", "1")...), ``, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			json, ok := payload.FromForm([]byte(test.body))
			g.Expect(ok).To(Equal(test.ok))
			g.Expect(string(json)).To(Equal(test.json))
		})
	}
}

func TestNothingIsBuiltOfAFormWithTooManyFields(t *testing.T) {
	body := []byte(strings.Repeat("a=&", 100_000))
	NewWithT(t).Expect(testing.AllocsPerRun(1, func() { payload.FromForm(body) })).To(BeNumerically("<", 10))
}
