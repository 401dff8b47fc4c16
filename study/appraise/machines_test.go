package appraise_test

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/study/appraise"
	"github.com/rackless/rackless/study/importer"
)

// port returns a machine with one RDMA port; 0 and "" are not told.
func port(gbps float64, state string, mbps int64) *topology.Host {
	h := host(link(16, 16), link(16, 16), link(16, 16))
	p := &h.NICs[0].Devices[0].Ports[0]
	p.RateGbps, p.State, h.NICs[0].Ports[0].SpeedMbps = nil, state, nil
	if gbps > 0 {
		p.RateGbps = &gbps
	}
	if mbps > 0 {
		h.NICs[0].Ports[0].SpeedMbps = &mbps
	}
	return h
}

// second adds mlx5_1 of 100 Gb/s to mlx5_0 of 25 Gb/s.
func second() *topology.Host {
	h := port(25, "ACTIVE", 25000)
	h.NICs = append(h.NICs, topology.NIC{Name: "NIC1", RDMA: []string{"mlx5_1"}, Devices: []topology.RDMADevice{{
		Name: "mlx5_1", Ports: []topology.RDMAPort{{Number: 1, State: "ACTIVE", RateGbps: new(100.0)}}}}})
	h.Complete()
	return h
}

func infiniband(h *topology.Host) *topology.Host {
	h.NICs[0].Devices[0].Ports[0].LinkLayer = "InfiniBand"
	return h
}

// untold hides the port's link layer and network device.
func untold(h *topology.Host, netdev string) *topology.Host {
	n := &h.NICs[0]
	n.Devices[0].Ports[0].GIDs = nil
	n.Ports[0].Name, n.Ports[0].DevPort = netdev, new(0)
	n.Ports = append(n.Ports, topology.Netdev{Name: "eth1", DevPort: new(1), SpeedMbps: new(int64(400000))})
	return h
}

// twoPorts has a card of two 100 Gb/s ports behind a link of 126 Gb/s, and a second card.
func twoPorts(t *testing.T, third float64) *topology.Host {
	h := host(link(8, 16), link(16, 16), link(16, 16))
	for name, address := range map[string]string{"mlx5_1": "0000:41:00.1", "mlx5_2": "0000:42:00.0"} {
		a, err := topology.ParsePCIAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		d, rate := h.PCI[len(h.PCI)-1], 100.0
		if d.Address = a; name == "mlx5_2" {
			rate = third
		}
		h.PCI = append(h.PCI, d)
		h.NICs = append(h.NICs, topology.NIC{Address: &a, RDMA: []string{name}, Devices: []topology.RDMADevice{{
			Name: name, Ports: []topology.RDMAPort{{Number: 1, State: "ACTIVE", RateGbps: &rate}}}}})
	}
	h.Complete()
	return h
}

// rails is a run of OSU over the devices of its command.
func rails(t *testing.T, devices, best string) []*importer.Study {
	return log(t, "osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_bw.txt", "# OSU MPI", "$ mpirun -x UCX_NET_DEVICES="+devices+
		" osu_bw\n# OSU MPI", "11925.27", best)
}

func unlinked(h *topology.Host) *topology.Host {
	h.PCI[len(h.PCI)-1].Link = nil
	return h
}

func placed(test string, gbps float64, hosts ...int) []*importer.Study {
	s := figures(test, bench.MetricBusBandwidth, bench.UnitGBps, gbps, 2)
	s[0].Runs[0].Samples[0].Origin.Placed = hosts
	return s
}

func sizes(hosts int, gbps ...float64) []*importer.Study {
	s := figures("nccl_all_reduce", bench.MetricBusBandwidth, bench.UnitGBps, 1, hosts)
	first := s[0].Runs[0].Samples[0]
	s[0].Runs[0].Samples = nil
	for i, v := range gbps {
		first.Value, first.Bytes = v, 1<<(20+i)
		s[0].Runs[0].Samples = append(s[0].Runs[0].Samples, first)
	}
	return s
}

