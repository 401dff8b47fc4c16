package lab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type requests struct {
	GPUs, NICs, VFs []DeviceRequest
	Ports           int
}

func requestsOf(t *testing.T, keys string) requests {
	t.Helper()
	l := mustParse(t, "name: x\nnodes:\n  vm: {"+keys+"}\n")
	if len(l.Nodes) != 1 {
		t.Fatalf("%d nodes", len(l.Nodes))
	}
	n := l.Nodes[0]
	return requests{n.GPURequests, n.NICRequests, n.VFRequests, len(n.NICs)}
}

func TestRequestsForDevices(t *testing.T) {
	one := []DeviceRequest{{Count: 1}}
	at := func(address string) DeviceRequest { return DeviceRequest{Count: 1, Address: address} }
	tests := []struct {
		name, keys string
		want       requests
	}{
		{"nothing is one NIC", "", requests{NICs: one, Ports: 1}},
		{"counts", "gpus: 2, nics: 3", requests{GPUs: []DeviceRequest{{Count: 2}}, NICs: []DeviceRequest{{Count: 3}},
			Ports: 3}},
		{"a count of 0 asks for nothing", "gpus: 0", requests{NICs: one, Ports: 1}},
		{"so does an empty list", "gpus: []", requests{NICs: one, Ports: 1}},
		{"virtual functions take the place of the NIC", "vfs: 2", requests{VFs: []DeviceRequest{{Count: 2}}, Ports: 2}},
		{"unless there are both", "vfs: 2, nics: 1", requests{NICs: one, VFs: []DeviceRequest{{Count: 2}}, Ports: 3}},
		{"no virtual functions leave the NIC", "vfs: 0", requests{NICs: one, Ports: 1}},

		{"an address of sysfs", "gpus: 0000:06:00.0", requests{GPUs: []DeviceRequest{at("0000:06:00.0")}, NICs: one,
			Ports: 1}},
		{"an address of lspci is completed", "nics: 41:00.1", requests{NICs: []DeviceRequest{at("0000:41:00.1")},
			Ports: 1}},
		{"an address of nvidia-smi is shortened", "gpus: 00000000:3B:00.0",
			requests{GPUs: []DeviceRequest{at("0000:3b:00.0")}, NICs: one, Ports: 1}},
		{"a large domain stays", "nics: 00010001:3B:1F.7", requests{NICs: []DeviceRequest{at("10001:3b:1f.7")},
			Ports: 1}},
		{"a name", "gpus: GPU0, nics: mlx5_bond_0", requests{GPUs: []DeviceRequest{at("GPU0")},
			NICs: []DeviceRequest{at("mlx5_bond_0")}, Ports: 1}},
		{"two virtual functions of one NIC", "vfs: [NIC0, NIC0]", requests{VFs: []DeviceRequest{at("NIC0"), at("NIC0")},
			Ports: 2}},

		{"a selector", `gpus: {count: 2, vendor: nvidia, model: "3090", numa_node: 0}`,
			requests{GPUs: []DeviceRequest{{Count: 2, Vendor: "nvidia", Model: "3090", NUMANode: new(0)}}, NICs: one,
				Ports: 1}},
		{"emulated GPUs", "nics: 2, gpus: {count: 2, memory: 1GiB, beside: eth1, path: phb}",
			requests{GPUs: []DeviceRequest{{Count: 2, Memory: GiB, Beside: "eth1", Path: GPUPathPHB}},
				NICs: []DeviceRequest{{Count: 2}}, Ports: 2}},
		{"emulated GPUs of both personalities",
			"image: debian-13+gpu+vfio, gpus: [{personality: virtio}, {personality: vfio, path: phb}]",
			requests{GPUs: []DeviceRequest{{Count: 1, Personality: PersonalityVirtio},
				{Count: 1, Personality: PersonalityVFIO, Path: GPUPathPHB}}, NICs: one, Ports: 1}},
		{"a selector stands for one", "nics: {rate: 25Gb/s}",
			requests{NICs: []DeviceRequest{{Count: 1, RateMbps: 25000}}, Ports: 1}},
		{"a rate in megabits", "vfs: {rate: 2500Mb/s}", requests{VFs: []DeviceRequest{{Count: 1, RateMbps: 2500}},
			Ports: 1}},
		{"a list", "nics: [1, NIC3, {vendor: '0x15b3', count: 2}]",
			requests{NICs: []DeviceRequest{{Count: 1}, at("NIC3"), {Count: 2, Vendor: "0x15b3"}}, Ports: 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := requestsOf(t, tt.keys)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if sum := len(got.NICs) + len(got.VFs); sum > got.Ports {
				t.Errorf("%d requests for %d ports", sum, got.Ports)
			}
		})
	}
}

