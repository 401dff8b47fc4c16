package checks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

const guestGroup = "machine.slice"

type grouping struct {
	kept topology.CPUSet // only for guests' groups
	how  string          // explanation
}

// group finds the CPUs that control groups reserve: of a partition, and CPUs that no populated top-level group except
// the guests' may use. The check foreign-threads sees threads in the root group.
func group(all []facts.Cgroup, cpus topology.CPUSet) grouping {
	var g grouping
	var how []string
	for _, cg := range all {
		// The kernel reports "root invalid (...)" for a partition that it does not enforce.
		if cg.Partition == "root" || cg.Partition == "isolated" {
			// A foreign partition's CPUs are not the lab's.
			if mine := cg.CPUs.Intersect(cpus); !mine.IsEmpty() {
				g.kept = g.kept.Union(mine)
				how = append(how, fmt.Sprintf("%s is a partition (%s) with %s", cg.Path, cg.Partition, mine))
			}
		}
	}
	var others topology.CPUSet
	var names []string
	for _, cg := range all {
		if strings.Contains(cg.Path, "/") || cg.Path == guestGroup || !cg.Populated || cg.Partition == "root" ||
			cg.Partition == "isolated" {
			continue
		}
		others = others.Union(cg.CPUs)
		names = append(names, cg.Path)
	}
	// Without any group of the host, as without systemd's slices, no CPUs are reserved.
	if free := cpus.Difference(others); len(names) > 0 && !free.Difference(g.kept).IsEmpty() {
		g.kept = g.kept.Union(free)
		how = append(how, fmt.Sprintf("%s may use %s only", few(names, 4), list(others)))
	}
	g.how = strings.Join(how, "; ")
	return g
}

func (c *hostCheck) isolatedByKernel() (set topology.CPUSet, ok bool) {
	if c.h.CPUs.Isolated == nil {
		return set, false
	}
	return *c.h.CPUs.Isolated, true
}

func (c *hostCheck) isolatedByGroups() bool {
	kernel, _ := c.isolatedByKernel()
	return !c.lab.IsSubsetOf(kernel) && c.lab.IsSubsetOf(kernel.Union(c.groups.kept))
}

// isolation checks the CPUs of virtual CPUs and their siblings, which share caches and execution units. The kernel or
// control groups may isolate them; a snapshot lacks control groups and cannot prove that nothing does.
func (c *hostCheck) isolation() {
	const file = fileCPU + "isolated"
	evidence := file
	if c.run != nil {
		evidence += ", /sys/fs/cgroup/*/cpuset.cpus.partition, cpuset.cpus.effective"
	}
	kernel, known := c.isolatedByKernel()
	siblings := c.whole.Difference(c.lab)
	if !known && c.groups.kept.IsEmpty() {
		c.unread(IDIsolated, hostSubject, list(c.lab), evidence)
		c.unread(IDSiblings, hostSubject, list(siblings), evidence)
		return
	}
	// Each may isolate a part.
	force := kernel.Union(c.groups.kept)
	var how []string
	if kernel.Overlaps(c.whole) {
		how = append(how, "the kernel isolates "+kernel.String())
	}
	if c.groups.how != "" {
		how = append(how, "control groups: "+c.groups.how)
	}
	have := "nothing isolates them"
	if len(how) > 0 {
		have = strings.Join(how, "; ")
	}
	missing := c.lab.Difference(force)
	f := finding.Finding{ID: IDIsolated, Have: have, Want: list(c.lab), Evidence: evidence}
	if !missing.IsEmpty() {
		f.Have += "; not isolated: " + missing.String()
		f.Fix = fmt.Sprintf("start the kernel with isolcpus=managed_irq,domain,%s, or without a reboot "+
			"rackless prepare --no-reboot, which uses control groups", c.whole)
		if c.run == nil {
			f.Fix += "; control groups are not in a snapshot: verify on the host itself sees those too"
		}
	}
	c.judge(missing.IsEmpty(), f)

	// A sibling of another lab node is isolated with that node.
	missing = siblings.Difference(force)
	f = finding.Finding{ID: IDSiblings, Have: "every sibling is one of the plan, or isolated", Want: list(siblings) +
		" isolated", Evidence: evidence + ", " + fileCPU + "cpu*/topology/thread_siblings_list"}
	if siblings.IsEmpty() {
		f.Want = "whole cores"
	}
	if len(c.h.Cores) == 0 {
		c.unread(IDSiblings, hostSubject, "whole cores", fileCPU+"cpu*/topology/thread_siblings_list")
		return
	}
	if !missing.IsEmpty() {
		f.Have = "siblings that are not isolated: " + missing.String()
		f.Fix = "isolate whole cores: isolcpus=managed_irq,domain," + c.whole.String()
	}
	c.judge(missing.IsEmpty(), f)
}

