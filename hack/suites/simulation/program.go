package simulation

// olderProgram is there in the binary of versions.sh only, which has another file in place of this one.
var olderProgram program
