package verify

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/topology"
)

// kernelArgs checks that the kernel's arguments say the same as the plan, as far as they are there:
// a host may be prepared without them. Source of their form:
// Documentation/admin-guide/kernel-parameters.txt.
func (c *checker) kernelArgs() {
	if len(c.pl.KernelWhy) != len(c.pl.KernelArgs) {
		c.fault("kernel_args: have %d reasons for %d arguments", len(c.pl.KernelWhy), len(c.pl.KernelArgs))
	}
	var given topology.CPUSet
	for _, k := range c.m.cores {
		if k.owner >= 0 {
			given = given.Union(cpusWithin(k.cpus))
		}
	}
	// Tenants that are isolated now stay so.
	if isolated := c.h.CPUs.Isolated; isolated != nil {
		given = given.Union(isolated.Intersect(c.pl.Housekeeping.TenantCPUs))
	}
	page := uint64(0) // of "hugepages=", as the last "hugepagesz=" before it says
	for _, arg := range strings.Fields(strings.Join(c.pl.KernelArgs, " ")) {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "isolcpus", "nohz_full", "rcu_nocbs":
			c.cpuArg(arg, name, value, given)
		case "default_hugepagesz", "hugepagesz":
			size, ok := sizeArg(value)
			if !ok || c.p.HugepageBytes > 0 && size != c.p.HugepageBytes {
				c.fault("kernel_args: %q: want pages of %d bytes", arg, c.p.HugepageBytes)
			}
			page = size
		case "hugepages":
			c.pagesArg(arg, value, page)
		}
	}
}

// cpuArg checks an argument with a list of CPUs. The three arguments name the same CPUs: a CPU that
// is isolated from the scheduler and not from RCU callbacks or the tick is still disturbed. The list
// of isolcpus may have flags before it:
// isolcpus=managed_irq,domain,2-31.
func (c *checker) cpuArg(arg, name, value string, given topology.CPUSet) {
	list := value
	for name == "isolcpus" && list != "" && (list[0] < '0' || list[0] > '9') {
		_, list, _ = strings.Cut(list, ",")
	}
	set, err := topology.ParseCPUSet(list)
	if err != nil {
		c.fault("kernel_args: %q: %w", arg, err)
		return
	}
	if !set.Equal(given) {
		c.fault("kernel_args: %s: have CPUs %s, want %s, all of the cores of lab nodes, and of tenants that are "+
			"isolated", name, set, given)
	}
}

// sizeArg reads a size as the kernel's memparse does: a number with K, M or G.
func sizeArg(s string) (uint64, bool) {
	shift := 0
	for suffix, bits := range map[string]int{"K": 10, "M": 20, "G": 30} {
		if rest, ok := strings.CutSuffix(strings.ToUpper(s), suffix); ok {
			s, shift = rest, bits
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return n << shift, err == nil
}

// pagesArg checks "hugepages=": by NUMA node (0:16,1:16), since Linux 5.16, or one number, which
// the kernel spreads evenly over the nodes with memory, the first ones getting what is left over. The
// argument sets the whole pool, so pages that are in use have to be in it: with fewer, the tenant
// that uses them would not start after the reboot.
func (c *checker) pagesArg(arg, value string, page uint64) {
	want := map[int]int64{}
	for _, pool := range c.pl.Hugepages {
		if pool.PageBytes == page || page == 0 {
			want[pool.NUMANode] += pool.Count + pool.Held
		}
	}
	have := map[int]int64{}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		nodes := c.withMemory()
		for k, node := range nodes {
			have[node] = n / int64(len(nodes))
			if int64(k) < n%int64(len(nodes)) {
				have[node]++
			}
		}
	} else {
		for item := range strings.SplitSeq(value, ",") {
			id, count, _ := strings.Cut(item, ":")
			node, err1 := strconv.Atoi(id)
			n, err2 := strconv.ParseInt(count, 10, 64)
			if err1 != nil || err2 != nil {
				c.fault("kernel_args: %q: %q is not a NUMA node with its number of pages", arg, item)
				return
			}
			have[node] += n
		}
	}
	for _, node := range nodesOf(have, want) {
		if have[node] != want[node] {
			c.fault("kernel_args: %q gives NUMA node %d %d pages, want %d", arg, node, have[node], want[node])
		}
	}
}

// withMemory returns the NUMA nodes that have memory, or may have.
func (c *checker) withMemory() []int {
	return slices.DeleteFunc(slices.Clone(c.m.nodes), func(node int) bool {
		n := c.h.NUMANode(node)
		return n != nil && n.MemoryBytes != nil && *n.MemoryBytes == 0
	})
}
