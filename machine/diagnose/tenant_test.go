package diagnose

import "github.com/rackless/rackless/machine/topology"

func pin(h *topology.Host, name string, vcpu int, list string) {
	tenant(h, name).Pins[vcpu].CPUs = cpus(list)
}

func float(h *topology.Host, vcpus int, list string) {
	for i := range h.Tenants {
		t := &h.Tenants[i]
		t.Pins, t.VCPUs, t.Floating = nil, vcpus, new(cpus(list))
	}
}

func tenantCases() []testCase {
	return []testCase{
		{id: "RL060", found: true, name: "one CPU of both", set: func(h *topology.Host) { pin(h, "vm00", 0, "8") }},
		{id: "RL060", found: true, name: "one of them is shut off", set: func(h *topology.Host) {
			pin(h, "vm00", 0, "8")
			tenant(h, "vm01").State = "shut off"
		}},
		{id: "RL060", found: true, name: "floats over the CPUs that another is pinned to", set: func(h *topology.Host) {
			tenant(h, "vm00").Pins, tenant(h, "vm00").Floating = nil, new(cpus("2-9,34-41"))
		}},
		{id: "RL060", found: true, name: "two float over fewer CPUs than they have", set: func(h *topology.Host) {
			float(h, 8, "2-9")
		}},
		{id: "RL060", found: false, name: "two float over a set with a CPU for each", set: func(h *topology.Host) {
			float(h, 4, "2-9")
		}},
		{id: "RL060", found: false, name: "CPUs of their own"},
		{id: "RL060", found: false, name: "siblings, which is RL065", set: func(h *topology.Host) {
			pin(h, "vm00", 0, "30")
			pin(h, "vm01", 0, "62")
		}},

		{id: "RL061", found: true, name: "not pinned", set: func(h *topology.Host) {
			tenant(h, "vm00").Pins, tenant(h, "vm00").Floating = nil, new(cpus("2-7,34-39"))
		}},
		{id: "RL061", found: true, name: "pinned to a node, emulator too", set: func(h *topology.Host) {
			pin(h, "vm00", 3, "2-7")
			tenant(h, "vm00").EmulatorCPUs = new(cpus("2-3"))
		}},
		{id: "RL061", found: false, name: "one to one"},
		{id: "RL061", found: false, name: "floats over CPUs that are not isolated", set: func(h *topology.Host) {
			tenant(h, "vm00").Pins, tenant(h, "vm00").Floating = nil, new(cpus("0-1,32-33"))
		}},
		{id: "RL061", found: false, name: "nothing is isolated", set: func(h *topology.Host) {
			pin(h, "vm00", 3, "2-7")
			isolate(h, "")
		}},

		{id: "RL062", found: true, name: "SMT was switched off", set: func(h *topology.Host) {
			h.CPUs.Online = cpus("0-31")
		}},
		{id: "RL062", found: true, name: "emulator on a CPU that does not exist", set: func(h *topology.Host) {
			tenant(h, "vm01").EmulatorCPUs = new(cpus("64"))
		}},
		{id: "RL062", found: true, name: "an I/O thread on a CPU that does not exist", set: func(h *topology.Host) {
			tenant(h, "vm01").IOThreadCPUs = new(cpus("64"))
		}},
		{id: "RL062", found: true, name: "floats over CPUs that do not exist", set: func(h *topology.Host) {
			tenant(h, "vm01").Pins, tenant(h, "vm01").Floating = nil, new(cpus("60-70"))
		}},
		{id: "RL062", found: false, name: "all online"},
		{id: "RL062", found: false, name: "not known what is online", set: func(h *topology.Host) {
			h.CPUs.Online = topology.CPUSet{}
		}},

		{id: "RL063", found: true, name: "two virtual CPUs more than pins", set: func(h *topology.Host) {
			tenant(h, "vm00").VCPUs = 30
		}},
		{id: "RL063", found: true, name: "pins begin at virtual CPU 1", set: func(h *topology.Host) {
			for i := range tenant(h, "vm00").Pins {
				tenant(h, "vm00").Pins[i].VCPU++
			}
		}},
		{id: "RL063", found: true, name: "those without are not there at the start", set: func(h *topology.Host) {
			tenant(h, "vm00").VCPUs, tenant(h, "vm00").Absent = 30, new(cpus("28-29"))
		}},
		{id: "RL063", found: false, name: "as many"},
		{id: "RL063", found: false, name: "none is pinned", set: func(h *topology.Host) {
			tenant(h, "vm00").Pins = nil
		}},
		{id: "RL063", found: false, name: "the number of virtual CPUs is not known", set: func(h *topology.Host) {
			tenant(h, "vm00").VCPUs = 0
		}},

		{id: "RL064", found: true, name: "on its own virtual CPUs, as the makers of the machine had it",
			set: func(h *topology.Host) {
				tenant(h, "vm00").EmulatorCPUs = new(cpus("2-7,34-39"))
			}},
		{id: "RL064", found: true, name: "I/O threads on another VM's", set: func(h *topology.Host) {
			tenant(h, "vm00").IOThreadCPUs = new(cpus("8"))
		}},
		{id: "RL064", found: true, name: "not pinned", set: func(h *topology.Host) {
			tenant(h, "vm00").EmulatorCPUs = nil
		}},
		{id: "RL064", found: true, name: "an I/O thread is not pinned", set: func(h *topology.Host) {
			tenant(h, "vm00").FreeIOThreads = 1
		}},
		{id: "RL064", found: true, name: "of a VM without pins, on another's", set: func(h *topology.Host) {
			tenant(h, "vm00").Pins, tenant(h, "vm00").EmulatorCPUs = nil, new(cpus("8"))
		}},
		{id: "RL064", found: false, name: "not told by virsh vcpuinfo", set: func(h *topology.Host) {
			h.Provenance.Kind = topology.SourceTexts
			tenant(h, "vm00").EmulatorCPUs, tenant(h, "vm00").GuestNodes = nil, nil
		}},
		{id: "RL064", found: false, name: "on housekeeping CPUs"},
		{id: "RL064", found: false, name: "the only one beside hugepages, isolated", set: func(h *topology.Host) {
			tenant(h, "vm00").EmulatorCPUs = new(cpus("0,32,55"))
		}},
		{id: "RL064", found: true, name: "two beside hugepages", set: func(h *topology.Host) {
			tenant(h, "vm00").EmulatorCPUs = new(cpus("0,32,54-55"))
		}},
		{id: "RL064", found: true, name: "beside hugepages, not isolated", set: func(h *topology.Host) {
			tenant(h, "vm00").EmulatorCPUs = new(cpus("0,32,55"))
			h.CPUs.Isolated = nil
		}},
		{id: "RL064", found: true, name: "isolated, on a NUMA node without its memory", set: func(h *topology.Host) {
			tenant(h, "vm00").EmulatorCPUs, tenant(h, "vm00").MemoryNodes = new(cpus("0,32,55")), new(cpus("0"))
		}},
		{id: "RL064", found: false, name: "not pinned, with a cpuset elsewhere", set: func(h *topology.Host) {
			tenant(h, "vm00").EmulatorCPUs, tenant(h, "vm00").Floating = nil, new(cpus("0,32"))
		}},
		{id: "RL064", found: false, name: "on CPUs of a VM that is shut off", set: func(h *topology.Host) {
			tenant(h, "vm00").EmulatorCPUs = new(cpus("8"))
			tenant(h, "vm01").State = "shut off"
		}},
		{id: "RL064", found: false, name: "virtual CPUs are not pinned either", set: func(h *topology.Host) {
			tenant(h, "vm00").Pins, tenant(h, "vm00").EmulatorCPUs = nil, nil
		}},

		{id: "RL068", found: true, name: "two virtual CPUs on one CPU", set: func(h *topology.Host) {
			pin(h, "vm00", 1, "2")
		}},
		{id: "RL068", found: true, name: "all pinned to a set that is too small", set: func(h *topology.Host) {
			for i := range tenant(h, "vm00").Pins {
				pin(h, "vm00", i, "2-7,34-39")
			}
		}},
		{id: "RL068", found: true, name: "floats over too few", set: func(h *topology.Host) {
			tenant(h, "vm00").Pins, tenant(h, "vm00").Floating = nil, new(cpus("2-7,34-39"))
		}},
		{id: "RL068", found: true, name: "more than the host has", set: func(h *topology.Host) {
			tenant(h, "vm00").Pins, tenant(h, "vm00").VCPUs = nil, 65
		}},
		{id: "RL068", found: false, name: "one to one"},
		{id: "RL068", found: false, name: "all pinned to a set with one for each", set: func(h *topology.Host) {
			for i := range tenant(h, "vm00").Pins {
				pin(h, "vm00", i, "2-7,34-39,16-23,48-55")
			}
		}},
		{id: "RL068", found: false, name: "no more than the host has at the start", set: func(h *topology.Host) {
			tenant(h, "vm00").Pins, tenant(h, "vm00").VCPUs = nil, 65
			tenant(h, "vm00").Absent = new(cpus("64"))
		}},

		{id: "RL065", found: true, name: "a thread each", set: func(h *topology.Host) {
			pin(h, "vm00", 0, "30")
			pin(h, "vm01", 0, "62")
		}},
		{id: "RL065", found: false, name: "whole cores"},
		{id: "RL065", found: false, name: "both on the same CPU, which is RL060", set: func(h *topology.Host) {
			pin(h, "vm00", 0, "30")
			pin(h, "vm01", 0, "30")
		}},
	}
}
