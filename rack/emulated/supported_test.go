package emulated

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
)

func TestWhatTheDriverCannotDoIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want string // "" means that it can
	}{
		"a plain lab":              {"nodes: {vm: {count: 2}}", ""},
		"as much as it gives":      {"nodes: {vm: {cpus: 64, nics: 8}}", ""},
		"nothing to ask for":       {"nodes: {vm: {gpus: 0, vfs: 0, nics: [1, {count: 2}]}}", ""},
		"what the planner chooses": {"nodes: {vm: {cpus: auto, memory: auto}}", ""},
		"a place on a host": {"host: {reserve: 4}\nhugepages: 2MiB\ntenants: ignore\naffinity: [{nodes: [vm], numa: " +
			"different}]\n" +
			"nodes: {vm: {count: 2, smt: off, guest_numa: on}}", ""},
		"another driver":  {"driver: libvirt\nnodes: {vm: {}}", "lab x: driver libvirt puts nodes on a host"},
		"an architecture": {"arch: arm64\nnodes: {vm: {}}", ""},
		"a disk for another architecture": {"arch: arm64\nnodes: {a: {}, vm: {image: debian-12}}",
			"lab x: node vm asks for image debian-12, and nodes of arm64 have image builtin only: leave image out"},
		"an image": {"nodes: {vm: {image: a.qcow2}}", ""},
		"an image in the memory of a small node": {"nodes: {vm: {image: a.qcow2, memory: 256MiB}}",
			"lab x: node vm has 256MiB for the system of a.qcow2: set memory: 512MiB, or more"},
		"a GPU":                 {"nodes: {vm: {gpus: 1, image: debian-13+mpi+gpu}}", ""},
		"a GPU of an own image": {"nodes: {vm: {gpus: 1, image: a.qcow2}}", ""},
		"GPUs with all keys": {"nodes: {vm: {image: debian-12+gpu, nics: 2, gpus: [{count: 2, memory: 1GiB, beside: " +
			"eth1, " +
			"path: phb}, 1]}}", ""},
		"a GPU of a small node": {"nodes: {vm: {gpus: 1}}",
			"lab x: node vm asks for 1 GPU, and its image builtin has no driver for emulated ones: set image: " +
				"debian-13+gpu; to place the lab on a host with GPUs, see rackless plan"},
		"a GPU for vfio-pci":         {"nodes: {vm: {gpus: {personality: vfio}, image: debian-13+vfio}}", ""},
		"GPUs of both personalities": {"nodes: {vm: {gpus: [1, {personality: vfio}], image: debian-13+gpu+vfio}}", ""},
		"a virtio GPU beside the kernel of vfio": {"nodes: {vm: {gpus: [1, {personality: vfio}], " +
			"image: debian-13+vfio}}",
			"lab x: node vm asks for 2 GPUs, and its image debian-13+vfio has no driver for those of the " +
				"personality virtio: set personality: vfio for each, or image: debian-13+vfio+gpu; to place the lab " +
				"on a host with GPUs, see rackless plan"},
		"a GPU without a ConnectX": {"nodes: {vm: {gpus: 1, image: debian-13+gpu, nic: virtio}}",
			"lab x: node vm asks for 1 GPU, which need a ConnectX beside them: leave nic: virtio out;"},
		"too many GPUs": {"nodes: {vm: {gpus: 9, image: debian-13+gpu}}",
			"lab x: node vm asks for 9 GPUs, and driver qemu gives at most 8: set gpus: 8;"},
		"GPUs of a model that there is": {"nodes: {vm: {image: debian-13+gpu, gpus: {count: 2, model: H20}}}", ""},
		"GPUs of a model": {"nodes: {vm: {image: debian-13+gpu, gpus: {count: 2, model: RTX 3090}}}",
			"lab x: node vm asks for the GPU model RTX 3090, and driver qemu emulates"},
		"GPUs of a vendor": {"nodes: {vm: {image: debian-13+gpu, gpus: {count: 2, vendor: nvidia}}}",
			"lab x: node vm asks for GPUs by vendor or NUMA node, and driver qemu gives emulated ones: set gpus: 2, " +
				"or {count: " +
				"2, path: sys} for GPUs in another NUMA node than their NIC;"},
		"VFs": {"nodes: {vm: {vfs: 2}}",
			"lab x: node vm asks for 2 virtual functions, which driver qemu cannot give: set vfs: 0 and nics: 2;"},
		"a NIC by name": {"nodes: {vm: {nics: [1, NIC0]}}",
			"lab x: node vm asks for the NIC NIC0, and driver qemu gives emulated ones: set nics: 2;"},
		"an address": {"nodes: {vm: {nics: 41:00.0}}", "lab x: node vm asks for the NIC 0000:41:00.0,"},
		"a NIC by rate": {"nodes: {vm: {nics: {rate: 25Gb/s}}}",
			"lab x: node vm asks for NICs by what they are, and driver qemu gives emulated ones: set nics: 1;"},
		"NICs in NUMA nodes": {"nodes: {vm: {nics: [1, {numa_node: 1}]}}", ""},
		"a third NUMA node": {"nodes: {vm: {nics: {numa_node: 2}}}", "lab x: node vm has a NIC in NUMA node 2, and " +
			"driver qemu gives at most 2 NUMA nodes: set numa_node: 0 or 1;"},
		"a virtio NIC in a NUMA node": {"nodes: {vm: {nic: virtio, nics: {numa_node: 1}}}",
			"lab x: node vm has a NIC in a NUMA node, which needs a ConnectX: leave nic: virtio out"},
		"a NUMA node of another architecture": {"arch: arm64\nnodes: {vm: {nics: {numa_node: 1}}}",
			"lab x: node vm has a NIC in a NUMA node, and nodes of arm64 have none: leave numa_node out"},
		"a profile": {"nodes: {vm: {profile: h20}}", ""},
		"a profile without its NICs": {"nodes: {vm: {profile: h20, nic: virtio}}",
			"lab x: node vm has a NIC in a NUMA " +
				"node, which needs a ConnectX: leave nic: virtio out"},
		"no NIC": {"nodes: {vm: {nics: 0}}",
			"lab x: node vm has no NIC, and an emulated node without one is on no fabric: set nics: 1"},
		"too many NICs": {"nodes: {vm: {nics: 9}}",
			"lab x: node vm asks for 9 NICs, and driver qemu gives at most 8: set nics: 8"},
		"too many CPUs": {"nodes: {vm: {cpus: 65}}",
			"lab x: node vm asks for 65 CPUs, and driver qemu gives at most 64: set cpus: 64"},
		"the last of two": {"nodes: {a: {}, b: {image: debian-13+gpu, gpus: GPU0}}",
			"lab x: node b asks for the GPU GPU0, and driver qemu gives emulated ones: set gpus: 1;"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := lab.Parse("lab.yaml", []byte("name: x\n"+tt.text+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			switch err := Supported(l); {
			case tt.want == "" && err != nil:
				t.Errorf("got %v", err)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)):
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestSupportedExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %q, %v", files, err)
	}
	runs := map[string]bool{"pair": true, "sixteen": true, "sixtyfour": true, "connectx": true, "incast": true,
		"soft-roce": true, "cluster": true, "cluster-sixteen": true, "slurm": true, "course": true, "arm64": true,
		"gpu": true, "gpu-matrix": true, "h20": true, "gpudirect": true, "leaf-spine": true}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		l, err := lab.Parse(path, b)
		if err != nil {
			t.Fatal(err)
		}
		if err := Supported(l); (err == nil) != runs[l.Name] {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestRatesOfPaths(t *testing.T) {
	l, err := lab.Parse("f", []byte("name: x\nnodes: {a: {profile: h20}, b: {image: debian-13+gpu, gpus: 2}, "+
		"c: {profile: h20-small}}"))
	if err != nil {
		t.Fatal(err)
	}
	const pix, node, sys = 195e9, 177e9, 123e9
	for nic, want := range [][]int64{{node, pix, node, node, sys, sys, sys, sys}, {node, node, node, pix, sys, sys, sys,
		sys}, {sys, sys, sys, sys, pix, node, node, node}, {sys, sys, sys, sys, node, node, pix, node}} {
		if got := pathRates(l.Nodes[0], nic); !slices.Equal(got, want) {
			t.Errorf("eth%d: rates %v, want %v", nic, got, want)
		}
	}
	if got := pathRates(l.Nodes[1], 0); got != nil {
		t.Errorf("rates without a profile: %v", got)
	}
	for nic, want := range []int64{975e6, 615e6} {
		if got := pathRates(l.Nodes[2], nic); !slices.Equal(got, []int64{want}) {
			t.Errorf("h20-small, eth%d: rates %v, want %d", nic, got, want)
		}
	}
	for profile, want := range map[lab.ProfileName]string{"h20": "pix 195, node 177, sys 123 Gb/s",
		"h20-small": "pix 0.975, sys 0.615 Gb/s"} {
		if p, _ := lab.ProfileOf(profile); p.RateText() != want {
			t.Errorf("the rates of %s are %q, want %q", profile, p.RateText(), want)
		}
	}
}
