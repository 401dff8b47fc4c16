package message

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryKindIsExplainedAndHasAForm(t *testing.T) {
	t.Parallel()
	have := map[string]bool{}
	for _, f := range slices.Concat(kernelForms, ownForms, programForms) {
		f.text() // panics if it is wrong
		inKernel := !slices.ContainsFunc(programForms, func(p form) bool { return p.kind == f.kind })
		if k, ok := Find(f.kind); !ok {
			t.Errorf("%s has a form and no explanation", f.kind)
		} else if inKernel != (k.Check != "") {
			t.Errorf("%s is of check %q", f.kind, k.Check)
		}
		if !f.ends {
			have[f.kind] = true
		}
	}
	names := map[string]bool{}
	for _, k := range Kinds() {
		if !have[k.Name] {
			t.Errorf("%s has no form", k.Name)
		}
		if names[k.Name] {
			t.Errorf("%s stands twice", k.Name)
		}
		names[k.Name] = true
		if !slices.Contains([]string{"error", "warning", "info"}, k.Severity) || k.Short == "" ||
			k.LookAt == "" && k.Severity != "info" ||
			!strings.HasSuffix(k.Meaning, ".") || k.Source == "" {
			t.Errorf("%s is not explained: %+v", k.Name, k)
		}
	}
}

var stamps = []string{"", "[  131.207065] ", "<3>[14280.445220] ", "[Wed Jul 29 14:40:27 2026] ", "node07: [   12.5] ",
	"Aug 10 11:43:24 server kernel: ", "2026-10-03T05:56:38-0400 h kernel: ", "kernel: [  1.000000] "}

