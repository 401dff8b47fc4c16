package diagnose_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

// A reportCase is from a public report.
type reportCase struct {
	file, source string
	// want is "ID severity subject", and after "|" parts of the texts.
	want []string
	not  []string // after "|" a text that must not occur
	// most is in GB/s, by "A B"; 0 means no figure.
	most      map[string]float64
	paths     map[string]topology.PathClass
	gpus, pci int // 0 if it does not matter
}

var reportCases = []reportCase{
	{file: "slow-uplink.xml", source: "NVIDIA/nccl#749",
		want: []string{"RL005 warning ffff:ff:01.0|0.25 GB/s|share", "RL005 warning ffff:ff:02.0"},
		most: map[string]float64{"0000:0b:00.0 0000:0d:00.0": 0.25, "0000:0a:00.0 0000:0b:00.0": 30}},
	{file: "uplink-x4.tar.gz", source: "NVIDIA/nccl#439",
		want: []string{"RL001 warning 0000:18:00.0|all that is below the switch shares this link"},
		most: map[string]float64{"0000:1a:00.0 0000:3b:00.0": 3.9, "0000:1a:00.0 0000:1b:00.0": 15}},
	{file: "uplink-gen1.tar.gz", source: "NVIDIA/nccl#1086", want: []string{"RL003 warning 0000:18:00.0"},
		most: map[string]float64{"0000:1a:00.0 0000:3b:00.0": 4}},
	{file: "uplink-gen1-no-config.tar.gz", source: "NVIDIA/nccl#1086", want: []string{"RL003 warning 0000:18:00.0"},
		most: map[string]float64{"0000:1a:00.0 0000:3b:00.0": 4}},
	{file: "sys-on-one-node.txt", source: "NVIDIA/nccl#1084", want: []string{"RL014 info host|(the NIC's is inferred)"},
		not: []string{"RL011"}},
	{file: "four-nics-eight-gpus.txt", source: "NVIDIA/nccl#1357", gpus: 8, want: []string{"RL014 info host|" +
		"GPU0,GPU2,GPU4,GPU6 have a NIC|GPU1,GPU3,GPU5,GPU7 have none and share those"}, not: []string{"RL011"}},
	{file: "sys-two-gpus.txt", source: "NVIDIA/nccl-tests#293", want: []string{"RL014 info host"},
		not: []string{"RL011"}},
	{file: "pcie-atomics.txt", source: "ROCm/amdgpu#26",
		want: []string{"RL106 warning 0000:06:00.0|0000:03:02.0|0000:02:00.0|PCI rejects atomics|a slot at the " +
			"processor"}},
	{file: "geforce.tar.gz", source: "NVIDIA/nccl#1086", want: []string{"RL104 info 0000:34:00.0,0000:35:00.0," +
		"0000:36:00.0,0000:37:00.0,0000:b4:00.0,0000:b5:00.0,0000:b6:00.0,0000:b7:00.0|uplink twice"},
		most: map[string]float64{"0000:34:00.0 0000:35:00.0": 15.8, "0000:34:00.0 0000:b4:00.0": 22}},
	{file: "vf-init.tar.gz", source: "Mellanox/network-operator#1646",
		want: []string{"RL094 error 0000:18:00.1",
			"RL093 warning 0000:18:00.1|node_guid|virt_enabled|bind the function again"},
		not: []string{"RL093|start a subnet manager", "RL093|opensm)"}},
	{file: "siblings-torn.tar.gz", source: "kubevirt/kubevirt#4687",
		want: []string{"RL066 warning vm-a|vcpu 0=3 1=4|3,11,4,12"}},
	{file: "nohz-full.tar.gz", source: "64kramsystem/qemu-pinning#13",
		want: []string{"RL057 info 4-7,12-15|isolcpus=4-7,12-15|cgroup partition"}},
	{file: "flat-guest.tar.gz", source: "NVIDIA/nccl#1674", want: []string{
		"RL067 warning gpu-vm|devices, of nodes 0-1, have no node in the guest|pcie-expander-bus",
		"RL077 warning gpu-vm|0000:34:00.0|0000:36:00.0|NCCL_TOPO_FILE"}},
	{file: "unassigned.txt", source: "made up", want: []string{"RL107 error 0000:01:00.0|BAR 1 unassigned|no space"}},
	{file: "mlopart.xml", source: "NVIDIA/nccl", gpus: 1},
	{file: "mi300x-names-only.txt", source: "lspci", gpus: 2},
	{file: "gpu-without-nvlink.xml", source: "NVIDIA/nccl", want: []string{"RL105 warning 0009:06:00.0"}},
	{file: "one-gpu-without-nvlink.txt", source: "nvidia-smi", want: []string{"RL105 warning GPU2"}},
	{file: "tree-from-the-middle.txt", source: "NVIDIA/nccl#1405", gpus: 4,
		paths: map[string]topology.PathClass{"0000:9b:00.0 0000:9e:00.0": topology.PathPIX,
			"0000:9a:00.3 0000:9c:00.0": topology.PathPIX}},
	{file: "tree-last-root.txt", source: "ROCm/amdgpu#100", gpus: 2,
		paths: map[string]topology.PathClass{"0000:06:00.0 0000:07:00.0": topology.PathPIX}},
	{file: "lspci-grep.txt", source: "jrgp/linfo#114, values made up", want: []string{
		"RL002 warning 0000:04:00.0|the port above is not known", "RL003 warning 0000:04:00.0"}},
	{file: "groups.txt", source: "Coopydood/ultimate-macOS-KVM#213", want: []string{"RL027 info host"},
		not: []string{"RL021"}},
	{file: "groups-shared.txt", source: "64kramsystem/vga-passthrough#15", want: []string{
		"RL021 warning 0000:04:00.0|group 12"}, not: []string{"RL021|0000:0a:00.0"}},
	{file: "groups-shared-oneline.txt", source: "64kramsystem/vga-passthrough#15", want: []string{
		"RL021 warning 0000:04:00.0|group 12"}, not: []string{"RL021|0000:0a:00.0"}},
	{file: "acs-on.txt", source: "NVIDIA/nccl#304", want: []string{"RL023 warning 0000:18:00.0,0000:18:01.0"}},
	{file: "acs-direct-translated-ats.txt", source: "NVIDIA/nccl-tests#380", not: []string{"RL023"}},
	{file: "bond-mtu.tar.gz", source: "openucx/ucx#10430", want: []string{"RL082 warning 0000:18:00.0",
		"RL080 info bond0"}},
	{file: "mlx5-command-timeout.txt", source: "openucx/ucx#7738", want: []string{
		"RL120 error 0000:61:00.0|CREATE_DCT|5 times|newer firmware"}},
	{file: "mlx5-health.txt", source: "public log of a kernel", want: []string{
		"RL120 error 0000:41:00.0|high temperature|reached miss count|fans", "RL120 error 0000:41:00.1"}},
	{file: "mlx5-hot-journal.txt", source: "public log of a kernel", want: []string{"RL121 error 0000:61:00.0",
		"RL120 error 0000:61:00.0|high temperature", "RL120 error 0000:61:00.1|recovery flow aborted"}},
	{file: "qp-length.txt", source: "kvcache-ai/Mooncake#3868", want: []string{
		"RL129 warning mlx5_bond_0|active_mtu", "RL129 warning mlx5_bond_1|2 times"}},
	{file: "roce-not-lossless.txt", source: "public counters, state made up", want: []string{
		"RL099 warning enp1s0f0,mlx5_0|trust=pcp pfc=3|priority 0|88123 packets|5121 packets|no buffer of its " +
			"own|cut " +
			"off 3 times|out_of_sequence=35121|packet_seq_err=9912|no congestion " +
			"notification"}, not: []string{"RL095"}},
	{file: "3d-controller-only.txt", source: "lspci", gpus: 1},
	{file: "nbsp.txt", source: "lspci", pci: 1},
	{file: "rocm-showtopo.txt", source: "rocm-smi", gpus: 4, want: []string{"RL014 info host|GPU0 to GPU1"}},
	{file: "c2c-gb10.xml", source: "NVIDIA/nccl",
		most: map[string]float64{"000f:01:00.0 0000:01:00.0": 0, "000f:01:00.0 0002:01:00.0": 0}},
}

func TestReportsGetTheirRightAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range reportCases {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			h, err := inspect.ReadFile(t.Context(), filepath.Join("testdata", "cases", c.file))
			if err != nil {
				t.Fatal(err)
			}
			if c.gpus > 0 && len(h.GPUs) != c.gpus {
				t.Errorf("%d GPUs, want %d", len(h.GPUs), c.gpus)
			}
			if c.pci > 0 && len(h.PCI) != c.pci {
				t.Errorf("%d PCI functions, want %d", len(h.PCI), c.pci)
			}
			all := diagnose.Host(h)
			whole := func(f finding.Finding) string {
				return strings.Join([]string{f.Title, f.Evidence, f.Consequence, f.Fix}, "\n")
			}
			for _, want := range c.want {
				parts := strings.Split(want, "|")
				found := false
				for _, f := range all {
					ok := fmt.Sprint(f.ID, " ", f.Severity, " ", f.Subject) == parts[0]
					for _, part := range parts[1:] {
						ok = ok && strings.Contains(whole(f), part)
					}
					found = found || ok
				}
				if !found {
					t.Errorf("no finding %s in %+v", want, all)
				}
			}
			for _, not := range c.not {
				id, part, _ := strings.Cut(not, "|")
				for _, f := range all {
					if f.ID == id && strings.Contains(whole(f), part) {
						t.Errorf("a finding %s: %+v", not, f)
					}
				}
			}
			tree := topology.NewTree(h)
			for pair, want := range c.paths {
				a, b, _ := strings.Cut(pair, " ")
				if got := tree.Path(a, b).Class; got != want {
					t.Errorf("%s: path %v, want %v", pair, got, want)
				}
			}
			for pair, most := range c.most {
				a, b, _ := strings.Cut(pair, " ")
				if e, ok := tree.Expect(tree.Path(a, b)); ok != (most > 0) || e.GBpsMax > most {
					t.Errorf("%s: expected %+v, want at most %g", pair, e, most)
				}
			}
		})
	}
}
