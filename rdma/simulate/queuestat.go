package simulate

import "math/bits"

// A queueStat records for how long a queue had each length. Its lengths have an error of at most 1/64, and need few
// kilobytes for any buffer.
type queueStat struct {
	since, empty int64
	bytes, most  int64
	times        []int64 // by bucket, in nanoseconds
}

const (
	statUnit  = 16 // bytes
	statFine  = 128
	statRange = statFine / 2
)

func bucketOf(bytes int64) int {
	v := uint64(bytes) / statUnit
	if v < statFine {
		return int(v)
	}
	e := bits.Len64(v) - 7
	return statFine + (e-1)*statRange + int(v>>e) - statRange
}

// bytesOf returns the middle of a bucket.
func bytesOf(bucket int) int64 {
	if bucket < statFine {
		return int64(bucket)*statUnit + statUnit/2
	}
	e := (bucket-statFine)/statRange + 1
	v := int64((bucket-statFine)%statRange+statRange) << e
	return (v + 1<<e/2) * statUnit
}

// set records that the queue has a length from now on.
func (s *queueStat) set(now, bytes int64) {
	if d := now - s.since; d > 0 {
		if s.bytes == 0 {
			s.empty += d
		} else {
			b := bucketOf(s.bytes)
			for b >= len(s.times) {
				s.times = append(s.times, make([]int64, max(64, len(s.times)))...)
			}
			s.times[b] += d
		}
	}
	s.since, s.bytes, s.most = now, bytes, max(s.most, bytes)
}

// busy returns for how long the queue was not empty.
func (s *queueStat) busy() (d int64) {
	for _, t := range s.times {
		d += t
	}
	return d
}

// quantile returns the length that the queue did not exceed for a share q of the time in which it was not empty.
func (s *queueStat) quantile(q float64) int64 {
	total := s.busy()
	if total == 0 {
		return 0
	}
	left := int64(q * float64(total))
	for b, t := range s.times {
		if left -= t; left < 0 {
			return min(bytesOf(b), s.most)
		}
	}
	return s.most
}
