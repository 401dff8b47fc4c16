package advise

import (
	"fmt"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

func (d *decider) housekeeping() plan.Decision {
	free := d.layout.free(&d.base.Placement)
	on := map[int]int64{}
	for _, id := range free {
		on[d.layout.cores[id].NUMANode]++
	}
	one := plan.Decision{What: AboutHousekeeping, Choice: coresText(on)}
	if len(free) > 0 {
		one.Choice += ": CPUs " + d.layout.cpusOf(free)
	}
	switch extra := len(free) - d.p.ReserveCores; {
	case extra > 0:
		one.Evidence = append(one.Evidence, fmt.Sprintf("the host keeps at least %s; %d more are left over",
			words.Count(d.p.ReserveCores, "core"), extra))
	default:
		one.Evidence = append(one.Evidence, fmt.Sprintf("the host keeps %s", words.Count(d.p.ReserveCores, "core")))
	}
	for _, n := range d.p.NUMANodes {
		if n.ReserveCores > 0 {
			one.Evidence = append(one.Evidence, fmt.Sprintf("%s of NUMA node %d as the lab asks",
				words.Count(n.ReserveCores, "core"), n.ID))
		}
	}
	for _, k := range d.p.Packages {
		if k.Busy != "" {
			one.Evidence = append(one.Evidence, fmt.Sprintf("a core of package %d: %s", k.ID, k.Busy))
		}
	}
	var far int64
	for i := range d.p.Requests {
		far += d.own(i, plan.TermEmulatorDistance)
	}
	if far == 0 {
		one.Evidence = append(one.Evidence, "every lab node has a housekeeping core on a NUMA node of its own, for "+
			"QEMU's threads")
	} else {
		one.Evidence = append(one.Evidence, fmt.Sprintf("QEMU's threads of some lab nodes are on another NUMA node: "+
			"it costs %d", far))
	}
	if s := d.otherHousekeeping(d.layout, 4*d.tries); s != nil {
		gives, takes := d.layout.cores[s.gives], d.layout.cores[s.takes]
		one.RunnerUp = fmt.Sprintf("core %d of NUMA node %d instead of core %d of node %d, exchanged with %s",
			s.takes, takes.NUMANode, s.gives, gives.NUMANode, d.p.Requests[s.node].Name)
		one.RunnerUpCost = new(s.cost - d.now)
		one.Evidence = append(one.Evidence, "the runner-up is the best single exchange found")
	}
	return one
}

func (d *decider) pageSize() plan.Decision {
	one := plan.Decision{What: AboutPageSize}
	if d.p.HugepageBytes == 0 {
		one.Choice = "no hugepages, as the lab asks"
		if d.lab.Hugepages != "off" {
			one.Choice = "no hugepages: the host has none"
		}
		return append1(one, seenHuge)
	}
	one.Choice = size(d.p.HugepageBytes) + " pages"
	parts := []string{}
	for _, n := range d.plan.Hugepages {
		parts = append(parts, fmt.Sprintf("%d on NUMA node %d", n.Count, n.NUMANode))
	}
	if len(parts) > 0 {
		one.Choice += ", set aside per NUMA node: " + words.List(parts)
		one.Evidence = append(one.Evidence, "a plain hugepages=N is spread evenly over all NUMA nodes, and a strict "+
			"memory policy then finds too few on its own")
	}
	const gib = 1 << 30
	zero := "the cost model has no term for the size of pages: no published figure tells the two apart"
	if d.p.HugepageBytes == gib {
		one.RunnerUp, one.RunnerUpCost = "2 MiB pages", new(int64(0))
		one.Evidence = append(one.Evidence, "one page of 1 GiB covers what 512 of 2 MiB do: fewer TLB misses, "+
			"shorter page walks", zero,
			seenHuge)
		return one
	}
	for i := range d.p.Requests {
		if bytes := uint64(d.p.Requests[i].Pages) * d.p.PageBytes; bytes%gib != 0 {
			one.RunnerUp = "1 GiB pages"
			return append1(one, fmt.Sprintf("the memory of %s is %s, no whole number of GiB", d.p.Requests[i].Name,
				size(bytes)))
		}
	}
	if d.lab.Hugepages == "2MiB" {
		one.RunnerUp, one.RunnerUpCost = "1 GiB pages", new(int64(0))
		one.Evidence = append(one.Evidence, "as the lab asks", zero)
		return one
	}
	one.RunnerUp = "1 GiB pages"
	return append1(one, "the host does not have pages of 1 GiB")
}

func (d *decider) isolation() plan.Decision {
	one := plan.Decision{What: AboutIsolation}
	const args, partition = "kernel arguments isolcpus, nohz_full and rcu_nocbs, which take a reboot",
		"an isolated cpuset partition, which takes none"
	if d.hasArg("isolcpus") {
		one.Choice, one.RunnerUp = args, partition
		one.Evidence = append(one.Evidence, "only the kernel's arguments also take the timer tick and RCU callbacks "+
			"off the CPUs of the lab nodes; a partition takes them off the scheduler alone")
		if d.hasArg("hugepages") {
			one.Evidence = append(one.Evidence, "the hugepages are best set aside at boot, so that the reboot is "+
				"needed anyway")
		}
		one.Evidence = append(one.Evidence, "until the reboot, or where there can be none: the partition")
	} else {
		one.Choice, one.RunnerUp = partition, args
	}
	if iso := d.host.CPUs.Isolated; iso != nil && !iso.IsEmpty() {
		one.Evidence = append(one.Evidence, fmt.Sprintf("the host has CPUs %s isolated now", iso))
	}
	one.RunnerUpCost = new(int64(0))
	one.Evidence = append(one.Evidence, "isolation is not in the cost: it decides no placement", seenContention,
		seenLateTail)
	return one
}
