package forward

import (
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// skewSlack is how much less than clocks may differ one does that agrees again. Otherwise one at the limit, whose Date has only
// seconds, would change the conditions of all integrations every other second.
const skewSlack = 5 * time.Second

// skew is how far an Alertmanager's clock is ahead of the API server's, by the Date of its answers.
type skew struct {
	ahead   atomic.Int64 // nanoseconds
	wrong   atomic.Bool  // it differs by more than clocks may, or did lately and hardly agrees
	metrics addressMetrics
	log     logr.Logger
}

// compare notes the Date of an answer. sent and received are by the API server's clock.
func (s *skew) compare(date, sent, received time.Time) {
	ahead := fold.LeadOf(date, sent, received)
	s.ahead.Store(int64(ahead))
	s.metrics.setAhead(ahead)
	wasWrong := s.wrong.Load()
	wrong := isWrong(ahead) || wasWrong && ahead.Abs() > fold.MaxClockDifference-skewSlack
	s.wrong.Store(wrong)
	switch {
	case wrong == wasWrong:
	case wrong:
		s.log.Error(nil, "The clock of Alertmanager differs from the API server's; alerts fire by the later one",
			"aheadSeconds", ahead.Seconds())
	default:
		s.log.Info("The clock of Alertmanager agrees with the API server's again")
	}
}

// get returns how far the clock is ahead; negative if it is behind.
func (s *skew) get() time.Duration { return time.Duration(s.ahead.Load()) }

// isWrong reports whether clocks differ by more than clocks may.
func isWrong(ahead time.Duration) bool { return ahead.Abs() > fold.MaxClockDifference }
