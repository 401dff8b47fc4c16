package texts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

// Only lines that say so end a fault; a port that never had a link has no cable.
func TestFaultsOfAKernelLog(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, log string
		want      []string // kind, device, part, count and codes
	}{
		{"command timeouts", `
mlx5_core 0000:61:00.0: wait_func_handle_exec_timeout:1104: cmd[22]: CREATE_DCT(0x710) No done completion
mlx5_core 0000:61:00.0: wait_func:1132: CREATE_DCT(0x710) timeout. Will cause a leak of a command resource`,
			[]string{"mlx5-command-timeout 0000:61:00.0  2 []"}},
		{"health of two functions", `
mlx5_core 0000:41:00.0: poll_health:471:(pid 0): device's health compromised - reached miss count
mlx5_core 0000:41:00.0: print_health_info:410:(pid 0): assert_var[0] 0x00000073
mlx5_core 0000:41:00.0: print_health_info:421:(pid 0): synd 0x10: High temperature
mlx5_core 0000:41:00.1: poll_health:471:(pid 0): device's health compromised - reached miss count`,
			[]string{"mlx5-health-lost 0000:41:00.0  1 []", "mlx5-health-syndrome 0000:41:00.0  1 [0x10]",
				"mlx5-health-lost 0000:41:00.1  1 []"}},
		{"a BAR that gets its addresses later", `pci 0000:97:00.0: BAR 1: no space for [mem size 0x400000000 64bit pref]
pci 0000:97:00.0: BAR 1: failed to assign [mem size 0x400000000 64bit pref]
pci 0000:97:00.0: BAR 3 [mem size 0x2000000 64bit pref]: can't assign; no space
pci 0000:97:00.0: BAR 1: assigned [mem 0xd0000000-0xdfffffff 64bit pref]`,
			[]string{"bar-no-space 0000:97:00.0 BAR 3 1 []"}},
		{"AER with its bits", `pcieport 0000:3a:00.0: AER: Multiple Corrected error received: 0000:3b:00.0
mlx5_core 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)
mlx5_core 0000:3b:00.0:   device [15b3:101b] error status/mask=00001080/00002000
mlx5_core 0000:3b:00.0:    [ 7] BadDLLP
mlx5_core 0000:3b:00.0:    [12] Timeout               (First)
pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0
mlx5_core 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
mlx5_core 0000:3b:00.0:   device [15b3:101b] error status/mask=00000001/00002000
mlx5_core 0000:3b:00.0:    [ 0] RxErr`, []string{"aer-corrected 0000:3b:00.0  2 [7 12 0]"}},
		{"Xids and the bus", `NVRM: Xid (PCI:0000:3b:00): 31, pid=1, Ch 00000008
NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.
NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.`,
			[]string{"xid 0000:3b:00.0  2 [31 79]", "device-lost 0000:3b:00.0  1 []"}},
		{"a GPU off the bus, in three lines", `[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.`,
			[]string{"device-lost 0000:b3:00.0  1 []"}},
		{"the IOMMU names no domain", `DMAR: DRHD: handling fault status reg 3
DMAR: [DMA Write NO_PASID] Request device [05:00.0] fault addr 0xeb61a000 [fault reason 0x05] PTE`,
			[]string{"dmar-fault 0000:05:00.0  1 []"}},
		{"a cable that is plugged later", `mlx5_core 0000:01:00.0: Port module event: module 0, Cable unplugged
mlx5_core 0000:01:00.1: Port module event: module 1, Cable unplugged
mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged`,
			[]string{"mlx5-module-unplugged 0000:01:00.1 module 1 1 []"}},
		{"a link that went down, one that came back, and one that never was", `mlx5_core 0000:01:00.0 a: Link up
mlx5_core 0000:01:00.1 b: Link up
mlx5_core 0000:01:00.0 a: Link down
mlx5_core 0000:01:00.1 b: Link down
mlx5_core 0000:02:00.0 c: Link down
mlx5_core 0000:01:00.1 b: Link up
mlx5_core 0000:02:00.1: PCIe slot: not enough MMIO resources for SR-IOV`,
			[]string{"link-down 0000:01:00.0  1 []", "sriov-no-mmio 0000:02:00.1  1 []"}},
	} {
		for _, stamp := range []string{"[  131.207065] ", "[Wed Jul 29 14:40:27 2026] ", "node07: [   12.5] ",
			"Aug 10 11:43:24 server kernel: ", "2026-10-03T05:56:38-0400 h kernel: ", ""} {
			log := stamp + strings.ReplaceAll(strings.TrimSpace(test.log), "\n", "\n"+stamp) + "\n"
			h, _ := read(t, log)
			var got []string
			for _, m := range h.Kernel.Messages {
				got = append(got, fmt.Sprint(m.Kind, " ", m.Device, " ", m.Part, " ", m.Count, " ", m.Codes))
				if len(m.Line) > 170 || strings.Contains(m.Line, "2026") {
					t.Errorf("%s: line %q", test.name, m.Line)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%s, after %q: got %q, want %q", test.name, stamp, got, test.want)
			}
		}
	}
}

func TestMessagesOfALogAreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 2 * maxFaults {
		fmt.Fprintf(&b, "mlx5_core %04x:01:00.0: not enough MMIO resources for SR-IOV\n", i)
	}
	h, _ := read(t, b.String())
	if len(h.Kernel.Messages) != maxFaults {
		t.Errorf("%d messages", len(h.Kernel.Messages))
	}
	if empty := (&topology.Host{}); !empty.Empty() || h.Empty() {
		t.Error("a log with faults is no empty machine")
	}
}

func TestPrioritiesOfAPort(t *testing.T) {
	t.Parallel()
	h, _ := read(t, "$ mlnx_qos -i eth0\nPriority trust state: dscp\ndscp2prio mapping:\n\tprio:0 dscp:07,06,\n"+
		"\tprio:3 dscp:26,08,\nPFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n"+
		"\tenabled     0   0   0   1   0   0   0   0   \n\tbuffer      0   0   0   1   0   0   0   0   \n")
	q := h.NICs[0].Ports[0].QoS
	if got := fmt.Sprint(q.Trust, q.PFC, q.Buffers, q.DSCP); got != "dscp[3] [0 0 0 1 0 0 0 0] map[6:0 7:0 8:3 26:3]" {
		t.Errorf("got %s", got)
	}
	h, _ = read(t, "$ ethtool -S eth0 | grep prio\n rx_prio0_bytes: 900\n rx_prio3_bytes: 0\n "+
		"rx_prio0_buf_discard: 7\n")
	if got := fmt.Sprint(h.NICs[0].Ports[0].Flow); got != "map[rx_prio0_buf_discard:7 rx_prio0_bytes:900 "+
		"rx_prio3_bytes:0]" {
		t.Errorf("got %s", got)
	}
	for _, text := range []string{"$ cma_roce_tos -d mlx5_0\n106\n",
		"$ cat /sys/class/infiniband/mlx5_0/tc/1/traffic_class\nGlobal tclass=106\n"} {
		h, _ = read(t, text)
		if tos := h.NICs[0].Devices[0].Ports[0].TOS; tos == nil || *tos != 106 {
			t.Errorf("%q: %v", text, tos)
		}
	}
	for name, want := range map[string]string{"rx_prio3_pause": "3 pause true", "tx_prio0_bytes": "0 bytes true",
		"rx_prio5_buf_discard": "5 drops true", "rx_pfc_ena_frames_pri4": "4 pause true",
		"rx_bytes_pri2": "2 bytes true", "tx_priority_1_xoff.nic": "1 pause true",
		"port.rx_priority_6_xoff": "6 pause true", "rx_global_pause": "0  false",
		"rx_prio0_pause_duration": "0  false", "rx_bytes": "0  false"} {
		prio, of, ok := topology.FlowOf(name)
		if got := fmt.Sprint(prio, " ", of, " ", ok); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
