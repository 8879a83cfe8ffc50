package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker (see the Makefile).
var (
	version string
	commit  string
	date    string
)

// buildInfo says what this binary was built from.
type buildInfo struct {
	version, commit, date string
}

// buildVersion takes what the linker was told and, where it was told nothing, what the Go command knows.
func buildVersion() buildInfo {
	b := buildInfo{version: version, commit: commit, date: date}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.version = cmp.Or(b.version, info.Main.Version)
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				b.commit = cmp.Or(b.commit, setting.Value)
			case "vcs.time":
				b.date = cmp.Or(b.date, setting.Value)
			}
		}
	}
	const unknown = "unknown"
	return buildInfo{
		version: cmp.Or(b.version, unknown),
		commit:  cmp.Or(b.commit, unknown),
		date:    cmp.Or(b.date, unknown),
	}
}

// versionLine is what --version prints.
func versionLine() string {
	b := buildVersion()
	return fmt.Sprintf("tocsin %s (commit %s, built %s, %s)", b.version, b.commit, b.date, runtime.Version())
}
