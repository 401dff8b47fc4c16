package diagnose

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

func isolate(h *topology.Host, list string) { h.CPUs.Isolated = new(cpus(list)) }

func interrupt(h *topology.Host, number int, list, device string) {
	h.IRQs = append(h.IRQs, topology.IRQ{Number: number, CPUs: cpus(list), Count: new(uint64(1000 + number)),
		Device: device})
}

func govern(h *topology.Host, governor string) {
	for i := range h.Cores {
		h.Cores[i].Governor = governor
	}
}

func cpuCases() []testCase {
	return []testCase{
		{id: "RL050", found: true, name: "the list forgot the second threads", set: func(h *topology.Host) {
			isolate(h, "2-29")
		}},
		{id: "RL050", found: false, name: "whole cores"},
		{id: "RL050", found: false, name: "the sibling is offline", set: func(h *topology.Host) {
			isolate(h, "31")
			h.Cores[31].CPUs = cpus("31")
		}},
		{id: "RL050", found: false, name: "not known what is isolated", set: func(h *topology.Host) {
			h.CPUs.Isolated = nil
		}},

		{id: "RL051", found: true, name: "drive and NIC", set: func(h *topology.Host) {
			interrupt(h, 91, "2", "nvme0q2")
			interrupt(h, 92, "8-9", "")
			for i := range 5 {
				interrupt(h, 200+i, "10", "eno1-TxRx-0")
			}
		}},
		{id: "RL051", found: false, name: "interrupt of a device in a virtual machine, by its action",
			set: func(h *topology.Host) {
				interrupt(h, 91, "2", "vfio-msix[3](0000:06:00.0)")
			}},
		{id: "RL051", found: false, name: "interrupt of a device in a virtual machine, by its function"},
		{id: "RL051", found: false, name: "may be served on an isolated CPU or on another",
			set: func(h *topology.Host) {
				interrupt(h, 91, "0-2", "nvme0q2")
			}},
		{id: "RL051", found: false, name: "never served", set: func(h *topology.Host) {
			h.IRQs = append(h.IRQs, topology.IRQ{Number: 91, CPUs: cpus("2"), Count: new(uint64(0))},
				topology.IRQ{Number: 92, CPUs: cpus("2")})
		}},

		{id: "RL052", found: true, name: "nothing is isolated", set: func(h *topology.Host) { isolate(h, "") }},
		{id: "RL052", found: true, name: "nohz_full lacks CPUs", set: func(h *topology.Host) {
			h.CPUs.NoHzFull = new(cpus("2-29"))
		}},
		{id: "RL052", found: true, name: "all CPUs asked for", set: func(h *topology.Host) {
			withCmdline(h, "nohz_full=8-N")
			h.CPUs.NoHzFull = new(cpus("8-31"))
		}},
		{id: "RL052", found: false, name: "in force"},
		{id: "RL052", found: false, name: "isolated from interrupts only", set: func(h *topology.Host) {
			withCmdline(h, "isolcpus=managed_irq,2-29")
			isolate(h, "")
		}},
		{id: "RL052", found: false, name: "the boot CPU keeps the time", set: func(h *topology.Host) {
			withCmdline(h, "nohz_full=all")
			h.CPUs.NoHzFull = new(cpus("1-63"))
		}},
		{id: "RL052", found: false, name: "CPUs that the machine does not have", set: func(h *topology.Host) {
			withCmdline(h, "isolcpus=2-29,34-61,64-127")
		}},
		{id: "RL052", found: false, name: "more isolated than asked for", set: func(h *topology.Host) {
			withCmdline(h, "quiet")
		}},
		{id: "RL052", found: false, name: "a list that nobody understands", set: func(h *topology.Host) {
			withCmdline(h, "isolcpus=2-x")
			isolate(h, "")
		}},

		{id: "RL053", found: true, name: "bare isolcpus=", set: func(h *topology.Host) {
			withCmdline(h, "isolcpus= quiet")
		}},
		{id: "RL053", found: true, name: "flags and no list", set: func(h *topology.Host) {
			withCmdline(h, "isolcpus=managed_irq,domain, rcu_nocbs=")
		}},
		{id: "RL053", found: false, name: "lists"},
		{id: "RL053", found: false, name: "a parameter that may be empty", set: func(h *topology.Host) {
			withCmdline(h, "root= isolcpus=2-29,34-61")
		}},
		{id: "RL053", found: false, name: "rcu_nocbs without a value stands for all", set: func(h *topology.Host) {
			withCmdline(h, "rcu_nocbs")
		}},

		{id: "RL054", found: true, name: "powersave on half of the cores of a host", set: func(h *topology.Host) {
			for i := range 16 {
				h.Cores[i].Governor = "powersave"
			}
			h.Cores[16].Governor = "schedutil"
		}},
		{id: "RL054", found: true, name: "laptop", from: laptop},
		{id: "RL054", found: false, name: "performance"},
		{id: "RL054", found: false, name: "no frequency scaling", set: func(h *topology.Host) { govern(h, "") }},

		{id: "RL055", found: true, name: "off", set: func(h *topology.Host) { h.CPUs.SMT = "forceoff" }},
		{id: "RL055", found: false, name: "a processor that has none", set: func(h *topology.Host) {
			h.CPUs.SMT = "notsupported"
		}},

		{id: "RL056", found: true, name: "2047 bytes", set: func(h *topology.Host) {
			withCmdline(h, "x="+strings.Repeat("1", 2045))
		}},
		{id: "RL056", found: false, name: "2046 bytes", set: func(h *topology.Host) {
			withCmdline(h, "x="+strings.Repeat("1", 2044))
		}},
		{id: "RL056", found: false, name: "an architecture with another limit", set: func(h *topology.Host) {
			withCmdline(h, "x="+strings.Repeat("1", 2045))
			h.System.Arch = "s390x"
		}},
	}
}

func TestIsolationListsAreTakenApart(t *testing.T) {
	t.Parallel()
	v := newView(&topology.Host{CPUs: topology.CPUStates{Present: new(cpus("0-7"))}})
	for value, want := range map[string]string{
		"2-5":                    "[] 2-5 true",
		"domain,managed_irq,2-5": "[domain managed_irq] 2-5 true",
		"nohz,io_queue,7":        "[nohz io_queue] 7 true",
		"all":                    "[] 0-7 true",
		"2-N":                    "[] 2-7 true",
		"0-N:2":                  "[] 0,2,4,6 true",
		"":                       "[]  true",
		"domain":                 "[domain]  true",
		"domain,":                "[domain]  true",
		"odd,2":                  "[]  false",
		"5-2":                    "[]  false",
	} {
		flags, set, known := v.isolationList(value)
		if got := strings.TrimSpace(strings.Join([]string{"[" + strings.Join(flags, " ") + "]", set.String(),
			map[bool]string{true: "true", false: "false"}[known]}, " ")); got != want {
			t.Errorf("isolationList(%q) = %s, want %s", value, got, want)
		}
	}
}
