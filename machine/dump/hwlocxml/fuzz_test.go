package hwlocxml

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

// FuzzParse fails if an error has no position, a result cannot be encoded, or readings differ.
func FuzzParse(f *testing.F) {
	gpu := device("0000:01:00.0", "0302", object("OSDev", `name="nvml0" subtype="NVML" osdev_type="1" gp_index="7"`,
		info("GPUModel", "A100")))
	nic := device("0000:02:00.0", "0207", osDevice("ib0", 2, info("Address", "00:11"), info("Port", "1")),
		osDevice("mlx5_0", 3, info("Port1State", "4"), info("Port1GID0", "fe80::1")))
	for _, seed := range []string{
		"",
		v1(object("Machine", sets("0x3")+` online_cpuset="0x1" local_memory="4096"`,
			object("Cache", sets("0x1")+` depth="3" cache_type="0"`, object("Core", sets("0x1"), pu(0))))),
		v1(object("Machine", sets("0xf...f"),
			`<distances nbobjs="2" relative_depth="1" latency_base="10.0"><latency value="1.0"/>`+
				`<latency value="2.0"/><latency value="2.0"/><latency value="1.0"/></distances>`,
			numa(0, "0x1", "", pu(0)), numa(1, "0x2", "", pu(1)))),
		v2(twoNodes("", hostBridge("0000:[00-02]", bridge("0000:00:01.0", "0000:[01-01]", gpu),
			bridge("0000:00:02.0", "0000:[02-02]", nic)), osDevice("sda", 0, info("Size", "5")))),
		v2(object("Machine", nodes("0x3", "0x3"), numa(0, "0x3", ""), numa(1, "0x3", `subtype="HBM"`),
			object("Package", sets("0x3"), object("Die", sets("0x3"), object("L3Cache", sets("0x3"), pu(0), pu(1))))) +
			slit(`kind="5" name="NUMALatency" indexing="os"`, "0 1", "10 20 20 10") +
			`<cpukind cpuset="0x1"><info name="CoreType" value="IntelAtom"/></cpukind>`),
		v3(twoNodes(gpu, "", "") +
			`<distances2hetero nbobjs="2" kind="25" name="NVLinkBandwidth">` +
			`<indexes length="9">OSDev:7 Package:1 </indexes><u64values length="9">0 25000 25000 0 </u64values>` +
			`</distances2hetero>`),
		"<!DOCTYPE topology [<!ENTITY a \"&b;&b;\">]><topology>&a;</topology>",
		strings.Repeat("<object type='Group'>", 40),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Parse(b, "f.xml")
		if err != nil {
			var at *Error
			if !errors.As(err, &at) || at.Line < 1 || at.File != "f.xml" || !strings.HasPrefix(err.Error(), "f.xml:") {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		if _, err := json.Marshal(h); err != nil {
			t.Fatal(err)
		}
		var inCores, inNodes topology.CPUSet
		for _, c := range h.Cores {
			if c.CPUs.IsEmpty() || c.CPUs.Overlaps(inCores) || !c.CPUs.IsSubsetOf(h.CPUs.Online) {
				t.Fatalf("core %+v: without CPUs, with another's, or with offline ones", c)
			}
			inCores = inCores.Union(c.CPUs)
		}
		for _, n := range h.NUMANodes {
			if n.CPUs.Overlaps(inNodes) {
				t.Fatalf("node %d has CPUs of another: %s", n.ID, n.CPUs)
			}
			inNodes = inNodes.Union(n.CPUs)
		}
		again, err := Parse(b, "f.xml")
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(h, again); diff != "" {
			t.Fatalf("read again it is another:\n%s", diff)
		}
		Sniff(b)
	})
}

// FuzzConsole fails if an error has no position, or a result cannot be encoded.
func FuzzConsole(f *testing.F) {
	for _, seed := range []string{
		console2,
		"Machine (P#0 total=1KB)\n  NUMANode L#0 (P#0 local=1KB) + PU L#0 (P#0)\n",
		"Machine (1GB total)\n PU P#1\n HostBridge\n  2 x { PCI 0b:00.1-2 (Ethernet) }\n",
		"Machine (1GB total)" + strings.Repeat(" + Group0 L#0", 300),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseConsole(b, "f.txt")
		if err != nil {
			var at *Error
			if !errors.As(err, &at) || at.Line < 1 || at.File != "f.txt" {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		if _, err := json.Marshal(h); err != nil {
			t.Fatal(err)
		}
	})
}
