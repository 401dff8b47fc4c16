package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/internal/cmdline"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// A page is Markdown in the making.
type page struct {
	b    strings.Builder
	step int
}

func (d *page) heading(format string, args ...any) {
	d.b.WriteString("## " + fmt.Sprintf(format, args...) + "\n\n")
}

// stepHeading begins the next step of the way.
func (d *page) stepHeading(format string, args ...any) {
	d.step++
	d.heading("%d. %s", d.step, fmt.Sprintf(format, args...))
}

func (d *page) text(format string, args ...any) {
	d.b.WriteString(fmt.Sprintf(format, args...) + "\n\n")
}

// readWord is a word of a command that people copy from the page. Names with line breaks are none that a lab can have.
func readWord(s string) string { return shellWord(oneLine(s)) }

// code writes commands, indented, so that nothing in them can end the block.
func (d *page) code(lines ...string) {
	for _, l := range lines {
		for part := range strings.SplitSeq(strings.TrimRight(l, "\n"), "\n") {
			d.b.WriteString(strings.TrimRight("    "+part, " ") + "\n")
		}
	}
	d.b.WriteString("\n")
}

func (d *page) list(items ...string) {
	for _, i := range items {
		d.b.WriteString("- " + i + "\n")
	}
	d.b.WriteString("\n")
}

// readme returns the page that leads through all other files: in which order, what to check after
// each, and how to get back.
func (v *view) readme() []byte {
	d := &page{}
	d.b.WriteString(mdComment(v.made))
	d.b.WriteString("# Lab " + mdText(v.plan.Lab) + ", by hand\n\n")
	v.readmeSummary(d)
	v.readmeBefore(d)
	v.readmeFirmware(d)
	v.readmeKernel(d)
	v.readmeInstall(d)
	v.readmeServices(d)
	v.readmeDomains(d)
	v.readmeGuests(d)
	v.readmeNetwork(d)
	v.readmeUndo(d)
	v.readmeAlternatives(d)
	return []byte(d.b.String())
}

func (v *view) readmeSummary(d *page) {
	p := v.plan
	host := mdText(p.Host.Name)
	if name := v.machineName(); name != "" {
		host += " (" + name + ")"
	}
	proof := "no placement costs less"
	if !p.Optimal {
		proof = fmt.Sprintf("the search stopped early (%s); none costs less than %d", mdText(p.Stopped), p.Bound)
	}
	d.text("%s. Everything here works without rackless. The plan is for %s and for no other machine. It costs %d: "+
		"%s. Why it is as it is: plan.json.",
		strings.TrimSuffix(mdText(v.made), "."), host, p.Cost, proof)
	d.b.WriteString("| node | virtual CPUs | on host CPUs | memory | devices |\n| --- | --- | --- | --- | --- |\n")
	for _, n := range p.Nodes {
		var memory, devices []string
		for _, m := range n.Memory {
			memory = append(memory, fmt.Sprintf("%s on node %d", words.Exact(m.Bytes), m.NUMANode))
		}
		for _, a := range n.Devices {
			devices = append(devices, mdText(a))
		}
		if len(devices) == 0 {
			devices = []string{"none"}
		}
		fmt.Fprintf(&d.b, "| %s | %d | %s | %s | %s |\n", mdText(n.Name), len(n.VCPUs), v.cpusOf(&n),
			strings.Join(memory, ", "), strings.Join(devices, ", "))
	}
	keep := p.Housekeeping.CPUs.String()
	if keep == "" {
		keep = "none"
	}
	fmt.Fprintf(&d.b, "| the host | | %s | the rest | the rest |\n\n", keep)
	for _, note := range p.Notes {
		d.b.WriteString("- Assumed: " + mdText(note) + "\n")
	}
	if len(p.Notes) > 0 {
		d.b.WriteString("\n")
	}
}

// cpusOf returns the host CPUs of a node as a list of ranges.
func (v *view) cpusOf(n *plan.Node) string { return numbers(n.VCPUs) }

// needsReboot says what the machine has to be started again for.
func (v *view) needsReboot() string {
	switch {
	case len(v.plan.KernelArgs) == 0:
		return "Nothing here needs a reboot, unless the firmware has to be changed."
	case v.isolated().IsEmpty():
		return "One reboot, for the kernel arguments."
	}
	return "One reboot, for the kernel arguments. Firmware and kernel arguments can share it."
}

