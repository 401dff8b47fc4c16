package advise

// What was measured, and where. Each line stands alone: what, how much, on which machine, whose
// figure. docs/planner.md derives the weights from the same figures.
const (
	seenWrongNodes = "ib_write_lat p99 +29 %, typical +13 % on wrong NUMA nodes: EPYC 7551P with ConnectX-4 Lx, " +
		"published lab"
	seenContention = "iperf3 between two VMs beside 64 busy host processes: 7.9 Gb/s TCP without isolated CPUs, 24.1 " +
		"with them, 24.2 idle: EPYC 7551P, published lab"
	seenLateTail = "ib_write_lat p99.9 +45 % beside busy host processes without isolated CPUs: EPYC 7551P, " +
		"published lab"
	seenClasses = "by path class, PCIe Gen4 x16: PIX 26-30 GB/s and 1-2 us, PHB 22-27 GB/s and 2-3 us, NODE 18-25 " +
		"GB/s and 4-6 us, SYS 12-22 GB/s and 8-15 us: published GPU-NIC guide"
	seenH20 = "ib_write_bw from GPU memory over one NIC of an 8-GPU H20 machine: 195 Gb/s from the two best placed " +
		"GPUs, 176-179 from the others of its NUMA node, 119-124 from the other NUMA node: published GPU-NIC guide"
	seenStream = "STREAM in the guest 2 to 7 times as fast with guest NUMA on hosts of several NUMA nodes: published " +
		"vCPU pinning study"
	seenNCCL = "NCCL was hurt by guest NUMA on some hosts (with NCCL_P2P_DISABLE=1): published vCPU pinning study"
	seenHuge = "ib_write_lat 1.44 us typical, with 1 GiB pages, pinning and isolated CPUs together: EPYC 7551P, " +
		"published lab"
	seenSMT    = "sibling threads shown to the guest as such gain 2-3 %: published vCPU pinning study"
	seenPinned = "pinning alone helps latency and noise: published vCPU pinning study"
	seenMatmul = "FP16 matmul is the same whatever the CPUs: published vCPU pinning study"
)
