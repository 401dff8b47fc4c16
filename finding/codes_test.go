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
		{"Completion with error at client, status 12", []string{"status 12"}},
		{"wc status IBV_WC_RETRY_EXC_ERR", []string{"status 12"}},
		{"wc_status=12", []string{"status 12"}},
		{"NCCL WARN NET/IB : Got completion from peer 192.0.2.1<4321> with status=12 opcode=0 len=0 vendor err " +
			"129 (Send)",
			[]string{"status 12", "vendor error 129"}},
		{"UCX ERROR Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)",
			[]string{"vendor error 129", "syndrome 21"}},
		{"QP 123 wc error: RNR retry counter exceeded", []string{"status 13"}},
		{"Work Request Flushed Error", []string{"status 5"}},
		{"ibv_modify_qp failed: Invalid argument (22)", []string{"errno 22"}},
		{"NCCL WARN Call to ibv_modify_qp failed with error Connection timed out", []string{"errno 110"}},
		{"NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1",
			[]string{"errno 110"}},
		{"Failed to modify QP to RTR: Invalid argument [22]", []string{"errno 22"}},
		{"non-zero status: 22 ibv_modify_qp failed.", []string{"errno 22"}},
		{"ibv_poll_cq: wc status 12", []string{"status 12"}},
		{"ibv_reg_mr: Cannot allocate memory", []string{"errno 12"}},
		{"errno: 110", []string{"errno 110"}},
		{"cat: x: Invalid argument", nil},
		{"bash: permission denied", nil},
		{"fatal error: verbs.h: no such file", nil},
		{"Got async event : port error", []string{"async event 10"}},
		{"the port error was found", nil},
		{"Xid 79", []string{"Xid 79"}},
		{"Xid: 31", []string{"Xid 31"}},
		{"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			[]string{"Xid 79"}},
		{"GPU has fallen off the bus", []string{"Xid 79"}},
		{"taxid 79", nil},
		{"AER: Multiple Corrected error: Replay Timer Timeout", []string{"AER correctable 12"}},
		{"Replay Timer Timeout", []string{"AER correctable 12"}},
		{"pcieport 0000:00:1c.5:   [12] Timeout", []string{"AER correctable 12"}},
		{"nvme 0000:01:00.0:    [ 0] RxErr                  (First)", []string{"AER correctable 0"}},
		{"AER: Uncorrectable (Non-Fatal): [20] UnsupReq  [14] CmpltTO", []string{"AER uncorrectable 20",
			"AER uncorrectable 14"}},
		{"CESta: RxErr- BadTLP+ BadDLLP- Rollover- Timeout+ AdvNonFatalErr-", []string{"AER correctable 6",
			"AER correctable 12"}},
		{"UESta: DLP- SDES- TLP- FCP- CmpltTO- CmpltAbrt- UnxCmplt- RxOF- MalfTLP- ECRC- UnsupReq+ ACSViol-",
			[]string{"AER uncorrectable 20"}},
		{"Completion Timeout", []string{"AER uncorrectable 14"}},
		{"the completion timeout was set to 50us", nil},
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
	if kinds[CompletionStatus] != 24 || len(kinds) != 9 {
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
