package message

import "github.com/rackless/rackless/internal/lazyregexp"

// Drivers that share messages.
const (
	mlx5  = "mlx5_core mlx5_ib mlx5_pci"
	mlx4  = "mlx4_core mlx4_en mlx4_ib"
	bnxt  = "bnxt_en bnxt_re"
	intel = "ice i40e iavf igb igc ixgbe ixgbevf e1000e fm10k irdma idpf"
)

// The first of kernelForms that matches counts. Sources: the files that messages.md names.
var kernelForms = []form{
	{kind: "mlx5-command-timeout", drivers: mlx5,
		text: lazyregexp.New(`\w+\(0x[0-9a-f]+\) (?:(?:Async, )?timeout\b|` +
			`No done completion|canceled on out of queue timeout)`)},
	{kind: "mlx5-hot", drivers: mlx5, text: lazyregexp.New(`High temperature on sensors`)},
	{kind: "mlx5-health-lost", drivers: mlx5, text: lazyregexp.New(`device's health compromised`)},
	{kind: "mlx5-health-syndrome", drivers: mlx5,
		text: lazyregexp.New(`(?:print_health_info\S* .*|^|: )synd (?P<code>0x[1-9a-f][0-9a-f]*): [A-Za-z]`)},
	{kind: "mlx5-health-info", drivers: mlx5, detail: true,
		text: lazyregexp.New(`print_health_info:|\bassert_(?:var\[\d+\]|exit_ptr|callra) 0x|\bext_synd 0x|` +
			`\birisc_index \d`)},
	{kind: "mlx5-fatal-sensor", drivers: mlx5, text: lazyregexp.New(`Fatal error (?P<code>\d+) detected`)},
	{kind: "mlx5-recovery-failed", drivers: mlx5,
		text: lazyregexp.New(`health recovery flow aborted|(?i:health recovery failed|failed to recover|` +
			`reset failed|recovery (?:has )?failed)`)},
	{kind: "mlx5-device-error", drivers: mlx5, text: lazyregexp.New(`handling bad device here|` +
		`mlx5_(?:enter_error_state|error_sw_reset|pci_err_detected):|device is in error state|` +
		`[Ii]nternal error state|pci_err_detected.*[Dd]evice state`)},
	{kind: "mlx5-no-init", drivers: mlx5, text: lazyregexp.New(`Firmware over \d+ MS in (?:pre-)?initializing|` +
		`failed to execute initializing segment`)},
	{kind: "mlx5-slot-power", drivers: mlx5, ends: true, text: lazyregexp.New(`PCIe slot advertised sufficient power`)},
	{kind: "mlx5-slot-power", drivers: mlx5, text: lazyregexp.New(`Detected insufficient power on the PCIe slot`)},
	{kind: "mlx5-module-error", drivers: mlx5, text: lazyregexp.New(`Port module event\[error\]: (?P<part>module ` +
		`\d+)|` +
		`Port module event: (?P<part2>module \d+), (?:Cable|Module) error`)},
	{kind: "mlx5-module-unplugged", drivers: mlx5,
		text: lazyregexp.New(`Port module event: (?P<part>module \d+), (?:Cable|Module) unplugged`)},
	{kind: "mlx5-module-unplugged", drivers: mlx5, ends: true,
		text: lazyregexp.New(`Port module event: (?P<part>module \d+), (?:Cable|Module) plugged`)},
	{kind: "cqe-error", drivers: mlx5, text: lazyregexp.New(`[Ee]rror cqe on cqn|unexpected CQE error syndrome|` +
		`\berror CQE\b.*syndrome`)},
	{kind: "mlx4-internal-error", drivers: mlx4, text: lazyregexp.New(`Internal error detected|` +
		`command 0x[0-9a-f]+ timed out|Internal error mark was detected|[Ff]ail to reset HCA`)},

	{kind: "bnxt-command-timeout", drivers: bnxt, text: lazyregexp.New(`Error \(timeout: \d+\) msg|` +
		`Abandoning msg \{|Resp cmpl intr err msg|QPLIB: cmdq\[\S*\]=\S+ (?:timedout|send failed)`)},
	{kind: "bnxt-firmware", drivers: bnxt, text: lazyregexp.New(`Firmware not responding|Firmware (?:heartbeat stop|` +
		`reset (?:aborted|timeout|failed))|Firmware (?:fatal|non-fatal|exception) |[Ff]irmware fatal reset event|` +
		`FW (?:crash|in error|reset failed)|QPLIB:.*(?:firmware stall|FW stall)`)},
	{kind: "device-hot", drivers: bnxt, text: lazyregexp.New(`(?i)temperature.*(?:threshold|exceed|critical)`)},
	{kind: "bnxt-re-command", drivers: bnxt, text: lazyregexp.New(`QPLIB: cmdq\[\S*\]=\S+ status 0x[1-9a-f]`)},
	{kind: "module-refused", drivers: bnxt, text: lazyregexp.New(`(?i:unqualified|unsupported).*module|` +
		`module is shutdown|TX is disabled`)},

	{kind: "irdma-error", drivers: "ice i40e irdma idpf", text: lazyregexp.New(`irdma\d*: (?:HMC Error|.*Cmd Error|` +
		`.*completion_err=[1-9])|\bCQP\b.*(?:timed? ?out|error|fail)|HMC Error|requesting (?:a )?reset|abnormal ` +
		`ae_id|` +
		`Request(?:ing)? [Rr]eset`)},
	{kind: "device-lost", text: lazyregexp.New(`PCIe link lost|device lost from bus|[Aa]dapter removed|` +
		`(?i:device (?:is )?lost\b)|(?i:fallen off the bus)|device inaccessible|card not present on bus|` +
		`PCI (?:slot|channel) is (?:unavailable|offline)`)},
	{kind: "intel-mdd", drivers: intel, text: lazyregexp.New(`Malicious (?:Driver Detection )?[Ee]vent`)},
	{kind: "tx-hang", text: lazyregexp.New(`Detected (?:Tx|Hardware) Unit Hang|(?i:tx[_ ]timeout)[ :,]|` +
		`TX timeout (?:detected|on queue)`)},
	{kind: "intel-reset", drivers: intel, text: lazyregexp.New(`(?:PF |CORE |Global )?[Rr]eset failed|` +
		`rebuild(?: AdminQ)? failed|recovery (?:mode (?:detected|is enabled)|unsuccessful)|[Uu]nrecoverable|` +
		`ECC [Ee]rror|init_adminq failed|[Hh]ardware (?:failure|error)`)},
	{kind: "module-refused", drivers: intel, text: lazyregexp.New(`unsupported (?:SFP\+?|module)|` +
		`(?:module's )?power requirements exceed`)},

	{kind: "vfio-rmrr", text: lazyregexp.New(`ineligible for IOMMU domain attach due to platform RMRR|` +
		`1:1 IOMMU mapping, rejecting`)},
	{kind: "vfio-bar", drivers: "vfio-pci", text: lazyregexp.New(`(?P<part>BAR \d+).*can't reserve`)},
	{kind: "vfio-restore", drivers: "vfio-pci", text: lazyregexp.New(`reset recovery - restoring BARs`)},
	{kind: "vfio-rom", drivers: "vfio-pci", text: lazyregexp.New(`Invalid PCI ROM (?:header|data) signature`)},
	{kind: "vfio-busy", drivers: "vfio-pci", text: lazyregexp.New(`blocked until (?:device is )?released|` +
		`Device is currently in use`)},
	{kind: "vfio-pending", drivers: "vfio-pci", text: lazyregexp.New(`timed out waiting for pending transaction`)},

	{kind: "sriov-no-mmio", text: lazyregexp.New(`not enough MMIO resources for SR-IOV`)},
	{kind: "sriov-no-bus", text: lazyregexp.New(`SR-IOV: bus number out of range|` +
		`can't enable \d+ VFs \(bus .* out of range`)},
	{kind: "vf-bar-no-space", text: lazyregexp.New(`(?P<part>VF BAR \d+) \[mem[^\]]*\]: (?:can't assign; no space|` +
		`failed to assign)|(?P<part2>BAR (?:[789]|1[0-2])): (?:no space for|failed to assign) \[mem`)},
	{kind: "vf-bar-no-space", ends: true, text: lazyregexp.New(`(?P<part>VF BAR \d+) \[mem[^\]]*\]: assigned|` +
		`(?P<part2>BAR (?:[789]|1[0-2])): assigned \[mem`)},
	{kind: "bar-no-space", text: lazyregexp.New(`(?:^|[^F] )(?P<part>BAR [0-5]) \[mem[^\]]*\]: ` +
		`(?:can't assign; no space|failed to assign)|` +
		`(?P<part2>BAR [0-5]): (?:no space for|failed to assign|can't assign) \[?mem`)},
	{kind: "bar-no-space", ends: true, text: lazyregexp.New(`(?:^|[^F] )(?P<part>BAR [0-5]) \[mem[^\]]*\]: assigned|` +
		`(?P<part2>BAR [0-5]): assigned \[mem`)},
	{kind: "bar-unassigned", text: lazyregexp.New(`can't enable device: (?P<part>BAR \d+)|` +
		`(?P<part2>BAR \d+).*not (?:assigned|claimed)|[Ff]ailed to (?:enable|assign|ioremap|map) .*\bBAR|` +
		`cannot (?:map|remap|ioremap) .*(?:BAR|memory)|failed to assign pci resource`)},

	{kind: "aer-recovery-failed", text: lazyregexp.New(`AER: (?i:device recovery failed|.*reset failed)`)},
	{kind: "dpc", text: lazyregexp.New(`DPC: (?:containment event|unmasked uncorrectable|ERR_FATAL|ERR_NONFATAL)`)},
	{kind: "aer-fatal", text: lazyregexp.New(`PCIe Bus Error: severity=(?:Uncorrected|Uncorrectable) \(Fatal\)`)},
	{kind: "aer-nonfatal", text: lazyregexp.New(`PCIe Bus Error: severity=(?:Uncorrect(?:ed|able)\b)`)},
	{kind: "aer-corrected", text: lazyregexp.New(`PCIe Bus Error: severity=Correct(?:ed|able)`)},
	{kind: "aer-fatal", detail: true,
		text: lazyregexp.New(`AER: .*Uncorrect(?:ed|able) \(Fatal\) error.*?(?P<dev>` + pciAddress + `)`)},
	{kind: "aer-nonfatal", detail: true,
		text: lazyregexp.New(`AER: .*Uncorrect(?:ed|able) .*error.*?(?P<dev>` + pciAddress + `)`)},
	{kind: "aer-corrected", detail: true,
		text: lazyregexp.New(`AER: .*Correct(?:ed|able) error.*?(?P<dev>` + pciAddress + `)`)},
	{kind: "aer-status", detail: true,
		text: lazyregexp.New(`error status/mask=(?P<code>[0-9a-f]{8})/|aer_status: 0x(?P<code2>[0-9a-f]{8})|` +
			`^ *\[ *(?P<code3>\d+)\] [A-Za-z]`)},

	{kind: "hotplug-down", text: lazyregexp.New(`Slot\([\w-]+\): (?:Link Down|Card not present)`)},
	{kind: "power-state", text: lazyregexp.New(`(?:Unable to|can't|Refused to) change power state|` +
		`refused to change power state`)},
	{kind: "not-ready", text: lazyregexp.New(`not ready \d+ms after [\w ]+; giving up|` +
		`failed to (?:reset|resume) .*(?:-25|-110)\b`)},
	{kind: "link-training", text: lazyregexp.New(`Data Link Layer Link Active not set|retraining failed|` +
		`broken device, retraining|Link Active state .*not reached`)},

	{kind: "amd-vi-fault", text: lazyregexp.New(`AMD-Vi: Event logged \[IO_PAGE_FAULT`)},
	{kind: "amdgpu-reset", drivers: "amdgpu radeon", text: lazyregexp.New(`GPU reset begin|ring \S+ timeout|` +
		`GPU (?:mode\d )?reset\(?\d*\)? failed|[1-9]\d* uncorrectable hardware errors`)},
	{kind: "probe-failed", text: lazyregexp.New(`probe with driver \S+ failed with error -\d+|` +
		`(?:mlx5_)?(?:init_one|load_one|probe_one).*failed with (?:error code )?-?\d+`)},
	{kind: "link-down", text: lazyregexp.New(`(?i:(?:^|: |NIC )link (?:is )?down)\b`)},
	{kind: "link-down", ends: true, text: lazyregexp.New(`(?i:(?:^|: |NIC )link (?:is )?up)\b`)},
}

