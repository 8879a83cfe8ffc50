package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

func sbomCommand(_ context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	version := flags.String("version", "", "The version of the main module, where the binary does not know it.")
	binaries, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	return writeBill(stdout, binaries[0], *version)
}

// writeBill writes a CycloneDX bill of materials of a Go binary: the modules that are linked into it, each with its version and
// checksum, as the binary itself tells them. The version is that of its main module. The same binary gives the same bytes: there
// is no serial number and no time of day in it.
func writeBill(w io.Writer, path, version string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading what %s was built from: %w", path, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	application := component(cyclonedx.ComponentTypeApplication, &debug.Module{Path: info.Main.Path, Version: version})
	application.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}

	standard := component(cyclonedx.ComponentTypeLibrary, &debug.Module{Path: "std", Version: info.GoVersion})
	components := []cyclonedx.Component{standard}
	needs := []string{standard.BOMRef}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		c := component(cyclonedx.ComponentTypeLibrary, module)
		components = append(components, c)
		needs = append(needs, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &application}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: application.BOMRef, Dependencies: &needs}}
	return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// component is a module. Its checksum is the one of go.sum, which a scanner finds under golang's "h1" and which is a
// SHA-256 over the module's files.
func component(kind cyclonedx.ComponentType, module *debug.Module) cyclonedx.Component {
	purl := "pkg:golang/" + module.Path
	if module.Version != "" {
		purl += "@" + url.PathEscape(module.Version)
	}
	c := cyclonedx.Component{BOMRef: purl, Type: kind, Name: module.Path, Version: module.Version, PackageURL: purl}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:")); err == nil && len(sum) > 0 {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}
