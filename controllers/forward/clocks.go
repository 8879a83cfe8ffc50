package forward

import (
	"time"

	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// leadOf returns how far a clock is ahead that showed a time, cut to seconds, at some moment between sent and received. It
// returns the smallest difference that is possible.
func leadOf(told, sent, received time.Time) time.Duration {
	switch {
	case told.After(received):
		return told.Sub(received)
	case sent.Sub(told) > time.Second:
		return told.Add(time.Second).Sub(sent)
	default:
		return 0
	}
}

// compareClocks notes how far the Alertmanager's clock is ahead of the API server's, by the time that an answer told.
func (s *sender) compareClocks(told, sent time.Time) {
	received, ok := s.term.clock()
	if told.IsZero() || !ok {
		return
	}
	ahead := leadOf(told, sent, received)
	s.mu.Lock()
	before := s.ahead
	s.ahead = ahead
	s.mu.Unlock()
	clockAhead.WithLabelValues(s.name, s.address).Set(ahead.Seconds())
	switch wrong := isWrong(ahead); {
	case wrong == isWrong(before):
	case wrong:
		s.log.Error(nil, "The clock of Alertmanager differs from the API server's; alerts fire by the later one",
			"aheadSeconds", ahead.Seconds())
	default:
		s.log.Info("The clock of Alertmanager agrees with the API server's again")
	}
}

// lead returns how far the Alertmanager's clock is ahead of the API server's.
func (s *sender) lead() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead
}

// isWrong reports whether clocks differ by more than clocks may.
func isWrong(ahead time.Duration) bool { return ahead.Abs() > fold.MaxClockDifference }
