package lab

import "fmt"

// Starter is a lab file to begin with: a pair of nodes, with comments on what else there is. With
// devices each node gets a GPU and a NIC of a host; else the pair is emulated. The first line tells
// editors the schema, for completion.
func Starter(name string, devices bool) []byte {
	about, nodes := "Two emulated nodes, which any machine can run.",
		"  vm: {count: 2} # vm00 and vm01: 1 CPU, 256 MiB, one NIC each"
	if devices {
		about = "Two virtual machines on one host, each with a GPU and a NIC of its own."
		nodes = "  vm: {count: 2, cpus: auto, memory: 16GiB, gpus: 1, nics: 1} # vm00 and vm01"
	}
	next := "rackless up"
	more := "# defaults: {nic: connectx-4-lx} # emulated ConnectX adapters in place of virtio NICs with soft RoCE\n"
	if devices {
		more = ""
		next = "rackless plan FILE shows where they go, rackless prepare FILE prepares the host, then rackless up FILE"
	}
	return fmt.Appendf(nil, `# yaml-language-server: $schema=lab.schema.json
# %s Next: %s
# rackless lab schema > lab.schema.json gives editors the schema of the first line;
# rackless lab defaults prints the file with every default.
name: %s
# workload: rdma-latency # what matters most to the planner: see docs/planner.md
nodes:
%s
%s# fabric: {mtu: 9000, subnet: 10.0.0.0/24} # default: MTU 4200
`, about, next, name, nodes, more)
}
