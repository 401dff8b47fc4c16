package lab

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestParseBytes(t *testing.T) {
	tests := []struct {
		text  string
		want  Bytes
		print string // expected output of String
	}{
		{"0B", 0, "0B"},
		{"1B", 1, "1B"},
		{"1000B", 1000, "1000B"},
		{"1024B", KiB, "1KiB"},
		{"1536KiB", 1536 * KiB, "1536KiB"},
		{"256MiB", 256 * MiB, "256MiB"},
		{"512M", 512 * MiB, "512MiB"},
		{"1G", GiB, "1GiB"},
		{"1GiB", GiB, "1GiB"},
		{"1024MiB", GiB, "1GiB"},
		{"2TiB", 2 * TiB, "2TiB"},
		{"9223372036854775807B", math.MaxInt64, "9223372036854775807B"},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			got, err := ParseBytes(tt.text)
			if err != nil || got != tt.want {
				t.Fatalf("got %d, %v, want %d", got, err, tt.want)
			}
			if got.String() != tt.print {
				t.Errorf("prints %s, want %s", got, tt.print)
			}
		})
	}
}

func TestParseBytesErrors(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"nothing", "",
			`parse size "": want a whole number with a unit, such as 256MiB or 1GiB; start it with a digit`},
		{"no unit", "256",
			`parse size "256": want a whole number with a unit, such as 256MiB or 1GiB; add a unit: 256MiB`},
		{"a decimal unit", "256MB",
			`parse size "256MB": want a whole number with a unit, such as 256MiB or 1GiB; write 256MiB`},
		{"a lower case unit", "4gib",
			`parse size "4gib": want a whole number with a unit, such as 256MiB or 1GiB; write 4GiB`},
		{"a lone k", "4k", `parse size "4k": want a whole number with a unit, such as 256MiB or 1GiB; write 4KiB`},
		{"a space", "1 GiB", `parse size "1 GiB": want a whole number with a unit, such as 256MiB or 1GiB; write 1GiB`},
		{"a fraction", "1.5GiB",
			`parse size "1.5GiB": want a whole number with a unit, such as 256MiB or 1GiB; ` +
				`write it as a whole number: 1536MiB`},
		{"a fraction that is no whole number of KiB", "0.3MiB",
			`parse size "0.3MiB": want a whole number with a unit, such as 256MiB or 1GiB; ` +
				`use one of the units KiB, MiB, GiB, TiB, M, G`},
		{"two points", "1.2.3GiB",
			`parse size "1.2.3GiB": want a whole number with a unit, such as 256MiB or 1GiB; ` +
				`use one of the units KiB, MiB, GiB, TiB, M, G`},
		{"a sign", "-1MiB",
			`parse size "-1MiB": want a whole number with a unit, such as 256MiB or 1GiB; start it with a digit`},
		{"a leading zero", "01MiB",
			`parse size "01MiB": want a whole number with a unit, such as 256MiB or 1GiB; drop the leading zero`},
		{"too many digits", "99999999999999999999B",
			`parse size "99999999999999999999B": want a whole number with a unit, such as 256MiB or 1GiB; ` +
				`use a larger unit or a smaller number`},
		{"past 63 bits with the unit", "8388608TiB",
			`parse size "8388608TiB": want a whole number with a unit, such as 256MiB or 1GiB; use a smaller number`},
		{"an unknown unit", "1parsec",
			`parse size "1parsec": want a whole number with a unit, such as 256MiB or 1GiB; ` +
				`use one of the units KiB, MiB, GiB, TiB, M, G`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseBytes(tt.text)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestBytesInJSON(t *testing.T) {
	got, err := json.Marshal(map[string]Bytes{"memory": 256 * MiB})
	if err != nil || string(got) != `{"memory":"256MiB"}` {
		t.Errorf("got %s, %v", got, err)
	}
	var back map[string]Bytes
	if err := json.Unmarshal(got, &back); err != nil || back["memory"] != 256*MiB {
		t.Errorf("read back %v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"memory":"256"}`), &back); err == nil {
		t.Error("a size without a unit was read from JSON")
	}
	if got, err := json.Marshal(Bytes(-1)); err == nil {
		t.Errorf("a negative size was written as %s", got)
	}
}

func TestEverySizeParsesAsItPrints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bytes(rapid.Int64Min(0).Draw(t, "size"))
		if got, err := ParseBytes(b.String()); err != nil || got != b {
			t.Fatalf("%d prints %s, which parses to %d, %v", b, b, got, err)
		}
	})
}

func FuzzBytes(f *testing.F) {
	for _, s := range []string{"", "0B", "256MiB", "1G", "1.5GiB", "256", "08GiB", "9223372036854775808B", "1 gb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBytes(s)
		if err != nil {
			return
		}
		if b < 0 {
			t.Fatalf("%q parses to the negative %d", s, b)
		}
		if again, err := ParseBytes(b.String()); err != nil || again != b {
			t.Fatalf("%q parses to %d and prints %s, which parses to %d, %v", s, b, b, again, err)
		}
	})
}
