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
// body of {"":0} takes fifty times its length. It never looks at a byte twice, and does not care whether the
// JSON is well-formed.
func Footprint(body []byte) int64 {
	f := footprint{total: 2 * int64(len(body))}
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			if f.depth++; f.depth > maxDepth {
				return f.total // it is not decoded
			}
			f.entries[f.depth] = 0
			if body[i] == '[' {
				f.total += listBytes + scalarBytes
			}
		case '}', ']':
			f.close(body[i] == '}')
		case ':':
			f.entries[f.depth]++
		case ',':
			f.total += scalarBytes
		case '"':
			start := i + 1
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			f.total += int64(i-start) + keyBytes
		}
	}
	return f.total
}

type footprint struct {
	total   int64
	depth   int
	entries [maxDepth + 1]int64 // of the objects that are open
}

// close counts an object, by the number of its entries.
func (f *footprint) close(isObject bool) {
	if f.depth == 0 {
		return
	}
	n := f.entries[f.depth]
	f.depth--
	switch {
	case !isObject:
	case n > smallEntries:
		f.total += objectBytes + n*entryBytes
	case n > 0:
		f.total += objectBytes + smallObject
	default:
		f.total += objectBytes
	}
}