func TestMessagesOfAKernelAreRecognised(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, want, device, part, code string }{
		{line: "mlx5_core 0000:61:00.0: wait_func:1132:(pid 141181): CREATE_DCT(0x710) timeout. Will cause a leak of " +
			"a command resource", want: "mlx5-command-timeout", device: "0000:61:00.0"},
		{line: "mlx5_core 0000:61:00.0: cmd_work_handler:1: cmd[22]: DESTROY_EQ(0x302) Async, timeout. Will cause a " +
			"leak of a command resource", want: "mlx5-command-timeout", device: "0000:61:00.0"},
		{line: "mlx5_core 0000:61:00.0: wait_func_handle_exec_timeout:1104:(pid 141183): cmd[22]: CREATE_DCT(0x710) " +
			"No done completion", want: "mlx5-command-timeout", device: "0000:61:00.0"},
		{line: "mlx5_core 0000:41:00.0: poll_health:471:(pid 0): device's health compromised - reached miss count",
			want: "mlx5-health-lost", device: "0000:41:00.0"},
		{line: "mlx5_core 0000:41:00.0: poll_health:825:(pid 0): Fatal error 3 detected", want: "mlx5-fatal-sensor",
			device: "0000:41:00.0", code: "3"},
		{line: "mlx5_core 0000:41:00.0: print_health_info:421:(pid 0): synd 0x10: High temperature",
			want: "mlx5-health-syndrome", device: "0000:41:00.0", code: "0x10"},
		{line: "mlx5_core 0000:41:00.0: print_health_info:422:(pid 0): ext_synd 0x0000", want: "mlx5-health-info",
			device: "0000:41:00.0"},
		{line: "mlx5_core 0000:61:00.0: temp_warn:171:(pid 0): High temperature on sensors with bit set 0 " +
			"8000000000000001", want: "mlx5-hot", device: "0000:61:00.0"},
		{line: "mlx5_core 0000:61:00.1: mlx5_health_try_recover:381:(pid 1): health recovery flow aborted, PCI reads " +
			"still not working", want: "mlx5-recovery-failed", device: "0000:61:00.1"},
		{line: "mlx5_core 0000:01:00.0: Port module event: module 0, Cable unplugged", want: "mlx5-module-unplugged",
			device: "0000:01:00.0", part: "module 0"},
		{line: "mlx5_core 0000:01:00.0: Port module event[error]: module 1, Cable error, Power budget exceeded",
			want: "mlx5-module-error", device: "0000:01:00.0", part: "module 1"},
		{line: "mlx5_core 0000:01:00.0: mlx5_pcie_event:304:(pid 9): Detected insufficient power on the PCIe slot " +
			"(27W).",
			want: "mlx5-slot-power", device: "0000:01:00.0"},
		{line: "mlx5_core 0000:b0:00.0: not enough MMIO resources for SR-IOV", want: "sriov-no-mmio",
			device: "0000:b0:00.0"},
		{line: "mlx5_core 0000:b0:00.0: probe with driver mlx5_core failed with error -110", want: "probe-failed",
			device: "0000:b0:00.0"},
		{line: "mlx5_core: probe of 0000:b0:00.0 failed with error -12", want: "probe-failed", device: "0000:b0:00.0"},
		{line: "pci 0000:97:00.0: BAR 1 [mem size 0x400000000 64bit pref]: can't assign; no space",
			want: "bar-no-space", device: "0000:97:00.0", part: "BAR 1"},
		{line: "pci 0000:97:00.0: BAR 1: no space for [mem size 0x400000000 64bit pref]", want: "bar-no-space",
			device: "0000:97:00.0", part: "BAR 1"},
		{line: "pci 0000:97:00.0: BAR 1: failed to assign [mem size 0x400000000 64bit pref]", want: "bar-no-space",
			device: "0000:97:00.0", part: "BAR 1"},
		{line: "pci 0006:03:00.0: VF BAR 0 [mem size 0x02000000 64bit pref]: failed to assign",
			want: "vf-bar-no-space", device: "0006:03:00.0", part: "VF BAR 0"},
		{line: "pci 0000:03:00.0: BAR 7: failed to assign [mem size 0x02000000 64bit pref]", want: "vf-bar-no-space",
			device: "0000:03:00.0", part: "BAR 7"},
		{line: "pcieport 0000:00:1c.0: BAR 13: no space for [io  size 0x1000]"},
		{line: "pci 0000:93:00.0: bridge window [mem size 0x3018000000 64bit pref]: failed to assign"},
		{line: "pci 0002:01:00.0: BAR 4 [io  size 0x0020]: can't assign; no space"},
		{line: "pci 0000:01:00.0: ROM [mem size 0x00080000 pref]: can't assign; no space"},
		{line: "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			want: "xid", device: "0000:3b:00", code: "79"},
		{line: "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
			want: "sxid", device: "0000:c1:00.0", code: "12028"},
		{line: "mlx5_core 0000:01:00.1: wait_func_handle_exec_timeout: ACCESS_REG(0x805) timeout",
			want: "mlx5-command-timeout", device: "0000:01:00.1"},
		{line: "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", want: "device-lost", device: "0000:3b:00.0"},
		{line: "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x65:1401)", want: "nvidia-init",
			device: "0000:3b:00.0"},
		{line: "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:01:00.0)", want: "bar-unassigned", device: "0000:01:00.0",
			part: "BAR1"},
		{line: "pcieport 0000:00:1c.5: AER: Multiple Corrected error received: 0000:3b:00.0", want: "aer-corrected",
			device: "0000:3b:00.0"},
		{line: "pcieport 0000:00:1c.5: AER: Uncorrected (Fatal) error message received from 0000:3b:00.0",
			want: "aer-fatal", device: "0000:3b:00.0"},
		{line: "mlx5_core 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, " +
			"(Requester ID)", want: "aer-nonfatal", device: "0000:3b:00.0"},
		{line: "mlx5_core 0000:3b:00.0:   device [15b3:101b] error status/mask=00000001/00002000", want: "aer-status",
			device: "0000:3b:00.0", code: "00000001"},
		{line: "pcieport 0000:3a:00.0: AER: device recovery failed", want: "aer-recovery-failed",
			device: "0000:3a:00.0"},
		{line: "pcieport 0000:3a:00.0: DPC: containment event, status:0x1f01 source:0x0000", want: "dpc",
			device: "0000:3a:00.0"},
		{line: "pcieport 0000:3a:00.0: pciehp: Slot(1): Link Down", want: "hotplug-down", device: "0000:3a:00.0"},
		{line: "pciehp 0000:3a:00.0:pcie004: Slot(1-1): Link Down", want: "hotplug-down", device: "0000:3a:00.0"},
		{line: "igc 0000:70:00.0 (unnamed net_device) (uninitialized): PCIe link lost, device now detached",
			want: "device-lost", device: "0000:70:00.0"},
		{line: "amdgpu 0000:03:00.0: amdgpu: device lost from bus!", want: "device-lost", device: "0000:03:00.0"},
		{line: "vfio-pci 0000:3b:00.0: not ready 65535ms after FLR; giving up", want: "not-ready",
			device: "0000:3b:00.0"},
		{line: "vfio-pci 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
			want: "device-lost", device: "0000:3b:00.0"},
		{line: "vfio-pci 0000:06:00.0: BAR 1: can't reserve [mem 0xc0000000-0xcfffffff 64bit pref]", want: "vfio-bar",
			device: "0000:06:00.0", part: "BAR 1"},
		{line: "vfio-pci 0000:06:00.0: vfio_ecap_init: hiding ecap 0x19@0x900"},
		{line: "vfio_iommu_type1_attach_group: No interrupt remapping support.  Use the module param " +
			`"allow_unsafe_interrupts" to enable VFIO IOMMU support on this platform`, want: "vfio-remap"},
		{line: "DMAR: [DMA Write NO_PASID] Request device [05:00.0] fault addr 0xeb61a000 [fault reason 0x05] PTE " +
			"Write " +
			"access is not set", want: "dmar-fault", device: "05:00.0"},
		{line: "DMAR: [DMA Write] Request device [04:00.0] PASID ffffffff fault addr 69974000 [fault reason 05] PTE " +
			"Write access is not set", want: "dmar-fault", device: "04:00.0"},
		{line: "DMAR: [INTR-REMAP] Request device [f0:1f.7] fault index 0x0 [fault reason 0x25] Blocked a " +
			"compatibility format interrupt request", want: "dmar-interrupt", device: "f0:1f.7"},
		{line: "AMD-Vi: Event logged [IO_PAGE_FAULT device=0a:00.0 domain=0x001d address=0x000000000637c000 " +
			"flags=0x0000]",
			want: "amd-vi-fault", device: "0a:00.0"},
		{line: "xhci_hcd 0000:47:00.1: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0032 address=0xfffffff00000 " +
			"flags=0x0000]", want: "amd-vi-fault", device: "0000:47:00.1"},
		{line: "AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=c4:00.0 address=0x1234]", want: "amd-vi-error",
			device: "c4:00.0"},
		{line: "bnxt_en 0000:19:00.0 ens1f0np0: Firmware not responding, status: 0x8000", want: "bnxt-firmware",
			device: "0000:19:00.0"},
		{line: "bnxt_en 0000:19:00.0: QPLIB: cmdq[0x41d]=0x3 timedout (20000)msec", want: "bnxt-command-timeout",
			device: "0000:19:00.0"},
		{line: "bnxt_en 0000:19:00.0: QPLIB: cmdq[0x4b9]=0x15 status 0x5", want: "bnxt-re-command",
			device: "0000:19:00.0"},
		{line: "bnxt_en 0000:19:00.0 eno1: Error (timeout: 500) msg {0x41 0x1a} len:0", want: "bnxt-command-timeout",
			device: "0000:19:00.0"},
		{line: "ice 0000:85:00.0 irdma0: HMC Error", want: "irdma-error", device: "0000:85:00.0"},
		{line: "ice 0000:85:00.0: PF reset failed, -15", want: "intel-reset", device: "0000:85:00.0"},
		{line: "i40e 0000:85:00.0: Malicious Driver Detection event 0x02 on TX queue 3 PF number 0x00 VF number 0x10",
			want: "intel-mdd", device: "0000:85:00.0"},
		{line: "ixgbe 0000:03:00.0 enp3s0: Detected Tx Unit Hang", want: "tx-hang", device: "0000:03:00.0"},
		{line: "NETDEV WATCHDOG: ens1f0 (mlx5_core): transmit queue 3 timed out 5012 ms", want: "tx-hang",
			device: "ens1f0"},
		{line: "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", want: "nvme-dead",
			device: "nvme0"},
		{line: "mlx5_bond_0/1: QP 51291 error: local length error (0x8e 0x0 0x0)", want: "qp-error",
			device: "mlx5_bond_0"},
		{line: "mlx5_core 0000:61:00.0 ens1f0np0: Link down", want: "link-down", device: "0000:61:00.0"},
		{line: "mlx5_core 0000:61:00.0 ens1f0np0: Link up", want: "link-down (ends)", device: "0000:61:00.0"},
		{line: "pci 0000:97:00.0: BAR 1 [mem 0x6300c0000000-0x6300c1ffffff 64bit pref]: assigned",
			want: "bar-no-space (ends)", device: "0000:97:00.0", part: "BAR 1"},
		{line: "pci 0000:97:00.0: BAR 1: assigned [mem 0xd0000000-0xdfffffff 64bit pref]", want: "bar-no-space (ends)",
			device: "0000:97:00.0", part: "BAR 1"},
		{line: "mlx5_core 0000:61:00.0: mlx5_function_setup:1237:(pid 812): Firmware over 120000 MS in " +
			"pre-initializing state, aborting", want: "mlx5-no-init", device: "0000:61:00.0"},
		{line: "mlx5_core 0000:61:00.0: wait_fw_init:199:(pid 812): Waiting for FW initialization, timeout abort " +
			"in 100s"},
		{line: "mlx5_core 0000:61:00.0: firmware version: 20.31.1014"},
		{line: "mlx5_core 0000:61:00.0: E-Switch: Disable: mode(LEGACY)"},
		{line: "mlx5_core 0000:61:00.0: Port module event: module 0, Cable plugged",
			want: "mlx5-module-unplugged (ends)", device: "0000:61:00.0", part: "module 0"},
		{line: "pcieport 0000:00:1c.0: AER: enabled with IRQ 122"},
		{line: "pcieport 0000:00:1c.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+"},
		{line: "pcieport 0000:00:1c.0: pciehp: Slot #4 AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ LLActRep+"},
		{line: "DMAR: Host address width 46"},
		{line: "AMD-Vi: Interrupt remapping enabled"},
		{line: "nvidia 0000:3b:00.0: enabling device (0140 -> 0142)"},
	} {
		for _, stamp := range stamps {
			got, ok := Kernel(stamp + tt.line)
			name := got.Kind
			if got.Ends {
				name += " (ends)"
			}
			if ok != (tt.want != "") || ok && (name != tt.want || got.Device != tt.device || got.Part != tt.part ||
				tt.code != "" && got.Code != tt.code) {
				t.Errorf("%q: got %+v %v, want %s of %q", stamp+tt.line, got, ok, tt.want, tt.device)
			}
			if ok && strings.Contains(tt.line, "NVRM: ") && !strings.HasPrefix(got.Text, "NVRM: ") {
				t.Errorf("%q: text %q", tt.line, got.Text)
			}
			if ok && (strings.Contains(got.Text, "kernel") || strings.HasPrefix(got.Text, "[")) {
				t.Errorf("%q: text has its stamp: %q", stamp+tt.line, got.Text)
			}
		}
		if got := Explain(tt.line); !strings.HasSuffix(tt.want, "(ends)") && (len(got) > 0) != (tt.want != "") ||
			len(got) > 0 && got[0].Name != tt.want {
			t.Errorf("%q: explained as %v, want %q", tt.line, got, tt.want)
		}
	}
}

