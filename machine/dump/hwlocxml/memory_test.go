package hwlocxml

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func nodeLines(h *topology.Host) []string {
	var lines []string
	for _, n := range h.NUMANodes {
		line := fmt.Sprintf("%d: %q", n.ID, n.CPUs)
		if n.Kind != "" {
			line += " " + n.Kind
		}
		if n.MemoryMode != "" {
			line += " " + n.MemoryMode
		}
		if n.GPU != nil {
			line += " of " + n.GPU.String()
		}
		lines = append(lines, line)
	}
	return lines
}

func TestNodesOwnTheirCPUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"plain": {v2(object("Machine", nodes("0xf", "0x3"), numa(1, "0xc", ""), numa(0, "0x3", ""))),
			[]string{`0: "0-1"`, `1: "2-3"`}},
		"HBM beside DRAM has none, whatever its number": {v2(object("Machine", nodes("0xf", "0x3"),
			numa(0, "0xf", `subtype="HBM"`), numa(1, "0xf", `subtype="DRAM"`))),
			[]string{`0: "" hbm`, `1: "0-3" dram`}},
		"HBM alone has them": {v2(object("Machine", nodes("0xf", "0x3"), numa(0, "0x3", `subtype="HBM"`),
			numa(1, "0xc", `subtype="HBM"`))),
			[]string{`0: "0-1" hbm`, `1: "2-3" hbm`}},
		"of two that are said to be nothing special the lower has them": {v2(object("Machine", nodes("0xf", "0x11"),
			numa(4, "0xf", ""), numa(0, "0xf", ""))),
			[]string{`0: "0-3"`, `4: ""`}},
		"what once was a DAX device has none": {v2(object("Machine", nodes("0xf", "0x7"),
			numa(0, "0xf", "", info("DAXDevice", "dax0.0")), numa(1, "0xf", `subtype="SPM"`), numa(2, "0xf", ""))),
			[]string{`0: ""`, `1: ""`, `2: "0-3"`}},
		"what is near all of the machine is near no part of it": {v2(object("Machine", nodes("0xf", "0x7"),
			numa(0, "0xf", ""), numa(1, "0x3", ""), numa(2, "0xc", ""))),
			[]string{`0: ""`, `1: "0-1"`, `2: "2-3"`}},
		"HBM of a half does not take from DRAM of the whole": {v2(object("Machine", nodes("0xf", "0x7"),
			numa(0, "0xf", `subtype="DRAM"`), numa(1, "0x3", `subtype="HBM"`), numa(2, "0xc", `subtype="CXL-DRAM"`))),
			[]string{`0: "0-3" dram`, `1: "" hbm`, `2: "" cxl`}},
		"offline CPUs are in none": {v1(object("Machine", `cpuset="0x3" complete_cpuset="0xf" online_cpuset="0x3"`,
			numa(0, "0x1", ""), numa(1, "0xe", ""))),
			[]string{`0: "0"`, `1: "1"`}},
		"a node without os_index is numbered by its nodeset": {v2(object("Machine", nodes("0x1", "0x20"),
			object("NUMANode", nodes("0x1", "0x20")))),
			[]string{`5: "0"`}},
		"memory-side caches are passed by": {v2(object("Machine", nodes("0x1", "0x1"),
			object("MemCache", nodes("0x1", "0x1"), numa(0, "0x1", "")))),
			[]string{`0: "0"`}},
		"persistent memory by its device": {v2(object("Machine", nodes("0x1", "0x7"), numa(0, "0x1", ""),
			numa(1, "0x1", "", info("DAXType", "NVM")),
			numa(2, "0x1", "", info("DAXDevice", "dax0.0"),
				info("DAXParent", "LNXSYSTM:00/ACPI0012:00/ndbus0/region0")))),
			[]string{`0: "0"`, `1: "" nvdimm`, `2: "" nvdimm`}},
		"memory for a purpose may be of any kind": {v2(object("Machine", nodes("0x1", "0x3"), numa(0, "0x1", ""),
			numa(1, "0x1", `subtype="SPM"`, info("DAXType", "SPM")))),
			[]string{`0: "0"`, `1: ""`}},
		"memory of a GPU": {v2(object("Machine", nodes("0x1", "0x7"), numa(0, "0x1", ""),
			numa(1, "0x1", `subtype="GPUMemory"`, info("PCIBusID", "0004:04:00.0")),
			numa(2, "0x1", `subtype="GPUMemory"`, info("PCIBusID", "where")))),
			[]string{`0: "0"`, `1: "" gpu of 0004:04:00.0`, `2: "" gpu`}},
		"version 1 says the kind in an info": {v1(object("Machine", nodes("0x1", "0x3"),
			object("Socket", nodes("0x1", "0x3"), info("MemoryMode", "Hybrid50"),
				numa(0, "0x1", "", info("Type", "DRAM")), numa(1, "0x0", "", info("Type", "MCDRAM"))))),
			[]string{`0: "0" dram`, `1: "" hbm hybrid50`}},
		"version 1 without a node is one": {v1(object("Machine", sets("0x3")+` local_memory="4096"`,
			object("Socket", sets("0x3")))), []string{`0: "0-1"`}},
		"version 2 without a node has none": {v2(object("Machine", sets("0x3"))), nil},
		"the root is a node": {v1(object("NUMANode", `os_index="3" `+nodes("0x1", "0x8"), pu(0))),
			[]string{`3: "0"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := gocmp.Diff(c.want, nodeLines(read(t, c.file))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTooManyNodes(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range maxNodes + 1 {
		fmt.Fprintf(&many, `<object type="NUMANode" os_index="%d"/>`, i)
	}
	_, err := Parse([]byte(v2(object("Machine", "", many.String()))), "t.xml")
	if want := "t.xml:3: object NUMANode: more than 4096 NUMA nodes"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestMemoryAndPages(t *testing.T) {
	t.Parallel()
	pages := func(size, count int) string { return fmt.Sprintf(`<page_type size="%d" count="%d"/>`, size, count) }
	const mi, gi = 1 << 20, 1 << 30
	pool := func(size, total uint64) topology.HugepagePool {
		return topology.HugepagePool{SizeBytes: size, Total: total}
	}
	h := read(t, v2(object("Machine", nodes("0x1", "0x7"),
		numa(0, "0x1", "", pages(gi, 16), pages(4096, 1000), pages(2*mi, 0), pages(gi, 99)),
		numa(1, "0x0", "", pages(65536, 5)),
		object("NUMANode", `os_index="2"`, pages(4096, 0), pages(2*mi, 0)))))
	for i, want := range [][]topology.HugepagePool{{pool(2*mi, 0), pool(gi, 16)}, nil, {pool(2*mi, 0)}} {
		if diff := gocmp.Diff(want, h.NUMANodes[i].Hugepages); diff != "" {
			t.Errorf("node %d (-want +got):\n%s", i, diff)
		}
	}
	if *h.NUMANodes[0].MemoryBytes != gi || h.NUMANodes[2].MemoryBytes == nil || *h.NUMANodes[2].MemoryBytes != 0 ||
		*h.Memory.TotalBytes != 2*gi {
		t.Errorf("got %v, %v and %v in all; node 2 has none, because the others tell theirs",
			h.NUMANodes[0].MemoryBytes, h.NUMANodes[2].MemoryBytes, h.Memory.TotalBytes)
	}
	none := object("NUMANode", `os_index="1" nodeset="0x0"`)
	h = read(t, v1(object("Machine", sets("0x3")+` allowed_cpuset="0x3"`, numa(0, "0x1", ""), none)))
	if size := h.NUMANodes[1].MemoryBytes; size == nil || *size != 0 {
		t.Errorf("got %v, want none of a node outside of all sets of nodes", size)
	}
	for name, file := range map[string]string{
		"CPUs were kept from whoever made the dump": v1(object("Machine", sets("0x3")+` allowed_cpuset="0x1"`,
			numa(0, "0x1", ""), none)),
		"no node tells its memory": v2(object("Machine", nodes("0x1", "0x3"), object("NUMANode", `os_index="0"`),
			object("NUMANode", `os_index="1"`))),
	} {
		if h := read(t, file); h.NUMANodes[1].MemoryBytes != nil || h.Memory.TotalBytes != nil {
			t.Errorf("%s: got %v and %v in all, want neither", name, h.NUMANodes[1].MemoryBytes, h.Memory.TotalBytes)
		}
	}
	h = read(t, v2(object("Machine", nodes("0x3", "0x3"), numa(0, "0x1", ""), numa(1, "0x2", ""))))
	if h.Memory.TotalBytes == nil || *h.Memory.TotalBytes != 2*gi {
		t.Errorf("got %v, want the sum of both nodes", h.Memory.TotalBytes)
	}
	h = read(t, v2(object("Machine", nodes("0x3", "0x7"), numa(0, "0x1", ""), numa(1, "0x2", ""))))
	want := []topology.Unread{{Path: "t.xml:3: object Machine",
		Why: "complete_nodeset also has NUMA nodes 2, which are not described: not allowed to whoever made the dump"}}
	if diff := gocmp.Diff(want, h.Unread); diff != "" || h.Memory.TotalBytes != nil {
		t.Errorf("with a node hidden: total %v; -want +got:\n%s", h.Memory.TotalBytes, diff)
	}
	h = read(t, v2(object("Machine", nodes("0x3", "0x3"),
		object("NUMANode", `os_index="0" local_memory="18446744073709551615"`), numa(1, "0x2", ""))))
	if h.Memory.TotalBytes != nil {
		t.Errorf("got %d: a sum that does not fit is not known", *h.Memory.TotalBytes)
	}
}

func slit(attrs, indexes, values string) string {
	n := len(strings.Fields(indexes))
	return fmt.Sprintf(`<distances2 type="NUMANode" nbobjs="%d" %s><indexes length="1">%s</indexes>`+
		`<u64values length="1">%s</u64values></distances2>`, n, attrs, indexes, values)
}

func TestDistances(t *testing.T) {
	t.Parallel()
	three := object("Machine", nodes("0x7", "0x15"), numa(4, "0x4", `gp_index="44"`), numa(0, "0x1", `id="obj40"`),
		numa(2, "0x2", `gp_index="42"`))
	const latency = `kind="5" name="NUMALatency" indexing="os"`
	for name, c := range map[string]struct {
		matrices string
		want     [][]int
	}{
		"none":                            {"", nil},
		"in another order than the nodes": {slit(latency, "4 0 2", "10 40 42 4 10 2 24 20 10"), nil}, // smaller than 10
		"rows follow the nodes": {slit(latency, "4 0 2", "10 40 42 14 10 12 24 20 10"),
			[][]int{{10, 12, 14}, {20, 10, 24}, {40, 42, 10}}},
		"by hwloc's numbers": {slit(`kind="5" indexing="gp"`, "44 40 42", "10 40 42 14 10 12 24 20 10"),
			[][]int{{10, 12, 14}, {20, 10, 24}, {40, 42, 10}}},
		"split over elements": {`<distances2 type="NUMANode" nbobjs="3" ` + latency +
			`><indexes length="4">0 2 </indexes><indexes length="1">4</indexes>` +
			`<u64values length="9">10 20 20 20 </u64values><u64values length="9">10 20 20 20 10</u64values>` +
			`</distances2>`, [][]int{{10, 20, 20}, {20, 10, 20}, {20, 20, 10}}},
		"a node is missing": {slit(latency, "0 2", "10 20 20 10"), nil},
		"a node too many": {slit(latency, "0 2 4 6", "10 11 12 99 11 10 12 99 12 12 10 99 99 99 99 10"),
			[][]int{{10, 11, 12}, {11, 10, 12}, {12, 12, 10}}},
		"bandwidth": {slit(`kind="9" name="NUMABandwidth" indexing="os"`, "0 2 4",
			"10 20 20 20 10 20 20 20 10"), nil},
		"another name": {slit(`kind="6" name="mine" indexing="os"`, "0 2 4",
			"10 20 20 20 10 20 20 20 10"), nil},
		"no SLIT": {slit(`kind="5" indexing="os"`, "0 2 4", "1 2 2 2 1 2 2 2 1"), nil},
		"the named one comes first": {slit(`kind="5" indexing="os"`, "0 2 4", "10 99 99 99 10 99 99 99 10") +
			slit(latency, "0 2 4", "10 20 20 20 10 20 20 20 10"), [][]int{{10, 20, 20}, {20, 10, 20}, {20, 20, 10}}},
		"the one that is a SLIT": {slit(`kind="5" indexing="os"`, "0 2 4", "1 2 2 2 1 2 2 2 1") +
			slit(`kind="5" indexing="os"`, "0 2 4", "10 20 20 20 10 20 20 20 10"), [][]int{{10, 20, 20}, {20, 10, 20},
			{20, 20, 10}}},
		"of cores": {strings.Replace(slit(latency, "0 2 4", "10 20 20 20 10 20 20 20 10"),
			"NUMANode", "Core", 1), nil},
		"an object that is not there": {slit(`kind="5" indexing="gp"`, "44 40 7", "10 20 20 20 10 20 20 20 10"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got [][]int
			for _, n := range read(t, v2(three+c.matrices)).NUMANodes {
				if n.Distances != nil {
					got = append(got, n.Distances)
				}
			}
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestOldDistances(t *testing.T) {
	t.Parallel()
	matrix := func(depth int, base float64, values ...float64) string {
		var b strings.Builder
		fmt.Fprintf(&b, `<distances nbobjs="2" relative_depth="%d" latency_base="%f">`, depth, base)
		for _, v := range values {
			fmt.Fprintf(&b, `<latency value="%f"/>`, v)
		}
		return b.String() + "</distances>"
	}
	for name, c := range map[string]struct {
		matrices string
		want     []int // from node 0
	}{
		"of hwloc 1":                  {matrix(1, 10, 1, 2.1, 2.1, 1), []int{10, 21}},
		"of hwloc 2, one level lower": {matrix(2, 1, 10, 21, 21, 10), []int{10, 21}},
		"of packages as many":         {matrix(2, 10, 1, 9, 9, 1) + matrix(1, 10, 1, 2, 2, 1), []int{10, 20}},
		"of packages, as hwloc 2 writes": {matrix(1, 1, 10, 90, 90, 10) + matrix(2, 1, 10, 20, 20, 10),
			[]int{10, 20}},
		"the wrong level, and no other": {matrix(5, 10, 1, 3, 3, 1), []int{10, 30}},
		"no SLIT":                       {matrix(1, 1, 1, 2, 2, 1), nil},
		"a third of ten is rounded":     {matrix(1, 10, 1, 3.2000001, 1.6, 1), []int{10, 32}},
		"of more objects than there are": {strings.Replace(matrix(1, 10, 1, 2, 2, 1), `nbobjs="2"`, `nbobjs="4"`,
			1), nil},
		"numbers beyond anything a node has": {matrix(1, 10, 1, 1e30, 2, 1), []int{10, 2147483647}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := read(t, v1(object("Machine", nodes("0x3", "0x3"), c.matrices, numa(0, "0x1", "", pu(0)),
				numa(1, "0x2", "", pu(1)))))
			if diff := gocmp.Diff(c.want, h.NUMANodes[0].Distances); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
