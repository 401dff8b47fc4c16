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
		{"mlx5_poll_one:530:(pid 0): syndrome 0x5, vendor syndrome 0xf9", []string{"syndrome 5", "vendor error 249"}},
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
			[]string{"syndrome 21", "vendor error 129"}},
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
		{"NCCL WARN NET/IB: Got completion from peer 192.0.2.1<4321> with status=IBV_WC_RETRY_EXC_ERR(12) " +
			"opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send", []string{"status 12", "vendor error 129"}},
		{"error polling LP CQ with status RETRY EXCEEDED ERROR status number 12 for wr_id 10 opcode 0 vendor error 129",
			[]string{"status 12", "vendor error 129"}},
		{"Got completion with error 10, vendor code=0x88, dest rank=1", []string{"status 10", "vendor error 136"}},
		{"isert: send failure: transport retry counter exceeded (12) vend_err 81", []string{"status 12",
			"vendor error 129"}},
		{"Failed status transport retry counter exceeded (12) for wr_id 2", []string{"status 12"}},
		{"frwr: WR flushed (5/0xf9)", []string{"status 5", "vendor error 249"}},
		{"mlx5: node1: got completion with error:\n00000000 00000000 00000000 00000000\n00000000 00000000 00000000 " +
			"00000000\n00000000 00000000 00000000 00000000\n00000000 00008813 08000107 0000b8d2",
			[]string{"syndrome 19", "vendor error 136"}},
		{"mlx5_0:dump_cqe:287: dump error cqe\n00000030: 00 00 00 00 00 00 51 04 08 00 01 07 00 00 b8 d2",
			[]string{"syndrome 4", "vendor error 81"}},
		{"00000030: 00 00 00 00 00 00 51 04 08 00 01 07 00 00 b8 02", nil},
		{"unexpected CQE error syndrome 0x04 CQN = 5", []string{"syndrome 4"}},
		{"vendor_error 10", nil},
		{"send completion with error: local protection error [qpn 0xf9db wrid 0x149vendor_err 0x51]",
			[]string{"status 4", "vendor error 81"}},
		{"UCX ERROR Send completion with error on qp 0x6214: remote access error syndrome 0x88",
			[]string{"status 10", "vendor error 136"}},
		{"rxm_cq_read_write_error():819<warn> fi_cq_readerr: err: 5, prov_err: remote access error (10)",
			[]string{"status 10"}},
		{"CQE error, wr_id=3, status=2 (local QP operation error), opcode=1, byte_len=0, vendor_err=0x3",
			[]string{"status 2"}},
		{"bad completion with status: 0xc, vendor syndrome: 0x81", []string{"status 12", "vendor error 129"}},
		{"Remote QP on mlx5_0:1/IB (synd 0x14 vend 0x89 hw_synd 0/0)", []string{"syndrome 20", "vendor error 137"}},
		{"mlx5dv_devx_obj_create(QP) failed on mlx5_0, syndrome 0x2c4154: Remote I/O error", []string{"errno 121"}},
		{"vendor_err_synd=0x8a", []string{"vendor error 138"}},
		{"vend err: 0x51", []string{"vendor error 81"}},
		{"Vendor Syndrome (0x52)", []string{"vendor error 82"}},
		{"vendor error code 129", []string{"vendor error 129"}},
		{"syndrome(0x13)", []string{"syndrome 19"}},
		{"synd: 15", []string{"syndrome 21"}},
		{"syndrom 0x81", []string{"vendor error 129"}},
		{"status code 12", []string{"status 12"}},
		{"Status: 0xc", []string{"status 12"}},
		{"status(12)", []string{"status 12"}},
		{"wc.status = 12", []string{"status 12"}},
		{"wc_status[4]", []string{"status 4"}},
		{"err 12", []string{"status 12"}},
		{"Error #4", []string{"status 4"}},
		{"completion error: 4", []string{"status 4"}},
		{"RETRY_EXC_ERR", []string{"status 12"}},
		{"IB_WC_LOC_PROT_ERR", []string{"status 4"}},
		{"mlx5_cmd_out_err:838:(pid 1234): CREATE_MKEY(0x200) op_mod(0x0) failed, status limits exceeded(0x8), " +
			"syndrome (0x59c8a4), err(-12)", []string{"command status 8", "errno 12"}},
		{"failed to modify QP, err -22", []string{"errno 22"}},
		{"xid error 79", []string{"Xid 79"}},
		{"XID=31", []string{"Xid 31"}},
		{"hw_synd 0/4", nil},
		{"ibv_wc_status 12", []string{"status 12"}},
		{"retry exceeded", []string{"status 12"}},
		{"RNR retry exceeded", []string{"status 13"}},
		{"errno=ENOMEM", []string{"errno 12"}},
		{"ibv_modify_qp: -22", []string{"errno 22"}},
		{"stderr 4", nil},
		{"status 24", nil},
		{"status 99999999999999999999", nil},
		{"error", nil},
		{"terror 4", nil},
		{"", nil},
		{"mlx5_core 0000:41:00.0: print_health_info:421:(pid 0): synd 0x10: High temperature",
			[]string{"health syndrome 16"}},
		{"print_health_info:520:(pid 0): synd 0x1: firmware internal error", []string{"health syndrome 1"}},
		{"synd 0x7: irisc not responding", []string{"health syndrome 7"}},
		{"synd 0x8: unrecoverable hardware error", []string{"health syndrome 8"}},
		{"synd 0x9: firmware CRC error", []string{"health syndrome 9"}},
		{"synd 0xa: ICM fetch PCI error", []string{"health syndrome 10"}},
		{"synd 0xb: HW fatal error", []string{"health syndrome 11"}},
		{"synd 0xc: async EQ buffer overrun", []string{"health syndrome 12"}},
		{"synd 0xd: EQ error", []string{"health syndrome 13"}},
		{"synd 0xe: Invalid EQ refrenced", []string{"health syndrome 14"}},
		{"synd 0xf: FFSER error", []string{"health syndrome 15"}},
		{"synd 0x12: ICM fetch PCI data poisoned error", []string{"health syndrome 18"}},
		{"synd 0x13: Trust lockdown error", []string{"health syndrome 19"}},
		{"synd 0x2: unrecognized error", nil},
		{"health syndrome 0x10", []string{"health syndrome 16"}},
		{"print_health_info:422:(pid 0): ext_synd 0x0004", nil},
		{"print_health_info:410:(pid 0): assert_var[4] 0x00000004", nil},
		{"mlx5_core 0000:41:00.0: poll_health:825:(pid 0): Fatal error 1 detected", []string{"fatal sensor 1"}},
		{"mlx5_core 0000:41:00.0: mlx5e_dump_error_cqe:1: Error cqe on cqn 0x4f8, ci 0x9f, qn 0x7ca, opcode 0xd, " +
			"syndrome 0x2, vendor syndrome 0x68", []string{"syndrome 2"}},
		{"2ERR_QP(0x507) op_mod(0x0) failed, status bad resource state(0x9), syndrome (0x4)",
			[]string{"command status 9"}},
		{"mlx5_common: DevX create QP failed errno=121 status=0x2 syndrome=0x4", []string{"command status 2"}},
		{"mlx5dv_devx_obj_create(DCT) failed, syndrome 0x4: Remote I/O error", []string{"errno 121"}},
		{"bnxt_en 0000:21:00.1 ens2f1np1: hwrm req_type 0x53 seq id 0x6fca error 0x2", []string{"HWRM error 2"}},
		{"bnxt_en 0000:19:00.0: QPLIB: cmdq[0x4b9]=0x15 status 0x5", nil},
		{"NVRM: Xid (PCI:0000:3b:00): 999, pid=1, name=x, error 12", nil},
		{"NVRM: Xid (PCI:0000:3b:00): 31, pid=12, name=a, Ch 00000008, status 12", []string{"Xid 31"}},
		{"pcieport 0000:00:1c.5:   device [8086:9d15] error status/mask=00040000/00002000",
			[]string{"AER uncorrectable 18"}},
		{"mlx5_core 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)\n" +
			"mlx5_core 0000:3b:00.0:   device [15b3:101b] error status/mask=00001080/00002000",
			[]string{"AER correctable 7", "AER correctable 12"}},
		{"mlx5_core 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer\n" +
			"mlx5_core 0000:3b:00.0:   device [15b3:101b] error status/mask=00004000/00000000",
			[]string{"AER uncorrectable 14"}},
		{"device [15b3:101b] error status/mask=00004000/00000000", []string{"AER correctable 14",
			"AER uncorrectable 14"}},
		{"DMAR: [DMA Write] Request device [04:00.0] PASID ffffffff fault addr 69974000 [fault reason 05] PTE Write " +
			"access is not set", []string{"DMAR fault reason 5"}},
		{"DMAR: [DMA Read NO_PASID] Request device [00:16.7] fault addr 0xdceff000 [fault reason 0x71] SM: Present bit",
			[]string{"DMAR fault reason 113"}},
		{"NET/OFI Request 0x7f completed with error. RC: 104. Error: 15 (Unreachable remote)",
			[]string{"EFA status 15"}},
		{"libfabric:efa:cq: err: 113, prov_errno: 13 (Unresponsive remote)", []string{"EFA status 13"}},
		{"[Wed Jul 29 14:40:27 2026] mlx5_bond_0/1: QP 51291 error: local length error (0x8e 0x0 0x0)",
			[]string{"status 1", "vendor error 142"}},
		{"mlx5_core 0002:01:00.0: query_mcia_reg failed: status: 0x3", []string{"MCIA status 3"}},
		{"mlx5_core 0002:01:00.0: mlx5_something:12:(pid 0): failed, status 4", nil},
		{"cma event RDMA_CM_EVENT_REJECTED, status 8", []string{"CM rejection 8"}},
		{"cma event RDMA_CM_EVENT_UNREACHABLE, error -110", []string{"errno 110"}},
		{"srun: error: node1: task 0: Exited with exit code 12", nil},
		{"process ended with exit status 12", nil},
		{"exit status: 4", nil},
		{"CUDA failure: cudaMalloc error 2", nil},
		{"ibwarn: mad_rpc: bad status 0xc", nil},
		{"i40e 0000:85:00.0: Setting link failed, status 5", nil},
		{"ice 0000:85:00.0: VSI 3 failed, err -12 aq_err ENOSPC", []string{"errno 12"}},
		{"nvidia 0000:01:00.0: probe with driver nvidia failed with error -1", nil},
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
		// A referenced entry must exist.
		if _, text, ok := strings.Cut(c.LookAt, `rackless explain "`); ok {
			if got := Codes(strings.TrimSuffix(text, `"`)); len(got) != 1 {
				t.Errorf("%s %s: look at %q, which is %d codes", c.Kind, c.Digits, text, len(got))
			}
		}
	}
	if kinds[CompletionStatus] != 24 || len(kinds) != 16 {
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

// A number of errno means something else of each call, and a text names the call.
func TestAnErrnoIsExplainedForItsCall(t *testing.T) {
	for text, want := range map[string]string{
		"ibv_modify_qp failed: Invalid argument (22)":                      "Of ibv_modify_qp: ",
		"Call to ibv_reg_mr_iova2 failed with error Invalid argument (22)": "Of ibv_reg_mr and ibv_reg_dmabuf_mr: ",
		"ibv_alloc_dm(dev=mlx5_2 length=2048) failed: Invalid argument":    "Of other calls: ",
		"RegisterRdmaMemoryRegion failed! size:94, errno:22":               "Of ibv_reg_mr and ibv_reg_dmabuf_mr: ",
		"ibv_create_cq failed: Cannot allocate memory (12)":                "Of ibv_create_qp and ibv_create_cq: ",
	} {
		got := Codes(text)
		if len(got) != 1 || !strings.HasPrefix(got[0].Meaning, want) || strings.Count(got[0].Meaning, "Of ") != 1 {
			t.Errorf("%s: %+v, want the meaning %q alone", text, got, want)
		}
	}
	if all, _ := FindCode(CallError, 22); strings.Count(all.Meaning, "Of ") != 3 {
		t.Errorf("errno 22 without a call: %q", all.Meaning)
	}
}
