package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// Host compares a host, as it was just read and not nil, with what the plan wants it to be. It is pure.
//
// run is what runs on it; nil where that is not known, as of a snapshot: checks that rest on it
// alone are then left out. own are the processes of the lab's own virtual machines, whose threads
// Domains judges.
//
// A fact that the host does not tell makes its check Unknown, never OK.
func Host(p *plan.Plan, h *topology.Host, run *facts.Running, own ...int) []finding.Finding {
	c := newHostCheck(p, h, run, own)
	for _, check := range []func(){
		c.cpus, c.isolation, c.noHzFull, c.kernelArgs, c.threads, c.interrupts, c.workqueues, c.governor,
		c.hugepages, c.hugetlbfs, c.iommu, c.devices, c.virtualFunctions,
	} {
		check()
	}
	coded(c.out)
	// By code, so that equal checks stand together; their subjects stay in the order of the plan.
	slices.SortStableFunc(c.out, func(a, b finding.Finding) int { return cmp.Compare(a.Code, b.Code) })
	return c.out
}

// Journal says whether the journal of rackless prepare knows of all that prepare has made on the host: strays are what
// it does not know of, and err is why it cannot be read.
func Journal(strays []string, err error) finding.Finding {
	c := sheet{subject: hostSubject}
	f := finding.Finding{ID: IDJournal, Want: "all that rackless prepare has made is in its journal", Have: "all of it",
		Evidence: "the journal of rackless prepare, files with its name, driver_override, /proc/cmdline",
		Fix: "restore the journal and its head from a backup; or take it back by hand: remove the files, echo > " +
			"driver_override, take the arguments from the boot loader, and reboot"}
	switch {
	case err != nil:
		f.Have, f.Fix = strings.ReplaceAll(err.Error(), "\n", "; "), "do what the error says"
	case len(strays) > 0:
		f.Have = "not in it: " + strings.Join(strays, ", ")
	}
	c.judge(err == nil && len(strays) == 0, f)
	return coded(c.out)[0]
}

// A hostCheck is one comparison.
type hostCheck struct {
	p   *plan.Plan
	h   *topology.Host
	run *facts.Running
	own []int

	lab    topology.CPUSet // of virtual CPUs
	whole  topology.CPUSet // those, and their siblings
	groups grouping        // what control groups keep apart
	tree   *topology.Tree
	sheet
}

func newHostCheck(p *plan.Plan, h *topology.Host, run *facts.Running, own []int) *hostCheck {
	h = cmp.Or(h, &topology.Host{})
	c := &hostCheck{p: p, h: h, run: run, own: own, tree: topology.NewTree(h),
		sheet: sheet{subject: hostSubject}} // a plan from a file may name nothing
	c.lab = p.NodeCPUs()
	// A core is taken whole as soon as one of its threads runs a virtual CPU: what runs on the sibling
	// shares its caches and units.
	c.whole = c.lab.Union(h.WholeCores(c.lab))
	if run != nil {
		c.groups = group(run.Cgroups, c.whole)
	}
	return c
}

// unread adds a finding on what could not be read.
func (c *hostCheck) unread(id, subject, want, evidence string) {
	c.unknown(finding.Finding{ID: id, Subject: subject, Want: want, Evidence: evidence}, "not known",
		"run rackless verify on the host itself, as root; "+evidence+" has to be readable there")
}

const (
	hostSubject = "host"
	fileCPU     = "/sys/devices/system/cpu/"
)

// list writes a set so that an empty one can be seen.
func list(s topology.CPUSet) string {
	if s.IsEmpty() {
		return "none"
	}
	return s.String()
}

// few joins the first of many.
func few(all []string, most int) string {
	if len(all) > most {
		return words.Names(all, most)
	}
	return strings.Join(all, ", ")
}

// cpus asks for every CPU of the plan: those of virtual CPUs, of emulators and of I/O threads. libvirt refuses to
// start a domain of which one is offline.
func (c *hostCheck) cpus() {
	const file = fileCPU + "online"
	all := c.lab
	for i := range c.p.Nodes {
		all = all.Union(c.p.EmulatorPin(&c.p.Nodes[i], c.h)).Union(c.p.Nodes[i].IOThreadCPUs)
	}
	if c.h.CPUs.Online.IsEmpty() {
		c.unread(IDHostCPUs, hostSubject, list(all), file)
		return
	}
	f := finding.Finding{ID: IDHostCPUs, Have: list(c.h.CPUs.Online), Want: list(all) + " among them", Evidence: file}
	missing := all.Difference(c.h.CPUs.Online)
	if !missing.IsEmpty() {
		f.Have += "; missing: " + missing.String()
		f.Fix = fmt.Sprintf("echo 1 > %scpu%d/online, and so on for %s; if the machine has changed, make a new plan",
			fileCPU, missing.Min(), missing)
	}
	c.judge(missing.IsEmpty(), f)
}

