package build_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/build"
)

func hostileSeeds(t testing.TB) [][]byte {
	t.Helper()
	small := described(t, "pack:2 [numa(memory=16GiB)] l3:2 core:2 pu:2")
	class := topology.ID24(0x030200)
	pf, vf, gpu := addr(t, "0000:41:00.0"), addr(t, "0000:41:00.2"), addr(t, "0000:06:00.0")
	ethernet := topology.ID24(0x020000)
	small.PCI = []topology.PCIDevice{
		{Address: gpu, Class: &class, Vendor: new(topology.VendorNVIDIA), IOMMUGroup: new(1), BootVGA: new(true),
			NUMANode: new(0)},
		{Address: pf, Class: &ethernet, IOMMUGroup: new(2), SRIOV: &topology.SRIOV{Total: new(4), Offset: new(2),
			Stride: new(1)}, NUMANode: new(1)},
		{Address: vf, Class: &ethernet, IOMMUGroup: new(2), PF: &pf},
	}
	small.Storage = []topology.Disk{{Name: "sda", PCI: &gpu, Mounts: []string{"/"}}}
	small.Bonds = []topology.Bond{{Name: "bond0", Members: []string{"eth0"}}}
	small.Routes = []topology.Route{{Netdev: "bond0", PCI: []string{"0000:41:00.0", "?"}}}
	small.Tenants = []topology.Tenant{{Name: "vm00", State: "shut off", VCPUs: 3,
		Pins: []topology.Pin{{VCPU: 0, CPUs: topology.CPUs(1)}}, Floating: new(topology.CPUs(2)),
		MemoryBytes: new(gib), Hugepages: new(gib), MemoryNodes: new(topology.CPUs(1)),
		Devices: []topology.TenantDevice{{PCI: vf}}}}
	small.Memory.Hugepages = []topology.HugepagePool{pool(gib, 4, 2), pool(2<<20, 0, 0)}
	small.Complete()
	small.NICs[0].Netdevs = []string{"eth0"}
	var seeds [][]byte
	for _, h := range []*topology.Host{small, h20(t), epyc(t),
		described(t, "[numa(memory=1GiB)] pack:1 [numa] core:3 pu:3")} {
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, b)
	}
	return append(seeds, []byte(`{"numa_nodes":[{"id":0,"cpus":"0-65535","memory_bytes":18446744073709551615}]}`),
		[]byte(`{"cores":[{"cpus":""}],"gpus":[{}],"nics":[{}]}`),
		[]byte(`{"pci":[{"address":"0000:00:00.0","parent":"0000:00:00.0"}],`+
			`"iommu":{"groups":[{"id":0,"devices":["0000:00:00.0"]}]}}`))
}

// Problem neither panics nor hangs. go test takes a minute to minimize an input of some KiB, so each is an edit.
func FuzzNewWithHostileHosts(f *testing.F) {
	seeds := hostileSeeds(f)
	for i := range seeds {
		f.Add(uint8(i), uint32(0), uint8(0), "", uint8(0))
		f.Add(uint8(i), uint32(0), uint8(0), "", uint8(3))
	}
	labs := corpusLabs()
	for _, l := range labs {
		l.Affinity = []lab.Affinity{{Nodes: []string{l.Nodes[0].Name, l.Nodes[len(l.Nodes)-1].Name}, NUMA: lab.Same}}
		if len(l.Nodes) == 1 {
			l.Affinity = nil
		}
	}
	f.Fuzz(func(t *testing.T, seed uint8, at uint32, cut uint8, put string, which uint8) {
		data := seeds[int(seed)%len(seeds)]
		i := int(at) % len(data)
		data = slices.Concat(data[:i], []byte(put), data[min(i+int(cut), len(data)):])
		var h topology.Host
		if json.NewDecoder(bytes.NewReader(data)).Decode(&h) != nil {
			return
		}
		l := labs[int(which)%len(labs)]
		p, err := build.Problem(&h, l, build.Options{})
		if err != nil {
			checkErrors(t, err)
			return
		}
		checkWellFormed(t, p)
	})
}

// Altered numbers find more weak points than altered bytes.
func TestHostsWithWrongNumbers(t *testing.T) {
	t.Parallel()
	var hosts []any
	for _, s := range hostileSeeds(t) {
		var h any
		d := json.NewDecoder(bytes.NewReader(s))
		d.UseNumber()
		if err := d.Decode(&h); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	labs := corpusLabs()
	numbers := []string{"0", "-1", "1", "2", "9", "255", "256", "4096", "65535", "65536", "1073741824", "2147483648",
		"-9223372036854775808", "9223372036854775807", "18446744073709551615"}
	texts := []string{"", "0", "0-3", "1,3", "0-65535", "0000:41:00.0", "0000:06:00.0", "GPU0", "efficiency", "gpu",
		"\x1b[31m", "shut off"}
	rapid.Check(t, func(t *rapid.T) {
		left := rapid.IntRange(1, 4).Draw(t, "changes")
		var mutate func(v any, depth int) any
		mutate = func(v any, depth int) any {
			if left == 0 {
				return v
			}
			switch v := v.(type) {
			case map[string]any:
				keys := slices.Sorted(maps.Keys(v))
				if len(keys) == 0 {
					return v
				}
				k := rapid.SampledFrom(keys).Draw(t, "key")
				changed := maps.Clone(v)
				if depth > 1 && rapid.IntRange(0, 9).Draw(t, "drop") == 0 {
					left--
					delete(changed, k)
				} else {
					changed[k] = mutate(v[k], depth+1)
				}
				return changed
			case []any:
				if len(v) == 0 {
					return v
				}
				i := rapid.IntRange(0, len(v)-1).Draw(t, "index")
				changed := slices.Clone(v)
				if rapid.IntRange(0, 4).Draw(t, "twice") == 0 {
					left--
					return append(changed, v[i])
				}
				changed[i] = mutate(v[i], depth+1)
				return changed
			case json.Number:
				left--
				return json.Number(rapid.SampledFrom(numbers).Draw(t, "number"))
			case string:
				left--
				return rapid.SampledFrom(texts).Draw(t, "text")
			case bool:
				left--
				return !v
			}
			return v
		}
		changed := rapid.SampledFrom(hosts).Draw(t, "host")
		for round := 0; left > 0 && round < 20; round++ {
			changed = mutate(changed, 0)
		}
		data, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		var h topology.Host
		if json.Unmarshal(data, &h) != nil {
			return
		}
		p, err := build.Problem(&h, rapid.SampledFrom(labs).Draw(t, "lab"), build.Options{})
		if err != nil {
			checkErrors(t, err)
			return
		}
		checkWellFormed(t, p)
	})
}
