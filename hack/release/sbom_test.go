package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	. "github.com/onsi/gomega"
)

// The test's own binary is as good as any.
func TestBillOfMaterials(t *testing.T) {
	g := NewWithT(t)
	path, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	first, err := billOf(path, "v1.2.3")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(billOf(path, "v1.2.3")).To(Equal(first), "the same binary gives the same bytes")

	var bom cyclonedx.BOM
	g.Expect(cyclonedx.NewBOMDecoder(bytes.NewReader(first), cyclonedx.BOMFileFormatJSON).Decode(&bom)).To(Succeed())
	g.Expect(bom.Metadata.Component.PackageURL).To(Equal("pkg:golang/github.com/tocsin-dev/tocsin/hack/release@v1.2.3"))
	g.Expect(*bom.Metadata.Component.Hashes).To(HaveLen(1))
	versions := map[string]string{}
	for _, c := range *bom.Components {
		versions[c.Name] = c.PackageURL
	}
	g.Expect(versions).To(HaveKeyWithValue("std", HavePrefix("pkg:golang/std@go1.")))
	const library = "github.com/CycloneDX/cyclonedx-go"
	g.Expect(versions).To(HaveKeyWithValue(library, HavePrefix("pkg:golang/"+library+"@v0.")))
	g.Expect((*bom.Dependencies)[0].Dependencies).To(HaveValue(HaveLen(len(versions))))

	_, err = billOf("main.go", "")
	g.Expect(err).To(MatchError(ContainSubstring("reading what main.go was built from")))
}
