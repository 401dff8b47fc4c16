package boot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/cmdline"
	"github.com/rackless/rackless/topology"
)

// runsWith reports whether the running kernel was started with args.
func runsWith(s *change.System, args []string) (bool, error) {
	line, err := s.Value("/proc/cmdline")
	return cmdline.Has(line, args), err
}

// inForce reports whether the running kernel was started with args. Where the kernel shows what
// came of an argument, and that is something else, it is an error: another reboot would not help.
func inForce(args []string) func(context.Context, *change.System) (bool, error) {
	return func(_ context.Context, s *change.System) (bool, error) {
		if has, err := runsWith(s, args); err != nil || !has {
			return false, err
		}
		for _, arg := range args {
			if err := effect(s, arg); err != nil {
				return false, err
			}
		}
		return true, nil
	}
}

// effect compares an argument with what the kernel shows of it.
func effect(s *change.System, arg string) error {
	const dir = "/sys/devices/system/cpu/"
	file := ""
	want, ok := cmdline.Isolcpus(arg)
	flags := strings.Split(strings.TrimPrefix(arg, "isolcpus="), ",")
	has := func(flag string) bool { return slices.Contains(flags, flag) }
	switch {
	// Only CPUs that are taken out of the scheduler's domains are in the file; without flags they
	// are (housekeeping_isolcpus_setup in kernel/sched/isolation.c).
	case ok && (has("domain") || !has("nohz") && !has("managed_irq")):
		file = dir + "isolated"
	case ok:
		return nil
	default:
		if want, ok = cmdline.NohzFull(arg); !ok {
			return nil
		}
		want, file = want.Difference(topology.CPUs(cmdline.BootCPU)), dir+"nohz_full"
	}
	text, err := optional(s, file)
	if err != nil || text == "" {
		return err // this kernel does not show it
	}
	have, err := topology.ParseCPUSet(strings.TrimSpace(text))
	if err != nil { // "(null)" where there is no set
		have = topology.CPUSet{}
	}
	possible, err := optional(s, dir+"possible")
	if err != nil {
		return err
	}
	if set, err := topology.ParseCPUSet(strings.TrimSpace(possible)); err == nil && !set.IsEmpty() {
		want = want.Intersect(set)
	}
	if missing := want.Difference(have); !missing.IsEmpty() {
		return fmt.Errorf("the kernel was started with %s, and %s has %q, without CPUs %s: see what dmesg says of "+
			"it; another reboot will not help", arg, file, strings.TrimSpace(text), missing)
	}
	return nil
}
