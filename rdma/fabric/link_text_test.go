package fabric

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLinkSetAndGet(t *testing.T) {
	tests := []struct {
		key, text string
		want      Link
		get       string
	}{
		{"rate", "1Gbit", Link{Rate: 1e9}, ""},
		{"rate", "2.5Gbit", Link{Rate: 2.5e9}, "2500Mbit"},
		{"rate", "4.35kbit", Link{Rate: 4350}, "4350bit"},
		{"rate", "1Tbit", Link{Rate: 1e12}, ""},
		{"rate", "0", Link{}, ""},
		{"burst", "1500B", Link{Burst: 1500}, ""},
		{"delay", "50us", Link{Delay: 50 * time.Microsecond}, ""},
		{"delay", "0.05ms", Link{Delay: 50 * time.Microsecond}, "50us"},
		{"jitter", "1ms500us", Link{Jitter: 1500 * time.Microsecond}, "1.5ms"},
		{"loss", "0.1%", Link{Loss: 0.001}, ""},
		{"loss", "29%", Link{Loss: 0.29}, ""},
		{"loss", "100%", Link{Loss: 1}, ""},
		{"reorder", "33.333%", Link{Reorder: 0.33333}, ""},
		{"ecn", "30KiB:90KiB:10%", Link{ECN: RED{30 << 10, 90 << 10, 0.1}}, ""},
		{"ecn", "0:0:100%", Link{ECN: RED{0, 0, 1}}, ""},
		{"ecn", "65KiB:65KiB:0%", Link{ECN: RED{65 << 10, 65 << 10, 0}}, ""},
		{"ecn", "0", Link{}, ""},
		{"buffer", "256KiB", Link{Buffer: 256 << 10}, ""},
		{"buffer", "1024KiB", Link{Buffer: 1 << 20}, "1MiB"},
		{"pfc", "64KiB:0", Link{PFC: PFC{High: 64 << 10, Low: 0}}, ""},
		{"seed", "18446744073709551615", Link{Seed: 1<<64 - 1}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.key+" "+tt.text, func(t *testing.T) {
			var l Link
			if err := l.Set(tt.key, tt.text); err != nil || l != tt.want {
				t.Fatalf("Set: %+v, %v; want %+v", l, err, tt.want)
			}
			want := tt.get
			if want == "" {
				want = tt.text
			}
			if got := l.Get(tt.key); got != want {
				t.Errorf("Get: %q, want %q", got, want)
			}
		})
	}
}

func TestLinkSetErrors(t *testing.T) {
	const rate = "want a number with a unit, such as 100Mbit, 2.5Gbit or 25Gbit"
	const size = "want a whole number with a unit, such as 64KiB or 1500B"
	const share = "want 0% to 100%, such as 0.1%"
	tests := []struct{ key, text, want string }{
		{"rate", "", `rate "": ` + rate},
		{"rate", "1000", `rate "1000": ` + rate},
		{"rate", "1GB", `rate "1GB": ` + rate},
		{"rate", "1e3Mbit", `rate "1e3Mbit": ` + rate},
		{"rate", "-1Mbit", `rate "-1Mbit": ` + rate},
		{"rate", "InfGbit", `rate "InfGbit": ` + rate},
		{"rate", "0.5bit", `rate "0.5bit": ` + rate},
		{"rate", "1.2.3Gbit", `rate "1.2.3Gbit": ` + rate},
		{"rate", "1.1Tbit", `rate "1.1Tbit": want at most 1Tbit`},
		{"delay", "50", `time "50": want a number with a unit, such as 50us or 1.5ms`},
		{"loss", "0.1", `percentage "0.1": ` + share},
		{"loss", "101%", `percentage "101%": ` + share},
		{"loss", "NaN%", `percentage "NaN%": ` + share},
		{"buffer", "64K", `size "64K": ` + size},
		{"buffer", "-1B", `size "-1B": ` + size},
		{"buffer", "1.5MiB", `size "1.5MiB": ` + size},
		{"buffer", "1GiB", `size "1GiB": want at most 256MiB`},
		{"ecn", "30KiB:90KiB", `marks "30KiB:90KiB": want MIN:MAX:PERCENT, such as 30KiB:90KiB:10%`},
		{"ecn", "x:90KiB:1%", `size "x": ` + size},
		{"ecn", "1B:2B:3", `percentage "3": ` + share},
		{"pfc", "64KiB", `thresholds "64KiB": want HIGH:LOW, such as 64KiB:32KiB, or ` +
			`HIGH:LOW:PRIORITIES, such as 64KiB:32KiB:3`},
		{"pfc", "64KiB:", `size "": ` + size},
		{"seed", "-1", `seed "-1": want a whole number below 2^64`},
		{"mood", "bad",
			`link has no setting "mood": want one of rate, burst, delay, jitter, loss, reorder, trust, ` +
				`ecn, buffer, pfc, seed`},
	}
	for _, tt := range tests {
		t.Run(tt.key+" "+tt.text, func(t *testing.T) {
			before := Link{Rate: 1e6, Loss: 0.5, Buffer: 1, Seed: 3}
			l := before
			if err := l.Set(tt.key, tt.text); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if l != before {
				t.Errorf("the link was changed to %+v", l)
			}
		})
	}
	if got := (Link{}).Get("mood"); got != "" {
		t.Errorf("Get of an unknown key: %q", got)
	}
}

func TestPropertyALinkIsTheSameAfterGetAndSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawLink(t)
		var got Link
		for _, key := range LinkKeys() {
			if err := got.Set(key, want.Get(key)); err != nil {
				t.Fatal(err)
			}
		}
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// Set must accept Get's text with the same result. Validate must not panic.
func FuzzLinkSet(f *testing.F) {
	for _, text := range []string{"0", "1Gbit", "2.5Mbit", "50us", "0.1%", "100%", "30KiB:90KiB:10%", "64KiB:0",
		"1500B", "-1s", "dscp", "64KiB:32KiB:3,4", "1.00000001kbit", "0.0000000001%"} {
		for i := range linkKeys {
			f.Add(uint8(i), text)
		}
	}
	f.Fuzz(func(t *testing.T, key uint8, text string) {
		name := linkKeys[int(key)%len(linkKeys)].name
		var l Link
		if err := l.Set(name, text); err != nil {
			if l != (Link{}) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%+v, %v", l, err)
			}
			return
		}
		_ = l.Validate() // must not panic
		shown := l.Get(name)
		var again Link
		if err := again.Set(name, shown); err != nil || again.Get(name) != shown {
			t.Fatalf("%s %q is shown as %q, and that as %q, %v", name, text, shown, again.Get(name), err)
		}
	})
}
