package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// sbom prints the bill of materials of a Go binary.
func (r *releaser) sbom(_ context.Context, path string) error {
	bill, err := billOf(path, r.version)
	if err != nil {
		return err
	}
	_, err = r.stdout.Write(bill)
	return err
}

// billOf returns a CycloneDX bill of materials of a Go binary: the modules that are linked into it, each with its version and
// checksum, as the binary itself tells them. The version is that of its main module. The same binary gives the same bytes: there
// is no serial number and no time of day in it.
func billOf(path, version string) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading what %s was built from: %w", path, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	application := component(cyclonedx.ComponentTypeApplication, &debug.Module{Path: info.Main.Path, Version: version})
	sum := sha256.Sum256(content)
	application.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}

	components, needs := []cyclonedx.Component{}, []string{}
	for _, module := range append([]*debug.Module{{Path: "std", Version: info.GoVersion}}, info.Deps...) {
		c := component(cyclonedx.ComponentTypeLibrary, cmp.Or(module.Replace, module))
		components = append(components, c)
		needs = append(needs, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &application}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: application.BOMRef, Dependencies: &needs}}
	var bill bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&bill, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return bill.Bytes(), err
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