func (v *view) readmeBefore(d *page) {
	d.heading("Before anything else")
	d.text("All commands are for root, in this directory. %s Steps 1 to %d change the host, and each says how to "+
		"take it back.", v.needsReboot(), v.hostSteps())
	d.text("Is this the machine that the plan was made for? Numbers of CPUs and addresses of devices are good for it " +
		"alone, and only while no card has been moved.")
	var lines []string
	if m := oneLine(v.host.System.CPUModel); m != "" {
		lines = append(lines, "lscpu | grep 'Model name'          # "+m)
	}
	if on := v.host.CPUs.Online; !on.IsEmpty() {
		lines = append(lines, "cat /sys/devices/system/cpu/online   # "+on.String())
	}
	for _, a := range v.whole {
		if dev := v.pci[a]; dev != nil && dev.Vendor != nil && dev.Device != nil {
			lines = append(lines, fmt.Sprintf("lspci -n -s %s           # %s:%s", a,
				strings.TrimPrefix(dev.Vendor.String(), "0x"), strings.TrimPrefix(dev.Device.String(), "0x")))
		}
	}
	d.code(append(lines, "ls -l /dev/kvm                       # there: KVM works")...)
	d.text("Programs: QEMU with OVMF, libvirt (`virsh`), `pciutils`, `iproute2`.")
	v.readmeTenants(d)
}

// hostSteps is how many steps change the host; see readme for their order.
func (v *view) hostSteps() int {
	steps := 3 // firmware, files, services
	if len(v.plan.KernelArgs) > 0 {
		steps++
	}
	return steps
}

// readmeTenants says what to do about virtual machines that may run on the CPUs of the lab nodes.
func (v *view) readmeTenants(d *page) {
	keep := v.housekeeping().Union(v.plan.Housekeeping.TenantCPUs).String()
	var lines []string
	for _, t := range v.host.Tenants {
		if len(t.Pins) > 0 || t.Floating != nil && !t.Floating.Overlaps(v.given) || keep == "" {
			continue
		}
		for cpu := range t.VCPUs {
			lines = append(lines, fmt.Sprintf("virsh vcpupin %s %d %s --config", readWord(t.Name), cpu, keep))
		}
		lines = append(lines, fmt.Sprintf("virsh emulatorpin %s %s --config", readWord(t.Name), keep))
	}
	if len(lines) == 0 {
		return
	}
	d.text("These virtual machines were there before and may run on any CPU, those of the lab nodes too: isolated " +
		"CPUs do not stop libvirt. Keep them off, and start them again " +
		"(or add `--live`). Undo: the CPUs that `virsh vcpupin` and `virsh emulatorpin` print now.")
	d.code(lines...)
}

func (v *view) readmeFirmware(d *page) {
	d.stepHeading("Firmware")
	d.text("The machine: firmware/bios.md lists what matters and what the host shows of it today.")
	if !v.setsFirmware() {
		return
	}
	d.text("The NICs. Look first; often nothing has to be changed:")
	d.code("firmware/nic.sh query", "firmware/nic.sh apply     # takes effect at the card's next reset: the reboot "+
		"below will do", "firmware/nic.sh undo      # the old values back")
}

// bootLoaders says which script is for whom.
const bootLoaders = `kernel/grubby.sh apply        # Fedora, RHEL and relatives
kernel/grub.sh apply          # Debian, Ubuntu, openSUSE, Arch with GRUB
kernel/systemd-boot.sh apply  # systemd-boot, Pop!_OS
kernel/rpm-ostree.sh apply    # Fedora CoreOS, Silverblue`

func (v *view) readmeKernel(d *page) {
	if len(v.plan.KernelArgs) == 0 {
		return
	}
	d.stepHeading("Kernel arguments, and the reboot")
	d.code(strings.Join(v.plan.KernelArgs, " "))
	for i, arg := range v.plan.KernelArgs {
		if i < len(v.plan.KernelWhy) {
			d.b.WriteString("- `" + arg + "`: " + mdText(v.plan.KernelWhy[i]) + "\n")
		}
	}
	d.b.WriteString("\n")
	for _, r := range v.kernelRemarks() {
		d.text("Note: %s", mdText(r))
	}
	d.text("One of these, by the boot loader that the machine has; any other: kernel/cmdline.txt. Each keeps what it " +
		"replaces, and `undo` in place of `apply` brings it back.")
	d.code(bootLoaders, "reboot")
	d.text("Check:")
	lines := []string{"kernel/grubby.sh show                        # or the one that you used: \"in force\" before " +
		"each argument"}
	if set := v.isolated(); !set.IsEmpty() {
		lines = append(lines, "cat /sys/devices/system/cpu/isolated         # "+set.String())
	}
	for _, arg := range v.plan.KernelArgs {
		if set, ok := cmdline.NohzFull(arg); ok {
			lines = append(lines, "cat /sys/devices/system/cpu/nohz_full        # "+
				set.Difference(topology.CPUs(cmdline.BootCPU)).String())
		}
	}
	if len(v.whole) > 0 || v.hasVFs() {
		lines = append(lines, "ls /sys/class/iommu                          # not empty: dmar0 ... on Intel, ivhd0 "+
			"... on AMD")
	}
	d.code(append(lines, v.pageChecks()...)...)
}

