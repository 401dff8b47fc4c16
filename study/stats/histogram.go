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

// The form of every histogram. One form for all, so that any two can be merged without loss.
const (
	lowestNs  = 1
	highestNs = 100_000_000_000 // 100 s: above every latency that is not a broken run
	digits    = 3
	nsPerUs   = 1000
	// maxEncoded bounds what DecodeHistogram looks at; a histogram has some hundred bytes to some ten thousand.
	maxEncoded = 1 << 20
)

// A Histogram holds latencies in microseconds, from 1 ns to 100 s. Values are kept as whole
// nanoseconds with three significant digits: what is read from it is less than 0.1 % (and half a
// nanosecond) off. It has the geometry of Tene's HdrHistogram (hdrhistogram.org), so merging is
// exact: the quantile of all runs together comes from the merged histogram. Averages of percentiles
// are the percentile of nothing. It is not safe for concurrent use.
type Histogram struct {
	h *hdrhistogram.Histogram
}

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram { return &Histogram{hdrhistogram.New(lowestNs, highestNs, digits)} }

// Record adds a latency in microseconds. It refuses what is no latency: values that are negative,
// above 100 s, or not numbers.
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

// Merge adds all of another histogram, and leaves that as it is. It fails, and adds nothing, if
// there would be more values than can be counted.
func (h *Histogram) Merge(o *Histogram) error {
	if h.Count() > math.MaxInt64-o.Count() {
		return fmt.Errorf("merge histograms of %d and %d values: more than can be counted", h.Count(), o.Count())
	}
	// Both have the same form and the sum can be counted, so nothing is dropped.
	h.h.Merge(o.h)
	return nil
}

// Count is the number of recorded values.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Quantile returns the latency in microseconds at or below which the share q (0 to 1) of all values
// lies, to the nearest rank; false if there are none, or if q is not a share. Whether the number of
// values supports it is another question: see Supported.
func (h *Histogram) Quantile(q float64) (us float64, ok bool) {
	if h.Count() == 0 || !(q >= 0 && q <= 1) {
		return 0, false
	}
	return float64(h.h.ValueAtPercentile(100*q)) / nsPerUs, true
}

// Encode writes the histogram for a database: HdrHistogram's compressed V2 format as base64, which
// its other implementations and viewers read as nanoseconds.
func (h *Histogram) Encode() ([]byte, error) {
	return h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
}

// The parts of the format that are looked at before the library is:
// https://github.com/HdrHistogram/HdrHistogram, AbstractHistogram.java,
// encodeIntoCompressedByteBuffer.
const (
	compressedPrefix = 8 // cookie, length of what follows
	// cookie, payload length, normalizing offset, digits (4 bytes each); lowest, highest,
	// conversion ratio (8 bytes each)
	headerSize = 40
)

// DecodeHistogram reads what Encode wrote, and refuses anything else. The counts of a histogram
// take as much memory as its header says, so the header is read first, and must be that of our
// histograms: hostile bytes cost no more than one of those.
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

// A Point of a distribution.
type Point struct {
	Quantile float64 `json:"quantile"`
	Us       float64 `json:"us"`
	// Beyond is how many values lie above the quantile, by rank.
	Beyond int64 `json:"beyond"`
	// Supported says whether those are enough to speak of it.
	Supported bool `json:"supported"`
}

// Distribution returns a cumulative distribution for a picture: every hundredth up to p90, then
// ever closer to p99.99. It stops before the first quantile with no value beyond it (the maximum
// repeats badly, and a curve would end in it), but for the few up to p90.
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

// distributionQuantiles are the quantiles of a Distribution.
func distributionQuantiles() []float64 {
	var qs []float64
	for i := range 90 {
		qs = append(qs, float64(i)/100)
	}
	// Of each ten times smaller tail: 0.90, 0.91 ... 0.99, 0.991 ... 0.9999. Divisions give the
	// number nearest to the decimal, which sums would not.
	for _, scale := range []int{100, 1000, 10_000} {
		for i := range 9 {
			qs = append(qs, float64(scale-10+i)/float64(scale))
		}
	}
	return append(qs, 0.9999)
}

// MinBeyond is how many values must lie beyond a quantile for it to be supported. A count of 10
// varies by about a third from run to run (Poisson), so the rank that the quantile stands at does;
// a p99.9 thus takes 10,000 values.
const MinBeyond = 10

// Supported reports whether n values support a quantile: whether at least MinBeyond lie above it,
// and for those below the median, below it. A p99.9 of n values rests on the n/1000 slowest; that
// of 1000 values is one of them.
func Supported(n int64, quantile float64) bool {
	return (quantile > 0 && quantile < 1) && beyond(n, max(quantile, 1-quantile)) >= MinBeyond
}

// beyond is how many of n values lie above a quantile. The small term keeps 10,000 x (1 - 0.999)
// from coming out as 9.99.
func beyond(n int64, quantile float64) int64 { return int64(float64(n)*(1-quantile) + 1e-6) }
