package oracle

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestTimesOfReceiptThatAreFarFromTheCreationAreNotBelieved(t *testing.T) {
	created := time.Date(2000, time.January, 1, 12, 0, 0, 0, time.UTC)
	for offset, believed := range map[time.Duration]bool{
		-time.Hour: false, -5*time.Minute - time.Second: false, -5 * time.Minute: true, 0: true, time.Minute: true,
		time.Minute + time.Second: false,
	} {
		e := &storedEvent{}
		e.Metadata.Created = created
		e.Spec.Received = stamp(created.Add(offset))
		want := created
		if believed {
			want = created.Add(offset)
		}
		NewWithT(t).Expect(e.received()).To(BeTemporally("==", want), offset.String())
	}
}
