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
	var first, second bytes.Buffer
	g.Expect(writeBill(&first, path, "v1.2.3")).To(Succeed())
	g.Expect(writeBill(&second, path, "v1.2.3")).To(Succeed())
	g.Expect(second.String()).To(Equal(first.String()), "the same binary gives the same bytes")

	var bom cyclonedx.BOM
	g.Expect(cyclonedx.NewBOMDecoder(&first, cyclonedx.BOMFileFormatJSON).Decode(&bom)).To(Succeed())
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

	g.Expect(writeBill(&first, "main.go", "")).To(MatchError(ContainSubstring("reading what main.go was built from")))
}
