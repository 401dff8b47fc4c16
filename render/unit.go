package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/topology"
)

// libexecDir is where the units look for the scripts. Not in /etc, where nothing is executed, nor
// in /usr, which belongs to the distribution.
func (v *view) libexecDir() string { return "/usr/local/libexec/rackless/" + v.lab }

// unitName returns the name of the unit that runs a script.
func (v *view) unitName(job string) string { return "rackless-" + v.lab + "-" + job + ".service" }

// hypervisors are the services that start guests: what the guests need has to be there before them.
// A host has one of the two.
const hypervisors = "libvirtd.service virtqemud.service libvirt-guests.service"

// A job is a script that a unit runs at boot.
type job struct {
	name        string
	description string
	what        string // what the script does, for its own header
	why         string // of the unit's order
	after       string // beside local-fs.target
	before      string
	vars        []shellVar
}

// jobs returns what is to be done at each boot, in order.
func (v *view) jobs() []job {
	lab := shellVar{"lab", v.lab, ""}
	var jobs []job
	add := func(j job) {
		j.vars = append([]shellVar{lab}, j.vars...)
		jobs = append(jobs, j)
	}
	if pages := v.pageLines(); pages != "" {
		add(job{
			name: "hugepages", description: "Hugepages on the NUMA nodes of lab %s",
			what: "Hugepages on the NUMA nodes that the lab nodes use. start asks for them, looks what the kernel " +
				"found, and fails where that is too little: " +
				"a guest with strict memory placement would not start then. It never takes pages away. stop gives " +
				"back what start added.",
			why: "Early, while memory is still in one piece. Pages from the kernel's command line are found here and " +
				"left alone.", after: "systemd-modules-load.service",
			before: hypervisors,
			vars: []shellVar{{"pages", pages, "NUMA node, size in KiB, pages: those of the lab and those that were " +
				"in use before."}},
		})
	}
	if len(v.whole) > 0 {
		add(job{
			name: "vfio", description: "Devices of lab %s with vfio-pci",
			what: "Hands the PCI functions of the lab nodes to vfio-pci by driver_override, which names functions " +
				"one by one: a list of vendor and device numbers " +
				"(vfio-pci ids=) would take every card of that model. start looks at everything before it changes " +
				"anything. stop gives the functions back to their drivers.",
			why: "Before anything starts a guest. The udev rule and the modprobe file keep other drivers away even " +
				"earlier; this unit takes what one got hold of all the same.",
			after: "systemd-udevd.service systemd-modules-load.service", before: hypervisors +
				" nvidia-persistenced.service",
			vars: []shellVar{
				{"devices", v.deviceLines(), "Address, vendor and device, as the plan found them."},
				{"rules", v.udevRules(), "The udev rule that may have bound them already, at boot."},
			},
		})
	}
	if v.hasVFs() {
		add(job{
			name: "sriov", description: "Virtual functions of lab %s",
			what: "Makes the virtual functions that the plan hands out, gives them their MAC addresses and leaves " +
				"them to vfio-pci. A change of the number goes by way of 0 " +
				"and is refused while a function is in use. stop makes the number what it was.",
			why: "After the driver of the physical functions, and after the network set those up. Before anything " +
				"starts a guest.",
			after: "systemd-udevd.service systemd-modules-load.service network.target", before: hypervisors,
			vars: v.sriovVars(),
		})
	}
	add(job{
		name: "governor", description: "Governor performance for lab %s",
		what: "Sets the frequency governor of all CPUs to performance: latencies come out up to twice as long, and " +
			"never twice the same, while frequencies follow the load. stop brings " +
			"the old governors back.",
		why:   "After the services that set governors of their own.",
		after: "systemd-modules-load.service tuned.service power-profiles-daemon.service cpufrequtils.service",
	})
	if !v.housekeeping().IsEmpty() && !v.given.IsEmpty() {
		add(v.cpusetJob())
		add(job{
			name: "irq", description: "Interrupts off the CPUs of lab %s",
			what: "Moves interrupts to housekeeping CPUs, those of a device to ones of its own NUMA node where the " +
				"host has any there. Managed interrupts " +
				"(NVMe, some NICs) cannot be moved: isolcpus=managed_irq keeps them away from the CPUs of the lab " +
				"nodes. stop moves them back.",
			why:   "After the drivers of the devices and after irqbalance, which would move them once more.",
			after: "network.target irqbalance.service tuned.service",
			vars: []shellVar{
				{"housekeeping", v.housekeeping().String(), "What the host keeps, as list, mask and one by one."},
				{"housekeeping_mask", cpuMask(v.housekeeping()), ""},
				{"housekeeping_each", eachCPU(v.housekeeping()), ""},
				{"by_node", v.housekeepingByNode(), "The same by NUMA node."},
			},
		})
	}
	return jobs
}

// housekeeping returns the CPUs of the host.
func (v *view) housekeeping() topology.CPUSet { return v.plan.Housekeeping.CPUs }

// housekeepingByNode returns a line "node CPUs" for each NUMA node with housekeeping CPUs.
func (v *view) housekeepingByNode() string {
	var lines []string
	for _, n := range v.host.NUMANodes {
		if own := n.CPUs.Intersect(v.housekeeping()); !own.IsEmpty() {
			lines = append(lines, fmt.Sprintf("%d %s", n.ID, own))
		}
	}
	return strings.Join(lines, "\n")
}

// eachCPU returns a set as numbers with spaces between them.
func eachCPU(s topology.CPUSet) string {
	var b []byte
	for c := range s.All() {
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, int64(c), 10)
	}
	return string(b)
}

