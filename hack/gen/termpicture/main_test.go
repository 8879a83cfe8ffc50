package main

import (
	"encoding/xml"
	"testing"

	. "github.com/onsi/gomega"
)

func TestDraw(t *testing.T) {
	g := NewWithT(t)
	svg := draw("$ kubectl <x>\n\x1b[1mNAME\x1b[0m  \x1b[1;31mcritical\x1b[0m & \x1b[2mdim ü\x1b[0m\n")
	g.Expect(xml.Unmarshal([]byte(svg), new(struct{ XMLName xml.Name }))).To(Succeed())
	g.Expect(svg).To(ContainSubstring(`fill="#e6e6ea">$ kubectl &lt;x&gt;</text>`))
	g.Expect(svg).To(ContainSubstring(`<text x="16.00" y="50" textLength="33.72" xml:space="preserve" fill="#e6e6ea" font-weight="bold">NAME</text>`))
	g.Expect(svg).To(ContainSubstring(`<text x="66.58" y="50" textLength="67.44" xml:space="preserve" fill="#ff7b72" font-weight="bold">critical</text>`))
	g.Expect(svg).To(ContainSubstring(`opacity="0.6">dim ü</text>`))
	g.Expect(svg).NotTo(ContainSubstring("\x1b"))
}
