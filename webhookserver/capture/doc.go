// Package capture keeps the newest requests of integrations with spec.capture, to try a changed mapping on them.
//
// Every request that has a valid token and signature, a body that was read and a place at a processor is added to a ring in
// memory (Recorder.Add), and the code of its answer once there is one (Pending.Answered): also a rejected one, for which the
// mapping is to be changed. Nothing of that delays or fails a request, or keeps more in memory than maxWaiting.
//
// Each replica writes its own rings to the RequestCapture of the integration (writer.go): it reads the object, appends, drops
// the oldest, and writes over the version that it has read. Of two replicas at once, the second one tries again at its next turn.
// The order is that of the writes, not of the times, so that a clock that was wrong keeps nothing for ever. What is written
// leaves the memory: if a user deletes the object, what was in it is gone. A replica that ends writes what it has once more, or
// drops it.
//
// Credentials are left out before a request is kept at all (credentials.go).
package capture