// kernelArgs compares the command line with the arguments of the plan. What an argument is for can be had without it:
// a kernel may be built with the IOMMU on or with devices of the host passed through, and control groups isolate CPUs
// without a reboot. Then the effect counts, and the finding says where it was seen. Arguments whose effect has a check
// of its own are left to that one, which judges what is in force and not what was asked for.
func (c *hostCheck) kernelArgs() {
	byGroups := c.isolatedByGroups()
	for _, arg := range c.p.KernelArgs {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "isolcpus", "nohz_full", "hugepagesz", "hugepages", "default_hugepagesz":
			continue // what came of them is checked
		case "rcu_nocbs":
			if byGroups && len(c.asked(name)) == 0 {
				continue // the way without a reboot cannot have it
			}
		}
		f := finding.Finding{ID: IDKernelArgs, Subject: arg, Want: arg, Evidence: "/proc/cmdline",
			Fix: "start the kernel with " + arg}
		if c.h.Kernel.Cmdline == nil {
			c.unread(IDKernelArgs, arg, arg, "/proc/cmdline")
			continue
		}
		asked := c.asked(name)
		f.Have = "not there"
		if len(asked) > 0 {
			f.Have = name + "=" + strings.Join(asked, " "+name+"=")
		}
		ok := slices.Contains(asked, value)
		switch name {
		case "rcu_nocbs":
			want, err := topology.ParseCPUSet(value)
			// More CPUs than the plan names are as good: callbacks of the planned ones are offloaded.
			for _, a := range asked {
				have, err2 := topology.ParseCPUSet(a)
				ok = ok || err == nil && err2 == nil && want.IsSubsetOf(have)
			}
		case "intel_iommu":
			// A kernel that was built with it on needs no argument.
			if on := c.h.IOMMU.Enabled; !ok && on != nil && *on {
				ok, f.Have, f.Evidence = true, "the IOMMU is on without it", "/sys/class/iommu"
			}
		case "iommu", "iommu.passthrough":
			if id, kind := c.hostDomain(); !ok && kind == "identity" {
				ok, f.Have, f.Evidence = true, "devices of the host are passed through without it",
					fmt.Sprintf("/sys/kernel/iommu_groups/%d/type", id)
			}
		}
		c.judge(ok, f)
	}
}

// asked returns the values that a parameter has on the command line.
func (c *hostCheck) asked(name string) []string {
	if c.h.Kernel.Cmdline == nil {
		return nil
	}
	var values []string
	for _, word := range cmdline.Split(*c.h.Kernel.Cmdline) {
		if key, value, _ := cmdline.Cut(word); cmdline.Key(key) == name {
			values = append(values, value)
		}
	}
	return values
}

// hostDomain returns an IOMMU group that the host keeps, and how its devices reach memory.
func (c *hostCheck) hostDomain() (id int, kind string) {
	for _, g := range c.h.IOMMU.Groups {
		// Groups of VFIO are translated however the kernel was started, and bridges have no DMA of their own:
		// neither tells of the host's own devices.
		ours := slices.ContainsFunc(g.Devices, func(a topology.PCIAddr) bool {
			d := c.tree.Device(a)
			return d != nil && (topology.IsVFIO(d.Driver) || d.IsBridge())
		})
		if !ours && g.Type != "" {
			return g.ID, g.Type
		}
	}
	return 0, ""
}

// governor looks at the cores of the lab alone: on the others the host may save power. No governor at all is right on a
// machine that scales no frequencies, and unknown on one whose files could not be read.
func (c *hostCheck) governor() {
	evidence := fileCPU + "cpu*/cpufreq/scaling_governor"
	other := map[string]topology.CPUSet{}
	known := topology.CPUSet{}
	for i := range c.h.Cores {
		core := &c.h.Cores[i]
		if !core.CPUs.Overlaps(c.lab) || core.Governor == "" {
			continue
		}
		known = known.Union(core.CPUs)
		if core.Governor != "performance" {
			other[core.Governor] = other[core.Governor].Union(core.CPUs)
		}
	}
	f := finding.Finding{ID: IDGovernor, Want: "performance", Evidence: evidence,
		Fix: "cpupower frequency-set -g performance"}
	if known.IsEmpty() {
		// A kernel that scales no frequencies has no such files; inspect lists those that it could not read.
		if slices.ContainsFunc(c.h.Unread, func(u topology.Unread) bool {
			return strings.Contains(u.Path, "scaling_governor")
		}) || len(c.h.Cores) == 0 {
			c.unread(IDGovernor, hostSubject, f.Want, evidence)
			return
		}
		f.Have = "the kernel scales no frequencies"
		c.judge(true, f)
		return
	}
	f.Have = "performance"
	if len(other) > 0 {
		var words []string
		for name, cpus := range other {
			words = append(words, name+" on "+cpus.String())
		}
		slices.Sort(words)
		f.Have = strings.Join(words, ", ")
	}
	c.judge(len(other) == 0, f)
}

// iommu matters to plans that give devices away.
func (c *hostCheck) iommu() {
	if !slices.ContainsFunc(c.p.Nodes, func(n plan.Node) bool { return len(n.Devices) > 0 }) {
		return
	}
	const evidence = "/sys/class/iommu, /sys/kernel/iommu_groups"
	if c.h.IOMMU.Enabled == nil {
		c.unread(IDIOMMU, hostSubject, "on", evidence)
		return
	}
	have := "off"
	if *c.h.IOMMU.Enabled {
		have = "on"
		if len(c.h.IOMMU.Units) > 0 {
			have += ": " + few(c.h.IOMMU.Units, 4)
		}
	}
	c.judge(*c.h.IOMMU.Enabled, finding.Finding{ID: IDIOMMU, Have: have, Want: "on", Evidence: evidence,
		Fix: "turn on VT-d, AMD-Vi or SMMU in the firmware, on Intel start the kernel with intel_iommu=on; rackless " +
			"explain RL020 has more"})
}

// links returns what is wrong with the links of the host's devices, by address of the device.
func (c *hostCheck) links() map[string]finding.Finding {
	wrong := map[string]finding.Finding{}
	for _, f := range diagnose.Host(c.h) {
		// RL002 is a link with fewer lanes than it could have, RL003 one that is slower. Where a link is
		// both, the first in diagnose's order stands for it.
		if f.ID == "RL002" || f.ID == "RL003" {
			if _, two := wrong[f.Subject]; !two {
				wrong[f.Subject] = f
			}
		}
	}
	return wrong
}
