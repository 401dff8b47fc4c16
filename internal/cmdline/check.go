package cmdline

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rackless/rackless/topology"
)

// Limit returns how long a kernel's command line may be, its final NUL included (COMMAND_LINE_SIZE
// in arch/*/include/uapi/asm/setup.h). An architecture is named as uname or as Go names it.
func Limit(arch string) int {
	return cmp.Or(map[string]int{"s390x": 4096, "riscv64": 1024}[arch], 2048) // x86, arm64, powerpc
}

// Check refuses arguments that no boot loader could carry as they are, or that the kernel would
// misread. Boot loaders quote by rules of their own, so only characters that mean the same to all
// of them may be there. limit is that of the architecture.
func Check(args []string, limit int) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=,:.-_/+"
	length := 0
	for i, arg := range args {
		length += len(arg) + 1
		key, value, hasValue := strings.Cut(arg, "=")
		switch {
		case key == "" || key[0] == '-' || strings.Trim(arg, allowed) != "":
			return fmt.Errorf("kernel_args[%d] is %q: want a name, then letters, digits and =,:.-_/+ only, which "+
				"every boot loader passes on unchanged", i, arg)
		case hasValue && value == "":
			// A bare isolcpus= is what tools write that forget the empty list.
			return fmt.Errorf("kernel_args[%d] is %q, without a value: leave it out", i, arg)
		case key == "isolcpus":
			if _, ok := Isolcpus(arg); !ok {
				return fmt.Errorf("kernel_args[%d] is %q, without CPUs: leave it out", i, arg)
			}
		case key == "nohz_full" || key == "rcu_nocbs":
			if set, err := topology.ParseCPUSet(value); err != nil || set.IsEmpty() {
				return fmt.Errorf("kernel_args[%d] is %q: want a list of CPUs", i, arg)
			}
		}
	}
	if length > limit {
		return fmt.Errorf("kernel_args have %d characters, and the kernel reads %d of a whole command line", length-1,
			limit-1)
	}
	return nil
}

// Isolcpus returns the CPUs of an argument isolcpus=[flags,]list; ok is false where it is none, or has no CPUs.
func Isolcpus(arg string) (cpus topology.CPUSet, ok bool) {
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

// NohzFull returns the CPUs of an argument nohz_full=list; ok is false where it is none.
func NohzFull(arg string) (cpus topology.CPUSet, ok bool) {
	value, ok := strings.CutPrefix(arg, "nohz_full=")
	if !ok {
		return topology.CPUSet{}, false
	}
	set, err := topology.ParseCPUSet(value)
	return set, err == nil
}

// BootCPU keeps the kernel's time: tick_nohz_init in kernel/time/tick-sched.c takes it off nohz_full.
const BootCPU = 0
