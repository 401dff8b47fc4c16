package topology

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addr(t testing.TB, s string) PCIAddr {
	t.Helper()
	a, err := ParsePCIAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestParsePCIAddr(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in string
		want     PCIAddr
		text     string // of String
	}{
		{"as sysfs writes it", "0000:3b:00.1", PCIAddr{Bus: 0x3b, Function: 1}, "0000:3b:00.1"},
		{"without its domain, as lspci writes it", "3b:1f.7", PCIAddr{Bus: 0x3b, Device: 31, Function: 7},
			"0000:3b:1f.7"},
		{"as NVIDIA's tools write it", "00000000:3B:00.0", PCIAddr{Bus: 0x3b}, "0000:3b:00.0"},
		{"a domain of five digits, behind Intel's VMD", "10000:e1:00.0", PCIAddr{Domain: 0x10000, Bus: 0xe1},
			"10000:e1:00.0"},
		{"the largest", "ffffffff:ff:1f.7", PCIAddr{Domain: 0xffffffff, Bus: 0xff, Device: 31, Function: 7},
			"ffffffff:ff:1f.7"},
		{"a domain of Power", "0035:04:00.0", PCIAddr{Domain: 0x35, Bus: 4}, "0035:04:00.0"},
		{"the zero value", "0000:00:00.0", PCIAddr{}, "0000:00:00.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParsePCIAddr(tt.in)
			if err != nil || got != tt.want {
				t.Fatalf("got %+v, %v, want %+v", got, err, tt.want)
			}
			if s := got.String(); s != tt.text {
				t.Errorf("String() = %q, want %q", s, tt.text)
			}
		})
	}
}

func TestParsePCIAddrErrors(t *testing.T) {
	t.Parallel()
	const want = "; want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1"
	for _, tt := range []struct{ in, why string }{
		{"", "no bus"},
		{"3b", "no bus"},
		{"0000:3b:00", "no function"},
		{"3b:00", "no function"},
		{"0:3b:00.0", `domain "0" is not 4 to 8 hexadecimal digits`},
		{"123456789:3b:00.0", `domain "123456789" is not 4 to 8 hexadecimal digits`},
		{"000g:3b:00.0", `domain "000g" is not 4 to 8 hexadecimal digits`},
		{"0000:b:00.0", `bus "b" is not 2 hexadecimal digits`},
		{"0000:3b3:00.0", `bus "3b3" is not 2 hexadecimal digits`},
		{"0000:3b:20.0", `device "20" is not 00 to 1f`},
		{"0000:3b:0.0", `device "0" is not 00 to 1f`},
		{"0000:3b:00.8", `function "8" is not 0 to 7`},
		{"0000:3b:00.0.0", `function "0.0" is not 0 to 7`},
		{"0000:+b:00.0", `bus "+b" is not 2 hexadecimal digits`},
		{"0000:3b:00.0 ", `function "0 " is not 0 to 7`},
		{"a:b:c:d.0", "no function"},
	} {
		t.Run(tt.in, func(t *testing.T) {
			t.Parallel()
			_, err := ParsePCIAddr(tt.in)
			var e *PCIAddrError
			if !errors.As(err, &e) {
				t.Fatalf("error %v, want a PCIAddrError", err)
			}
			if tt.why != "no function" && e.Why != tt.why {
				t.Errorf("why %q, want %q", e.Why, tt.why)
			}
			if e.In != tt.in || err.Error()[len(err.Error())-len(want):] != want {
				t.Errorf("error %q does not say what was given and what is wanted", err)
			}
		})
	}
}

func TestPCIAddrOrder(t *testing.T) {
	t.Parallel()
	sorted := []PCIAddr{{}, {Function: 1}, {Device: 1}, {Bus: 1}, {Bus: 1, Device: 2, Function: 3}, {Domain: 1},
		{Domain: 0x10000}}
	for i, a := range sorted {
		for j, b := range sorted {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := a.Compare(b); got != want {
				t.Errorf("%v.Compare(%v) = %d, want %d", a, b, got, want)
			}
		}
	}
	if !slices.IsSortedFunc(sorted, PCIAddr.Compare) {
		t.Error("not sorted")
	}
}

func TestSameDevice(t *testing.T) {
	t.Parallel()
	a := PCIAddr{Domain: 1, Bus: 2, Device: 3, Function: 4}
	for _, tt := range []struct {
		b    PCIAddr
		want bool
	}{
		{a, true},
		{PCIAddr{Domain: 1, Bus: 2, Device: 3}, true},
		{PCIAddr{Domain: 1, Bus: 2, Device: 4, Function: 4}, false},
		{PCIAddr{Domain: 1, Bus: 3, Device: 3, Function: 4}, false},
		{PCIAddr{Domain: 2, Bus: 2, Device: 3, Function: 4}, false},
	} {
		if got := a.SameDevice(tt.b); got != tt.want {
			t.Errorf("%v.SameDevice(%v) = %t, want %t", a, tt.b, got, tt.want)
		}
	}
}

func TestPCINumbersInJSON(t *testing.T) {
	t.Parallel()
	type all struct {
		Address  PCIAddr         `json:"address"`
		Class    ID24            `json:"class"`
		Vendor   ID16            `json:"vendor"`
		Revision ID8             `json:"revision"`
		ByAddr   map[PCIAddr]int `json:"by_addr"`
	}
	in := all{PCIAddr{Bus: 0x41}, 0x020000, 0x15b3, 0x0a, map[PCIAddr]int{{Bus: 1}: 2}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"address":"0000:41:00.0","class":"0x020000","vendor":"0x15b3","revision":"0x0a",` +
		`"by_addr":{"0000:01:00.0":2}}`
	if string(b) != want {
		t.Errorf("JSON %s, want %s", b, want)
	}
	var out all
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{`{"address":"41"}`, `{"class":"0x1020000"}`, `{"vendor":"mellanox"}`,
		`{"revision":"0x100"}`} {
		if err := json.Unmarshal([]byte(bad), &out); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestParseIDs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]ID16{"0x15b3": 0x15b3, "15b3": 0x15b3, "0X15B3": 0x15b3, "1": 1} {
		if got, err := ParseID16(in); err != nil || got != want {
			t.Errorf("ParseID16(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]ID24{"0x020000": 0x020000, "020000": 0x020000, "0200": 0x020000,
		"0x0200": 0x020000, "0X0302": 0x030200, "10802": 0x010802} {
		if got, err := ParseID24(in); err != nil || got != want {
			t.Errorf("ParseID24(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0x", "15b3a", "-1", "x"} {
		if got, err := ParseID16(in); err == nil {
			t.Errorf("ParseID16(%q) = %v, want an error", in, got)
		}
	}
	if c := ID24(0x030200); c.Base() != 0x03 || c.Sub() != 0x0302 {
		t.Errorf("class %v has base %#02x and subclass %#04x", c, c.Base(), c.Sub())
	}
}

func FuzzParsePCIAddr(f *testing.F) {
	for _, s := range []string{"0000:3b:00.1", "3b:00.1", "00000000:3B:00.0", "10000:e1:00.0", "", ":::.",
		"ffffffff:ff:1f.7", "0000:00:00.08"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParsePCIAddr(s)
		if err != nil {
			return
		}
		if a.Device > 31 || a.Function > 7 {
			t.Fatalf("ParsePCIAddr(%q) = %+v", s, a)
		}
		if b, err := ParsePCIAddr(a.String()); err != nil || a != b {
			t.Errorf("%q reads as %v, %v", a.String(), b, err)
		}
	})
}
