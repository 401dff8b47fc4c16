package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// libexecDir is where the units look for the scripts. Not in /etc, where nothing is executed, nor
// in /usr, which belongs to the distribution.
func (v *view) libexecDir() string { return "/usr/local/libexec/rackless/" + v.lab }

// unitName returns the name of the unit that runs a script.
func (v *view) unitName(job string) string { return UnitName(v.plan.Lab, "-"+job+".service") }

// hypervisors are the services that start guests: what the guests need has to be there before them.
// A host has one of the two.
const hypervisors = "libvirtd.service virtqemud.service libvirt-guests.service"

// A job is a script that a unit runs at boot.
type job struct {
	name        string
	description string
	title, note string // on the page that leads through all files; UNIT is the unit's name
	what        string // what the script does, for its own header
	why         string // of the unit's order
	after       string // beside local-fs.target
	before      string
}

// jobs returns what is to be done at each boot, in order.
func (v *view) jobs() []job {
	confines := !v.housekeeping().IsEmpty() && !v.given.IsEmpty()
	needed := map[string]bool{"vfio": len(v.whole) > 0, "sriov": v.hasVFs(), "cpuset": confines, "irq": confines,
		"hugepages": true, "governor": true}
	return slices.DeleteFunc(allJobs(), func(j job) bool { return !needed[j.name] || len(v.in.Changes[j.name]) == 0 })
}

// allJobs are in the order in which they are started; the page undoes them in the reverse order. Hugepages come first,
// while memory is in one piece, and interrupts last, when all drivers have asked for theirs.
func allJobs() []job {
	return []job{
		{
			name:        "hugepages",
			description: "Hugepages on the NUMA nodes of lab %s",
			title:       "Hugepages",
			note: "Finds the pages set aside at boot and leaves them alone, or tries to get them now; it fails " +
				"loudly where a node is short.",
			what: "Hugepages on the NUMA nodes that the lab nodes use. start asks for them, looks what the kernel " +
				"found, and fails where that is too little: a guest with strict memory placement would not start " +
				"then. It never takes pages away. Too few are found where memory is in use or in pieces, none where " +
				"the kernel does not know the size (for 1 GiB on x86 look for pdpe1gb in /proc/cpuinfo). stop gives " +
				"back what start added.",
			why: "Early, while memory is still in one piece. Pages from the kernel's command line are found here " +
				"and left alone.",
			after:  "systemd-modules-load.service",
			before: hypervisors,
		},
		{
			name:        "vfio",
			description: "Devices of lab %s with vfio-pci",
			title:       "Devices",
			note: "The drivers of the host let go of these devices: their network interfaces and displays vanish " +
				"from the host. Before the unit is undone, shut the nodes down.",
			what: "Hands the PCI functions of the lab nodes to vfio-pci by driver_override, which names functions " +
				"one by one: a list of vendor and device numbers (vfio-pci ids=) would take every card of that " +
				"model. start looks at everything before it changes anything. stop gives the functions back to " +
				"their drivers.",
			why: "Before anything starts a guest. The udev rule and the modprobe file keep other drivers away even " +
				"earlier; this unit takes what one got hold of all the same.",
			after:  "systemd-udevd.service systemd-modules-load.service",
			before: hypervisors + " nvidia-persistenced.service",
		},
		{
			name:        "sriov",
			description: "Virtual functions of lab %s",
			title:       "Virtual functions",
			note: "Makes the virtual functions, with the MAC addresses of the plan. The interface of the physical " +
				"function stays the host's, comes up, and carries the lab's MTU.",
			what: "Makes the virtual functions that the plan hands out, gives them their MAC addresses and leaves " +
				"them to vfio-pci. A change of the number goes by way of 0 and is refused while a function is in " +
				"use. stop makes the number what it was. The last two words of a line vf are trust and spoofchk: on " +
				"lets a guest change its MAC address and listen to everything (tcpdump, bridges in the guest), and " +
				"drops frames that it sends with another MAC address than its own. Set them to off and on for " +
				"guests that are not yours.",
			why: "After the driver of the physical functions, and after the network set those up. Before anything " +
				"starts a guest.",
			after:  "systemd-udevd.service systemd-modules-load.service network.target",
			before: hypervisors,
		},
		{
			name:        "governor",
			description: "Governor performance for lab %s",
			title:       "Governor",
			note:        "All CPUs at full frequency.",
			what: "Sets the frequency governor of all CPUs to performance: latencies come out up to twice as long, " +
				"and never twice the same, while frequencies follow the load. What the kernel does to memory by " +
				"itself, which disturbs a guest as much, is set here too. stop brings the old values back.",
			why:   "After the services that set governors of their own.",
			after: "systemd-modules-load.service tuned.service power-profiles-daemon.service cpufrequtils.service",
		},
		{
			name:        "cpuset",
			description: "The host off the CPUs of lab %s",
			title:       "CPU sets",
			note:        "The host leaves the CPUs of the lab nodes alone, without a reboot.",
			what: "Keeps everything but guests off the CPUs of the lab nodes by cgroups, without a reboot: " +
				"system.slice, user.slice and init.scope may use housekeeping CPUs only, and the kernel's work " +
				"queues run there. Guests are in machine.slice, which may use all. This is the alternative to " +
				"isolcpus; what it cannot do is to stop the timer tick (nohz_full) and to move RCU callbacks " +
				"(rcu_nocbs), which only the kernel's command line can. Where the host keeps CPUs of its own and " +
				"has no other virtual machines, machine.slice is a partition of cgroup v2, with the CPUs of the lab " +
				"nodes and of QEMU's own threads: nobody else uses its CPUs. Take the line partition out to go " +
				"without, or say isolated for root: no load is balanced then, which is right for pinned virtual " +
				"CPUs, but QEMU's own threads pile up on one CPU. stop brings the old limits back.",
			why:    "Before anything starts a guest.",
			before: hypervisors,
		},
		{
			name:        "irq",
			description: "Interrupts off the CPUs of lab %s",
			title:       "Interrupts",
			note: "Interrupts of the host go to housekeeping CPUs. Repeat it after devices were added: `systemctl " +
				"restart UNIT`. Where irqbalance runs, tell it as well: `install -D -m 0644 -t " +
				"/etc/systemd/system/irqbalance.service.d systemd/irqbalance.service.d/*.conf`, `systemctl " +
				"daemon-reload`, `systemctl restart irqbalance`.",
			what: "Moves interrupts to housekeeping CPUs, those of a device to ones of its own NUMA node where the " +
				"host has any there. Managed interrupts (NVMe, some NICs) cannot be moved: isolcpus=managed_irq " +
				"keeps them away from the CPUs of the lab nodes. irqbalance, where it runs, moves them back: " +
				"systemd/irqbalance.service.d keeps it from that. stop moves them back.",
			why:   "After the drivers of the devices and after irqbalance, which would move them once more.",
			after: "network.target irqbalance.service tuned.service",
		},
	}
}

