package diagnose

import (
	"github.com/rackless/rackless/machine/topology"
)

func logCase(id, name string, found bool, messages ...topology.KernelMessage) testCase {
	return testCase{id: id, name: name, found: found, set: func(h *topology.Host) { h.Kernel.Messages = messages }}
}

func logCases() []testCase {
	say := func(kind, device, line string, count int, codes ...string) topology.KernelMessage {
		return topology.KernelMessage{Kind: kind, Device: device, Line: line, Count: count, Codes: codes}
	}
	timeout := say("mlx5-command-timeout", nic0, "mlx5_core 0000:41:00.0: wait_func:1132:(pid 1): CREATE_DCT(0x710) "+
		"timeout. Will cause a leak of a command resource", 5)
	hot := say("mlx5-health-syndrome", nic0, "mlx5_core 0000:41:00.0: print_health_info:421:(pid 0): synd 0x10: High "+
		"temperature", 1, "0x10")
	return []testCase{
		logCase("RL120", "firmware that does not answer, and its health report", true, timeout, hot,
			say("mlx5-fatal-sensor", "0000:41:00.1", "mlx5_core 0000:41:00.1: poll_health:1: Fatal error 1 detected", 1,
				"1")),
		logCase("RL120", "a refused command", true, say("bnxt-re-command", "0000:19:00.0",
			"bnxt_en 0000:19:00.0: QPLIB: cmdq[0x4b9]=0x15 status 0x5", 2)),
		logCase("RL120", "a message of another check", false, say("xid", gpu0, "NVRM: Xid (PCI:0000:06:00): 79", 1,
			"79")),
		logCase("RL120", "a message that this version does not know", false, say("new", nic0, "new", 1)),

		logCase("RL121", "a hot card", true, say("mlx5-hot", nic0, "High temperature on sensors", 3)),
		logCase("RL121", "a slot without power", true, say("mlx5-slot-power", nic0, "Detected insufficient power", 1)),
		logCase("RL121", "no message", false),

		logCase("RL122", "a bad module", true, say("mlx5-module-error", nic0, "Cable error, High Temperature", 1)),
		logCase("RL122", "a lost link", true, say("link-down", nic0, "Link down", 4)),
		logCase("RL122", "no cable", true, say("mlx5-module-unplugged", nic0, "Cable unplugged", 1)),
		logCase("RL122", "no message", false),

		logCase("RL123", "a BAR without addresses", true, say("bar-no-space", gpu0, "BAR 1: no space for", 2)),
		logCase("RL123", "BARs of virtual functions without addresses", true, say("vf-bar-no-space", nic0,
			"VF BAR 0: failed to assign", 2)),
		logCase("RL123", "no message", false),

		logCase("RL124", "fatal", true, say("aer-fatal", gpu0, "severity=Uncorrected (Fatal)", 1, "4")),
		logCase("RL124", "uncorrected", true, say("aer-nonfatal", gpu0, "severity=Uncorrected (Non-Fatal)", 1, "14")),
		logCase("RL124", "many corrected", true, say("aer-corrected", gpu0, "severity=Corrected", 12, "0", "12")),
		logCase("RL124", "one corrected", true, say("aer-corrected", gpu0, "severity=Corrected", 1)),
		logCase("RL124", "no message", false),

		logCase("RL125", "link down", true, say("hotplug-down", "0000:00:01.1", "pciehp: Slot(1): Link Down", 1)),
		logCase("RL125", "retrained", true, say("link-training", "0000:00:01.1", "broken device, retraining", 1)),
		logCase("RL125", "no message", false),

		logCase("RL126", "off the bus, after a fault of a program", true, say("xid", gpu0, "NVRM: Xid "+
			"(PCI:0000:06:00): 31",
			3, "31", "79")),
		logCase("RL126", "of a program", true, say("xid", gpu0, "NVRM: Xid (PCI:0000:06:00): 31", 1, "31")),
		logCase("RL126", "contained", true, say("xid", gpu0, "NVRM: Xid (PCI:0000:06:00): 94", 1, "94")),
		logCase("RL126", "of a number that is not known", true, say("xid", gpu1, "NVRM: Xid (PCI:0000:21:00): 998", 1,
			"998")),
		logCase("RL126", "no message", false),

		logCase("RL127", "a blocked access", true, say("dmar-fault", gpu0, "DMAR: [DMA Write]", 9)),
		logCase("RL127", "a blocked interrupt", true, say("dmar-interrupt", gpu0, "DMAR: [INTR-REMAP]", 1)),
		logCase("RL127", "no message", false),

		logCase("RL128", "a BAR that is held", true, say("vfio-bar", gpu0, "BAR 1: can't reserve", 1),
			say("vfio-remap", "", "No interrupt remapping support", 1)),
		logCase("RL128", "a device that is held", true, say("vfio-busy", gpu0, "blocked until released by user", 1)),
		logCase("RL128", "no message", false),

		logCase("RL129", "a queue pair of an RDMA device", true, say("qp-error", "mlx5_0",
			"mlx5_0/1: QP 1 error: local length error (0x8e 0x0 0x0)", 3)),
		logCase("RL129", "no message", false),
	}
}
