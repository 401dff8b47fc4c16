package render

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/topology"
)

// kernelLimit returns how long a kernel's command line may be, its final NUL included (COMMAND_LINE_SIZE in arch/*/include/uapi/asm/setup.h).
func kernelLimit(arch string) int {
	switch arch {
	case "s390x":
		return 4096
	case "riscv64":
		return 1024
	}
	return 2048 // x86, arm64, powerpc
}

// checkKernelArgs refuses what no boot loader could carry as it is, or what the kernel would misread. Boot loaders quote by rules of their own, so
// only characters that mean the same to all of them may be there.
func checkKernelArgs(args []string, limit int) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=,:.-_/+"
	length := 0
	for i, arg := range args {
		length += len(arg) + 1
		key, value, hasValue := strings.Cut(arg, "=")
		switch {
		case key == "" || key[0] == '-' || strings.Trim(arg, allowed) != "":
			return fmt.Errorf("kernel_args[%d] is %q: want a name, then letters, digits and =,:.-_/+ only, which every boot loader passes on unchanged", i, arg)
		case hasValue && value == "":
			// A bare isolcpus= is what tools write that forget the empty list.
			return fmt.Errorf("kernel_args[%d] is %q, without a value: leave it out", i, arg)
		case key == "isolcpus":
			if _, ok := isolcpus(arg); !ok {
				return fmt.Errorf("kernel_args[%d] is %q, without CPUs: leave it out", i, arg)
			}
		case key == "nohz_full" || key == "rcu_nocbs":
			if set, err := topology.ParseCPUSet(value); err != nil || set.IsEmpty() {
				return fmt.Errorf("kernel_args[%d] is %q: want a list of CPUs", i, arg)
			}
		}
	}
	if length > limit {
		return fmt.Errorf("kernel_args have %d characters, and the kernel reads %d of a whole command line", length-1, limit-1)
	}
	return nil
}

// isolcpus returns the CPUs of an argument isolcpus=[flags,]list.
func isolcpus(arg string) (topology.CPUSet, bool) {
	value, ok := strings.CutPrefix(arg, "isolcpus=")
	if !ok {
		return topology.CPUSet{}, false
	}
	for {
		flag, rest, more := strings.Cut(value, ",")
		if flag != "domain" && flag != "managed_irq" && flag != "nohz" {
			break
		}
		if !more {
			return topology.CPUSet{}, false
		}
		value = rest
	}
	set, err := topology.ParseCPUSet(value)
	return set, err == nil && !set.IsEmpty()
}

// bootCPU keeps the kernel's time: tick_nohz_init in kernel/time/tick-sched.c takes it off nohz_full.
const bootCPU = 0

// nohzFull returns the CPUs of an argument nohz_full=list.
func nohzFull(arg string) (topology.CPUSet, bool) {
	value, ok := strings.CutPrefix(arg, "nohz_full=")
	if !ok {
		return topology.CPUSet{}, false
	}
	set, err := topology.ParseCPUSet(value)
	return set, err == nil
}