// pageChecks are the commands that show the pages of each NUMA node.
func (v *view) pageChecks() []string {
	var lines []string
	for _, p := range v.plan.Hugepages {
		if p.PageBytes > 0 && p.Count+p.Held > 0 {
			lines = append(lines, fmt.Sprintf(
				"cat /sys/devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages   # %d or more",
				p.NUMANode, p.PageBytes>>10, p.Count+p.Held))
		}
	}
	return lines
}

func (v *view) readmeInstall(d *page) {
	d.stepHeading("Scripts and units into place")
	d.text("Nothing runs yet. The scripts can also be run from here, without units, until the next boot: " +
		"`libexec/NAME.sh start`, `stop`, `status`.")
	lines := []string{
		"install -D -m 0755 -t " + v.libexecDir() + " libexec/*.sh",
		"install -m 0644 -t /etc/systemd/system systemd/*.service" + v.mountGlob(),
	}
	if len(v.whole) > 0 {
		lines = append(lines,
			"install -m 0644 udev/"+v.udevRules()+" /etc/udev/rules.d/",
			"install -m 0644 modprobe.d/"+v.modprobeFile()+" /etc/modprobe.d/")
	}
	d.code(append(lines, "systemctl daemon-reload")...)
	if len(v.whole) > 0 {
		d.text("Where a driver is loaded from the initramfs already (a GPU with a boot splash, a NIC that the "+
			"machine boots from), udev and modprobe need their files there, too: "+
			"`update-initramfs -u` takes /etc/modprobe.d along on Debian and Ubuntu, `dracut -f` with "+
			"`install_items+=\" /etc/udev/rules.d/%s /etc/modprobe.d/%s \"` in "+
			"/etc/dracut.conf.d on Fedora and RHEL. Without, the unit takes the device back when it starts, which is "+
			"soon enough for everything but the console.",
			v.udevRules(), v.modprobeFile())
	}
	d.text("Undo:")
	undo := []string{"rm -r " + v.libexecDir(), "rm /etc/systemd/system/rackless-" + v.lab + "-*.service"}
	for _, m := range v.hugepageMounts() {
		undo = append(undo, "rm /etc/systemd/system/"+strings.TrimPrefix(m.Path, "systemd/"))
	}
	if len(v.whole) > 0 {
		undo = append(undo, "rm /etc/udev/rules.d/"+v.udevRules()+" /etc/modprobe.d/"+v.modprobeFile())
	}
	d.code(append(undo, "systemctl daemon-reload")...)
}

func (v *view) mountGlob() string {
	if len(v.hugepageMounts()) > 0 {
		return " systemd/*.mount"
	}
	return ""
}

// ownJobs returns the jobs that the page leads through. Where CPUs are isolated by kernel arguments,
// cpuset is the alternative; see readmeAlternatives.
func (v *view) ownJobs() []job {
	return slices.DeleteFunc(v.jobs(), func(j job) bool { return j.name == "cpuset" && !v.isolated().IsEmpty() })
}

// readmeServices goes through the units in the order in which they are to be started.
func (v *view) readmeServices(d *page) {
	d.stepHeading("The host, now and at every boot")
	for _, m := range v.hugepageMounts() {
		d.code("systemctl enable --now " + strings.TrimPrefix(m.Path, "systemd/") +
			"   # then restart libvirtd or virtqemud")
	}
	for _, j := range v.ownJobs() {
		d.text("**%s.** %s", j.title, strings.ReplaceAll(j.note, "UNIT", v.unitName(j.name)))
		d.code(append([]string{"systemctl enable --now " + v.unitName(j.name)}, v.serviceChecks(j.name)...)...)
	}
	d.text("Undo of each: `systemctl disable --now UNIT`. A unit that fails says why: `systemctl status UNIT`.")
}

