package stats

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"pgregory.net/rapid"
)

func recorded(t interface{ Fatal(...any) }, us ...float64) *Histogram {
	h := NewHistogram()
	for _, v := range us {
		if err := h.Record(v); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func TestHistogramIsAsPreciseAsItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := math.Pow(10, rapid.Float64Range(-3, 8).Draw(t, "power"))
		got, ok := recorded(t, v).Quantile(0.5)
		if !ok || math.Abs(got-v) > 0.001*v+0.0005+1e-12 {
			t.Errorf("Quantile of %v = %v, %v", v, got, ok)
		}
	})
}

func TestQuantilesOfMergedHistogramsAreThoseOfAllValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SliceOfN(rapid.Float64Range(0.001, 1e5), 1, 200)
		a, b := value.Draw(t, "a"), value.Draw(t, "b")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		h := recorded(t, a...)
		if err := h.Merge(recorded(t, b...)); err != nil {
			t.Fatal(err)
		}
		all := slices.Concat(a, b)
		slices.Sort(all)
		// As in the library, a product at a half is rounded to the same side.
		rank := min(len(all), max(1, int((100*q/100)*float64(len(all))+0.5)))
		got, _ := h.Quantile(q)
		// The library returns the lower end of a bucket for 0.
		if want := all[rank-1]; math.Abs(got-want) > 0.001*want+0.0005+1e-12 {
			t.Errorf("Quantile(%v) of %d values = %v, want %v", q, len(all), got, want)
		}
		if h.Count() != int64(len(all)) || math.Abs(h.h.Mean()/nsPerUs-mean(all)) > 0.001*mean(all)+0.001 {
			t.Errorf("Count = %d, Mean = %v; want %d, %v", h.Count(), h.h.Mean()/nsPerUs, len(all), mean(all))
		}
	})
}

func TestHistogramRefusesWhatIsNoLatency(t *testing.T) {
	h := NewHistogram()
	for _, v := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 1e8 + 1, -1e-9} {
		if err := h.Record(v); err == nil || h.Count() != 0 {
			t.Errorf("Record(%v) is accepted", v)
		}
	}
	if err := h.RecordN(5, -1); err == nil {
		t.Error("a negative number of latencies is accepted")
	}
	if err := h.RecordN(5, math.MaxInt64); err != nil {
		t.Error(err)
	}
	if err := h.Merge(recorded(t, 1)); err == nil || h.Count() != math.MaxInt64 {
		t.Errorf("Merge beyond what can be counted: %v, count %d", err, h.Count())
	}
	for _, q := range []float64{-0.1, 1.1, math.NaN()} {
		if v, ok := h.Quantile(q); ok {
			t.Errorf("Quantile(%v) = %v", q, v)
		}
	}
	if v, ok := NewHistogram().Quantile(0.5); ok {
		t.Errorf("Quantile of nothing = %v", v)
	}
}

func TestHistogramSurvivesEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := recorded(t, rapid.SliceOfN(rapid.Float64Range(0, 1e8), 0, 100).Draw(t, "us")...)
		data, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeHistogram(data)
		if err != nil {
			t.Fatal(err)
		}
		if !back.h.Equals(h.h) {
			t.Errorf("%d values became %d, or others", h.Count(), back.Count())
		}
	})
}

func encoded(digits int32, lowest, highest int64, payload []byte) []byte {
	var raw bytes.Buffer
	z := zlib.NewWriter(&raw)
	for _, v := range []any{int32(hdrhistogram.V2EncodingCookieBase | 0x10), int32(len(payload)), int32(0), digits,
		lowest, highest, float64(1), payload} {
		if err := binary.Write(z, binary.BigEndian, v); err != nil {
			panic(err)
		}
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(hdrhistogram.V2CompressedEncodingCookieBase|0x10))
	head = binary.BigEndian.AppendUint32(head, uint32(raw.Len()))
	return []byte(base64.StdEncoding.EncodeToString(append(head, raw.Bytes()...)))
}

func TestDecodeHistogramRefusesHostileBytes(t *testing.T) {
	if _, err := DecodeHistogram(encoded(digits, lowestNs, highestNs, []byte{2})); err != nil {
		t.Errorf("one value of 0 ns: %v", err)
	}
	good, err := recorded(t, 1, 2, 3).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "histogram: cut off"},
		{"no base64", []byte("!!!!"), "histogram: illegal base64"},
		{"no zlib", []byte(base64.StdEncoding.EncodeToString(make([]byte, 20))), "histogram: zlib"},
		{"cut off", good[:24], "histogram: "},
		{"gigabytes of counts", encoded(5, 1, math.MaxInt64, nil),
			"histogram of 1 to 9223372036854775807 ns with 5 digits"},
		{"another form", encoded(2, 1, highestNs, nil), "histogram of 1 to 100000000000 ns with 2 digits"},
		{"zeros beyond the end", encoded(digits, lowestNs, highestNs, []byte{0xff, 0xff, 0xff, 0xff, 0x0f}),
			"histogram: corrupt"},
		{"more bytes than said", encoded(digits, lowestNs, highestNs, make([]byte, 1<<20)), "histogram: "},
		{"too long", bytes.Repeat([]byte("A"), maxEncoded+1), "histogram of 1048577 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := DecodeHistogram(c.data); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("DecodeHistogram: %v; want %q", err, c.want)
			}
		})
	}
}

