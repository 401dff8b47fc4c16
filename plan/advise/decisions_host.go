package advise

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// housekeeping says which cores the host keeps, and why as many as that.
func (d *decider) housekeeping() draft {
	free := d.Free(&d.base.Placement)
	one := draft{plan.Decision{What: AboutHousekeeping, Choice: coresText(d.CoresOn(free))}}
	if len(free) > 0 {
		one.Choice += ": CPUs " + d.cpusOf(free)
	}
	if extra := len(free) - d.p.ReserveCores; extra > 0 {
		one.becausef("the host keeps at least %s; %d more are left over", words.Count(d.p.ReserveCores, "core"), extra)
	} else {
		one.because("the host keeps " + words.Count(d.p.ReserveCores, "core"))
	}
	for _, n := range d.p.NUMANodes {
		if n.ReserveCores > 0 {
			one.becausef("%s of NUMA node %d as the lab asks", words.Count(n.ReserveCores, "core"), n.ID)
		}
	}
	for _, k := range d.p.Packages {
		if k.Busy != "" {
			one.becausef("a core of package %d: %s", k.ID, k.Busy)
		}
	}
	var far int64
	for i := range d.p.Requests {
		far += d.own(i, plan.TermEmulatorDistance)
	}
	if far == 0 {
		one.because("every lab node has a housekeeping core on a NUMA node of its own, for QEMU's threads")
	} else {
		one.becausef("QEMU's threads of some lab nodes are on another NUMA node: it costs %d", far)
	}
	if s := d.otherHousekeeping(4 * d.tries); s != nil {
		gives, takes := d.Cores[s.gives], d.Cores[s.takes]
		one.next(fmt.Sprintf("core %d of NUMA node %d instead of core %d of node %d, exchanged with %s",
			s.takes, takes.NUMANode, s.gives, gives.NUMANode, d.p.Requests[s.node].Name), s.cost-d.now)
		one.because("the runner-up is the best single exchange found")
	}
	return one
}

// pageSize says why the pages are of this size. The other size costs 0 more, not nothing that is known:
// the cost has no term for it, and the evidence says so.
func (d *decider) pageSize() draft {
	const gib = 1 << 30
	one := draft{plan.Decision{What: AboutPageSize}}
	if d.p.HugepageBytes == 0 {
		one.Choice = "no hugepages, as the lab asks"
		if d.lab.Hugepages != lab.HugepagesOff {
			one.Choice = "no hugepages: the host has none"
		}
		one.because(seenHuge)
		return one
	}
	one.Choice = words.Exact(d.p.HugepageBytes) + " pages"
	parts := lists.Map(d.plan.Hugepages,
		func(n plan.Hugepages) string { return fmt.Sprintf("%d on NUMA node %d", n.Count, n.NUMANode) })
	if len(parts) > 0 {
		one.Choice += ", set aside per NUMA node: " + words.List(parts)
		one.because("a plain hugepages=N is spread evenly over all NUMA nodes, and a strict memory policy then finds " +
			"too few on its own")
	}
	const zero = "the cost model has no term for the size of pages: no published figure tells the two apart"
	if d.p.HugepageBytes == gib {
		one.next("2 MiB pages", 0)
		one.because("one page of 1 GiB covers what 512 of 2 MiB do: fewer TLB misses, shorter page walks", zero,
			seenHuge)
		return one
	}
	one.RunnerUp = "1 GiB pages"
	for _, r := range d.p.Requests {
		if bytes := uint64(r.Pages) * d.p.PageBytes; bytes%gib != 0 {
			one.becausef("the memory of %s is %s, no whole number of GiB", r.Name, words.Exact(bytes))
			return one
		}
	}
	if d.lab.Hugepages == lab.Hugepages2MiB {
		one.next(one.RunnerUp, 0)
		one.because("as the lab asks", zero)
	} else {
		one.because("the host does not have pages of 1 GiB")
	}
	return one
}

// isolation compares the two methods that prepare knows. Neither changes where anything goes, so the
// runner-up costs the same.
func (d *decider) isolation() draft {
	const args = "kernel arguments isolcpus, nohz_full and rcu_nocbs, which take a reboot"
	const partition = "an isolated cpuset partition, which takes none"
	has := func(name string) bool {
		return slices.ContainsFunc(d.plan.KernelArgs, func(a string) bool { return strings.HasPrefix(a, name+"=") })
	}
	one := draft{plan.Decision{What: AboutIsolation, Choice: partition}}
	one.next(args, 0)
	if has("isolcpus") {
		one.Choice, one.RunnerUp = args, partition
		one.because("only the kernel's arguments also take the timer tick and RCU callbacks off the CPUs of the lab " +
			"nodes; a partition takes them off the scheduler alone")
		if has("hugepages") {
			one.because("the hugepages are best set aside at boot, so that the reboot is needed anyway")
		}
		one.because("until the reboot, or where there can be none: the partition")
	}
	if iso := d.host.CPUs.Isolated; iso != nil && !iso.IsEmpty() {
		one.becausef("the host has CPUs %s isolated now", iso)
	}
	one.because("isolation is not in the cost: it decides no placement", seenContention, seenLateTail)
	return one
}
