package simulation

import "pgregory.net/rapid"

var _ = rapid.Check