func FuzzDecodeHistogram(f *testing.F) {
	for _, values := range [][]float64{nil, {1}, {0, 0.001, 5, 5, 1e8}} {
		data, err := recorded(f, values...).Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(encoded(5, 1, math.MaxInt64, []byte{2}))
	f.Add(encoded(digits, lowestNs, highestNs, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}))
	f.Fuzz(func(t *testing.T, data []byte) {
		// Fuzzed input is rarely base64, so it is also tried as a payload.
		for _, d := range [][]byte{data, encoded(digits, lowestNs, highestNs, data)} {
			h, err := DecodeHistogram(d)
			if err != nil {
				continue
			}
			if h.Count() < 0 {
				t.Fatalf("a histogram of %d values", h.Count())
			}
			if v, ok := h.Quantile(0.5); ok != (h.Count() > 0) || v < 0 || v > 2*highestNs/nsPerUs {
				t.Fatalf("Quantile = %v, %v of %d values", v, ok, h.Count())
			}
			again, err := h.Encode()
			if err != nil {
				t.Fatal(err)
			}
			back, err := DecodeHistogram(again)
			if err != nil || !back.h.Equals(h.h) {
				t.Fatalf("encoded again it is another histogram: %v", err)
			}
		}
	})
}

func TestBucketsAreThoseOfTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Int64Range(0, highestNs).Draw(t, "ns")
		h := NewHistogram()
		if err := h.h.RecordValue(ns); err != nil {
			t.Fatal(err)
		}
		index := slices.IndexFunc(h.h.Export().Counts, func(n int64) bool { return n > 0 })
		if got, want := highestOfBucket(index), h.h.ValueAtPercentile(50); got != want || bucketOf(ns) != index {
			t.Errorf("bucket of %d ns = %d, want %d; its highest value = %d, want %d", ns, bucketOf(ns), index, got,
				want)
		}
	})
}

func TestSupported(t *testing.T) {
	for _, c := range []struct {
		n    int64
		q    float64
		want bool
	}{
		{10_000, 0.999, true}, {9_999, 0.999, false}, {1_000, 0.99, true}, {990, 0.99, false}, {20, 0.5, true},
		{19, 0.5, false},
		{100_000, 0.9999, true}, {99_000, 0.9999, false}, {1_000, 0.01, true}, {500, 0.01, false},
		{1_000_000, 1, false}, {1_000_000, 0, false}, {0, 0.5, false}, {100, math.NaN(), false},
	} {
		if got := Supported(c.n, c.q); got != c.want {
			t.Errorf("Supported(%d, %v) = %v, want %v", c.n, c.q, got, c.want)
		}
	}
}

func TestDistribution(t *testing.T) {
	h := NewHistogram()
	for i := range 10_000 {
		if err := h.Record(float64(i+1) / 10); err != nil {
			t.Fatal(err)
		}
	}
	points := h.Distribution()
	if !slices.IsSortedFunc(points, func(a, b Point) int { return int(math.Copysign(1, a.Quantile-b.Quantile)) }) {
		t.Error("quantiles are not in ascending order")
	}
	last := points[len(points)-1]
	if last.Quantile != 0.9999 || last.Beyond != 1 || last.Supported {
		t.Errorf("last point = %+v; want p99.99 with one value beyond, not supported", last)
	}
	at := func(q float64) Point {
		i := slices.IndexFunc(points, func(p Point) bool { return p.Quantile == q })
		if i < 0 {
			t.Fatalf("no point at %v", q)
		}
		return points[i]
	}
	if p := at(0.999); p.Beyond != 10 || !p.Supported || math.Abs(p.Us-999) > 1 {
		t.Errorf("p99.9 = %+v; want 999 us, 10 beyond, supported", p)
	}
	if p := at(0.5); math.Abs(p.Us-500) > 0.5 {
		t.Errorf("median = %+v, want 500 us", p)
	}
	if few := recorded(t, 1, 2, 3).Distribution(); few[len(few)-1].Quantile != 0.9 {
		t.Errorf("distribution of three values ends at %+v, want p90", few[len(few)-1])
	}
	if p := NewHistogram().Distribution(); p != nil {
		t.Errorf("distribution of nothing = %v", p)
	}
}

