package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"
)

// formFields are the fields of a form that may hold the JSON, in this order.
var formFields = []string{"payload", "data"}

// FromForm takes the JSON out of a form body, URL-encoded or multipart: the field "payload", or else "data". A form without
// either becomes an object of its fields, the values of equal names a list. ok is false when the body is no form, or one of more
// than maxFormFields. A body that is JSON already is never taken for a form, since curl and others label whatever they post as a
// form unless told otherwise.
func FromForm(body []byte) (content []byte, ok bool) {
	text := bytes.TrimLeft(bytes.TrimPrefix(body, []byte(byteOrderMark)), jsonSpace)
	if len(text) == 0 || text[0] == '{' || text[0] == '[' {
		return nil, false
	}
	var fields map[string][]string
	isForm := bytes.HasPrefix(text, []byte("--"))
	if isForm {
		fields = multipartFields(text)
	} else {
		fields, isForm = urlEncodedFields(string(text))
	}
	for _, name := range formFields {
		if values := fields[name]; len(values) > 0 && !isBlank(values[0]) {
			return []byte(values[0]), true
		}
		delete(fields, name) // blank
	}
	if !isForm || len(fields) == 0 {
		return nil, false
	}
	object := make(map[string]any, len(fields))
	for name, values := range fields {
		if object[name] = values; len(values) == 1 {
			object[name] = values[0]
		}
	}
	content, err := json.Marshal(object)
	return content, err == nil
}

// urlEncodedFields reads application/x-www-form-urlencoded. A value that is not properly encoded is taken as it is. isForm is
// true when all of the text is such a form: named fields, without the characters that every encoder escapes, or one of which is
// ours, as people type them.
func urlEncodedFields(text string) (fields map[string][]string, isForm bool) {
	if strings.Count(text, "&") >= maxFormFields {
		return nil, false
	}
	isEncoded, isOurs := !strings.ContainsAny(strings.TrimRight(text, "\r\n"), " \t\r\n\"<>\\^`{|}"), false
	fields, isForm = map[string][]string{}, true
	for pair := range strings.SplitSeq(strings.TrimRight(text, "\r\n"), "&") {
		name, value, hasValue := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if plain, err := url.QueryUnescape(value); err == nil {
			value = plain
		}
		_, listed := fieldOfKey[name]
		isForm, isOurs = isForm && hasValue && name != "", isOurs || listed
		fields[name] = append(fields[name], value)
	}
	return fields, isForm && (isEncoded || isOurs)
}

// maxBoundary is the longest boundary of a multipart body (RFC 2046, section 5.1.1).
const maxBoundary = 70

// multipartFields reads multipart/form-data, whose first line tells the boundary. There are none in a body that is truncated
// or has more than maxFormFields. A file is none of the fields, unless it is the JSON.
func multipartFields(text []byte) map[string][]string {
	fields := map[string][]string{}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	boundary := strings.TrimSpace(string(first[len("--"):]))
	if boundary == "" || len(boundary) > maxBoundary {
		return fields
	}
	reader := multipart.NewReader(bytes.NewReader(text), boundary)
	for range maxFormFields + 1 {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return fields
		}
		if err != nil {
			return nil
		}
		value, err := io.ReadAll(part)
		if name := part.FormName(); err == nil && name != "" && (part.FileName() == "" || slices.Contains(formFields, name)) {
			fields[name] = append(fields[name], string(value))
		}
	}
	return nil
}