// parts are the files of shell/ that a script needs beside those that all have, by the first word
// of its lines. A script has only the parts that it needs, so that a person can read all of it
// before running it as root.
var parts = []struct{ name, words string }{
	{"irqs", "irqs slice"}, {"slices", "slice partition"}, {"pci", "vfio vfs vf"}, {"vfio", "vfio"},
	{"sriov", "vfs vf link rest"}, {"nic", "firmware"},
}

// changesScript returns the script of a name that makes changes of the host and takes them back. It
// remembers in memory/LAB/part how things were, and says after at the end.
func (v *view) changesScript(what, name, memory, part, usage, after string) []byte {
	lines := v.in.Changes[name]
	files := []string{"prologue", "changes"}
	for _, p := range parts {
		words := strings.Fields(p.words)
		if slices.ContainsFunc(lines, func(line string) bool {
			word, _, _ := strings.Cut(line, " ")
			return slices.Contains(words, word)
		}) {
			files = append(files, p.name)
		}
	}
	return shellScript(v.made, what, []shellVar{
		{"lab", v.lab, ""},
		{"changes", strings.Join(lines, "\n"),
			"What is changed, in order: the functions below say what the words are."},
		{"memory", memory, "Below it is remembered how things were."}, {"part", part, ""}, {"usage", usage, ""},
		{"after", after, ""},
	}, append(files, "dispatch")...)
}

// housekeeping returns the CPUs of the host.
func (v *view) housekeeping() topology.CPUSet { return v.plan.Housekeeping.CPUs }

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

// units returns the scripts and the units that start them. Each job is a unit of its own, so that one that fails names
// itself in systemctl status and does not stop the others.
func (v *view) units() []Artifact {
	var scripts, units []Artifact
	for _, j := range v.jobs() {
		scripts = append(scripts, program("libexec/"+j.name+".sh", v.changesScript(j.what, j.name,
			"/run/rackless", j.name, "start|stop|status", "")))
		units = append(units, text("systemd/"+v.unitName(j.name), v.unit(j)))
	}
	return append(scripts, units...)
}

// hostFiles returns the configuration of the host that stands beside the scripts: mounts, a drop-in
// for irqbalance, a udev rule and a file for modprobe.
func (v *view) hostFiles() []Artifact {
	files := v.hugepageMounts()
	if !v.given.IsEmpty() {
		files = append(files, text("systemd/irqbalance.service.d/"+UnitName(v.plan.Lab, ".conf"),
			v.page("irqbalance.conf", v.plan)))
	}
	return append(files, v.earlyVFIO()...)
}