func TestQuantileContrastMergesAndDoesNotAverage(t *testing.T) {
	study := histograms(t, 4, 7, 300, 1.2)
	e, err := QuantileContrast(study, 0.95, Question{Direction: LowerIsBetter})
	if err != nil {
		t.Fatal(err)
	}
	a, b := NewHistogram(), NewHistogram()
	for _, block := range study {
		for i := range block.A {
			if err := errors.Join(a.Merge(block.A[i]), b.Merge(block.B[i])); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantA, _ := a.Quantile(0.95)
	wantB, _ := b.Quantile(0.95)
	if e.A != wantA || e.B != wantB || !near(e.Estimate, wantB/wantA) || e.Quantile != 0.95 || len(e.Differences) != 7 {
		t.Errorf("QuantileContrast = %+v; want %v and %v, the quantiles of the merged histograms", e, wantA, wantB)
	}
	if j := Judge([]Effect{e})[0]; j.Verdict != Worse || e.P != 2.0/128 {
		t.Errorf("20 %% more latency: %v, p = %v; want worse, 2/128", j, e.P)
	}
	for i := range study {
		study[i].A, study[i].B = study[i].B, study[i].A
	}
	s, err := QuantileContrast(study, 0.95, Question{Direction: LowerIsBetter})
	if err != nil {
		t.Fatal(err)
	}
	if !near(s.Estimate*e.Estimate, 1) || s.P != e.P || !near(s.Interval.Low*e.Interval.High, 1) {
		t.Errorf("swapped %+v; want the mirror image of %+v", s, e)
	}
	d, err := QuantileContrast(study, 0.95, Question{Direction: LowerIsBetter, Scale: Difference})
	if err != nil || !near(d.Estimate, wantA-wantB) {
		t.Errorf("by difference %+v, %v; want %v", d, err, wantA-wantB)
	}
}

func TestQuantileOfMergerIsThatOfHistograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := make([]HistogramBlock, rapid.IntRange(1, 4).Draw(t, "blocks"))
		merged := NewHistogram()
		for i := range blocks {
			h := recorded(t, rapid.SliceOfN(rapid.Float64Range(0, 100), 20, 40).Draw(t, "us")...)
			if err := merged.Merge(h); err != nil {
				t.Fatal(err)
			}
			blocks[i] = HistogramBlock{A: []*Histogram{h}, B: []*Histogram{h}}
		}
		q := rapid.SampledFrom([]float64{0.5, 0.25, 0.4, 1.0 / 3}).Draw(t, "q")
		c, err := newMerger(blocks, q)
		if err != nil {
			t.Skip("not supported")
		}
		if want, _ := merged.Quantile(q); c.value(c.quantileOf(c.a, nil)) != want {
			t.Errorf("quantile %v = %v, want %v", q, c.value(c.quantileOf(c.a, nil)), want)
		}
	})
}

func TestQuantileContrastRefusesWhatItCannotCompare(t *testing.T) {
	q := Question{Direction: LowerIsBetter}
	many := NewHistogram()
	if err := many.RecordN(5, 5000); err != nil {
		t.Fatal(err)
	}
	zero := NewHistogram()
	if err := zero.RecordN(0, 5000); err != nil {
		t.Fatal(err)
	}
	block := func(a, b *Histogram) []HistogramBlock {
		return []HistogramBlock{{A: []*Histogram{a}, B: []*Histogram{b}}}
	}
	for _, c := range []struct {
		name     string
		blocks   []HistogramBlock
		quantile float64
		want     string
	}{
		{"a quantile in percent", block(many, many), 99, "quantile 99: must be between 0 and 1"},
		{"too few values", block(many, many), 0.999,
			"quantile 0.999 of 5000 values of level A: at least 10 must lie beyond it"},
		{"an empty histogram", block(many, NewHistogram()), 0.5, "block 1, level B: no values"},
		{"no run", []HistogramBlock{{A: []*Histogram{many}}}, 0.5, "block 1, level B: no values"},
		{"no histogram", block(many, nil), 0.5, "block 1, level B: a run without a histogram"},
		{"a quantile of 0", block(many, zero), 0.5, "quantile 0.5: only positive values can be compared by ratio"},
		{"no blocks", nil, 0.5, "no blocks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := QuantileContrast(c.blocks, c.quantile, q); err == nil || !strings.HasPrefix(err.Error(),
				c.want) {
				t.Errorf("QuantileContrast: %v; want %q", err, c.want)
			}
		})
	}
}

func ExampleSupported() {
	fmt.Println(Supported(5000, 0.999), Supported(10_000, 0.999))
	// Output: false true
}
