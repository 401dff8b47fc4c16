package fabric

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLinkValidate(t *testing.T) {
	tests := []struct {
		name string
		link Link
		want string
	}{
		{"the zero value", Link{}, ""},
		{"all of it", Link{Rate: 1e9, Burst: 1500, Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 1,
			Reorder: 0.5,
			ECN:     RED{30 << 10, 90 << 10, 0.1}, Buffer: 256 << 10, PFC: PFC{High: 64 << 10, Low: 32 << 10}, Seed: 1},
			""},
		{"a threshold in place of a range", Link{ECN: RED{1000, 1000, 1}}, ""},
		{"the largest", Link{Rate: MaxRate, Burst: MaxBurst, Delay: MaxDelay, Jitter: MaxDelay, Buffer: MaxBuffer}, ""},
		{"a rate below the least", Link{Rate: 999},
			"link: rate of 999 bit/s: want 0 (no limit) or 1000 to 1000000000000"},
		{"a negative rate", Link{Rate: -1}, "link: rate of -1 bit/s: want 0 (no limit) or 1000 to 1000000000000"},
		{"a rate above the most", Link{Rate: MaxRate + 1},
			"link: rate of 1000000000001 bit/s: want 0 (no limit) or 1000 to 1000000000000"},
		{"a burst without a rate", Link{Burst: 1}, "link: burst of 1 bytes without a rate: want 0, or a rate"},
		{"a negative burst", Link{Rate: 1e9, Burst: -1}, "link: burst of -1 bytes: want 0 to 67108864"},
		{"a long delay", Link{Delay: 11 * time.Second}, "link: delay 11s: want 0s to 10s"},
		{"more jitter than delay", Link{Delay: 1, Jitter: 2}, "link: jitter 2ns: want 0s to the delay, 1ns"},
		{"loss in percent", Link{Loss: 10}, "link: loss probability 10: want 0 to 1"},
		{"loss that is no number", Link{Loss: math.NaN()}, "link: loss probability NaN: want 0 to 1"},
		{"negative reordering", Link{Delay: 1, Reorder: -0.1}, "link: reorder probability -0.1: want 0 to 1"},
		{"reordering without a delay", Link{Reorder: 0.1},
			"link: reorder probability 0.1 without a delay: want 0, or a delay for frames to overtake in"},
		{"a large buffer", Link{Buffer: MaxBuffer + 1}, "link: buffer of 268435457 bytes: want 0 to 268435456"},
		{"negative ECN", Link{ECN: RED{-1, 2, 0.1}}, "link: ecn min of -1 bytes: want 0 to 268435456"},
		{"ECN from high to low", Link{ECN: RED{3, 2, 0.1}}, "link: ecn max of 2 bytes: want 3 to 268435456"},
		{"ECN in percent", Link{ECN: RED{1, 2, 10}}, "link: ecn probability 10: want 0 to 1"},
		{"PFC that never begins", Link{PFC: PFC{High: 0, Low: 1}}, "link: pfc high of 0 bytes: want 1 to 268435456"},
		{"PFC above the buffer", Link{Buffer: 1000, PFC: PFC{High: 1001, Low: 1}},
			"link: pfc high of 1001 bytes: want 1 to 1000"},
		{"PFC from low to high", Link{PFC: PFC{High: 10, Low: 20}}, "link: pfc low of 20 bytes: want 0 to 10"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := tt.link.Validate(); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestImpaired(t *testing.T) {
	if (Link{Seed: 7}).Impaired() {
		t.Error("a seed alone impairs a link")
	}
	for _, l := range []Link{{Rate: 1}, {Delay: 1}, {Loss: 0.1}, {ECN: RED{0, 0, 1}}, {Buffer: 1},
		{PFC: PFC{High: 1, Low: 0}}} {
		if !l.Impaired() {
			t.Errorf("%+v is said not to be impaired", l)
		}
	}
}

func TestPropertyALinkIsTheSameAfterJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawLink(t)
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Link
		if err := json.Unmarshal(b, &got); err != nil || got != want {
			t.Fatalf("%s became %+v, %v", b, got, err)
		}
	})
}

func drawLink(t *rapid.T) Link {
	some := func(name string) bool { return rapid.Bool().Draw(t, name) }
	var l Link
	if some("rated") {
		l.Rate = rapid.Int64Range(1e6, 1e11).Draw(t, "rate")
		l.Burst = rapid.IntRange(0, 100_000).Draw(t, "burst")
	}
	if some("delayed") {
		l.Delay = time.Duration(rapid.Int64Range(1, int64(5*time.Millisecond)).Draw(t, "delay"))
		l.Jitter = time.Duration(rapid.Int64Range(0, int64(l.Delay)).Draw(t, "jitter"))
		if some("reordered") {
			l.Reorder = rapid.Float64Range(0, 1).Draw(t, "reorder")
		}
	}
	if some("lossy") {
		l.Loss = rapid.Float64Range(0, 1).Draw(t, "loss")
	}
	if some("marked") {
		l.ECN.Min = rapid.IntRange(0, 50_000).Draw(t, "min")
		l.ECN.Max = rapid.IntRange(l.ECN.Min, 100_000).Draw(t, "max")
		l.ECN.Probability = rapid.Float64Range(0, 1).Draw(t, "marks")
	}
	if some("buffered") {
		l.Buffer = rapid.IntRange(1, 200_000).Draw(t, "buffer")
	}
	if some("lossless") {
		most := 100_000
		if l.Buffer > 0 {
			most = min(most, l.Buffer)
		}
		l.PFC.High = rapid.IntRange(1, most).Draw(t, "high")
		l.PFC.Low = rapid.IntRange(0, l.PFC.High).Draw(t, "low")
		if some("of priorities") {
			l.PFC.Of = Priorities(rapid.IntRange(1, 0xff).Draw(t, "priorities"))
			l.Trust = rapid.SampledFrom([]Trust{TrustPCP, TrustDSCP}).Draw(t, "trust")
		}
	} else if some("trusted") {
		l.Trust = rapid.SampledFrom([]Trust{TrustPCP, TrustDSCP}).Draw(t, "trust")
	}
	l.Seed = rapid.Uint64().Draw(t, "seed")
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	return l
}
