//go:build !baseline

package simulation

// olderProgram is there in the binary of versions.sh only.
var olderProgram program
