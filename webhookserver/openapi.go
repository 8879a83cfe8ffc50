package webhookserver

import (
	"bytes"
	_ "embed"
	"net/http"
	"time"
)

// openAPIPath is where the endpoint's OpenAPI document is read. It tells nothing that is not public.
const openAPIPath = "/openapi.yaml"

//go:embed openapi.yaml
var openAPIDocument []byte

// problemReadOnly is for those who want to change the document.
var problemReadOnly = problem{kind: "method-not-allowed", status: http.StatusMethodNotAllowed, title: "Only GET is allowed",
	detail: "This is the endpoint's OpenAPI document.", allow: "GET, HEAD"}

// serveOpenAPI answers with the OpenAPI document. These requests are none of senders, and are not counted.
func serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		problemReadOnly.writeTo(w)
		return
	}
	w.Header().Set("Content-Type", "application/yaml") // RFC 9512
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(openAPIDocument))
}
