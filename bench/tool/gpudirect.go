package tool

import (
	"strconv"

	"github.com/rackless/rackless/bench"
)

// GPUDirect returns RDMA writes between GPU n of both nodes by NIC m of both, for each n and m, and between their main
// memories, one way and both ways.
func GPUDirect(gpus, nics int) (all []bench.Engine) {
	write := perftest{program: "ib_write_bw", operation: "write", bandwidth: true}
	for nic := range nics {
		write.nic, write.gpu, write.dmabuf = strconv.Itoa(nic), "", false
		all = append(all, bothWays(write)...)
		for gpu := range gpus {
			write.gpu, write.dmabuf = strconv.Itoa(gpu), true
			all = append(all, bothWays(write)...)
		}
	}
	return all
}

func bothWays(p perftest) []bench.Engine {
	one := perftestEngine(p.operation, "bw", "bandwidth of RDMA writes, for each GPU by each NIC, and for main memory")
	one.Suite, one.Plugin, one.Name = bench.SuiteGPUDirect, p, p.name()
	two := one
	p.both = true
	two.Plugin, two.Name = p, p.name()
	return []bench.Engine{one, two}
}