// Every message of ownForms has one of origins.
var origins = []string{"NVRM:", "DMAR:", "AMD-Vi:", "arm-smmu", "NETDEV WATCHDOG", "vfio_iommu_type1", "nvme nvme",
	" QP ", "probe of ", "INTR-REMAP:", "*ERROR*", "AER:", "SXid"}

// ownForms name their device themselves, or none.
var ownForms = []form{
	{kind: "xid", text: lazyregexp.New(`NVRM: (?:GPU at )?Xid \(PCI:(?P<dev>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})` +
		`(?:\.[0-7])?\)?: (?P<code>\d+)`)},
	{kind: "sxid-fatal", text: lazyregexp.New(`SXid \(PCI:(?P<dev>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}` +
		`(?:\.[0-7])?)\): (?P<code>\d+), Fatal`)},
	{kind: "sxid", text: lazyregexp.New(`SXid \(PCI:(?P<dev>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)\): ` +
		`(?P<code>\d+)`)},
	{kind: "device-lost", text: lazyregexp.New(`NVRM: (?:The NVIDIA )?GPU (?:at PCI:)?` +
		`(?P<dev>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?).*fallen off the bus|NVRM: fallen off the bus`)},
	{kind: "bar-unassigned", text: lazyregexp.New(`NVRM: (?P<part>BAR\d) is 0M @ 0x0 ` +
		`\(PCI:(?P<dev>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)\)`)},
	{kind: "nvidia-init", text: lazyregexp.New(`NVRM: (?:GPU ` +
		`)?(?P<dev>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]).*` +
		`(?:RmInitAdapter failed|rm_init_adapter failed)|NVRM: (?:RmInitAdapter|rm_init_adapter) failed|` +
		`NVRM: The NVIDIA probe routine failed|NVRM: This PCI I/O region assigned to your NVIDIA device is invalid`)},
	{kind: "dmar-interrupt", text: lazyregexp.New(`INTR-REMAP:? ?\]? Request device \[\[?(?P<dev>` + pciAddress +
		`)\]?.*fault(?: reason (?:0x)?(?P<code>[0-9a-f]+))?`)},
	{kind: "dmar-fault", text: lazyregexp.New(`DMAR: (?:DMAR:)?\[DMA (?:Read|Write)[^\]]*\] Request device ` +
		`\[(?P<dev>` + pciAddress + `)\].*fault (?:addr|reason)`)},
	{kind: "amd-vi-fault", text: lazyregexp.New(`AMD-Vi: Event logged \[IO_PAGE_FAULT device=(?P<dev>` +
		pciAddress + `)`)},
	{kind: "amd-vi-error", text: lazyregexp.New(`AMD-Vi: (?:Event logged \[(?:(?:ILLEGAL|INVALID|DEV_TAB|PAGE_TAB|` +
		`COMMAND|IOTLB|RMP)_\w+)(?:.*device=(?P<dev>` + pciAddress + `))?|Completion-Wait loop timed out)`)},
	{kind: "smmu-fault", text: lazyregexp.New(`arm-smmu\S* \S+: (?:event: F_\w+ client: (?P<dev>\S+)|` +
		`Unhandled context fault|event 0x(?:0[1-9a-f]|1[0-9a-f]) received)`)},
	{kind: "tx-hang", text: lazyregexp.New(`NETDEV WATCHDOG: (?:CPU: \d+: )?(?P<dev>\S+) \([^)]*\): transmit queue`)},
	{kind: "vfio-remap", text: lazyregexp.New(`vfio_iommu_type1_attach_group: No interrupt remapping`)},
	{kind: "nvme-dead", text: lazyregexp.New(`nvme (?P<dev>nvme\d+): (?:controller is down; will reset|` +
		`Device not ready; aborting|Removing after probe failure|Disabling device after reset failure)`)},
	{kind: "qp-error", text: lazyregexp.New(`(?:^|[\s\]])(?P<dev>[a-z][\w-]*)/\d+: QP \d+ error: \S`)},
	{kind: "probe-failed", text: lazyregexp.New(`probe of (?P<dev>` + pciAddress + `) failed with error -\d+`)},
	{kind: "amdgpu-reset", text: lazyregexp.New(`\*ERROR\* ring \S+ timeout`)},
	{kind: "aer-corrected", detail: true,
		text: lazyregexp.New(`AER: .*Correct(?:ed|able) error.*?(?P<dev>` + pciAddress + `)`)},
}