// The YAML library wrongly reads an unquoted address in a flow list as a mapping.
func TestAddressesNeedNoQuotes(t *testing.T) {
	want := []DeviceRequest{{Count: 1, Address: "0000:06:00.0"}, {Count: 1, Address: "000b:07:00.1"}, {Count: 2}}
	for name, text := range map[string]string{
		"braces":            "{name: x, nodes: {vm: {gpus: [0000:06:00.0, 000b:07:00.1, 2]}}}",
		"short addresses":   "{name: x, nodes: {vm: {gpus: [06:00.0, 000b:07:00.1, 2]}}}",
		"a list in a block": "name: x\nnodes:\n  vm:\n    gpus: [0000:06:00.0, 000b:07:00.1, 2]\n",
		"a list of lines":   "name: x\nnodes:\n  vm:\n    gpus:\n      - 06:00.0\n      - 000B:07:00.1\n      - 2\n",
		"quotes":            "{name: x, nodes: {vm: {gpus: [\"0000:06:00.0\", '000b:07:00.1', 2]}}}",
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, mustParse(t, text).Nodes[0].GPURequests); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, text := range []string{"[06: 00.0]", "[{06:00.0}]", "[{\"06\":00.0}]", "[06:00]", "[a:1]"} {
		if _, err := Parse("f", []byte("{name: x, nodes: {vm: {gpus: "+text+"}}}")); err == nil {
			t.Errorf("%s is taken for an address", text)
		}
	}
}