// pageLines returns a line "node KiB pages" for each pool of hugepages that the host has to have.
func (v *view) pageLines() string {
	var lines []string
	for _, p := range v.plan.Hugepages {
		if p.PageBytes > 0 && p.Count+p.Held > 0 {
			lines = append(lines, fmt.Sprintf("%d %d %d", p.NUMANode, p.PageBytes>>10, p.Count+p.Held))
		}
	}
	return strings.Join(lines, "\n")
}

// pageSizes returns the sizes of hugepages that the plan uses, in bytes.
func (v *view) pageSizes() []uint64 {
	var sizes []uint64
	for _, p := range v.plan.Hugepages {
		if p.PageBytes > 0 {
			sizes = append(sizes, p.PageBytes)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// units returns the scripts, their units, and what belongs to them: drop-ins, mounts, udev rules, modprobe settings.
func (v *view) units() []Artifact {
	var scripts, units []Artifact
	for _, j := range v.jobs() {
		scripts = append(scripts, program("libexec/"+j.name+".sh", shellScript(v.made, j.what, j.vars, "prologue",
			j.name, "dispatch")))
		units = append(units, text("systemd/"+v.unitName(j.name), v.unit(j)))
	}
	units = append(units, v.hugepageMounts()...)
	if !v.given.IsEmpty() {
		units = append(units, text("systemd/irqbalance.service.d/rackless-"+v.lab+".conf",
			v.header("For irqbalance, where it runs: it leaves the CPUs of the lab nodes alone. Version 1.8 and "+
				"later read this. A value of the same name in "+
				"/etc/default/irqbalance or /etc/sysconfig/irqbalance counts more.")+
				"[Service]\nEnvironment="+unitQuote("IRQBALANCE_BANNED_CPULIST="+v.given.String())+"\n"))
	}
	return slices.Concat(scripts, units, v.earlyVFIO())
}

// unit returns the unit of a job.
func (v *view) unit(j job) string {
	var b strings.Builder
	b.WriteString(v.header("Runs libexec/" + j.name + ".sh at boot: start, and stop with systemctl stop. " + j.why +
		" Without the default dependencies it is not stopped at shutdown: there is nothing to give back then, and a " +
		"guest may still be using it."))
	b.WriteString("[Unit]\n")
	b.WriteString("Description=" + unitEscape(fmt.Sprintf(j.description, v.plan.Lab)) + "\n")
	b.WriteString("DefaultDependencies=no\n")
	b.WriteString("RequiresMountsFor=" + v.libexecDir() + "\n")
	b.WriteString(strings.TrimSpace("After=local-fs.target "+j.after) + "\n")
	if j.before != "" {
		b.WriteString("Before=" + j.before + "\n")
	}
	b.WriteString("\n[Service]\nType=oneshot\nRemainAfterExit=yes\n")
	command := v.libexecDir() + "/" + j.name + ".sh"
	b.WriteString("ExecStart=" + command + " start\nExecStop=" + command + " stop\n")
	b.WriteString("\n[Install]\nWantedBy=multi-user.target\n")
	return b.String()
}

// hugepageMounts returns a mount for each size of pages that is not the kernel's default: libvirt
// takes pages of a size only from a mount of that size, and systemd mounts only the default one, at
// /dev/hugepages.
func (v *view) hugepageMounts() []Artifact {
	var mounts []Artifact
	for _, size := range v.pageSizes() {
		if d := v.host.Memory.DefaultHuge; d != nil && *d == size {
			continue
		}
		if v.host.Memory.DefaultHuge == nil && size == 2<<20 {
			continue // the default of x86 and of arm64 with pages of 4 KiB
		}
		label, option := strconv.FormatUint(size>>20, 10)+"M", strconv.FormatUint(size>>20, 10)+"M"
		if size%(1<<30) == 0 {
			label, option = strconv.FormatUint(size>>30, 10)+"G", strconv.FormatUint(size>>30, 10)+"G"
		}
		where := "/dev/hugepages" + label
		mounts = append(mounts, text("systemd/dev-hugepages"+label+".mount",
			v.header("Mounts hugepages of "+label+" for libvirt, which takes pages of a size only from a mount of "+
				"that size. /dev/hugepages has the kernel's default size. "+
				"Restart libvirtd or virtqemud after the first mount: they look for mounts when they start.")+
				"[Unit]\nDescription=Hugepages of "+label+"\nDefaultDependencies=no\nBefore="+hypervisors+
				"\nConditionPathExists=/sys/kernel/mm/hugepages/hugepages-"+strconv.FormatUint(size>>10, 10)+"kB\n"+
				"\n[Mount]\nWhat=hugetlbfs\nWhere="+where+"\nType=hugetlbfs\nOptions=pagesize="+option+",mode=0755\n"+
				"\n[Install]\nWantedBy=multi-user.target\n"))
	}
	return mounts
}

// unitEscape returns text as the value of a setting that systemd expands: % begins a specifier, a
// backslash an escape or, at the end, a continued line (systemd.syntax(7), systemd.unit(5)).
func unitEscape(s string) string {
	return strings.NewReplacer("%", "%%", `\`, `\\`).Replace(oneLine(s))
}

// unitQuote returns one word of a setting that takes several, such as Environment=.
func unitQuote(s string) string {
	return `"` + strings.NewReplacer("%", "%%", `\`, `\\`, `"`, `\"`).Replace(oneLine(s)) + `"`
}
