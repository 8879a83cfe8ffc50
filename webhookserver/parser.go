package webhookserver

import (
	"errors"
	"time"

	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// parser decodes the JSON of one request, up to a limit of its size. What is decoded counts against the memory budget until
// release.
type parser struct {
	handler *handler
	request *authenticated // which has a place
	limit   int64          // of what is decoded, as payload.Footprint estimates it
	size    int64
	wait    time.Duration // for memory
	held    *fair.Reservation
}

func (h *handler) newParser(request *authenticated, limit int64) *parser {
	return &parser{handler: h, request: request, limit: limit, wait: maxDecodeWait}
}

// Parse implements protocol.Parser. A text of JSON that is JSON in turn is decoded as well. The errors are problems, and those of
// payload.ParseAny.
func (p *parser) Parse(text []byte) (any, []payload.Warning, error) {
	value, warnings, err := p.parse(text)
	if within, is := value.(string); is && payload.MayBeJSON(within) {
		inner, more, innerErr := p.parse([]byte(within))
		if _, is := errors.AsType[*payload.SyntaxError](innerErr); !is { // else it is a text
			return inner, append(append(warnings, payload.EncodedTwice), more...), innerErr
		}
	}
	return value, warnings, err
}

func (p *parser) parse(text []byte) (any, []payload.Warning, error) {
	p.size += payload.Footprint(text)
	if p.size > p.limit {
		return nil, nil, &problemTooComplex
	}
	// One reservation for everything: a request that waited for its own memory would never get it.
	p.held.Release()
	if p.held = p.handler.decoded.Reserve(p.request.integrationName(), p.size, 0); p.held == nil && p.wait > 0 {
		p.request.leave() // nobody waits for memory at a place
		p.held = p.handler.decoded.Reserve(p.request.integrationName(), p.size, p.wait)
		if busy := p.handler.enter(p.request); busy != nil {
			return nil, nil, busy
		}
	}
	if p.held == nil {
		return nil, nil, &problemOverload
	}
	p.wait = 0 // only the first text may wait: what is decoded already is in memory, and its reservation was just released
	return payload.ParseAny(text)
}

func (p *parser) release() { p.held.Release() }