func TestDefaultsForDevices(t *testing.T) {
	l := mustParse(t, `
name: x
defaults: {vfs: 1, gpus: {model: H20}}
nodes:
  plain: {}
  none: {vfs: 0, gpus: 0}
  more: {vfs: 2, nics: 1}
`)
	var got []requests
	for _, n := range l.Nodes {
		got = append(got, requests{n.GPURequests, n.NICRequests, n.VFRequests, len(n.NICs)})
	}
	gpu := []DeviceRequest{{Count: 1, Model: "H20"}}
	want := []requests{
		{GPUs: gpu, VFs: []DeviceRequest{{Count: 1}}, Ports: 1},
		{NICs: []DeviceRequest{{Count: 1}}, Ports: 1},
		{GPUs: gpu, NICs: []DeviceRequest{{Count: 1}}, VFs: []DeviceRequest{{Count: 2}}, Ports: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A change to one node of a lab must not change the others.
func TestNodesOfOneEntryShareNothing(t *testing.T) {
	l := mustParse(t, "name: x\nnodes: {vm: {count: 2, gpus: {numa_node: 1}}}")
	l.Nodes[0].GPURequests[0].Count = 9
	*l.Nodes[0].GPURequests[0].NUMANode = 9
	l.Nodes[0].NICs[0].Name = "changed"
	want := []DeviceRequest{{Count: 1, NUMANode: new(1)}}
	if diff := cmp.Diff(want, l.Nodes[1].GPURequests); diff != "" || l.Nodes[1].NICs[0].Name != "eth0" {
		t.Errorf("NIC %s, requests (-want +got):\n%s", l.Nodes[1].NICs[0].Name, diff)
	}
}

func TestFlowOfRequests(t *testing.T) {
	for _, text := range []string{
		"0", "1", "64", `"0000:06:00.0"`, "GPU0", `[1, "0000:06:00.0", NIC3]`, "[1, 1]",
		`{count: 2, vendor: nvidia, model: "3090", numa_node: 0}`, "{count: 1, vendor: \"NVIDIA Corporation\"}",
	} {
		l := mustParse(t, "name: x\nnodes:\n  vm: {gpus: "+text+"}\n")
		if got := l.Nodes[0].gpus(); got != text {
			t.Errorf("%s is written as %s", text, got)
		}
	}
	for text, want := range map[string]string{
		"{count: 3}": "3", "{rate: 100000Mb/s}": "{count: 1, rate: 100Gb/s}", "06:00.0": `"0000:06:00.0"`,
		"[{count: 2}]": "2",
	} {
		if got := mustParse(t, "name: x\nnodes:\n  vm: {nics: "+text+"}\n").Nodes[0].nics(); got != want {
			t.Errorf("%s is written as %s, want %s", text, got, want)
		}
	}
}

func TestAdviceOnDevices(t *testing.T) {
	tests := []struct{ name, keys, want string }{
		{"a quoted count", "gpus: '2'", "remove the quotes"},
		{"auto", "gpus: auto", "say how many: gpus: 1"},
		{"none", "nics: none", "write nics: 0"},
		{"a vendor", "gpus: nvidia", "to choose by vendor or model, write {vendor: nvidia} or {model: nvidia}"},
		{"a model", "gpus: RTX 3090", `to choose by the model, write {model: "RTX 3090"}`},
		{"an address without its function", "gpus: 0000:06:00", "add the function: 0000:06:00.0"},
		{"a bus of one digit", "nics: 6:00.0", "write the bus with two digits: 0000:06:00.0"},
		{"a selector that chooses nothing", "vfs: {}", "for any VF write 1"},
		{"a rate without a unit", "nics: {rate: 25}", "add a unit: 25Gb/s"},
		{"a rate as ethtool prints it", "nics: {rate: 25000Mb}", "write 25Gb/s"},
		{"a model that is a number", "gpus: {model: 3090}", `to mean it as text, quote it: "3090"`},
		{"a vendor that is a number", "gpus: {vendor: 0x10de}", `to mean it as text, quote it: "0x10de"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("f", []byte("name: x\nnodes:\n  vm: {"+tt.keys+"}\n"))
			if err == nil {
				t.Fatal("accepted")
			}
			if first, _, _ := strings.Cut(err.Error(), "\n"); !strings.HasSuffix(first, "; "+tt.want) {
				t.Errorf("got %s\nwant it to end with %s", first, tt.want)
			}
		})
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]int64{"1Mb/s": 1, "2500Mb/s": 2500, "1Gb/s": 1000, "25Gb/s": 25000,
		"10000Gb/s": MaxRateMbps, "10000000Mb/s": MaxRateMbps} {
		if got, fix := parseRate(text); got != want || fix != "" {
			t.Errorf("%s is %d, %q, want %d", text, got, fix, want)
		}
	}
	for text, want := range map[string]string{
		"": "start it with a digit", "fast": "start it with a digit", "-1Gb/s": "start it with a digit",
		"025Gb/s": "drop the leading zero",
		"25":      "add a unit: 25Gb/s", "0Gb/s": "use a larger number, or drop the key",
		"10001Gb/s":                "use a smaller number: at most 10000Gb/s",
		"99999999999999999999Gb/s": "use a smaller number",
		"9223372036854775807Gb/s":  "use a smaller number: at most 10000Gb/s",
		"25G":                      "write 25Gb/s", "25Gbps": "write 25Gb/s", "100Gbit/s": "write 100Gb/s",
		"25 Gb/s": "write 25Gb/s",
		"25gb/s":  "write 25Gb/s",
		"2.5Gb/s": "write 2500Mb/s", "0.1Tb/s": "write 100Gb/s", "3GB/s": "rates of links are in bits: write 24Gb/s",
		"3GiB/s": "rates of links are in bits: write 24Gb/s", "0.0001Gb/s": "use one of the units Mb/s, Gb/s",
		"25Kb/s": "use one of the units Mb/s, Gb/s", "1.2.3Gb/s": "use one of the units Mb/s, Gb/s",
		"25.": "use one of the units Mb/s, Gb/s",
	} {
		if got, fix := parseRate(text); got != 0 || fix != want {
			t.Errorf("%s: got %d, %q, want the advice %q", text, got, fix, want)
		}
	}
	for mbps, want := range map[int64]string{1: "1Mb/s", 999: "999Mb/s", 1000: "1Gb/s", 2500: "2500Mb/s",
		400_000: "400Gb/s"} {
		if got := formatRate(mbps); got != want {
			t.Errorf("%d is written as %s, want %s", mbps, got, want)
		}
		if back, fix := parseRate(want); back != mbps || fix != "" {
			t.Errorf("%s reads back as %d, %q", want, back, fix)
		}
	}
}

// The message is not about an unknown key or device.
func TestPartsOfGPUsAreNotSupportedYet(t *testing.T) {
	for node, part := range map[string]bool{
		"gpus: mig": true, "gpus: vgpu": true, "gpus: 1g.10gb": true, "gpus: MIG-GPU-8f/1/0": true, "gpus: 0.5": true,
		"gpus: {mig: 1g.10gb}": true, "gpus: [{profile: 3g.40gb}]": true, "mig: 2": true, "vgpu: A100-4C": true,
		"device: mig-1g.5gb": true, "gpus: {device: mig}": true,
		"nics: mig": false, "nics: 0.5": false, "gpu: 1": false, "gpus: migration": false, "gpus: all": false,
	} {
		_, err := Parse("f", []byte("name: x\nnodes: {vm: {"+node+"}}\n"))
		if err == nil || strings.Contains(err.Error(), "MIG and vGPU are not supported yet") != part {
			t.Errorf("%s: %v; want that parts of GPUs are not supported: %v", node, err, part)
		}
	}
}