// kernelKeys returns the names of the arguments, each once, in order.
func kernelKeys(args []string) []string {
	var keys []string
	seen := map[string]bool{}
	for _, arg := range args {
		key, _, _ := strings.Cut(arg, "=")
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// kernelSnippet is the name of the file in /etc/default/grub.d.
func (v *view) kernelSnippet() string { return "rackless-" + v.lab + ".cfg" }

// kernel returns the kernel arguments, for each boot loader with the way back; nothing where the plan needs none.
func (v *view) kernel() []Artifact {
	if len(v.plan.KernelArgs) == 0 {
		return nil
	}
	vars := []shellVar{
		{"lab", v.lab, ""},
		{"args", strings.Join(v.plan.KernelArgs, " "), v.kernelWhy()},
		{"keys", strings.Join(kernelKeys(v.plan.KernelArgs), " "), "What they set. Other values of the same go, and come back with undo."},
		{"limit", fmt.Sprint(kernelLimit(v.host.System.Arch)), "COMMAND_LINE_SIZE of this architecture."},
	}
	script := func(name, what string, extra ...shellVar) Artifact {
		return program("kernel/"+name+".sh", shellScript(v.made, what, append(vars, extra...), "prologue", "kernel", name, "kernel_dispatch"))
	}
	const usage = " apply changes nothing but the boot loader's settings, undo takes that back, and show says what the running kernel was started with."
	return []Artifact{
		text("kernel/cmdline.txt", v.cmdline()),
		script("grubby", "Kernel arguments by grubby: Fedora, RHEL and its relatives, with entries in /boot/loader/entries."+usage),
		text("kernel/grub.cfg", v.grubSnippet()),
		script("grub", "Kernel arguments by /etc/default/grub.d: Debian, Ubuntu and others with GRUB and without grubby."+usage,
			shellVar{"file", v.kernelSnippet(), "The name of grub.cfg in /etc/default/grub.d."}),
		script("systemd-boot", "Kernel arguments for systemd-boot, by kernel-install and /etc/kernel/cmdline, or by kernelstub where that is there."+usage),
		script("rpm-ostree", "Kernel arguments for Fedora CoreOS, Silverblue and others with rpm-ostree."+usage),
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

func (v *view) cmdline() string {
	return v.header("The kernel arguments of the plan, for whatever boot loader has no script here: the last line, appended to the kernel's command line. "+
		"Take other values of the same arguments off it: of two isolcpus= the kernel takes the first.") +
		comment("# ", v.kernelWhy()) + v.kernelNotes("# ") + strings.Join(v.plan.KernelArgs, " ") + "\n"
}

// kernelNotes are comments on what the host's kernel makes of the arguments, as far as its release tells.
func (v *view) kernelNotes(prefix string) string {
	var b strings.Builder
	for _, note := range v.kernelRemarks() {
		b.WriteString(comment(prefix, note))
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
	// Linux 5.16: "hugetlb: add hugetlb node format to the hugepages parameter" (Documentation/admin-guide/kernel-parameters.txt).
	if perNode {
		const old = "The kernel reads hugepages=NODE:COUNT from Linux 5.16 on; an earlier one sets no pages aside, and then " +
			"libexec/hugepages.sh has to find them after the boot."
		switch older, known := kernelOlder(v.host.Kernel.Release, 5, 16); {
		case !known:
			notes = append(notes, old)
		case older:
			notes = append(notes, old+" This host runs "+oneLine(v.host.Kernel.Release)+", unless its distribution has brought that back.")
		}
	}
	for _, arg := range v.plan.KernelArgs {
		if set, ok := nohzFull(arg); ok && set.Contains(bootCPU) {
			notes = append(notes, "CPU 0 is among those of the lab nodes. The kernel keeps time on the CPU that it was started on, takes that one off nohz_full by itself, and says so in dmesg.")
		}
	}
	if line := v.host.Kernel.Cmdline; line != nil {
		if gone := replacedArgs(*line, v.plan.KernelArgs); len(gone) > 0 {
			notes = append(notes, "The host was started with "+strings.Join(gone, " ")+": the scripts replace that.")
		}
		if n := len(*line) + 1 + len(strings.Join(v.plan.KernelArgs, " ")); n >= kernelLimit(v.host.System.Arch) {
			notes = append(notes, fmt.Sprintf("With what the host is started with today the command line would have up to %d characters, and the kernel reads %d.",
				n, kernelLimit(v.host.System.Arch)-1))
		}
	}
	return notes
}

// replacedArgs returns the words of a command line that set one of args to something else. Pages of a size that args do not name stay; is_ours in
// shell/kernel.sh says the same.
func replacedArgs(line string, args []string) []string {
	keys, same := map[string]bool{}, map[string]bool{}
	for _, k := range kernelKeys(args) {
		keys[k] = true
	}
	for _, a := range args {
		same[a] = true
	}
	var gone []string
	size := ""
	for word := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(word, "=")
		if key == "hugepagesz" {
			size = value
		}
		if pages := key == "hugepagesz" || key == "hugepages"; pages && size != "" && !same["hugepagesz="+size] {
			continue
		}
		if keys[key] && !same[word] {
			gone = append(gone, oneLine(word))
		}
	}
	return gone
}

// kernelOlder reports whether a release ("6.8.0-45-generic") is before major.minor; known is false where it is none.
func kernelOlder(release string, major, minor int) (older, known bool) {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false, false
	}
	return a < major || a == major && b < minor, true
}

// grubSnippet is sourced by grub-mkconfig, which is a shell script.
func (v *view) grubSnippet() string {
	var pattern, sizes []string
	for _, key := range kernelKeys(v.plan.KernelArgs) {
		if key != "hugepagesz" && key != "hugepages" {
			pattern = append(pattern, key, key+"=*")
		}
	}
	for _, arg := range v.plan.KernelArgs {
		if size, ok := strings.CutPrefix(arg, "hugepagesz="); ok {
			sizes = append(sizes, size)
		}
	}
	var cases strings.Builder
	if len(sizes) > 0 {
		// A count of pages belongs to the size before it.
		cases.WriteString("    hugepagesz=*) _size=${_word#*=} ;;\n    esac\n    case $_word in\n")
		cases.WriteString("    hugepagesz=* | hugepages=*) case $_size in '' | " + strings.Join(sizes, " | ") + ") continue ;; esac ;;\n")
	}
	if len(pattern) > 0 {
		cases.WriteString("    " + strings.Join(pattern, " | ") + ") continue ;;\n")
	}
	clean := func(variable string) string {
		return "_rackless='' _size=''\n" +
			"for _word in ${" + variable + "-}; do\n" +
			"    case $_word in\n" + cases.String() +
			"    esac\n" +
			"    _rackless=\"$_rackless${_rackless:+ }$_word\"\n" +
			"done\n" +
			variable + "=$_rackless\n"
	}
	return v.header("For GRUB, to be read after the other settings: copy it to /etc/default/grub.d/"+v.kernelSnippet()+" and run update-grub (Debian, Ubuntu). "+
		"Where grub-mkconfig does not read that folder, source it at the end of /etc/default/grub and run grub2-mkconfig -o /boot/grub2/grub.cfg. "+
		"grub.sh does either. Undo: remove it, and run the same again.") +
		comment("# ", v.kernelWhy()) + v.kernelNotes("# ") +
		"\n# Other values of the same arguments go first: of two isolcpus= the kernel takes the first, of two hugepagesz= it refuses the second.\n" +
		"set -f\n" + clean("GRUB_CMDLINE_LINUX") + clean("GRUB_CMDLINE_LINUX_DEFAULT") + "set +f\nunset _rackless _size _word\n\n" +
		"GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX${GRUB_CMDLINE_LINUX:+ }\"" + shellQuote(strings.Join(v.plan.KernelArgs, " ")) + "\n"
}
