package v1alpha1_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestTextsAreDecodedWhateverTheirValues(t *testing.T) {
	for stored, want := range map[string]v1alpha1.Texts{
		`{"a":"x","b":12.50,"c":{"d":[1]},"e":null,"f":true}`: {"a": "x", "b": "12.50", "c": `{"d":[1]}`, "e": "null", "f": "true"},
		`{}`:   {},
		`null`: nil,
	} {
		t.Run(stored, func(t *testing.T) {
			g := NewWithT(t)
			var content v1alpha1.AlertContent
			g.Expect(json.Unmarshal([]byte(`{"labels":`+stored+`}`), &content)).To(Succeed())
			g.Expect(content.Labels).To(Equal(want))
		})
	}
	NewWithT(t).Expect(json.Unmarshal([]byte(`["a"]`), new(v1alpha1.Texts))).NotTo(Succeed())
}
