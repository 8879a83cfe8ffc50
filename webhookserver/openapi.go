package webhookserver

import (
	"bytes"
	_ "embed"
	"net/http"
	"time"
)

// openAPIPath is the path of the endpoint's OpenAPI document, which contains only public information.
const openAPIPath = "/openapi.yaml"

//go:embed openapi.yaml
var openAPIDocument []byte

// problemReadOnly answers requests that would change the document.
var problemReadOnly = problem{Type: "method-not-allowed", Status: http.StatusMethodNotAllowed, Title: "Only GET is allowed",
	Detail: "This is the endpoint's OpenAPI document.", Allow: "GET, HEAD"}

// serveOpenAPI answers with the OpenAPI document. These requests are none of senders, and are not counted.
func serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		reply := problemReadOnly.Reply(nil)
		encode(reply.Body).write(w, reply)
		return
	}
	w.Header().Set("Content-Type", "application/yaml") // RFC 9512
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(openAPIDocument))
}
