package build_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/build"
)

func largeHost(t testing.TB) *topology.Host {
	t.Helper()
	h := described(t, "pack:2 numa:8(memory=128GiB) l3:4 core:8 pu:2")
	for i := range 16 {
		node := i
		h.PCI = append(h.PCI,
			topology.PCIDevice{Address: addr(t, fmt.Sprintf("0000:%02x:00.0", 8*i+1)), Class: new(class3D),
				Vendor: new(topology.VendorNVIDIA), NUMANode: &node,
				IOMMUGroup: new(10 * i), Root: fmt.Sprintf("pci0000:%02x", 8*i)},
			topology.PCIDevice{Address: addr(t, fmt.Sprintf("0000:%02x:00.0", 8*i+2)), Class: new(classEthernet),
				Vendor: new(topology.VendorMellanox), NUMANode: &node,
				IOMMUGroup: new(10*i + 1), Root: fmt.Sprintf("pci0000:%02x", 8*i),
				SRIOV: &topology.SRIOV{Total: new(16), Offset: new(2), Stride: new(1)}})
	}
	h.Complete()
	return h
}

func BenchmarkNew(b *testing.B) {
	large := labOf(64, cpus(12), memory(16*lab.GiB), vfs(some(2)))
	gpus(some(1))(&large.Nodes[0])
	for _, bench := range []struct {
		name string
		host *topology.Host
		lab  *lab.Lab
	}{
		{"epyc", epyc(b), labOf(2, cpus(28), memory(32*lab.GiB), gpus(some(1)), nics(some(1)))},
		{"h20", h20(b), labOf(4, cpus(40), memory(64*lab.GiB), gpus(some(2)), nics(some(1)))},
		{"large", largeHost(b), large},
		{"large-one-node", largeHost(b), labOf(1, cpus(12), memory(16*lab.GiB), gpus(some(1)), vfs(some(2)))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := build.Problem(bench.host, bench.lab, build.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The YAML library's time grows faster than the text.
func BenchmarkParseModel(b *testing.B) {
	text := []byte("pairs:\n" + strings.Repeat("- {gpu: GPU0, nic: NIC0, gbps: 392}\n", 3000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := build.ParseModel("m", text); err != nil {
			b.Fatal(err)
		}
	}
}