// noHzFull compares with the plan's nohz_full=. Isolation by control groups leaves the tick on, which is the price of
// avoiding a reboot and not a fault.
func (c *hostCheck) noHzFull() {
	const file = fileCPU + "nohz_full"
	i := slices.IndexFunc(c.p.KernelArgs, func(arg string) bool { return strings.HasPrefix(arg, "nohz_full=") })
	if i < 0 {
		return
	}
	want, err := topology.ParseCPUSet(strings.TrimPrefix(c.p.KernelArgs[i], "nohz_full="))
	if err != nil {
		c.unknown(finding.Finding{ID: IDNoHzFull, Evidence: "the plan: kernel_args"}, err.Error(),
			"make the plan again")
		return
	}
	if c.isolatedByGroups() && len(c.asked("nohz_full")) == 0 {
		c.judge(true, finding.Finding{ID: IDNoHzFull,
			Have: "the tick stays: control groups isolate the CPUs, and cannot stop it",
			Want: "no more than control groups can do", Evidence: "/sys/fs/cgroup/*/cpuset.cpus.effective, " + file})
		return
	}
	if c.h.CPUs.NoHzFull == nil {
		// Every kernel that can stop the tick has the file, next to that of isolated CPUs. inspect lists unreadable
		// files.
		_, known := c.isolatedByKernel()
		if !known || slices.ContainsFunc(c.h.Unread, func(u topology.Unread) bool {
			return strings.HasSuffix(u.Path, "cpu/nohz_full")
		}) {
			c.unread(IDNoHzFull, hostSubject, list(want), file)
			return
		}
		c.judge(false, finding.Finding{ID: IDNoHzFull,
			Have: "the kernel cannot stop the tick: there is no such file", Want: list(want), Evidence: file,
			Fix: "start a kernel that is built with CONFIG_NO_HZ_FULL, or isolate by control groups, which leave " +
				"the tick on"})
		return
	}
	have := *c.h.CPUs.NoHzFull
	missing := want.Difference(have).Difference(topology.CPUs(cmdline.BootCPU))
	f := finding.Finding{ID: IDNoHzFull, Have: list(have), Want: list(want), Evidence: file}
	if !missing.IsEmpty() {
		f.Have += "; the tick is on " + missing.String()
		f.Fix = "start the kernel with " + c.p.KernelArgs[i]
		if len(c.asked("nohz_full")) > 0 {
			f.Fix += "; it has another nohz_full, or was built without CONFIG_NO_HZ_FULL: see dmesg"
		}
	}
	c.judge(missing.IsEmpty(), f)
}

// ofTheMachine is true for a kernel thread of a NUMA node, which works only if memory is exhausted or fragmented, or of
// an interrupt, which another check covers.
func ofTheMachine(t *facts.Thread) bool {
	return t.Kernel && (strings.HasPrefix(t.Name, "kswapd") || strings.HasPrefix(t.Name, "kcompactd") ||
		strings.HasPrefix(t.Name, "irq/"))
}

// threads finds threads that ran on the lab's CPUs last and may stay, and threads that may run only there. Others are
// left to the isolation check.
func (c *hostCheck) threads() {
	if c.run == nil {
		return
	}
	const evidence = "/proc/*/task/*/stat, status"
	if c.run.Threads == nil {
		c.unread(IDThreads, hostSubject, "none", evidence)
		return
	}
	var foreign, kernel []string // programs can be moved
	for i := range c.run.Threads {
		t := &c.run.Threads[i]
		// Threads bound to a single CPU cannot be moved.
		if t.Fixed || ofTheMachine(t) || slices.Contains(c.own, t.PID) || c.servesOwn(t) {
			continue
		}
		here := t.Allowed.Overlaps(c.lab) && (t.Allowed.Contains(t.LastCPU) && c.lab.Contains(t.LastCPU) ||
			t.Allowed.IsSubsetOf(c.lab))
		if !here {
			continue
		}
		text := fmt.Sprintf("%d %s (may use %s, last on %d)", t.TID, words.Printable(t.Name), t.Allowed, t.LastCPU)
		if t.Kernel {
			kernel = append(kernel, text)
		} else {
			foreign = append(foreign, text)
		}
	}
	foreign = append(foreign, kernel...)
	f := finding.Finding{ID: IDThreads, Have: fmt.Sprintf("none of %s on the host",
		words.Count(len(c.run.Threads), "thread")), Want: "none on " + list(c.lab), Evidence: evidence}
	if len(foreign) > 0 {
		f.Have = words.Count(len(foreign), "foreign thread") + ": " + few(foreign, 5)
		f.Fix = "taskset -cp with CPUs of the host, or stop them; of a service set AllowedCPUs= or CPUAffinity= in " +
			"its unit"
	}
	c.judge(len(foreign) == 0, f)
}