// HostFiles returns the files of [All] that configure the host itself, each with the path at which
// it belongs on the host. It needs neither domains nor changes.
func HostFiles(in Input) ([]Artifact, error) {
	v, err := newView(in)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	files := v.hostFiles()
	for i, f := range files {
		dir, rest, _ := strings.Cut(f.Path, "/")
		files[i].Path = map[string]string{"systemd": "/etc/systemd/system/", "udev": "/etc/udev/rules.d/",
			"modprobe.d": "/etc/modprobe.d/"}[dir] + rest
	}
	return files, nil
}

// UnitName returns the name of a file of a lab in a directory that others have files in as well.
func UnitName(lab, suffix string) string { return "rackless-" + safeName(lab) + suffix }

// unit returns the unit of a job.
func (v *view) unit(j job) string {
	return v.page("unit", struct{ Name, Why, Description, After, Before string }{
		j.name, j.why, unitEscape(fmt.Sprintf(j.description, v.plan.Lab)), j.after, j.before,
	})
}

// hugepageMounts returns a mount for each size of pages that is not the kernel's default: libvirt
// takes pages of a size only from a mount of that size, and systemd mounts only the default one, at
// /dev/hugepages.
func (v *view) hugepageMounts() []Artifact {
	standard := uint64(2 << 20) // the default of x86 and of arm64 with pages of 4 KiB
	if d := v.host.Memory.DefaultHuge; d != nil {
		standard = *d
	}
	var mounts []Artifact
	for _, size := range v.pageSizes() {
		if size == standard {
			continue
		}
		label := words.Either(size%(1<<30) == 0, fmt.Sprintf("%dG", size>>30), fmt.Sprintf("%dM", size>>20))
		mounts = append(mounts, text("systemd/dev-hugepages"+label+".mount", v.page("hugepages.mount", struct {
			Label, Before string
			KiB           uint64
		}{label, hypervisors, size >> 10})))
	}
	return mounts
}

// unitEscape returns text as the value of a setting that systemd expands: % begins a specifier, a
// backslash an escape or, at the end, a continued line (systemd.syntax(7), systemd.unit(5)).
func unitEscape(s string) string {
	return strings.NewReplacer("%", "%%", `\`, `\\`).Replace(oneLine(s))
}

// drivers returns the modules that would take the functions of the lab nodes on the host, sorted.
func (v *view) drivers() []string {
	all := lists.Flat(v.whole, func(a topology.PCIAddr) []string { return v.driversOf(a) })
	slices.Sort(all)
	return slices.Compact(all)
}

// driversOf returns the modules for a function: what the host says, else what is known of its vendor and class.
func (v *view) driversOf(a topology.PCIAddr) []string {
	d := v.host.Device(a)
	if d == nil {
		return nil
	}
	names := lists.Filter(append([]string{d.Driver}, d.Candidates...), isDriver)
	if len(names) > 0 || d.Class == nil || d.Vendor == nil {
		return names
	}
	switch class := d.Class.Base(); {
	case class == topology.ClassDisplay && *d.Vendor == topology.VendorNVIDIA:
		return []string{"nvidia", "nouveau"}
	case class == topology.ClassDisplay && *d.Vendor == topology.VendorAMD:
		return []string{"amdgpu"}
	case class == topology.ClassNetwork && *d.Vendor == topology.VendorMellanox:
		return []string{"mlx5_core"}
	case class == 0x04: // multimedia: the audio of a GPU
		return []string{"snd_hda_intel"}
	}
	return nil
}

// isDriver reports whether a name is that of a driver which uses a function itself. Drivers of PCI are named like their
// modules; anything else has no place in a file for modprobe.
func isDriver(name string) bool {
	switch name {
	case "", "vfio-pci", "vfio_pci", "pci-stub":
		return false
	}
	return strings.Trim(name, moduleLetters) == ""
}

const moduleLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// udevRules and modprobeFile are the names of the files below /etc.
func (v *view) udevRules() string    { return "10-rackless-" + v.lab + ".rules" }
func (v *view) modprobeFile() string { return "rackless-" + v.lab + ".conf" }

// earlyVFIO returns what keeps other drivers away from the functions while the machine boots.
func (v *view) earlyVFIO() []Artifact {
	if len(v.whole) == 0 {
		return nil
	}
	files := struct {
		Functions []topology.PCIAddr
		Drivers   []string
	}{v.whole, v.drivers()}
	return []Artifact{
		text("udev/"+v.udevRules(), v.page("vfio.rules", files)),
		text("modprobe.d/"+v.modprobeFile(), v.page("modprobe.conf", files)),
	}
}

// tuned returns a profile for tuned, for hosts where that service owns such settings.
func (v *view) tuned() []Artifact {
	if v.given.IsEmpty() {
		return nil
	}
	summary := strings.ReplaceAll("Host of lab "+oneLine(v.plan.Lab), "$", "") // $ begins a variable of tuned
	return []Artifact{text("tuned/rackless-"+v.lab+"/tuned.conf", v.page("tuned.conf", summary))}
}