// serviceChecks are commands with what they must print.
func (v *view) serviceChecks(name string) []string {
	var lines []string
	switch name {
	case "hugepages":
		return v.pageChecks()
	case "vfio":
		for _, a := range v.whole {
			lines = append(lines, fmt.Sprintf("lspci -nnk -s %s   # Kernel driver in use: vfio-pci", a))
		}
		return append(lines, "ls /dev/vfio              # a number for each IOMMU group, beside vfio")
	case "sriov":
		for _, c := range v.plan.VFs {
			lines = append(lines, fmt.Sprintf("cat /sys/bus/pci/devices/%s/sriov_numvfs   # %d", readWord(c.PF),
				c.Count))
		}
		for _, p := range v.allPorts() {
			if p.isVF() {
				lines = append(lines, fmt.Sprintf("readlink /sys/bus/pci/devices/%s/virtfn%d   # %s, of %s", p.pf,
					*p.card.VF, v.vfPlace(&p), oneLine(p.node)))
			}
		}
		return append(lines, "libexec/sriov.sh status")
	case "governor":
		return []string{"cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor | sort -u   # performance, where " +
			"the kernel scales frequencies at all"}
	case "cpuset":
		return []string{"cat /sys/fs/cgroup/system.slice/cpuset.cpus.effective   # " + v.housekeeping().String()}
	}
	return []string{"libexec/irq.sh status   # what is left: interrupts that cannot be moved"}
}

// vfPlace returns the address of a virtual function as the domains have it.
func (v *view) vfPlace(p *port) string {
	if m, err := newMachine(v.in); err == nil {
		if a, err := m.vfAddress(p.card.ID, strconv.Itoa(*p.card.VF)); err == nil {
			return "../" + a.String()
		}
	}
	return "an address"
}

func (v *view) readmeUndo(d *page) {
	d.heading("All the way back")
	d.text("In this order; each is safe to repeat.")
	var lines []string
	for _, n := range v.plan.Nodes {
		lines = append(lines, "virsh shutdown "+readWord(DomainName(v.plan.Lab, n.Name))+
			"   # and wait until it is off")
	}
	for _, j := range slices.Backward(v.ownJobs()) {
		lines = append(lines, "systemctl disable --now "+v.unitName(j.name))
	}
	for _, m := range v.hugepageMounts() {
		lines = append(lines, "systemctl disable --now "+strings.TrimPrefix(m.Path, "systemd/"))
	}
	if len(v.plan.KernelArgs) > 0 {
		lines = append(lines, "kernel/grubby.sh undo     # or the one that you used, then reboot")
	}
	if v.setsFirmware() {
		lines = append(lines, "firmware/nic.sh undo      # if it was applied; at the next reset of the card")
	}
	d.code(lines...)
	if len(v.plan.Hugepages) > 0 && len(v.plan.KernelArgs) > 0 {
		d.text("Pages from the kernel's command line stay until the reboot. The files of step %d go last.",
			v.installStep())
	}
}

// installStep is the number of the step that copies files.
func (v *view) installStep() int {
	if len(v.plan.KernelArgs) > 0 {
		return 3
	}
	return 2
}

func (v *view) readmeAlternatives(d *page) {
	if v.given.IsEmpty() {
		return
	}
	d.heading("Alternatives")
	var items []string
	if v.isolated().IsEmpty() {
		items = append(items, "**Isolation** is by cgroups here (the cpuset unit). The kernel arguments isolcpus, "+
			"nohz_full and rcu_nocbs do more: no timer tick, no managed interrupts on the CPUs of "+
			"the nodes. They need a reboot and hold until the next one.")
	} else if !v.housekeeping().IsEmpty() {
		items = append(items, "**Isolation** is by kernel arguments here, which also stop the timer tick and keep "+
			"managed interrupts away. Without a reboot, cgroups keep other programs off the CPUs of the "+
			"nodes: `systemctl enable --now "+v.unitName("cpuset")+
			"`, then `cat /sys/fs/cgroup/system.slice/cpuset.cpus.effective` prints `"+v.housekeeping().String()+
			"`. Use it while the reboot "+
			"has to wait, or in place of isolcpus, nohz_full and rcu_nocbs; the other arguments are needed all "+
			"the same.")
	}
	items = append(items, "**tuned**, where it runs: tuned/rackless-"+v.lab+
		"/tuned.conf in place of the units for governor and irqbalance. Two services that set governors undo "+
		"each other.")
	d.list(items...)
}
