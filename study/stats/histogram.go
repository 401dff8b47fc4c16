package stats

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// One layout for all histograms, which can be merged without loss.
const (
	lowestNs  = 1
	highestNs = 100_000_000_000 // 100 s, above any working run
	digits    = 3
	nsPerUs   = 1000
	// maxEncoded limits DecodeHistogram; a histogram has some hundred to some ten thousand bytes.
	maxEncoded = 1 << 20
)

// A Histogram holds latencies in microseconds, from 1 ns to 100 s, as nanoseconds with three significant digits: off by
// less than 0.1 % plus half a nanosecond. With the geometry of Tene's HdrHistogram (hdrhistogram.org), merging is
// exact. It is not safe for concurrent use.
type Histogram struct {
	h *hdrhistogram.Histogram
}

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram { return &Histogram{hdrhistogram.New(lowestNs, highestNs, digits)} }

// Record adds a latency in microseconds. It rejects values that are negative, above 100 s, or not numbers.
func (h *Histogram) Record(us float64) error { return h.RecordN(us, 1) }

// RecordN adds n equal latencies.
func (h *Histogram) RecordN(us float64, n int64) error {
	if !(us >= 0 && us*nsPerUs <= highestNs) {
		return fmt.Errorf("latency %v us: must be 0 to %d", us, highestNs/nsPerUs)
	}
	if err := h.h.RecordValues(int64(math.Round(us*nsPerUs)), n); err != nil {
		return fmt.Errorf("latency %v us, %d times: %w", us, n, err)
	}
	return nil
}

// Merge adds all values of o. It fails, and adds nothing, if the counts would overflow.
func (h *Histogram) Merge(o *Histogram) error {
	if h.Count() > math.MaxInt64-o.Count() {
		return fmt.Errorf("merge histograms of %d and %d values: more than can be counted", h.Count(), o.Count())
	}
	h.h.Merge(o.h)
	return nil
}

// Count returns the number of recorded values.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Quantile returns the microseconds that a share q (0 to 1) of the values does not exceed, by nearest rank. ok is false
// without values, or if q is out of range. See Supported.
func (h *Histogram) Quantile(q float64) (us float64, ok bool) {
	if h.Count() == 0 || !(q >= 0 && q <= 1) {
		return 0, false
	}
	return float64(h.h.ValueAtPercentile(100*q)) / nsPerUs, true
}

// Encode encodes in HdrHistogram's compressed V2 format as base64, with values in nanoseconds, which other
// implementations read.
func (h *Histogram) Encode() ([]byte, error) {
	return h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
}

// Checked before the library parses it: https://github.com/HdrHistogram/HdrHistogram, AbstractHistogram.java,
// encodeIntoCompressedByteBuffer.
const (
	compressedPrefix = 8 // cookie and length
	// cookie, payload length, normalizing offset, digits (4 bytes each); lowest, highest, conversion ratio (8 bytes
	// each)
	headerSize = 40
)

// DecodeHistogram reads the output of Encode, and rejects anything else. The library allocates by the header, so it is
// checked first against hostile input.
func DecodeHistogram(data []byte) (*Histogram, error) {
	if len(data) > maxEncoded {
		return nil, fmt.Errorf("histogram of %d bytes: at most %d", len(data), maxEncoded)
	}
	raw, err := base64.StdEncoding.DecodeString(string(data))
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	if len(raw) < compressedPrefix {
		return nil, errors.New("histogram: cut off")
	}
	z, err := zlib.NewReader(bytes.NewReader(raw[compressedPrefix:]))
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	var header [headerSize]byte
	if _, err := io.ReadFull(z, header[:]); err != nil {
		return nil, fmt.Errorf("histogram: header: %w", err)
	}
	gotDigits := int32(binary.BigEndian.Uint32(header[12:]))
	gotLowest, gotHighest := int64(binary.BigEndian.Uint64(header[16:])), int64(binary.BigEndian.Uint64(header[24:]))
	if gotDigits != digits || gotLowest != lowestNs || gotHighest != highestNs {
		return nil, fmt.Errorf("histogram of %d to %d ns with %d digits: want %d to %d with %d", gotLowest, gotHighest,
			gotDigits, lowestNs, highestNs, digits)
	}
	h, err := hdrhistogram.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	return &Histogram{h}, nil
}

// A Point is a point of a distribution.
type Point struct {
	Quantile float64 `json:"quantile"`
	Us       float64 `json:"us"`
	// Beyond is the number of values above the quantile, by rank.
	Beyond int64 `json:"beyond"`
	// Supported reports whether Beyond is large enough.
	Supported bool `json:"supported"`
}

// Distribution returns a cumulative distribution for a chart: every hundredth up to p90, then ever closer to p99.99.
// Above p90 it stops before the maximum, which repeats badly.
func (h *Histogram) Distribution() []Point {
	if h.Count() == 0 {
		return nil
	}
	var points []Point
	for _, q := range distributionQuantiles() {
		n := beyond(h.Count(), q)
		if q > 0.9 && n < 1 {
			break
		}
		us, _ := h.Quantile(q)
		points = append(points, Point{Quantile: q, Us: us, Beyond: n, Supported: Supported(h.Count(), q)})
	}
	return points
}

func distributionQuantiles() []float64 {
	var qs []float64
	for i := range 90 {
		qs = append(qs, float64(i)/100)
	}
	// 0.90, 0.91 ... 0.99, 0.991 ... 0.9999. Division gives the nearest number to the decimal, unlike summation.
	for _, scale := range []int{100, 1000, 10_000} {
		for i := range 9 {
			qs = append(qs, float64(scale-10+i)/float64(scale))
		}
	}
	return append(qs, 0.9999)
}

// MinBeyond values must lie beyond a quantile, so a p99.9 needs 10,000. A count of 10 varies by about a third from run
// to run (Poisson), and so does the rank.
const MinBeyond = 10

// Supported reports whether n values support a quantile: MinBeyond must lie above it or, below the median, below it.
func Supported(n int64, quantile float64) bool {
	return (quantile > 0 && quantile < 1) && beyond(n, max(quantile, 1-quantile)) >= MinBeyond
}

// beyond adds a small term that keeps 10,000 x (1 - 0.999) from becoming 9.99.
func beyond(n int64, quantile float64) int64 { return int64(float64(n)*(1-quantile) + 1e-6) }
