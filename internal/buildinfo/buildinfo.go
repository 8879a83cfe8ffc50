// Package buildinfo returns the version that a binary was built from.
package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker (see the Makefile).
var version, commit, date string

// Info is the version of a binary; an unknown value is "unknown".
type Info struct {
	Version string // as git describes it
	Commit  string // its hash
	Date    string // of the commit, RFC 3339
}

// Read returns the values set by the linker, else those recorded by the Go command.
func Read() Info {
	b := Info{version, commit, date}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				b.Commit = cmp.Or(b.Commit, setting.Value)
			case "vcs.time":
				b.Date = cmp.Or(b.Date, setting.Value)
			}
		}
	}
	const unknown = "unknown"
	return Info{cmp.Or(b.Version, unknown), cmp.Or(b.Commit, unknown), cmp.Or(b.Date, unknown)}
}

// Line returns the output of a program's --version.
func Line(program string) string {
	b := Read()
	return fmt.Sprintf("%s %s (commit %s, built %s, %s)", program, b.Version, b.Commit, b.Date, runtime.Version())
}