// threadsOfMachines begin names of kernel threads that work for a virtual machine; its process follows. Linux 6.4 made
// those of vhost threads of QEMU, and Linux 6.13 those of KVM.
var threadsOfMachines = []string{"vhost-", "kvm-nx-lpage-recovery-", "kvm-pit/"}

// servesOwn is true for kernel threads that work for the lab's virtual machines. Libvirt pins them with the emulator.
func (c *hostCheck) servesOwn(t *facts.Thread) bool {
	return t.Kernel && slices.ContainsFunc(threadsOfMachines, func(prefix string) bool {
		pid, err := strconv.Atoi(strings.TrimPrefix(t.Name, prefix))
		return err == nil && slices.Contains(c.own, pid)
	})
}

// interrupts of a snapshot have only totals, which prove something only if all CPUs that may serve the interrupt are
// the lab's.
func (c *hostCheck) interrupts() {
	f := finding.Finding{ID: IDInterrupts, Want: "none on " + list(c.lab),
		Evidence: "/proc/interrupts, /proc/irq/*/effective_affinity_list"}
	var foreign []string
	n := 0
	// An empty list says nothing without isolated CPUs.
	isolated, known := c.isolatedByKernel()
	switch {
	case c.run == nil && !(known && c.lab.IsSubsetOf(isolated)), c.run != nil && c.run.Interrupts == nil:
		c.unread(f.ID, hostSubject, f.Want, f.Evidence)
		return
	case c.run == nil:
		for i := range c.h.IRQs {
			q := &c.h.IRQs[i]
			// A total proves nothing if the interrupt may be served elsewhere.
			if q.CPUs.IsEmpty() || !q.CPUs.IsSubsetOf(c.lab) || q.Count == nil || *q.Count == 0 ||
				c.tree.ForGuest(q.Device) {
				continue
			}
			foreign = append(foreign, fmt.Sprintf("%d %s on %s (%d served)", q.Number, words.Printable(q.Device),
				q.CPUs, *q.Count))
		}
		n = len(c.h.IRQs)
	default:
		for i := range c.run.Interrupts {
			q := &c.run.Interrupts[i]
			var served uint64
			for cpu := range q.CPUs.Intersect(c.lab).All() {
				served += q.Counts[cpu]
			}
			if served > 0 && !c.tree.ForGuest(q.Action) {
				foreign = append(foreign, fmt.Sprintf("%d %s on %s (%d served there)", q.Number,
					words.Printable(q.Action), q.CPUs.Intersect(c.lab), served))
			}
		}
		n = len(c.run.Interrupts)
	}
	f.Have = "none of " + words.Count(n, "interrupt")
	if len(foreign) > 0 {
		f.Have = words.Count(len(foreign), "foreign interrupt") + ": " + few(foreign, 5)
		f.Fix = "rackless prepare moves them; those that cannot be moved " +
			"need isolcpus=managed_irq,domain, or fewer queues (ethtool -L)"
	}
	c.judge(len(foreign) == 0, f)
}

func (c *hostCheck) workqueues() {
	if c.run == nil {
		return
	}
	const file = "/sys/devices/virtual/workqueue/cpumask"
	if c.run.Workqueues == nil {
		c.unread(IDWorkqueues, hostSubject, "none of "+list(c.lab), file)
		return
	}
	over := c.run.Workqueues.Intersect(c.lab)
	f := finding.Finding{ID: IDWorkqueues, Have: list(*c.run.Workqueues), Want: "none of " + list(c.lab),
		Evidence: file}
	if !over.IsEmpty() {
		f.Fix = "write the mask of CPUs " + list(c.run.Workqueues.Difference(c.whole)) + " to " + file
	}
	c.judge(over.IsEmpty(), f)
}
