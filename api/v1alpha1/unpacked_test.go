package v1alpha1

import (
	"encoding/json"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
)

func TestUnpackedAlertsAreKeptForALimitedNumberOfBytes(t *testing.T) {
	g := NewWithT(t)
	const limit = 4 << 10
	KeepUnpackedAlerts(limit)
	t.Cleanup(func() { KeepUnpackedAlerts(0) })
	decode := func(n int) (spec AlertEventSpec) {
		alert := func(id string) Alert {
			return Alert{ID: id, DedupKey: "k", Status: AlertFiring, AlertContent: AlertContent{
				Labels: Bag{"n": json.RawMessage(fmt.Sprint(n))}, Title: fmt.Sprint("title ", n),
			}}
		}
		packed := AlertEventSpec{IntegrationName: "a", Alerts: []Alert{alert("1"), alert("2")}}
		g.Expect(packed.Pack()).To(Succeed())
		text, err := json.Marshal(packed)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Unmarshal(text, &spec)).To(Succeed())
		g.Expect(spec.Alerts).To(Equal([]Alert{alert("1"), alert("2")}))
		return spec
	}
	first := decode(0)
	_, kept := unpacked.get(first.UnpackedFrom)
	g.Expect(kept).To(BeTrue())

	// The cache reduces alerts in place, see Condense; the next AlertEvent of the same text is whole.
	first.Alerts[0] = Alert{ID: "1"}
	decode(0)

	for n := range 100 {
		decode(n)
		g.Expect(unpacked.bytes).To(BeNumerically("<=", limit))
		g.Expect(unpacked.alerts).To(HaveLen(len(unpacked.order)))
	}
	_, kept = unpacked.get(first.UnpackedFrom)
	g.Expect(kept).To(BeFalse())

	KeepUnpackedAlerts(0)
	decode(0)
	g.Expect(unpacked.alerts).To(BeEmpty())
}

func TestWhatCannotBeUnpackedIsNotKept(t *testing.T) {
	g := NewWithT(t)
	KeepUnpackedAlerts(1 << 20)
	t.Cleanup(func() { KeepUnpackedAlerts(0) })
	for range 2 {
		var spec AlertEventSpec
		g.Expect(json.Unmarshal([]byte(`{"integrationName":"a","packedAlerts":"YWJj"}`), &spec)).To(Succeed())
		g.Expect(spec.Alerts).To(BeEmpty())
		g.Expect(spec.CheckPacked()).NotTo(Succeed())
	}
	g.Expect(unpacked.alerts).To(BeEmpty())
}
