package appraise

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// The total follows from channels and memory rate, at 8 bytes a transfer.
func TestWhatChannelsCarryFollowsFromTheirNumberAndRate(t *testing.T) {
	for _, c := range channels {
		var n, generation, rate float64
		if strings.HasPrefix(c.of, "LPDDR") {
			continue // data sheet: 546 GB/s
		}
		if _, err := fmt.Sscanf(c.of, "%g x DDR%g-%g", &n, &generation, &rate); err != nil {
			t.Fatalf("%q: %v", c.of, err)
		}
		if want := n * rate * 8 / 1000; math.Abs(c.gbps-want) > 0.002*want {
			t.Errorf("%s: %g GB/s, want %g", c.of, c.gbps, want)
		}
	}
}

func TestProcessorsHaveTheirChannels(t *testing.T) {
	for model, want := range map[string]string{
		"AMD EPYC 7551P 32-Core Processor": "8 x DDR4-2666", "AMD EPYC 7F52 16-Core Processor": "8 x DDR4-3200",
		"AMD EPYC 7502P 32-Core Processor": "8 x DDR4-3200", "AMD EPYC 7773X 64-Core Processor": "8 x DDR4-3200",
		"AMD EPYC 9654 96-Core Processor": "12 x DDR5-4800", "AMD EPYC 9965 192-Core Processor": "12 x DDR5-6400",
		"Intel(R) Xeon(R) Platinum 8160 CPU @ 2.10GHz":   "6 x DDR4-2666",
		"Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz":      "6 x DDR4-2933",
		"Intel(R) Xeon(R) Platinum 8362 CPU @ 2.80GHz":   "8 x DDR4-3200",
		"Intel(R) Xeon(R) Platinum 8480+":                "8 x DDR5-4800",
		"Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz":      "4 x DDR4-2400",
		"Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz":       "",
		"Intel(R) Xeon(R) Platinum 8380HL CPU @ 2.90GHz": "6 x DDR4-3200",
	} {
		got := ""
		for _, c := range channels {
			if c.name().MatchString(model) {
				got = c.of
				break
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", model, got, want)
		}
	}
}
