package render

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/machine/cmdline"
)

func (v *view) kernel() []Artifact {
	if len(v.plan.KernelArgs) == 0 {
		return nil
	}
	return []Artifact{text("kernel/cmdline.txt", v.page("cmdline.txt", v.plan))}
}

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

func (v *view) kernelRemarks() []string {
	var notes []string
	perNode := false
	for _, arg := range v.plan.KernelArgs {
		value, ok := strings.CutPrefix(arg, "hugepages=")
		perNode = perNode || ok && strings.Contains(value, ":")
	}
	// Linux 5.16 (Documentation/admin-guide/kernel-parameters.txt).
	if perNode {
		const old = "The kernel reads hugepages=NODE:COUNT from Linux 5.16 on; an earlier one sets no pages aside, " +
			"and then commands.txt has to find them after the boot."
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
				": take that out.")
		}
		if n := len(*line) + 1 + len(strings.Join(v.plan.KernelArgs, " ")); n >= cmdline.Limit(v.host.System.Arch) {
			notes = append(notes, fmt.Sprintf("With what the host is started with today the command line would have "+
				"up to %d characters, and the kernel reads %d.", n, cmdline.Limit(v.host.System.Arch)-1))
		}
	}
	return notes
}

// kernelOlder parses "6.8.0-45-generic"; known is false if it cannot.
func kernelOlder(release string, major, minor int) (older, known bool) {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false, false
	}
	return a < major || a == major && b < minor, true
}
