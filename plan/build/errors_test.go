package build_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/synthetic"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/build"
)

func with(l *lab.Lab, changes ...func(*lab.Lab)) *lab.Lab {
	for _, c := range changes {
		c(l)
	}
	return l
}

func altered(h *topology.Host, changes ...func(*topology.Host)) *topology.Host {
	for _, c := range changes {
		c(h)
	}
	return h
}

func addr(t testing.TB, s string) topology.PCIAddr {
	t.Helper()
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func described(t testing.TB, desc string) *topology.Host {
	t.Helper()
	h, err := synthetic.Host(desc)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestErrorsSayWhatIsThereAndWhatToDo(t *testing.T) {
	t.Parallel()
	weights := func(w map[string]int64) build.Options { return build.Options{Model: &build.Model{Weights: w}} }
	pairs := func(p ...build.MeasuredPair) build.Options { return build.Options{Model: &build.Model{Pairs: p}} }
	node := func(n int) *int { return &n }
	isHeld := func(h *topology.Host) {
		h.Tenants = []topology.Tenant{{Name: "web", Devices: []topology.TenantDevice{{PCI: addr(t, "0000:06:00.0")},
			{PCI: addr(t, "0000:61:00.0")}}}}
	}
	withVF := func(h *topology.Host) {
		vf, pf := addr(t, "0000:41:00.2"), addr(t, "0000:41:00.0")
		class := topology.ID24(0x020000)
		h.PCI = append(h.PCI, topology.PCIDevice{Address: vf, PF: &pf, Class: &class})
		for i := range h.NICs {
			if *h.NICs[i].Address == pf {
				h.NICs[i].SRIOV = &topology.SRIOV{Total: new(8), VFs: []topology.VF{{Index: 0, Address: &vf}}}
			}
		}
	}
	noVFs := func(h *topology.Host) {
		for i := range h.NICs {
			h.NICs[i].SRIOV = nil
		}
		for i := range h.PCI {
			h.PCI[i].SRIOV = nil
		}
	}
	only2MiB := func(h *topology.Host) {
		h.Memory.Hugepages = h.Memory.Hugepages[:1]
		for i := range h.NUMANodes {
			h.NUMANodes[i].Hugepages = h.NUMANodes[i].Hugepages[:1]
		}
	}
	tests := []struct {
		name string
		host *topology.Host // nil means the EPYC
		lab  *lab.Lab
		o    build.Options
		want string
	}{
		{"an address that is not there", nil, labOf(1, gpus(at("0000:99:00.0"))), build.Options{},
			"vm00: gpus: no device 0000:99:00.0 on epyc: GPUs are 0000:06:00.0, 0000:21:00.0"},
		{"a NIC's address that is not there", nil, labOf(1, nics(at("NIC7"))), build.Options{},
			"vm00: nics: no device NIC7 on epyc: NICs are 0000:02:00.0, 0000:41:00.0, 0000:41:00.1, 0000:61:00.0, " +
				"0000:61:00.1"},
		{"an address on a host without any", described(t, "pack:1 core:8 pu:2"), labOf(1, gpus(at("0000:99:00.0"))),
			build.Options{},
			"vm00: gpus: no device 0000:99:00.0 on epyc: it has no GPUs"},
		{"a NIC among GPUs", nil, labOf(1, gpus(at("0000:41:00.0"))), build.Options{},
			"vm00: gpus: 0000:41:00.0 is a NIC: ask for it under nics"},
		{"a GPU among VFs", nil, labOf(1, vfs(at("0000:06:00.0"))), build.Options{},
			"vm00: vfs: 0000:06:00.0 is a GPU: ask for it under gpus"},
		{"a screen among GPUs", nil, labOf(1, gpus(at("0000:03:00.0"))), build.Options{},
			"vm00: gpus: 0000:03:00.0 (ASPEED Graphics Family) only drives a screen: nothing computes on it"},
		{"a disk among NICs", nil, labOf(1, nics(at("0000:01:00.0"))), build.Options{},
			"vm00: nics: 0000:01:00.0 is no NIC but: Non-Volatile memory controller"},
		{"a virtual function as a whole NIC", altered(epyc(t), withVF), labOf(1, nics(at("0000:41:00.2"))),
			build.Options{},
			"vm00: nics: 0000:41:00.2 is virtual function 0 of 0000:41:00.0: ask for vfs: 0000:41:00.0"},
		{"a virtual function by its own address", altered(epyc(t), withVF), labOf(1, vfs(at("0000:41:00.2"))),
			build.Options{},
			"vm00: vfs: 0000:41:00.2 is virtual function 0 of 0000:41:00.0: ask for vfs: 0000:41:00.0"},
		{"the NIC of the default route", nil, labOf(1, nics(at("0000:02:00.0"))), build.Options{},
			"vm00: nics: 0000:02:00.0 cannot be given away: it carries the default route (eno1)"},
		{"a tenant's GPU", altered(epyc(t), isHeld), labOf(1, gpus(at("0000:06:00.0"))), build.Options{},
			"vm00: gpus: 0000:06:00.0 cannot be given away: VM web holds it"},
		{"VFs of a tenant's NIC", altered(epyc(t), isHeld), labOf(1, vfs(at("0000:61:00.0"))), build.Options{},
			"vm00: vfs: 0000:61:00.0 gives no virtual functions: VM web holds it"},
		{"an address that does not keep another condition", nil,
			labOf(1, nics(lab.DeviceRequest{Count: 1, Address: "mlx5_0", NUMANode: node(3)})), build.Options{},
			"vm00: nics: 0000:41:00.0 is on NUMA node 2"},
		{"one device twice", nil, labOf(1, gpus(at("0000:06:00.0"), at("06:00.0"))), build.Options{},
			"vm00: gpus: asks for 0000:06:00.0 twice: one GPU is one device"},

		{"more GPUs than there are", nil, labOf(1, gpus(some(3))), build.Options{},
			"vm00: gpus: asks for 3 and epyc can give 2 (0000:06:00.0 and 0000:21:00.0)"},
		{"more NICs than may go", nil, labOf(1, nics(some(5))), build.Options{},
			"vm00: nics: asks for 5 and epyc can give 4 (0000:41:00.0, 0000:41:00.1, 0000:61:00.0 and 0000:61:00.1); " +
				"not 0000:02:00.0: it carries the default route (eno1)"},
		{"more in all than there are", nil, labOf(1, gpus(some(1), lab.DeviceRequest{Count: 2, Vendor: "nvidia"})),
			build.Options{},
			"vm00: gpus: asks for 3 in all and epyc can give 2 (0000:06:00.0 and 0000:21:00.0)"},
		{"a vendor that is not there", nil, labOf(1, gpus(lab.DeviceRequest{Count: 1, Vendor: "AMD"})), build.Options{},
			"vm00: gpus: nothing on epyc is 1 of vendor AMD: 0000:06:00.0 and 0000:21:00.0 by NVIDIA Corporation"},
		{"conditions that no device keeps together", nil,
			labOf(1, nics(lab.DeviceRequest{Count: 1, Vendor: "0x15b3", Model: "connectx-4", NUMANode: node(2),
				RateMbps: 100_000})), build.Options{},
			"vm00: nics: nothing on epyc is 1 of vendor 0x15b3, model connectx-4, NUMA node 2, at least 100 Gb/s: " +
				"0000:02:00.0 by Intel Corporation; " +
				"0000:41:00.0 and 0000:41:00.1 with 25 Gb/s; 0000:61:00.0 and 0000:61:00.1 on NUMA node 3"},
		{"a model that is not there", nil, labOf(1, gpus(lab.DeviceRequest{Count: 1, Model: "H100"})), build.Options{},
			"vm00: gpus: nothing on epyc is 1 of model H100: 0000:06:00.0 and 0000:21:00.0 of GA102 [GeForce " +
				"RTX 3090]"},
		{"a link whose rate nobody knows", h20(t), labOf(1, nics(lab.DeviceRequest{Count: 1, RateMbps: 100_000})),
			build.Options{},
			"vm00: nics: nothing on epyc is 1 of at least 100 Gb/s: NIC0, NIC1, NIC2 and NIC3 with a link whose rate " +
				"is not known"},
		{"a selector whose only devices must stay", nil, labOf(1, nics(lab.DeviceRequest{Count: 1, Vendor: "intel"})),
			build.Options{},
			"vm00: nics: nothing on epyc is 1 of vendor intel: 0000:41:00.0, 0000:41:00.1, 0000:61:00.0 and " +
				"0000:61:00.1 by Mellanox Technologies; " +
				"not 0000:02:00.0: it carries the default route (eno1)"},
		{"a NUMA node that is not there", nil, labOf(1, gpus(lab.DeviceRequest{Count: 1, NUMANode: node(7)})),
			build.Options{},
			"vm00: gpus: epyc has no NUMA node 7: they are 0-3"},
		{"a kind that is not there", described(t, "pack:1 core:8 pu:2"),
			labOf(1, gpus(lab.DeviceRequest{Count: 1, Vendor: "nvidia"})), build.Options{},
			"vm00: gpus: nothing on epyc is 1 of vendor nvidia: it has no GPU at all"},
		{"VFs that no firmware offers", altered(epyc(t), noVFs),
			labOf(1, vfs(lab.DeviceRequest{Count: 1, NUMANode: node(2), Model: "ConnectX"})), build.Options{},
			"vm00: vfs: nothing on epyc is 1 of model ConnectX, NUMA node 2: 0000:02:00.0 of I350 Gigabit Network " +
				"Connection; 0000:61:00.0 and 0000:61:00.1 " +
				"on NUMA node 3; not 0000:41:00.0 and 0000:41:00.1: it offers no virtual functions; for a ConnectX, " +
				"turn them on in its firmware " +
				"(mlxconfig set SRIOV_EN=1 NUM_OF_VFS=8), then restart"},
		{"a count that no request can have", nil, labOf(1, gpus(some(0), some(-1))), build.Options{},
			"vm00: gpus: asks for 0: want 1 to 256 in all"},

		{"more CPUs than there are", nil, labOf(1, cpus(64)), build.Options{},
			"vm00: cpus: 64 need 32 cores with 2 threads each, and epyc can give 30: it has 32 cores, and keeps 2 " +
				"for itself"},
		{"more CPUs than there are without SMT", nil, labOf(1, cpus(31), smt(lab.Off)), build.Options{},
			"vm00: cpus: 31 need 31 cores, and epyc can give 30: it has 32 cores, and keeps 2 for itself; with smt: " +
				"auto, 32 take 16 cores, two on each"},
		{"no CPUs", nil, labOf(1, cpus(0)), build.Options{}, "vm00: cpus: 0: want at least 1"},
		{"siblings of an odd count", nil, labOf(1, cpus(7), smt(lab.On)), build.Options{},
			"vm00: smt: on gives the lab node two threads of each core, and cpus is 7, which is odd: ask for 8, or " +
				"for smt: auto"},
		{"siblings on cores of one thread", described(t, "pack:1 core:8 pu:1"), labOf(1, smt(lab.On)), build.Options{},
			"vm00: smt: on gives the lab node two threads of each core, and epyc has cores of one thread only: ask " +
				"for smt: auto or off"},
		{"siblings where SMT is off", altered(described(t, "pack:1 core:8 pu:1"), func(h *topology.Host) {
			h.CPUs.SMT = "off"
		}), labOf(1, smt(lab.On)),
			build.Options{}, "vm00: smt: on gives the lab node two threads of each core, and epyc has cores of one " +
				"thread only: SMT is off on the host: turn it on " +
				"(/sys/devices/system/cpu/smt/control, the firmware, or without nosmt), or ask for smt: off"},
		{"nothing left for auto", nil, with(labOf(2, cpus(60)), func(l *lab.Lab) {
			autoCPUs()(&l.Nodes[1])
		}), build.Options{},
			"vm01: cpus: auto: no core is left: epyc has 32 cores, keeps 2 for itself, the other lab nodes ask for " +
				"30, and 1 lab node with cpus: auto share the rest"},
		{"a setting that is none", nil, labOf(1, smt("maybe")), build.Options{},
			`vm00: smt: "maybe": want auto, on or off`},

		{"more memory than there is", nil, labOf(1, memory(lab.TiB)), build.Options{},
			"vm00: memory: asks for 1TiB: epyc can give 240GiB: it has 250.0 GiB, keeps 8.0 GiB, and counts in " +
				"pages of 1GiB"},
		{"auto on a host of unknown memory", h20(t), labOf(1, autoMemory()), build.Options{},
			"vm00: memory: auto needs to know the memory of the host, and epyc does not tell it: give a size"},
		{"nothing left for auto memory", nil, with(labOf(2, memory(240*lab.GiB)), func(l *lab.Lab) {
			autoMemory()(&l.Nodes[1])
			l.Hugepages = lab.Hugepages1GiB
		}), build.Options{},
			"vm01: memory: auto: nothing is left: epyc can give 240GiB: it has 250.0 GiB, keeps 8.0 GiB, and counts " +
				"in pages of 1GiB, and the other lab nodes " +
				"ask for 240GiB"},
		{"no memory", nil, labOf(1, memory(0)), build.Options{},
			"vm00: memory: 0 bytes: want at least 1 and at most 4096TiB"},
		{"pages of 1 GiB where there are none", altered(epyc(t), only2MiB), with(labOf(1), func(l *lab.Lab) {
			l.Hugepages = lab.Hugepages1GiB
		}), build.Options{},
			"hugepages: 1GiB: epyc has hugepages of 2MiB only: ask for hugepages: 2MiB, or leave it to the planner " +
				"with auto"},
		{"pages of 2 MiB on another architecture", altered(described(t, "pack:1 core:8 pu:2"), func(h *topology.Host) {
			h.System.Arch = "s390x"
		}),
			with(labOf(1), func(l *lab.Lab) { l.Hugepages = lab.Hugepages2MiB }), build.Options{},
			"hugepages: 2MiB: epyc is s390x, and shows no hugepages of this size: leave it to the planner with " +
				"hugepages: auto, or turn them off"},
		{"pages that are none", nil, with(labOf(1), func(l *lab.Lab) {
			l.Hugepages = "4KiB"
		}), build.Options{}, `hugepages: "4KiB": want auto, 1GiB, 2MiB or off`},

		// The host's reserve.
		{"no core for the host", nil, with(labOf(1), func(l *lab.Lab) { l.Reserve.Cores = new(0) }), build.Options{},
			"host.reserve.cores: 0: the host needs at least 1 core: interrupts, QEMU's own threads and you"},
		{"more cores for the host than there are", nil, with(labOf(1), func(l *lab.Lab) {
			l.Reserve.Cores = new(40)
		}), build.Options{},
			"host.reserve.cores: 40: epyc has 32 cores: ask for fewer"},
		{"cores on a node that is not there", described(t, "pack:1 core:8 pu:2"), with(labOf(1), func(l *lab.Lab) {
			l.Reserve.NUMA = []lab.NUMAReserve{{Node: 1}}
		}),
			build.Options{}, "host.reserve.numa_nodes: epyc has no NUMA node 1: its only one is 0"},
		{"more cores of a node than it has", nil, with(labOf(1), func(l *lab.Lab) {
			l.Reserve.NUMA = []lab.NUMAReserve{{Node: 1, Cores: 9}}
		}), build.Options{},
			"host.reserve.numa_nodes: NUMA node 1: 9 cores for the host, and there are 8 that no other VM holds: " +
				"ask for fewer"},
		{"a node reserved twice", nil, with(labOf(1), func(l *lab.Lab) {
			l.Reserve.NUMA = []lab.NUMAReserve{{Node: 1}, {Node: 1}}
		}), build.Options{},
			"host.reserve.numa_nodes: NUMA node 1 is there twice: say all of it at one place"},
		{"negative reserves", nil, with(labOf(1), func(l *lab.Lab) {
			l.Reserve.Memory = new(lab.Bytes(-1))
			l.Reserve.NUMA = []lab.NUMAReserve{{Node: 1, Cores: -1}, {Node: 2, Memory: new(lab.Bytes(-1))}}
		}), build.Options{}, "host.reserve.numa_nodes: NUMA node 1: -1 cores: want 0 or more\nhost.reserve.memory: " +
			"-1 bytes: want 0 or more\n" +
			"host.reserve.numa_nodes: NUMA node 2: -1 bytes of memory: want 0 or more"},

		{"affinity of strangers", nil, with(labOf(2), func(l *lab.Lab) {
			l.Affinity = []lab.Affinity{{Nodes: []string{"vm00", "vm09"}, NUMA: lab.Same},
				{Nodes: []string{"vm00", "vm00"}, NUMA: lab.Same},
				{Nodes: []string{"vm01"}, NUMA: lab.Same}, {Nodes: []string{"vm00", "vm01"}, NIC: "near"}}
		}), build.Options{}, "affinity: no lab node is called vm09\naffinity: vm00 is there twice\naffinity: " +
			"it has 1 " +
			"lab node: want at least 2\n" +
			`affinity: nic: "near": want same or different`},
		{"whole NICs that are to be shared", nil, with(labOf(2, nics(some(1))), func(l *lab.Lab) {
			l.Affinity = []lab.Affinity{{Nodes: []string{"vm01", "vm00"}, NIC: lab.Same}}
		}), build.Options{}, "vm00: nics: affinity nic: same shares NICs among lab nodes, and a whole NIC goes to " +
			"one: ask for vfs"},
		{"one name twice", nil, with(labOf(2), func(l *lab.Lab) {
			l.Nodes[1].Name = "vm00"
		}), build.Options{}, "vm00: two lab nodes have this name: give each its own"},

		{"weights that are none", nil, labOf(1),
			weights(map[string]int64{"gpu_path": 1, "unequal": -1, "l3_shared": 1_000_001}),
			"model: no weight is called gpu_path: they are gpu_nic_path, gpu_nic_measured, gpu_gpu_path, " +
				"device_nearest, device_distance, device_share, memory_distance, " +
				"memory_balance, core_balance, efficiency_cores, numa_span, numa_span_hidden, l3_shared, " +
				"emulator_distance, " +
				"nic_rate, nic_rdma, nic_shared, card_shared, unlinked and unequal\n" +
				"model: weight l3_shared is 1000001: want 0 to 1000000\nmodel: weight unequal is -1: want 0 " +
				"to 1000000"},
		{"pairs of devices that are not there", h20(t), labOf(1),
			pairs(build.MeasuredPair{GPU: "GPU9", NIC: "GPU0", Gbps: 1}),
			"model: pair 1: no GPU GPU9 on epyc: GPUs are GPU0, GPU1, GPU2, GPU3, GPU4, GPU5, GPU6, GPU7\n" +
				"model: pair 1: no NIC GPU0 on epyc: NICs are NIC0, NIC1, NIC2, NIC3"},
		{"bandwidths that are none", h20(t), labOf(1), pairs(build.MeasuredPair{GPU: "GPU0", NIC: "NIC0", Gbps: 0},
			build.MeasuredPair{GPU: "GPU1", NIC: "NIC0", Gbps: -3},
			build.MeasuredPair{GPU: "GPU2", NIC: "NIC0", Gbps: math.NaN()}, build.MeasuredPair{GPU: "GPU3", NIC: "NIC0",
				Gbps: math.Inf(1)}),
			"model: pair 1 (GPU0, NIC0): 0 Gb/s: want a number above 0\nmodel: pair 2 (GPU1, NIC0): -3 Gb/s: want a " +
				"number above 0\n" +
				"model: pair 3 (GPU2, NIC0): NaN Gb/s: want a number above 0\nmodel: pair 4 (GPU3, NIC0): +Inf Gb/s: " +
				"want a number above 0"},
		{"a pair twice", h20(t), labOf(1), pairs(build.MeasuredPair{GPU: "GPU0", NIC: "NIC0", Gbps: 1},
			build.MeasuredPair{GPU: "GPU0", NIC: "mlx5_bond_0", Gbps: 2}),
			"model: pair 2 (GPU0, mlx5_bond_0) is there twice: keep one figure"},

		// Not from a parser.
		{"no nodes", nil, labOf(0), build.Options{}, "nodes: the lab has no nodes: give it at least one"},
		{"a workload that is none", nil, with(labOf(1), func(l *lab.Lab) {
			l.Workload = "games"
		}), build.Options{}, `workload: no weights for workload "games"`},
		{"too many nodes", nil, labOf(501), build.Options{},
			"epyc: 501 lab nodes, and at most 500 can be planned with"},
		{"too many cores", &topology.Host{Cores: make([]topology.Core, 60_000)}, labOf(1), build.Options{},
			"epyc: 60000 cores, and at most 4096 can be planned with"},
		{"too many NUMA nodes", &topology.Host{NUMANodes: make([]topology.NUMANode, 257)}, labOf(1), build.Options{},
			"epyc: 257 NUMA nodes, and at most 256 can be planned with"},
		{"too many devices", &topology.Host{GPUs: make([]topology.GPU, 1000), NICs: make([]topology.NIC, 25)}, labOf(1),
			build.Options{},
			"epyc: 1025 GPUs and NICs, and at most 1024 can be planned with"},
		{"too much memory", &topology.Host{NUMANodes: []topology.NUMANode{{MemoryBytes: new(uint64(math.MaxUint64))}}},
			labOf(1), build.Options{},
			"epyc: more than 4096TiB of memory, and no more can be planned with"},
		{"no CPUs", &topology.Host{}, labOf(1), build.Options{},
			"epyc: its CPUs are not known: read the machine itself, or a snapshot of it (rackless host snapshot)"},
		{"one core twice", &topology.Host{Cores: []topology.Core{{ID: 1, CPUs: topology.CPUs(0)},
			{ID: 1, CPUs: topology.CPUs(1)}}}, labOf(1), build.Options{},
			"epyc: two cores have the number 1"},
		{"one CPU in two cores", &topology.Host{Cores: []topology.Core{{ID: 1, CPUs: topology.CPUs(0)},
			{ID: 2, CPUs: topology.CPUs(0)}}}, labOf(1), build.Options{},
			"epyc: CPU 0 is in two cores"},
		{"one NUMA node twice", &topology.Host{NUMANodes: []topology.NUMANode{{ID: 3}, {ID: 3}}}, labOf(1),
			build.Options{}, "epyc: NUMA node 3 is listed twice"},
		{"a NUMA node with an impossible number", &topology.Host{NUMANodes: []topology.NUMANode{{ID: -3}}}, labOf(1),
			build.Options{},
			"epyc: -3 is not the number of a NUMA node"},
		{"one device twice on the host", altered(h20(t), func(h *topology.Host) {
			h.NICs[1].Name = "NIC0"
		}), labOf(1), build.Options{},
			"epyc: two NICs are called NIC0"},
		{"a profile of emulated nodes", nil, labOf(1, func(n *lab.Node) { n.Profile = "h20" }), build.Options{},
			"vm00: profile: h20 is for emulated nodes, and epyc has its own devices: leave it out, and ask for nics " +
				"and " +
				"gpus, or run the lab with driver: qemu"},
		{"text that would steer a terminal", altered(h20(t), func(h *topology.Host) {
			h.GPUs[0].Name = "\x1b[2J"
		}), labOf(1, gpus(at("x\ny"))), build.Options{},
			`vm00: gpus: no device "x\ny" on epyc: GPUs are "\x1b[2J", GPU1, GPU2, GPU3, GPU4, GPU5, GPU6, GPU7`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := test.host
			if h == nil {
				h = epyc(t)
			}
			test.o.HostName = "epyc"
			_, err := build.Problem(h, test.lab, test.o)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(strings.Split(test.want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			var one *build.RequestError
			if !errors.As(err, &one) || one.What == "" {
				t.Errorf("%T is no *RequestError", err)
			}
		})
	}
}

func TestErrorsOfAllNodesComeTogether(t *testing.T) {
	t.Parallel()
	_, err := build.Problem(epyc(t), labOf(300, gpus(at("0000:99:00.0"))), build.Options{HostName: "epyc"})
	var all build.RequestErrors
	if !errors.As(err, &all) || len(all) != 300 {
		t.Fatalf("%d errors, want 300", len(all))
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 11 || lines[10] != "and 290 more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	if all[0].Node != "vm00" || all[0].Key != "gpus" {
		t.Errorf("first error %+v", all[0])
	}
}
