// Package simulation runs whole replicas against an API server in memory, in a bubble of testing/synctest, and judges them by the
// oracle.
//
// A Story is what happens: the settings of the replicas, and operations, one after the other, such as posts, faults, deaths of
// replicas and what users do. A seed decides everything else: how long each call takes, and who is first. After the last
// operation all faults end. What every commit of the API server and every answer of a replica breaks of docs/guarantees.md is
// a finding.
//
// Nothing real is used: no network, no clock, no files. Replicas run the program (internal/app) from its command line on. Their
// webhook servers listen to connections in memory.
//
// # What the same seed repeats
//
// The duration of a call is a hash of the seed, of what the call is about, and of how many such calls there were before. It does
// not depend on other calls. Every call ends at a nanosecond of its own, so that no two of them race. What remains open is what
// Go leaves open: the choice among several ready cases of a select, the order of maps, and math/rand. See TestRepeats.
package simulation