func TestFiguresBetweenMachines(t *testing.T) {
	t.Parallel()
	const full = "perftest/synthetic-write_bw-cx4lx-25g.txt"
	for _, tt := range []struct {
		name          string
		host          *topology.Host
		studies       []*importer.Study
		device        string
		verdict, text string // in the text of the figure or of a cause
		never         string // is in none of them
	}{
		{"the speed of a network device is the rate of its RoCE port", port(0, "ACTIVE", 100000), machines(t, 11.6), "",
			appraise.Normal, "of the 12.5 GB/s of 1 NICs", ""},
		{"a rate that is not told", port(0, "ACTIVE", 0), machines(t, 11.6), "", appraise.Unknown,
			"the rate of the ports of this one is not told (mlx5_0): add ibstat", "no active"},
		{"a state that is not told either", port(0, "", 0), machines(t, 11.6), "", appraise.Unknown, "add ibstat",
			"no active"},
		{"a port that is down", port(100, "DOWN", 0), machines(t, 11.6), "", appraise.Unknown,
			"no active RDMA port: mlx5_0 down", ""},
		{"a machine of which no RDMA device is known", without(port(0, "", 0)), machines(t, 11.6), "", appraise.Unknown,
			"no RDMA device of this one is known", "no active"},
		{"a PCIe link is no cause of a hundredth of it", port(0, "ACTIVE", 0), log(t, full, "24.50", "1.69"), "",
			appraise.Low,
			"no cause was found", "PCIe Gen 4 x16 link"},
		{"nor beside a wire", port(0, "ACTIVE", 400000), log(t, full, "24.50", "1.69"), "", appraise.Low,
			"no cause was found", "PCIe Gen 4 x16 link"},
		{"a guest's device of the same name", second(), log(t, full, "24.50", "97.60"), "", appraise.Unknown,
			"mlx5_0 of this machine cannot carry it, and mlx5_1 can; names in a guest are not those of its host " +
				"(--device", ""},
		{"a guest's device, and the one that was measured", second(), log(t, full, "24.50", "97.60"), "mlx5_1",
			appraise.Normal, "within 98% of the wire", ""},
		{"a device that was measured, and cannot carry it", second(), log(t, full, "24.50", "97.60"), "mlx5_0",
			appraise.Above, "more than the", ""},
		{"the network device of what was measured", second(), log(t, full, "24.50", "20.00"), "eth0", appraise.Low,
			"which carries 24.50 Gb/s", ""},
		{"TCP, by the name of the RDMA device", port(100, "ACTIVE", 100000), log(t, "iperf3/thiezn-3.0.11.json"),
			"mlx5_0",
			appraise.Low, "100 Gb/s, MTU 9000", ""},
		{"a device whose rate is not told", unlinked(port(0, "ACTIVE", 0)), log(t, full), "", appraise.Unknown,
			"neither the rate of the port nor its PCIe link is known: add ibstat", ""},
		{"a device whose port is down", unlinked(port(0, "DOWN", 0)), log(t, full), "", appraise.Unknown,
			"is known: the port of mlx5_0 is down", "ibstat"},
		{"a host that does not see the RDMA device of its guest", without(port(0, "", 100000)), log(t, full, "24.50",
			"97.60"), "eth0", appraise.Normal, "within 98% of the wire", ""},
		{"a latency of such a guest", without(port(0, "", 100000)), figures("osu_latency", bench.MetricLatencyAverage,
			bench.UnitUsec, 2, 1), "eth0", appraise.Normal, "1 to 5 us are usual", ""},
		{"a network device that is not there either", without(port(0, "", 100000)), log(t, full), "eth7",
			appraise.Unknown, "the machine has no RDMA or network device eth7", ""},
		{"a device that is not there", second(), log(t, full, "mlx5_0", "mlx5_7"), "", appraise.Unknown,
			"names in a guest are not those of its host", ""},
		{"a log of others has no advice in our flags", port(100, "ACTIVE", 0), log(t, full), "", appraise.Low, "no " +
			"cause",
			"--numa"},
		{"one rank on each machine exchanges all", port(100, "ACTIVE", 0), placed("nccl_sendrecv", 11.5, 0, 1), "",
			appraise.Normal, "92% of the 12.5 GB/s", ""},
		{"ranks of two machines in turn", port(100, "ACTIVE", 0), placed("nccl_sendrecv", 6, 0, 1, 0, 1), "",
			appraise.Normal, "2 times the figure crosses between machines", ""},
		{"all to all over two machines of two ranks", port(100, "ACTIVE", 0), placed("nccl_alltoall", 8, 0, 0, 1, 1),
			"",
			appraise.Normal, "85.3% of 9.375 GB/s: as the ranks are placed, 1.33 times", ""},
		{"all to all that is slow", port(100, "ACTIVE", 0), placed("nccl_alltoall", 2, 0, 0, 1, 1), "", appraise.Low,
			"are not used", ""},
		{"ranks that are not listed", port(100, "ACTIVE", 0), placed("nccl_alltoall", 2), "", appraise.Unknown,
			"depends on how ranks are placed, which the log does not list", ""},
		{"an operation that is not told", port(100, "ACTIVE", 0), placed("nccl-tests", 2, 0, 1), "", appraise.Unknown,
			"which operation it is, neither the log nor its name says", "placed"},
		{"a scatter", port(100, "ACTIVE", 0), placed("nccl_scatter", 12, 0, 1), "", appraise.Normal, "96% of the 12.5",
			""},
		{"an operation whose traffic is not known", port(100, "ACTIVE", 0), placed("nccl_hypercube", 2, 0, 1), "",
			appraise.Unknown, "how much of this operation crosses machines is not known", "placed"},
		{"a fall with size, without a machine", without(port(0, "", 0)), sizes(2, 12.9, 29.5, 5.27, 5.22, 4.09), "",
			appraise.Low, "29.5 GB/s at 2 MiB, and at most 5.27 from 4 MiB on", ""},
		{"a fall with size", port(400, "ACTIVE", 0), sizes(2, 12.9, 29.5, 5.27, 5.22, 4.09), "", appraise.Low,
			"packets that are lost", ""},
		{"a fall over InfiniBand", infiniband(port(400, "ACTIVE", 0)), sizes(2, 12.9, 29.5, 5.27, 5.22, 4.09), "",
			appraise.Low, "a way that is congested or broken", "lost"},
		{"a fall over a card of InfiniBand", untold(port(400, "ACTIVE", 0), "ib0"),
			sizes(2, 12.9, 29.5, 5.27, 5.22, 4.09), "", appraise.Low, "a way that is congested or broken", "lost"},
		{"the network device with the number of the port", untold(port(0, "ACTIVE", 100000), "eth0"),
			machines(t, 11.6), "", appraise.Normal, "of the 12.5 GB/s of 1 NICs", ""},
		{"two ports of one card", twoPorts(t, 100), rails(t, "mlx5_0:1,mlx5_1:1", "12000.00"), "", appraise.Low,
			"PCIe Gen 3 x16 link that the ports of one card share", "names no device"},
		{"one port of it", twoPorts(t, 100), rails(t, "mlx5_1:1", "12000.00"), "", appraise.Normal, "", "share"},
		{"two cards", twoPorts(t, 100), rails(t, "mlx5_0:1,mlx5_2:1", "24000.00"), "", appraise.Normal,
			"97.9 % of the wire", "share"},
		{"two cards that do not add up", twoPorts(t, 100), rails(t, "mlx5_0:1,mlx5_2:1", "12000.00"), "", appraise.Low,
			"which carries 196.", "share"},
		{"a second card whose rate is not known", twoPorts(t, 0), rails(t, "mlx5_0:1,mlx5_2:1", "12000.00"), "",
			appraise.Unknown, "the rate of mlx5_2 is not known", ""},
		{"a second card that is not there", twoPorts(t, 100), rails(t, "mlx5_0:1,mlx5_7:1", "12000.00"), "",
			appraise.Unknown, "the rate of mlx5_7 is not known", ""},
		{"one of several devices, by the command", twoPorts(t, 100), rails(t, "mlx5_0:1,mlx5_1:1", "12000.00"),
			"mlx5_1",
			appraise.Normal, "", "share"},
		{"a small fall", port(100, "ACTIVE", 0), sizes(2, 12.9, 29.5, 25, 12, 11), "", appraise.Normal, "", "lost"},
		{"one slow size at the end", port(100, "ACTIVE", 0), sizes(2, 10, 11, 10, 2), "", appraise.Low, "", "lost"},
		{"a fall within a machine", mesh(2, 6), sizes(1, 100, 300, 20, 20), "", appraise.Unknown, "", "lost"},
	} {
		f := appraise.Check(tt.host, nil, tt.studies, tt.device)[0]
		text := f.Text
		for _, c := range f.Causes {
			text += "\n" + c.What + ": " + c.Evidence + ": " + c.Fix
		}
		if f.Verdict != tt.verdict || !strings.Contains(text, tt.text) ||
			tt.never != "" && strings.Contains(text, tt.never) {
			t.Errorf("%s: %g %s is %s: %s; want %s with %q and without %q", tt.name, f.Value, f.Unit, f.Verdict, text,
				tt.verdict, tt.text, tt.never)
		}
	}
}

