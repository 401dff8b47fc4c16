package finding

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCodesOfALineThatAProgramPrinted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want []string // kind and number
	}{
		{"status 12", []string{"status 12"}},
		{"error 4", []string{"status 4"}},
		{"vendor err 81", []string{"vendor error 81"}},
		{"vendor err 129", []string{"vendor error 129"}},
		{"vendor_err 0x81", []string{"vendor error 129"}},
		{"syndrome 0x15", []string{"syndrome 21"}},
		{" Failed status 4: wr_id 0 syndrom 0x51", []string{"status 4", "vendor error 81"}},
		{"NCCL WARN NET/IB : Got completion from peer 192.0.2.12<60054> with error 12, opcode 0, len 0, vendor err 129",
			[]string{"status 12", "vendor error 129"}},
		{"mlx5_poll_one:530:(pid 0): syndrome 0x5, vendor syndrome 0xf9", []string{"vendor error 249", "syndrome 5"}},
		{"CREATE_QP(0x500) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x4bb88f)",
			[]string{"command status 3"}},
		{"IBV_WC_RETRY_EXC_ERR", []string{"status 12"}},
		{"transport retry counter exceeded", []string{"status 12"}},
		{"Local Protection Error", []string{"status 4"}},
		{"status 24", nil},
		{"status 99999999999999999999", nil},
		{"error", nil},
		{"terror 4", nil},
		{"", nil},
	} {
		var got []string
		for _, c := range Codes(tt.text) {
			got = append(got, fmt.Sprint(c.Kind, " ", c.Number))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

// The statuses of a completion are an enumeration without gaps, and every code is told in full.
func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	for _, c := range codes() {
		if c.Kind == CompletionStatus && c.Number != kinds[c.Kind] {
			t.Errorf("after status %d comes %d", kinds[c.Kind]-1, c.Number)
		}
		kinds[c.Kind]++
		if c.Name == "" || c.Short == "" || !strings.HasSuffix(c.Meaning, ".") || !strings.HasSuffix(c.Source, ".") {
			t.Errorf("%s %s is not explained: %+v", c.Kind, c.Digits, c)
		}
		if got, ok := FindCode(c.Kind, c.Number); !ok || got != c {
			t.Errorf("%s %s stands twice", c.Kind, c.Digits)
		}
		// What another entry is pointed at must be there.
		if _, text, ok := strings.Cut(c.LookAt, `rackless explain "`); ok {
			if got := Codes(strings.TrimSuffix(text, `"`)); len(got) != 1 {
				t.Errorf("%s %s: look at %q, which is %d codes", c.Kind, c.Digits, text, len(got))
			}
		}
	}
	if kinds[CompletionStatus] != 24 || len(kinds) != 4 {
		t.Errorf("got %v codes; libibverbs has 24 statuses", kinds)
	}
}

func FuzzCodes(f *testing.F) {
	f.Add("Failed status 12: wr_id 0 syndrom 0x81")
	f.Add("status bad parameter(0x3), syndrome (0x4bb88f)")
	f.Fuzz(func(t *testing.T, text string) {
		for _, c := range Codes(text) {
			if got, ok := FindCode(c.Kind, c.Number); !ok || got != c {
				t.Errorf("%q: no such code: %+v", text, c)
			}
		}
	})
}
