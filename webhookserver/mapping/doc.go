// Package mapping reads the payloads of tools that have a format of their own, by a mapping in CEL: either
// a preset that ships with Tocsin or one that the owner of the integration wrote.
//
// A mapping says where in the payload the alerts are and what each field of an alert is made of. For each
// alert the program evaluates the expressions, puts the results where the payload rules look for them, adds
// what of the payload became no field, and lets the package payload normalise the whole. So there is one
// set of rules for what a severity, a time or a long text means, with a mapping and without.
//
// Guarantees:
//   - An alert is never refused because of a mapping. An expression that fails leaves its field to the
//     payload rules, or for the status to firing; a mapping that does not compile leaves the whole payload to
//     them. The sender is warned, and the failure is part of the result.
//   - What a payload means never depends on how busy the machine is: when the time runs out, the result is an
//     error and not an alert.
//   - Nothing of the payload is lost: what did not become a field as a whole is kept in the custom bag.
//   - An expression sees the payload and some headers only, and its work is bounded, whoever wrote it and
//     whatever was sent: see meter.go.
//
// The package is pure, as payload is: values in, values out, no client and no clock; a context stops what
// takes too long. The kubectl plugin uses it to explain what becomes of a payload.
package mapping
