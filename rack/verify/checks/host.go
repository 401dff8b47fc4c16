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

// Host compares a host, just read and not nil, with the plan. A fact that the host does not report makes its check
// Unknown, never OK.
//
// run is the current activity of the host. If it is nil, as for a snapshot, the checks that need it are left out. own
// are the processes of the lab's virtual machines; Domains checks their threads.
func Host(p *plan.Plan, h *topology.Host, run *facts.Running, own ...int) []finding.Finding {
	c := newHostCheck(p, h, run, own)
	for _, check := range []func(){
		c.cpus, c.isolation, c.noHzFull, c.kernelArgs, c.threads, c.interrupts, c.workqueues, c.governor,
		c.hugepages, c.hugetlbfs, c.iommu, c.devices, c.virtualFunctions,
	} {
		check()
	}
	coded(c.out)
	slices.SortStableFunc(c.out, func(a, b finding.Finding) int { return cmp.Compare(a.Code, b.Code) })
	return c.out
}

// Journal checks that rackless prepare's journal lists all of its changes. strays are missing in it, and err is an
// error of reading it.
func Journal(strays []string, err error) finding.Finding {
	c := sheet{subject: hostSubject}
	f := finding.Finding{ID: IDJournal, Want: "all that rackless prepare has made is in its journal", Have: "all of it",
		Evidence: "the journal of rackless prepare, files with its name, driver_override, /proc/cmdline",
		Fix: "restore the journal and its head from a backup; or undo it by hand: remove the files, echo > " +
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

type hostCheck struct {
	p   *plan.Plan
	h   *topology.Host
	run *facts.Running
	own []int

	lab    topology.CPUSet // CPUs of virtual CPUs
	whole  topology.CPUSet // lab and its siblings
	groups grouping        // isolation by control groups
	tree   *topology.Tree
	sheet
}

func newHostCheck(p *plan.Plan, h *topology.Host, run *facts.Running, own []int) *hostCheck {
	h = cmp.Or(h, &topology.Host{})
	c := &hostCheck{p: p, h: h, run: run, own: own, tree: topology.NewTree(h),
		sheet: sheet{subject: hostSubject}} // a plan's names may be empty
	c.lab = p.NodeCPUs()
	// A core belongs to the lab once one of its threads runs a virtual CPU, because siblings share its caches and
	// units.
	c.whole = c.lab.Union(h.WholeCores(c.lab))
	if run != nil {
		c.groups = group(run.Cgroups, c.whole)
	}
	return c
}

func (c *hostCheck) unread(id, subject, want, evidence string) {
	c.unknown(finding.Finding{ID: id, Subject: subject, Want: want, Evidence: evidence}, "not known",
		"run rackless verify on the host itself, as root; "+evidence+" has to be readable there")
}

const (
	hostSubject = "host"
	fileCPU     = "/sys/devices/system/cpu/"
)

// list shows an empty set.
func list(s topology.CPUSet) string {
	if s.IsEmpty() {
		return "none"
	}
	return s.String()
}

func few(all []string, most int) string {
	if len(all) > most {
		return words.Names(all, most)
	}
	return strings.Join(all, ", ")
}

// cpus requires every CPU of the plan: libvirt refuses to start a domain if one is offline.
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

// kernelArgs compares the command line with the plan. If an argument's effect exists without it, the effect counts, and
// the finding names its source: a kernel may be built with the IOMMU on or with passthrough for host devices, and
// control groups isolate CPUs without a reboot.
//
// Arguments with a check for their effect are left to that check.
func (c *hostCheck) kernelArgs() {
	byGroups := c.isolatedByGroups()
	for _, arg := range c.p.KernelArgs {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "isolcpus", "nohz_full", "hugepagesz", "hugepages", "default_hugepagesz":
			continue // their effects are checked
		case "rcu_nocbs":
			if byGroups && len(c.asked(name)) == 0 {
				continue // isolation without a reboot cannot have it
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
			// More CPUs are as good: the callbacks of the planned ones are offloaded.
			for _, a := range asked {
				have, err2 := topology.ParseCPUSet(a)
				ok = ok || err == nil && err2 == nil && want.IsSubsetOf(have)
			}
		case "intel_iommu":
			// A kernel built with it on needs no argument.
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

// hostDomain returns an IOMMU group that the host keeps, and its type of DMA translation.
func (c *hostCheck) hostDomain() (id int, kind string) {
	for _, g := range c.h.IOMMU.Groups {
		// Groups of VFIO are translated regardless of the command line, and bridges have no DMA of their own.
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

// governor checks only the lab's cores, because the host may save power on others. Without frequency scaling none is
// right; it is unknown if the files could not be read.
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

// links are by device address.
func (c *hostCheck) links() map[string]finding.Finding {
	wrong := map[string]finding.Finding{}
	for _, f := range diagnose.Host(c.h) {
		// RL002 has too few lanes, RL003 is too slow. If both apply, the first is used.
		if f.ID == "RL002" || f.ID == "RL003" {
			if _, two := wrong[f.Subject]; !two {
				wrong[f.Subject] = f
			}
		}
	}
	return wrong
}
