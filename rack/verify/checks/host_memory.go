package checks

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

const running = "running"

// pool returns nil with the reason, which is "" if the host's pages are unknown.
func (c *hostCheck) pool(node int, size uint64) (pool *topology.HugepagePool, why string) {
	n := c.h.NUMANode(node)
	switch {
	case len(c.h.NUMANodes) == 0:
	case n == nil:
		why = fmt.Sprintf("the host has no NUMA node %d", node)
	// Every kernel with hugepages has a pool of the default size on each node.
	case len(n.Hugepages) > 0:
		if pool = topology.Pool(n.Hugepages, size); pool == nil {
			why = "no pages of that size: neither the kernel nor the CPU may know them"
		}
	}
	return pool, why
}

func (c *hostCheck) up(node string) bool {
	return slices.ContainsFunc(c.h.Tenants, func(t topology.Tenant) bool {
		return t.Name == c.p.Lab+"."+node && t.State == running
	})
}

// hugepages checks pools, and free pages for the nodes that do not run yet.
func (c *hostCheck) hugepages() {
	for _, want := range c.p.Hugepages {
		subject := fmt.Sprintf("NUMA node %d", want.NUMANode)
		dir := fmt.Sprintf("/sys/devices/system/node/node%d/hugepages/hugepages-%dkB/", want.NUMANode,
			want.PageBytes>>10)
		unit := " of " + words.Exact(want.PageBytes)
		// Held pages are the tenants', in addition to the lab's.
		need := max(want.Count+want.Held, 0)
		have, why := c.pool(want.NUMANode, want.PageBytes)
		if have == nil {
			for _, id := range []string{IDHugepages, IDHugepagesFree} {
				if why == "" {
					c.unread(id, subject, fmt.Sprint(need)+unit, dir)
					continue
				}
				c.judge(false, finding.Finding{ID: id, Subject: subject, Have: why, Want: fmt.Sprintf("at least %d",
					need) + unit, Evidence: dir,
					Fix: "make a new plan from the machine as it is; pages of 1 GiB need the CPU flag pdpe1gb"})
			}
			continue
		}
		c.judge(have.Total >= uint64(need), finding.Finding{ID: IDHugepages, Subject: subject,
			Have: fmt.Sprint(have.Total) + unit, Want: fmt.Sprintf("at least %d", need) + unit,
			Evidence: dir + "nr_hugepages", Fix: fmt.Sprintf("echo %d > %snr_hugepages; where fewer come of it, "+
				"hugepagesz and hugepages=NODE:COUNT on the command line, and reboot", need, dir)})

		// Running nodes have taken theirs.
		var missing int64
		for i := range c.p.Nodes {
			if n := &c.p.Nodes[i]; !c.up(n.Name) {
				missing += pagesOn(n, want)
			}
		}
		f := finding.Finding{ID: IDHugepagesFree, Subject: subject, Want: fmt.Sprintf("at least %d", missing) + unit,
			Evidence: dir + "free_hugepages", Fix: "grep -l huge /proc/*/numa_maps tells who has them; files in " +
				"hugetlbfs that nobody has open can be removed"}
		if have.Free == nil {
			c.unread(IDHugepagesFree, subject, f.Want, f.Evidence)
			continue
		}
		f.Have = fmt.Sprint(*have.Free) + unit
		c.judge(*have.Free >= uint64(missing), f)
	}
}

func pagesOn(n *plan.Node, pool plan.Hugepages) int64 {
	var pages int64
	for _, m := range n.Memory {
		if m.NUMANode == pool.NUMANode && m.PageBytes == pool.PageBytes && m.PageBytes > 0 {
			pages += int64(m.Bytes / m.PageBytes)
		}
	}
	return pages
}

// hugetlbfs requires a mount for each page size, in which QEMU maps files. libvirt looks for mounts only when its
// daemon starts.
func (c *hostCheck) hugetlbfs() {
	if c.run == nil {
		return
	}
	var sizes []uint64
	for _, p := range c.p.Hugepages {
		sizes = lists.Add(sizes, p.PageBytes)
	}
	for _, size := range sizes {
		subject, want := "pages of "+words.Exact(size), "a hugetlbfs of that size"
		if c.run.HugeMounts == nil {
			c.unread(IDHugetlbfs, subject, want, "/proc/mounts")
			continue
		}
		f := finding.Finding{ID: IDHugetlbfs, Subject: subject, Have: "no hugetlbfs", Want: want,
			Evidence: "/proc/mounts", Fix: fmt.Sprintf("mkdir -p /dev/hugepages%[1]dM; mount -t hugetlbfs -o "+
				"pagesize=%[1]dM hugetlbfs /dev/hugepages%[1]dM; then start libvirt's daemon again", size>>20)}
		ok := false
		for _, m := range c.run.HugeMounts {
			f.Have = fmt.Sprintf("%s has pages of %s", m.Path, words.Exact(m.PageBytes))
			if ok = m.PageBytes == size; ok {
				break
			}
		}
		c.judge(ok, f)
	}
}
