package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/cmdline"
)

// kernelSnippet is the name of the file in /etc/default/grub.d.
func (v *view) kernelSnippet() string { return "rackless-" + v.lab + ".cfg" }

// kernel returns the kernel arguments, for each boot loader with the way back; nothing where the plan needs none. Which
// boot loader the host has is not known here, where nothing looks at a machine: so there is a script for each.
func (v *view) kernel() []Artifact {
	if len(v.plan.KernelArgs) == 0 {
		return nil
	}
	vars := []shellVar{
		{"lab", v.lab, ""},
		{"args", strings.Join(v.plan.KernelArgs, " "), v.kernelWhy()},
		{"keys", strings.Join(cmdline.Keys(v.plan.KernelArgs), " "),
			"What they set. Other values of the same go, and come back with undo."},
		{"limit", fmt.Sprint(cmdline.Limit(v.host.System.Arch)), "COMMAND_LINE_SIZE of this architecture."},
	}
	const usage = " apply changes nothing but the boot loader's settings, undo takes that back, and show says what " +
		"the running kernel was started with."
	script := func(name, what string, own []string, extra ...shellVar) Artifact {
		parts := slices.Concat([]string{"prologue", "kernel"}, own, []string{"kernel_dispatch"})
		return program("kernel/"+name+".sh", shellScript(v.made, what+usage, append(vars, extra...), parts...))
	}
	return []Artifact{
		text("kernel/cmdline.txt", v.page("cmdline.txt", v.plan)),
		script("grubby", "Kernel arguments for GRUB with entries in /boot/loader/entries: Fedora, RHEL and its "+
			"relatives, which have grubby.", []string{"entries"}),
		text("kernel/grub.cfg", v.page("grub.cfg", v.plan)),
		script("grub", "Kernel arguments by /etc/default/grub.d: Debian, Ubuntu and others with GRUB and "+
			"without grubby.", []string{"grub"},
			shellVar{"file", v.kernelSnippet(), "The name of grub.cfg in /etc/default/grub.d."}),
		script("systemd-boot", "Kernel arguments for systemd-boot, in its entries and /etc/kernel/cmdline, or by "+
			"kernelstub where that is there.", []string{"entries", "systemd-boot"}),
		script("rpm-ostree", "Kernel arguments for Fedora CoreOS, Silverblue and others with rpm-ostree.",
			[]string{"rpm-ostree"}),
	}
}

// kernelWhy lists the reason of each argument.
func (v *view) kernelWhy() string {
	var b strings.Builder
	b.WriteString("What the kernel has to be started with, and why:")
	for i, arg := range v.plan.KernelArgs {
		why := ""
		if i < len(v.plan.KernelWhy) {
			why = ": " + v.plan.KernelWhy[i]
		}
		fmt.Fprintf(&b, "\n- %s%s", arg, why)
	}
	return b.String()
}

// kernelRemarks say what the reader has to know of the arguments on this host.
func (v *view) kernelRemarks() []string {
	var notes []string
	perNode := false
	for _, arg := range v.plan.KernelArgs {
		value, ok := strings.CutPrefix(arg, "hugepages=")
		perNode = perNode || ok && strings.Contains(value, ":")
	}
	// Linux 5.16: "hugetlb: add hugetlb node format to the hugepages parameter"
	// (Documentation/admin-guide/kernel-parameters.txt).
	if perNode {
		const old = "The kernel reads hugepages=NODE:COUNT from Linux 5.16 on; an earlier one sets no pages aside, " +
			"and then libexec/hugepages.sh has to find them after the boot."
		switch older, known := kernelOlder(v.host.Kernel.Release, 5, 16); {
		case !known:
			notes = append(notes, old)
		case older:
			notes = append(notes, old+" This host runs "+oneLine(v.host.Kernel.Release)+
				", unless its distribution has brought that back.")
		}
	}
	for _, arg := range v.plan.KernelArgs {
		if set, ok := cmdline.NohzFull(arg); ok && set.Contains(cmdline.BootCPU) {
			notes = append(notes, "CPU 0 is among those of the lab nodes. The kernel keeps time on the CPU that it "+
				"was started on, takes that one off nohz_full by itself, and says so in dmesg.")
		}
	}
	if line := v.host.Kernel.Cmdline; line != nil {
		if gone := cmdline.Replaced(*line, v.plan.KernelArgs); len(gone) > 0 {
			notes = append(notes, "The host was started with "+oneLine(strings.Join(gone, " "))+
				": the scripts replace that.")
		}
		if n := len(*line) + 1 + len(strings.Join(v.plan.KernelArgs, " ")); n >= cmdline.Limit(v.host.System.Arch) {
			notes = append(notes, fmt.Sprintf("With what the host is started with today the command line would have "+
				"up to %d characters, and the kernel reads %d.", n, cmdline.Limit(v.host.System.Arch)-1))
		}
	}
	return notes
}

// kernelOlder reports whether a release ("6.8.0-45-generic") is before major.minor; known is false where it is none.
func kernelOlder(release string, major, minor int) (older, known bool) {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false, false
	}
	return a < major || a == major && b < minor, true
}
