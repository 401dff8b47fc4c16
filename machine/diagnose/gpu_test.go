package diagnose

import "github.com/rackless/rackless/machine/topology"

func noFabric(h *topology.Host) { without(h, "0000:41:"); without(h, "0000:61:") }

func gpuCases() []testCase {
	return []testCase{
		{id: "RL100", found: true, name: "256 MiB beside a NIC for RDMA", set: func(h *topology.Host) {
			dev(h, gpu0).BARs[1].SizeBytes = 256 << 20
		}},
		{id: "RL100", found: true, name: "256 MiB, with another GPU", set: func(h *topology.Host) {
			dev(h, gpu0).BARs[1].SizeBytes = 256 << 20
			h.GPUs[0].MemoryBytes = nil
			noFabric(h)
		}},
		{id: "RL100", found: true, name: "less than the memory", set: func(h *topology.Host) {
			h.GPUs[0].MemoryBytes = new(uint64(24 * gib))
		}},
		{id: "RL100", found: false, name: "as large as the memory"},
		{id: "RL100", found: false, name: "small memory, all of it mapped", set: func(h *topology.Host) {
			dev(h, gpu0).BARs[1].SizeBytes = 128 << 20
			h.GPUs[0].MemoryBytes = new(uint64(128 << 20))
		}},
		{id: "RL100", found: false, name: "nobody to reach it", set: func(h *topology.Host) {
			dev(h, gpu0).BARs[1].SizeBytes = 256 << 20
			noFabric(h)
			without(h, "0000:21:")
		}},

		{id: "RL101", found: true, name: "nouveau beside a NIC for RDMA", set: func(h *topology.Host) {
			h.Tenants = nil
			dev(h, gpu0).Driver = "nouveau"
		}},
		{id: "RL101", found: true, name: "nouveau on a desktop", set: func(h *topology.Host) {
			h.Tenants = nil
			dev(h, gpu0).Driver = "nouveau"
			noFabric(h)
		}},
		{id: "RL101", found: false, name: "the driver of its maker", set: nvidia},

		{id: "RL102", found: true, name: "groups are not known", set: func(h *topology.Host) {
			noIOMMU(h)
			dev(h, "0000:06:00.1").Driver = "snd_hda_intel"
		}},
		{id: "RL102", found: true, name: "groups of their own", set: func(h *topology.Host) {
			dev(h, "0000:06:00.1").Driver, dev(h, "0000:06:00.1").IOMMUGroup = "snd_hda_intel", new(50)
		}},
		{id: "RL102", found: false, name: "one group, which is RL022", set: func(h *topology.Host) {
			dev(h, "0000:06:00.1").Driver = "snd_hda_intel"
		}},
		{id: "RL102", found: false, name: "all on the host", set: func(h *topology.Host) {
			h.Tenants = nil
			dev(h, gpu0).Driver, dev(h, "0000:06:00.1").Driver = "nvidia", "snd_hda_intel"
			dev(h, "0000:06:00.1").IOMMUGroup = new(50)
		}},

		{id: "RL103", found: true, name: "the console is on the only card", set: func(h *topology.Host) {
			without(h, "0000:21:")
			h.Tenants = nil
			dev(h, gpu0).BootVGA, dev(h, gpu0).Driver = new(true), "nvidia"
		}},
		{id: "RL103", found: false, name: "there is another card", set: func(h *topology.Host) {
			h.Tenants = nil
			dev(h, gpu0).BootVGA, dev(h, gpu0).Driver = new(true), "nvidia"
		}},
		{id: "RL103", found: false, name: "the console is on the management controller", set: func(h *topology.Host) {
			without(h, "0000:21:")
		}},
		{id: "RL103", found: false, name: "it is given away already", set: func(h *topology.Host) {
			without(h, "0000:21:")
			dev(h, gpu0).BootVGA = new(true)
		}},
	}
}
