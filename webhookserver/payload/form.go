package payload

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/url"
	"strings"
)

// formFields are the fields of a form that may hold the JSON, in this order.
var formFields = []string{"payload", "data"}

// FromForm takes the JSON out of a form body, URL-encoded or multipart: the field "payload", or else
// "data". ok is false when the body is no such form. A body that is JSON already is never taken for a
// form, since curl and others label whatever they post as a form unless told otherwise.
func FromForm(body []byte) (json []byte, ok bool) {
	text := bytes.TrimLeft(bytes.TrimPrefix(body, []byte(byteOrderMark)), " \t\r\n")
	switch {
	case len(text) == 0, text[0] == '{', text[0] == '[':
		return nil, false
	case bytes.HasPrefix(text, []byte("--")):
		return pick(multipartFields(text))
	}
	return pick(urlEncodedFields(string(text)))
}

// maxBoundary is the longest boundary of a multipart body (RFC 2046, section 5.1.1).
const maxBoundary = 70

// pick returns the first of formFields that is not blank.
func pick(fields map[string]string) ([]byte, bool) {
	for _, name := range formFields {
		if value := fields[name]; !isBlank(value) {
			return []byte(value), true
		}
	}
	return nil, false
}

// wanted reports whether a field is one of formFields that has not been seen yet: the first one counts.
func wanted(fields map[string]string, name string) bool {
	_, seen := fields[name]
	return !seen && (name == formFields[0] || name == formFields[1])
}

// urlEncodedFields reads application/x-www-form-urlencoded. A value that is not properly encoded is taken
// as it is.
func urlEncodedFields(text string) map[string]string {
	fields := map[string]string{}
	for pair := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if !wanted(fields, name) {
			continue
		}
		if plain, err := url.QueryUnescape(value); err == nil {
			value = plain
		}
		fields[name] = value
	}
	return fields
}

// multipartFields reads multipart/form-data, whose first line tells the boundary.
func multipartFields(text []byte) map[string]string {
	fields := map[string]string{}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	boundary := strings.TrimSpace(string(first[len("--"):]))
	if boundary == "" || len(boundary) > maxBoundary {
		return fields
	}
	reader := multipart.NewReader(bytes.NewReader(text), boundary)
	for {
		part, err := reader.NextRawPart()
		if err != nil {
			return fields
		}
		name := part.FormName()
		if !wanted(fields, name) {
			continue
		}
		if value, err := io.ReadAll(part); err == nil {
			fields[name] = string(value)
		}
	}
}
