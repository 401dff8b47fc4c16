package appraise_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/appraise"
	"github.com/rackless/rackless/study/importer"
)

func log(t *testing.T, name string, replace ...string) []*importer.Study {
	t.Helper()
	data, err := os.ReadFile("../../bench/tool/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(replace...).Replace(string(data))
	all, err := importer.Import([]importer.Source{{FS: fstest.MapFS{"all_reduce.log": {Data: []byte(text)}}, Path: ".",
		Name: "logs", Base: "logs"}}, importer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func link(gts float64, width int) *topology.Link {
	return &topology.Link{SpeedGTs: &gts, Width: &width, MaxSpeedGTs: new(16.0), MaxWidth: new(16)}
}

func h200() *topology.Host { return withGPUs("NVIDIA H200") }
func h100() *topology.Host { return withGPUs("NVIDIA H100 80GB HBM3") }

func withGPUs(model string) *topology.Host {
	h := host(link(32, 16), link(32, 16), link(32, 16))
	for i := range h.GPUs {
		h.GPUs[i].Model = model
	}
	return h
}

func host(nic, gpu, uplink *topology.Link) *topology.Host {
	a := func(s string) topology.PCIAddr {
		addr, err := topology.ParsePCIAddr(s)
		if err != nil {
			panic(err)
		}
		return addr
	}
	class := func(id topology.ID24) *topology.ID24 { return &id }
	h := &topology.Host{System: topology.System{Arch: "x86_64"}, NUMANodes: []topology.NUMANode{{ID: 0,
		CPUs: topology.CPUs(0, 7)}},
		PCI: []topology.PCIDevice{
			{Address: a("0000:00:01.0"), Class: class(0x060400), Bridge: &topology.Bridge{Port: "root port"},
				Link: uplink},
			{Address: a("0000:00:02.0"), Class: class(0x060400), Bridge: &topology.Bridge{Port: "root port"}},
			{Address: a("0000:01:00.0"), Class: class(0x060400), Parent: new(a("0000:00:01.0")), Link: uplink,
				Bridge: &topology.Bridge{Port: "upstream port"}},
			{Address: a("0000:02:00.0"), Class: class(0x030200), Parent: new(a("0000:01:00.0")), Link: gpu},
			{Address: a("0000:03:00.0"), Class: class(0x030200), Parent: new(a("0000:01:00.0")), Link: gpu},
			{Address: a("0000:41:00.0"), Class: class(0x020000), Parent: new(a("0000:00:02.0")), Link: nic,
				NUMANode: new(0)},
		},
		GPUs: []topology.GPU{{Address: new(a("0000:02:00.0"))}, {Address: new(a("0000:03:00.0"))}},
		NICs: []topology.NIC{{Address: new(a("0000:41:00.0")), RDMA: []string{"mlx5_0"}, Netdevs: []string{"eth0"},
			Ports: []topology.Netdev{{Name: "eth0", MTU: new(9000), SpeedMbps: new(int64(100000))}},
			Devices: []topology.RDMADevice{{Name: "mlx5_0", Ports: []topology.RDMAPort{{Number: 1, State: "ACTIVE",
				RateGbps: new(100.0), GIDs: []topology.GID{{Index: 3, GID: "::ffff:192.0.2.1", Type: "RoCE v2",
					Netdev: "eth0"}}}}}}}},
	}
	h.Complete()
	return h
}

func without(h *topology.Host) *topology.Host {
	h.NICs[0].RDMA, h.NICs[0].Devices = nil, nil
	return h
}

func cpu(h *topology.Host, model string) *topology.Host {
	h.System.CPUModel, h.Packages = model, []topology.Package{{ID: 0, CPUs: topology.CPUs(0, 7)}}
	return h
}

func coherent(h *topology.Host, gbps *float64) *topology.Host {
	for i := range h.GPUs {
		h.GPUs[i].Model, h.GPUs[i].C2CGBps = "NVIDIA GH200 480GB", gbps
	}
	return h
}

func figures(test, metric, unit string, value float64, hosts int) []*importer.Study {
	s := &importer.Study{Spec: &study.Spec{Factors: []study.Factor{{Name: "variant"}}},
		Runs: []importer.Run{{Cell: map[string]string{"variant": "a"}, Samples: []importer.Sample{{
			Sample: bench.Sample{Test: test, Metric: metric, Unit: unit, Value: value, Bytes: 1 << 30}}}}}}
	s.Runs[0].Samples[0].Origin.Hosts = hosts
	if unit == bench.UnitUsec {
		s.Runs[0].Samples[0].Bytes = 1
	}
	return []*importer.Study{s}
}

func stream(_ *testing.T, mbps float64) []*importer.Study {
	return figures("stream", "triad", "MB/s", mbps, 1)
}

func machines(_ *testing.T, gbps float64) []*importer.Study {
	return figures("nccl_all_reduce", bench.MetricBusBandwidth, bench.UnitGBps, gbps, 2)
}

// mesh has this many NVLinks between all GPUs, or for 0 the path SYS.
func mesh(gpus, links int) *topology.Host {
	h := &topology.Host{}
	for i := range gpus {
		h.GPUs = append(h.GPUs, topology.GPU{Name: fmt.Sprint("GPU", i), Kind: topology.GPUDiscrete})
		for j := range i {
			p := topology.Path{A: fmt.Sprint("GPU", j), B: fmt.Sprint("GPU", i), Class: topology.PathNVLink,
				Links: links}
			if links == 0 {
				p.Class = topology.PathSYS
			}
			h.Reported = append(h.Reported, p)
		}
	}
	h.Complete()
	return h
}

func ranks(gbps float64, gpus int, model string) []*importer.Study {
	s := figures("nccl_all_reduce", bench.MetricBusBandwidth, bench.UnitGBps, gbps, 1)
	origin := &s[0].Runs[0].Samples[0].Origin
	for i := range gpus {
		origin.Ranks = append(origin.Ranks, importer.Rank{Device: i, Bus: fmt.Sprintf("0x%02x", 2+i), Model: model})
	}
	return s
}

func TestFiguresAreHeldAgainstTheMachine(t *testing.T) {
	good, full := link(16, 16), "perftest/synthetic-write_bw-cx4lx-25g.txt"
	for _, tt := range []struct {
		name    string
		host    *topology.Host
		studies []*importer.Study
		device  string
		test    string
		verdict string
		text    string
	}{
		{"the wire is reached", host(good, good, good), log(t, full, "24.50", "97.60"), "", "ib_write_bw",
			appraise.Normal, "within 98% of the wire"},
		{"the slot carries less", host(link(8, 8), good, good), log(t, full, "24.50", "54.00"), "",
			"ib_write_bw", appraise.Limited, "PCIe Gen 3 x8 link"},
		{"nothing explains it", host(good, good, good), log(t, full), "", "ib_write_bw", appraise.Low,
			"no cause was found"},
		{"another machine", host(good, good, good), log(t, full, "mlx5_0", "mlx5_9"), "", "ib_write_bw",
			appraise.Unknown, "the machine has no RDMA device mlx5_9"},
		{"MPI reaches less of the wire", host(good, good, good), log(t, "osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_bw.txt"),
			"",
			"osu_bw", appraise.Normal, "of the wire"},
		{"a latency", host(good, good, good), log(t, "osu/stackhpc-ib-gcc9-impi-verbs-osu_latency.txt"), "",
			"osu_latency",
			appraise.Normal, "1 to 5 us are usual"},
		{"a latency of TCP", host(good, good, good), figures("osu_latency",
			bench.MetricLatencyAverage, bench.UnitUsec, 30, 1), "", "osu_latency", appraise.Low,
			"waits that are not the wire's"},
		{"a latency without RDMA", without(host(good, good, good)), log(t,
			"osu/stackhpc-ib-gcc9-impi-verbs-osu_latency.txt"), "", "osu_latency", appraise.Unknown, "no RDMA device"},
		{"memory", cpu(host(good, good, good), "AMD EPYC 7763 64-Core Processor"), stream(t, 150000), "", "stream",
			appraise.Normal, "73.2% of the 204.8 GB/s"},
		{"memory with half of its channels", cpu(host(good, good, good), "AMD EPYC 7763 64-Core Processor"),
			stream(t, 75000), "", "stream", appraise.Low, "fewer channels"},
		{"memory in caches", cpu(host(good, good, good), "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz"), stream(t, 500000),
			"",
			"stream", appraise.Above, "in caches"},
		{"memory of an unknown processor", cpu(host(good, good, good), "Xyzzy 3"), stream(t, 150000), "", "stream",
			appraise.Unknown, "are not known"},
		{"all-reduce over machines", host(good, good, good), machines(t, 11.6), "", "nccl_all_reduce", appraise.Normal,
			"of the 12.5 GB/s of 1 NICs of each of 2 machines"},
		{"all-reduce over machines by TCP", host(good, good, good), machines(t, 2.5), "", "nccl_all_reduce",
			appraise.Low,
			"that are not used"},
		{"all-reduce over a NIC in a narrow slot", host(link(8, 8), good, good), machines(t, 6), "", "nccl_all_reduce",
			appraise.Limited, "the PCIe link at 0000:41:00.0 limits"},
		{"TCP by loopback", host(good, good, good), log(t, "iperf3/thiezn-3.0.11.json"), "", "iperf3", appraise.Low,
			"taken for one of eth0"},
		{"TCP over a device that is not there", host(good, good, good), log(t, "iperf3/thiezn-3.0.11.json"), "eth9",
			"iperf3",
			appraise.Unknown, "no network device with a known speed eth9"},
		{"copies", host(good, good, good), log(t, "nvbandwidth/synthetic-0.8.json", "55.2512", "25.2", "54.1033",
			"24.8",
			"109.3545", "50.0"), "", "gpu_bandwidth_h2d", appraise.Normal, "of the PCIe link"},
		{"copies through a narrow uplink", host(good, good, link(16, 4)), log(t, "nvbandwidth/synthetic-0.8.json",
			"55.2512",
			"6.1", "54.1033", "6.0", "109.3545", "12.1"), "", "gpu_bandwidth_h2d", appraise.Limited,
			"the bridge 0000:01:00.0 above the GPU at 0000:02:00.0 on this machine had 16 GT/s x4 (Gen 4)"},
		{"copies over C2C", coherent(host(good, good, good), new(450.0)), log(t, "nvbandwidth/synthetic-0.8.json"), "",
			"gpu_bandwidth_h2d", appraise.Unknown, "NVLink C2C carries 450 GB/s"},
		{"more than C2C carries", coherent(host(good, good, good), new(40.0)),
			log(t, "nvbandwidth/synthetic-0.8.json"), "", "gpu_bandwidth_h2d", appraise.Above, "more than the 40 GB/s"},
		{"C2C that is not known", coherent(host(good, good, good), nil), log(t, "nvbandwidth/synthetic-0.8.json"), "",
			"gpu_bandwidth_h2d", appraise.Unknown, "what that carries the machine does not say"},
		{"copies of another machine", host(good, good, good), log(t, "nvbandwidth/synthetic-0.8.json"), "",
			"gpu_bandwidth_h2d", appraise.Above, "more than the machine can carry"},
		{"copies by the GPU's threads", h200(), log(t, "nvbandwidth/recorded-0.8-h200.txt"), "",
			"nvbandwidth_host_to_device_memcpy_sm", appraise.Normal, "89.1 % of the PCIe link"},
		{"copies of both ways at once", h200(), log(t, "nvbandwidth/recorded-0.8-h200.txt"), "",
			"nvbandwidth_host_to_device_bidirectional_memcpy_ce", appraise.Unknown, "both ways at once"},
		{"a latency of GPU and host", h200(), log(t, "nvbandwidth/recorded-0.8-h200.txt"), "",
			"nvbandwidth_host_device_latency_sm", appraise.Unknown, "nothing of the machine says"},
		{"copies within a GPU", h200(), log(t, "nvbandwidth/recorded-0.8-h200.txt"), "", "gpu_bandwidth_local",
			appraise.Normal, "87.3% of the 2400 GB/s that the memory allows: it carries 4800 GB/s by the data sheet " +
				"of NVIDIA H200, and a copy reads and writes each byte"},
		{"copies within an H100", h100(), log(t, "nvbandwidth/recorded-0.8-h100.txt"), "", "gpu_bandwidth_local",
			appraise.Normal, "89% of the 1675 GB/s"},
		{"slow copies within a GPU", h200(), log(t, "nvbandwidth/recorded-0.8-h200.txt", "2094.08", "1094.08"), "",
			"gpu_bandwidth_local", appraise.Low, "45.6% of the 2400 GB/s"},
		{"copies within another GPU", h200(), log(t, "nvbandwidth/recorded-0.8-h200.txt", "2094.08", "2494.08"), "",
			"gpu_bandwidth_local", appraise.Above, "measured on another machine"},
		{"copies within an unknown GPU", host(good, good, good), log(t, "nvbandwidth/recorded-0.8-h200.txt"), "",
			"gpu_bandwidth_local", appraise.Unknown, "what its memory carries, is not known"},
		{"all-reduce over one GPU", h200(), log(t, "nccl-tests/recorded-2.19.6-h200-all_reduce.txt"), "",
			"nccl_all_reduce", appraise.Unknown, "the log is of one GPU"},
		{"GPUs below one switch", host(good, good, good), log(t, "nccl-tests/synthetic-2.17-all_reduce.json",
			"31400.000000",
			"545000.000000", "273.564796", "15.761348", "478.738393", "27.582359"), "", "nccl_all_reduce",
			appraise.Normal,
			"26 to 30 GB/s are usual"},
		{"more than the NIC's link carries", host(link(8, 4), good, good), log(t, full, "24.50", "97.60"), "",
			"ib_write_bw",
			appraise.Above, "more than the PCIe link at 0000:41:00.0 carries, which is 31.51 Gb/s with Gen3 x4"},
		{"a mesh of NVLinks that nvidia-smi topo tells", mesh(4, 6), ranks(360, 4, "NVIDIA H100 80GB HBM3"), "", "",
			appraise.Normal, "NV6, 18 links of 25 GB/s"},
		{"NVLinks that are not taken", mesh(4, 6), ranks(18, 4, "NVIDIA H100 80GB HBM3"), "", "", appraise.Low,
			"another way than NVLink: 18 GB/s"},
		{"a log of more GPUs", mesh(4, 6), ranks(360, 8, "NVIDIA H100 80GB HBM3"), "", "", appraise.Unknown,
			"the log is of 8 GPUs, and the machine has 4"},
		{"two of the GPUs", mesh(4, 12), ranks(230, 2, "NVIDIA A100-SXM4-80GB"), "", "", appraise.Normal,
			"GPU0 and GPU1: NV12, 12 links of 25 GB/s"},
		{"NVLinks by the data sheet", host(good, good, good), ranks(230, 2, "NVIDIA A100-SXM4-80GB"), "", "",
			appraise.Normal, "12 links of 25 GB/s by the data sheet of NVIDIA A100-SXM4-80GB"},
		{"more than PCIe, and nothing is known of NVLinks", host(good, good, good), ranks(230, 2, "NVIDIA X"), "", "",
			appraise.Unknown, "so it went over NVLink"},
		{"paths of a matrix without links", mesh(2, 0), ranks(12, 2, "NVIDIA X"), "", "", appraise.Unknown,
			"SYS between GPU0 and GPU1, gives 6 to 11 GB/s on Gen3 x16, 12 to 22 GB/s on Gen4 x16, 25 to 40"},
		{"paths of a matrix of a known GPU", mesh(2, 0), ranks(14, 2, "NVIDIA L20"), "", "", appraise.Normal,
			"are usual for the slowest pair, GPU0 and GPU1: SYS, Gen4 x16 by the data sheet of NVIDIA L20"},
		{"paths of a matrix that are slow", mesh(2, 0), ranks(8, 2, "NVIDIA L20"), "", "", appraise.Low,
			"the path SYS"},
		{"GPUs that are slow", host(good, good, good), log(t, "nccl-tests/synthetic-2.17-all_reduce.json",
			"31400.000000",
			"1500000.000000", "273.564796", "5.726623", "478.738393", "10.021590"), "", "nccl_all_reduce", appraise.Low,
			"26 to 30 GB/s are usual"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, f := range appraise.Check(tt.host, diagnose.Host(tt.host), tt.studies, tt.device) {
				if f.Test != tt.test && tt.test != "" {
					continue
				}
				text := f.Text
				for _, c := range f.Causes {
					text += "\n" + c.What + ": " + c.Evidence
				}
				if f.Verdict != tt.verdict || !strings.Contains(text, tt.text) {
					t.Errorf("%g %s is %s: %s; want %s with %q", f.Value, f.Unit, f.Verdict, text, tt.verdict, tt.text)
				}
				return
			}
			t.Errorf("no figure of %s", tt.test)
		})
	}
}

// Findings about other devices and informational ones do not make a limit a fault.
func TestALimitWithAFindingIsAFault(t *testing.T) {
	studies := log(t, "nvbandwidth/synthetic-0.8.json", "55.2512", "6.1", "54.1033", "6.0", "109.3545", "12.1")
	h := host(link(16, 16), link(16, 16), link(16, 4))
	for _, found := range [][]string{{"0000:01:00.0", "warning"}, {"0000:41:00.0", "warning"},
		{"0000:02:00.0", "info"}} {
		f := appraise.Check(h, findings(found[0], found[1]), studies, "")[0]
		if want := found[0] == "0000:01:00.0"; f.Faulty() != want || (len(f.Findings) > 0) != want {
			t.Errorf("with a finding of %v: %v, %d findings", found, f.Faulty(), len(f.Findings))
		}
	}
}

func findings(subject, severity string) []finding.Finding {
	return []finding.Finding{{ID: "RL002", Subject: subject, Severity: finding.Severity(severity)}}
}
