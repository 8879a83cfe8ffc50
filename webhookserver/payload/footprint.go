package payload

// What values take in memory, in bytes, measured with the programs of this repository; a test holds them
// against what is allocated. They are what is live at the same time while an alert is made of a body: the
// decoded values, the lists of keys by which they are walked, and their encoded form in the bags.
const (
	scalarBytes = 40  // a text or number beside its characters, and its place in a list as that grows
	listBytes   = 48  // a list beside its elements
	objectBytes = 64  // an object without entries
	smallObject = 290 // the entries of an object of up to smallEntries
	entryBytes  = 240 // an entry of a larger one
	keyBytes    = 24  // a key beside its characters

	smallEntries = 8
)

// Footprint estimates how many bytes of memory it takes to decode a body and to read it, before that is done: a
// body of {"":0} takes fifty times its length.
func Footprint(body []byte) int64 {
	var found survey
	found.scan(body)
	return found.footprint
}

// survey is what the bytes of JSON tell before they are decoded.
type survey struct {
	tooDeep       bool
	loneSurrogate bool
	footprint     int64

	depth   int
	entries [maxDepth + 1]int64 // of the objects that are open
}

// scan walks over JSON, well-formed or not, so that a body of nothing but brackets costs no more than its length. It ends
// where the JSON is too deep to be decoded.
func (s *survey) scan(text []byte) {
	s.footprint = 2 * int64(len(text))
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if s.depth++; s.depth > maxDepth {
				s.tooDeep = true
				return
			}
			s.entries[s.depth] = 0
			if text[i] == '[' {
				s.footprint += listBytes + scalarBytes
			}
		case '}', ']':
			s.close(text[i] == '}')
		case ':':
			s.entries[s.depth]++
		case ',':
			s.footprint += scalarBytes
		case '"':
			start := i + 1
			i = s.scanString(text, start)
			s.footprint += int64(i-start) + keyBytes
		}
	}
}

// close counts an object, by the number of its entries.
func (s *survey) close(isObject bool) {
	if s.depth == 0 {
		return
	}
	n := s.entries[s.depth]
	s.depth--
	switch {
	case !isObject:
	case n > smallEntries:
		s.footprint += objectBytes + n*entryBytes
	case n > 0:
		s.footprint += objectBytes + smallObject
	default:
		s.footprint += objectBytes
	}
}