// Possible remarks stand only with figures that are not normal.
func TestRemarksStandWithFigures(t *testing.T) {
	t.Parallel()
	remarks := []tool.Remark{{What: "transport", Evidence: "P2P"}, {What: "no binding", Possible: true}}
	s := placed("nccl_all_reduce", 11.6, 0, 1)
	first := &s[0].Runs[0].Samples[0]
	first.Origin.Remarks = remarks
	other := *first
	other.Test = "nccl_all_reduce/half"
	s[0].Runs[0].Samples = append(s[0].Runs[0].Samples, other)
	for gbps, want := range map[float64]int{11.6: 1, 1: 2} {
		s[0].Runs[0].Samples[0].Value = gbps
		all := appraise.Check(port(100, "ACTIVE", 0), nil, s, "")
		if len(all) != 2 || len(all[0].Remarks) != want || len(all[1].Remarks) != 0 {
			t.Errorf("%g GB/s: %+v, want %d remarks of the first figure", gbps, all, want)
		}
	}
}

// A remark on a far NIC names the nearest ones.
func TestNearNICs(t *testing.T) {
	t.Parallel()
	far := func(h *topology.Host) *topology.Host { // on the GPU's switch
		a, err := topology.ParsePCIAddr("0000:04:00.0")
		if err != nil {
			t.Fatal(err)
		}
		h.PCI = append(h.PCI, topology.PCIDevice{Address: a, Class: new(topology.ID24(0x020000)), NUMANode: new(0),
			Parent: h.PCI[3].Parent})
		h.NICs = append(h.NICs, topology.NIC{Address: &a, RDMA: []string{"mlx5_1"}})
		h.Complete()
		return h
	}
	matrix := func() *topology.Host {
		h := &topology.Host{GPUs: []topology.GPU{{Name: "GPU0"}}, NICs: []topology.NIC{{Name: "NIC0"}, {Name: "NIC1"},
			{Name: "NIC2"}}, Reported: []topology.Path{{A: "GPU0", B: "NIC0", Class: topology.PathSYS},
			{A: "GPU0", B: "NIC1", Class: topology.PathNODE}, {A: "GPU0", B: "NIC2", Class: topology.PathNODE}}}
		h.Complete()
		return h
	}
	for _, tt := range []struct {
		name string
		host *topology.Host
		gpu  string
		want string
	}{
		{"by its address", far(port(100, "ACTIVE", 0)), "2000",
			"fix; nearest to 0000:02:00.0 of this machine (PIX): mlx5_1"},
		{"a GPU that is not there", far(port(100, "ACTIVE", 0)), "81000", "fix"},
		{"an index", far(port(100, "ACTIVE", 0)), "0", "fix"},
		{"the only GPU", matrix(), "81000", "fix; nearest to GPU0 of this machine (NODE): NIC1, NIC2"},
		{"another remark", matrix(), "", "fix"},
	} {
		s := placed("nccl_all_reduce", 1, 0, 1)
		s[0].Runs[0].Samples[0].Origin.Remarks = []tool.Remark{{What: "far", FarGPU: tt.gpu, Fix: "fix"}}
		f := appraise.Check(tt.host, nil, s, "")[0]
		if len(f.Remarks) != 1 || f.Remarks[0].Fix != tt.want {
			t.Errorf("%s: %+v, want %q", tt.name, f.Remarks, tt.want)
		}
	}
}
