package simulation

import _ "unsafe" // for go:linkname

// lastV7time is the newest time of which the package uuid has made a UUIDv7. It makes no other one of an earlier time, and each
// story begins at the same instant: the AlertEvents of the second story would be named after the end of the first one.
//
//go:linkname lastV7time github.com/google/uuid.lastV7time
var lastV7time int64
