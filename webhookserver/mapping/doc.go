// Package mapping reads the payloads of tools that have a format of their own, by a mapping in CEL: a preset that ships with
// Tocsin, or one that the owner of the integration wrote.
//
// For each alert of a payload it evaluates the expressions, puts the results where the payload rules look for them, adds what
// became no field, and has package payload normalise the whole. So there is one set of rules for what a severity, a time or a
// long text means, with a mapping and without.
//
// Guarantees:
//   - No alert is refused because of a mapping. If an expression fails, the payload rules read its field; for the status, the
//     alert counts as firing. If a mapping does not compile, the payload rules read everything. A warning tells of the failure.
//   - What a payload means never depends on how busy the machine is: when the time runs out, the result is an error.
//   - Nothing of the payload is lost: what did not become a field as a whole is kept in the custom bag.
//   - An expression sees only the payload and some headers, and its work is bounded: see meter.go.
//
// The package is pure, as payload is; a Pauser stops what takes too long. The kubectl plugin uses it to explain a payload.
package mapping