func TestMessagesOfProgramsAreExplained(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ want, line string }{
		{"memlock", "[1668693753.723360] [node1:1188480:0] ib_log.c:246  UCX  ERROR mlx5_0: ibv_create_cq() failed: " +
			"Cannot allocate memory. Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)"},
		{"ucx-no-transport", "[1668693753.724299] [node1:1188481:0] ucp_context.c:1014 UCX  WARN  transport 'ib' is " +
			"not available, please use one or more of: cma, mm"},
		{"ucx-no-transport", "UCX  WARN  transports 'rc_x','ud_x' are not available, please use one or more of: tcp"},
		{"ucx-no-device", "UCX  WARN  network device 'mlx5_9:1' is not available, please use one or more of: " +
			"'eth0'(tcp)"},
		{"nccl-gdr-off", "NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)"},
		{"nccl-gdr-on", "NCCL INFO GPU Direct RDMA Enabled for GPU 7 / HCA 0 (distance 6 <= 7), read 0"},
		{"nccl-ofi-tcp", "NCCL INFO NET/OFI Selected Provider is tcp"},
		{"nccl-socket", "NCCL INFO Using network Socket"},
		{"nccl-no-ib", "NCCL INFO NET/IB : No device found."},
		{"nccl-shm", "NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"},
		{"rccl-iommu", `NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instability`},
		{"qp-create", "Unable to create QP."},
		{"qp-create", "Failed to create QP."},
		{"rtr-failed", "Failed to modify QP 1234 to RTR"},
		{"rtr-failed", "Unable to Connect the HCA's through the link"},
		{"rtr-timeout", "Failed to modify QP to RTR, check mtu, gid, peer lid, peer qp num: Connection timed out " +
			"[110]"},
		{"numa-bind", "qemu-kvm: cannot bind memory to host NUMA nodes: Operation not permitted"},
		{"numa-bind", "qemu-kvm: mbind: Invalid argument"},
		{"vcpus-above", "qemu-kvm: -accel kvm: warning: Number of hotpluggable cpus requested (208) exceeds the " +
			"recommended cpus supported by KVM (56)"},
		{"topology-affinity", "Pod admission failed: TopologyAffinityError: Resources cannot be allocated with " +
			"Topology locality"},
		{"no-hugepages", "qemu-system-x86_64: unable to map backing store for guest RAM: Cannot allocate memory"},
		{"vfio-not-viable", "vfio 0000:06:00.0: group 12 is not viable"},
		{"mr-failed", "libfabric:6413:1::efa:mr:efa_mr_reg_impl():849<warn> Unable to register MR of 146800640 " +
			"bytes: Bad address"},
		{"mr-failed", "libfabric:1:core:core:cuda_gdrcopy_dev_register():320<warn> gdr_pin_buffer failed! error: 22"},
		{"mr-failed", "[application][error] RegisterRdmaMemoryRegion failed! addr:0x7f12, size:943718400, errno:22"},
		{"slurm-gres-sockets", "Reason=gres/gpu GRES autodetected core affinity 0-15 on node n1 doesn't match socket " +
			"boundaries. (Socket 0 is cores 0-31)."},
		{"slurm-gres-twice", "node2 slurmd[57977]: fatal: gres.conf duplicate records for gpu"},
		{"slurm-no-library", "fatal: We were configured to autodetect nvml functionality, but we weren't able to " +
			"find that lib when Slurm was configured"},
		{"slurm-gres-file", "error: Discarding the following config-only GPU due to lack of File specification:"},
		{"slurm-gres-cores", "error: _node_config_validate: gres/gpu: invalid GRES core specification " +
			"(48-63,176-191) on node node01"},
		{"esxi-mmio", "2022-04-22T03:04:15.771Z| vmx| | I005: PCIPassthru: total number of pages needed (4206594) " +
			"exceeds limit (917504), failing"},
		{"esxi-hotplug", "2024-01-01T00:00:00 cpu98:2097948)PCIEHP: 1496: 0000:a8:01.0: hotplug slot:0x1 " +
			"(0000:a9:00.0) Adapter removed."},
		{"esxi-mmio", "WARNING: PCI: 0000:a8:01.0: not enough MMIO"},
		{"esxi-power-on", "Module 'DevicePowerOn' power on failed."},
		{"", "cat: x: Invalid argument"},
		{"", "the transport is fine"},
	} {
		got := ""
		if kinds := Explain(tt.line); len(kinds) > 0 {
			got = kinds[0].Name
		}
		if got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.line, got, tt.want)
		}
		if m, ok := Kernel(tt.line); ok {
			t.Errorf("%q of a program is taken for %+v of a kernel", tt.line, m)
		}
	}
}

func FuzzKernel(f *testing.F) {
	f.Add("[1.0] mlx5_core 0000:61:00.0: poll_health:471:(pid 0): device's health compromised - reached miss count")
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := Kernel(line); ok {
			if _, found := Find(m.Kind); !found || !strings.Contains(line, m.Text) {
				t.Errorf("%q: %+v", line, m)
			}
		}
		Explain(line)
	})
}

// A form without words is tried for every line of a log.
func TestEveryFormHasAWord(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][][]string{"kernel": kernelWords(), "own": ownWords(),
		"program": programWords()} {
		for i, words := range list {
			if len(words) == 0 || shortest(words) < 2 {
				t.Errorf("form %d of %s: words %q", i, name, words)
			}
		}
	}
}
