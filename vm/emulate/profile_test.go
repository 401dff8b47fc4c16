package emulate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/lab"
)

const good = `name: small
description: two nodes
packages: 2
threads_per_core: 1
numa_nodes:
  - {cores: 2, memory: 1GiB}
  - {cores: 2, memory: 1GiB}
distances:
  - [10, 20]
  - [20, 10]
disk: 8GiB
switches:
  - {address: "19:00.0", numa_node: 1}
bridges:
  - {address: "41:00.0", numa_node: 0}
gpus:
  - {address: "06:00.0", numa_node: 1, audio: true}
  - {address: "1b:00.0", behind: "19:00.0"}
nics:
  - {address: "1c:00.0", behind: "19:00.0", ports: 2, vfs: 7, wires: [a, a]}
  - {address: "42:01.0", behind: "41:00.0"}
`

func TestAProfileIsReadWithItsDefaults(t *testing.T) {
	p, err := ParseProfile("small.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range p.roots() {
		got = append(got, fmt.Sprintf("%v node %d to bus %02x, %d behind", r.address, *r.node, r.last, len(r.behind)))
	}
	want := []string{"0000:06:00.0 node 1 to bus 06, 0 behind", "0000:19:00.0 node 1 to bus 1c, 2 behind",
		"0000:41:00.0 node 0 to bus 42, 1 behind"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("roots (-want +got):\n%s", diff)
	}
	if n := p.GPUs[1].NUMANode; n != 1 {
		t.Errorf("the GPU behind the switch is on node %d, want the switch's, 1", n)
	}
	if n := p.VRAM(); n != 0 {
		t.Errorf("GPUs without a model have %v of memory", n)
	}
	if n := p.NICs[1].Ports; n != 1 {
		t.Errorf("a NIC has %d ports unless it says more, want 1", n)
	}
	if p.CPUs() != 4 || p.Memory() != 2*lab.GiB {
		t.Errorf("%d CPUs and %v, want 4 and 2GiB", p.CPUs(), p.Memory())
	}
	p, err = ParseProfile("small.yaml", []byte(strings.Replace(good, `"19:00.0"}`, `"19:00.0", model: h20}`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if g := p.GPUs[1]; g.Memory != 256*lab.MiB || p.VRAM() != g.Memory {
		t.Errorf("the other GPU has %v of %v", g.Memory, p.VRAM())
	}
}

func TestFaultsOfProfilesAreNamedWithTheirPlace(t *testing.T) {
	tests := []struct {
		name, old, new string
		want           string
	}{
		{"an unknown key is refused, with the one that was meant", "packages: 2", "package: 2",
			`3:1: unknown key (have "package", want name, description, packages,`},
		{"an unknown key of a device is refused", `"06:00.0", numa_node: 1`, `"06:00.0", numa: 1`,
			`17:26: gpus[0]: unknown key (have "numa", want address, numa_node, behind, audio, model or memory); ` +
				`did you mean numa_node?`},
		{"a key that is there twice is refused", "packages: 2", "packages: 2\npackages: 2",
			"4:1: packages: key is there twice (have lines 3 and 4); remove one of them"},
		{"an anchor is refused", "name: small", "name: &a small",
			`1:7: anchors, aliases and merge keys are not used in profiles (have "&")`},
		{"a second document is refused", "disk: 8GiB", "disk: 8GiB\n---\nname: b",
			"12:1: more than one document in the file (want one profile); put every profile in a file of its own"},
		{"a size without a unit is refused", "disk: 8GiB", "disk: 8", `11:7: disk: parse size "8"`},
		{"a name that cannot be a file name is refused", "name: small", "name: ../etc",
			`1:7: name "../etc": want at most 24 of the letters a-z, digits and hyphens`},
		{"packages that the nodes cannot be dealt out to", "packages: 2", "packages: 3",
			"3:11: 3 packages for 2 NUMA nodes: QEMU gives every package the same number of nodes"},
		{"three threads a core", "threads_per_core: 1", "threads_per_core: 3", "4:19: threads_per_core 3: want 1 or 2"},
		{"nodes that differ in cores", "- {cores: 2, memory: 1GiB}\n  - {cores: 2,",
			"- {cores: 2, memory: 1GiB}\n  - {cores: 3,",
			"7:13: 3 cores, and node 0 has 2: QEMU gives every node the same number"},
		{"more CPUs than APIC identifiers", "{cores: 2, memory: 1GiB}\n  - {cores: 2,",
			"{cores: 200, memory: 1GiB}\n  - {cores: 200,", "6:3: 400 CPUs: QEMU's emulated CPU allows 255"},
		{"memory that no hugepages fill", "memory: 1GiB}\ndist", "memory: 1025MiB}\ndist",
			"7:24: memory 1025MiB: want a multiple of 2MiB, at least 128MiB"},
		{"too little memory for Debian", "memory: 1GiB}\n  - {cores: 2, memory: 1GiB}",
			"memory: 256MiB}\n  - {cores: 2, memory: 256MiB}",
			"6:3: 512MiB of memory is too little for a host with 2 NUMA nodes: want at least 1GiB"},
		{"a row of distances too few", "  - [20, 10]\n", "", "9:3: 1 rows of distances for 2 NUMA nodes"},
		{"a node that is far from itself", "[20, 10]", "[20, 11]", "10:10: distance 11 from node 1 to itself: want 10"},
		{"a node that is nearer to another than to itself", "[10, 20]", "[10, 9]",
			"9:10: distance 9 from node 0 to node 1: want 11 to 254"},
		{"a device without an address", `{address: "06:00.0", numa_node: 1, audio: true}`,
			`{numa_node: 1, audio: true}`, `17:5: no address: add one such as "41:00.0"`},
		{"an address that is none", `"06:00.0"`, `"0600"`, `17:15: gpus[0].address: PCI address "0600": no bus`},
		{"an address in another domain", `"06:00.0"`, `"0001:06:00.0"`,
			"17:15: address 0001:06:00.0: QEMU has only PCI domain 0000"},
		{"an address of a function", `"06:00.0"`, `"06:00.1"`, "17:15: address 0000:06:00.1: want that of function 0"},
		{"a device number that no root port gives", `"06:00.0"`, `"06:01.0"`,
			"17:15: address 0000:06:01.0: alone below its root port a device has number 00"},
		{"a NUMA node that is not there", `"06:00.0", numa_node: 1`, `"06:00.0", numa_node: 2`,
			"17:37: NUMA node 2: want 0 to 1"},
		{"behind nothing", `behind: "41:00.0"`, `behind: "40:00.0"`,
			"21:34: behind 0000:40:00.0: no switch or bridge has that address"},
		{"a bus that the chipset has", `"06:00.0"`, `"01:00.0"`,
			"17:15: address 0000:01:00.0: its root port needs bus 00, which is taken by bus 00, that of the chipset"},
		{"a bus that a switch has", `"06:00.0"`, `"1d:00.0"`,
			"17:15: address 0000:1d:00.0: its root port needs bus 1c, which is taken by 0000:19:00.0"},
		{"a bus that the firmware will not give", `"1c:00.0", behind`, `"1d:00.0", behind`,
			"20:15: address 0000:1d:00.0: behind 0000:19:00.0 it will be on bus 1c"},
		{"a switch of which nothing is behind", `{address: "42:01.0", behind: "41:00.0"}`,
			`{address: "42:00.0", numa_node: 0}`, "15:15: nothing is behind 0000:41:00.0: remove it"},
		{"the bridge's own number", `"42:01.0"`, `"42:00.0"`,
			"21:15: address 0000:42:00.0: number 00 of a bridge's bus is its own: want 01 to 1f"},
		{"a GPU of another kind", `"19:00.0"}`, `"19:00.0", model: rtx3090}`,
			`18:52: model "rtx3090": want a100, generic, h100, h20, l40s or display`},
		{"a GPU with too much memory", `"19:00.0"}`, `"19:00.0", model: h20, memory: 2GiB}`,
			"18:65: memory 2GiB: want a power of two from 16MiB to 1GiB"},
		{"a GPU with memory of no power of two", `"19:00.0"}`, `"19:00.0", model: h20, memory: 48MiB}`,
			"18:65: memory 48MiB: want a power of two from 16MiB to 1GiB"},
		{"a GPU with memory and the console", "audio: true}", "audio: true, model: h20}",
			"17:60: model h20: the first GPU has the console: set screen: true, or remove model"},
		{"a display with memory", `"19:00.0"}`, `"19:00.0", model: display, memory: 64MiB}`,
			"18:69: memory 64MiB: a display has none: remove memory, or say model: generic"},
		{"a GPU with memory on a conventional bus", `"1b:00.0", behind: "19:00.0"`,
			`"42:02.0", behind: "41:00.0", memory: 64MiB`, "18:53: memory 64MiB: a display has none: remove memory"},
		{"a model on a conventional bus", `"1b:00.0", behind: "19:00.0"`,
			`"42:02.0", behind: "41:00.0", model: h20`,
			"18:52: model h20: a conventional PCI bus has only displays: remove model"},
		{"virtual functions by half", "vfs: 7", "vfs: 4",
			"20:60: vfs 4: want 0, or 7, which is what QEMU's SR-IOV card has"},
		{"virtual functions on a conventional bus", `behind: "41:00.0"}`, `behind: "41:00.0", vfs: 7}`,
			"21:50: vfs 7: a card on a conventional PCI bus has none: remove vfs"},
		{"two ports of a card that has one", "ports: 2, vfs: 7", "ports: 2",
			"20:52: ports 2: QEMU's card with two ports is the one with virtual functions: set vfs: 7"},
		{"a ConnectX of another kind", "ports: 2, vfs: 7", "ports: 2, model: connectx-9",
			"20:62: model \"connectx-9\": want connectx-4-lx, connectx-5, connectx-6 or connectx-7, or leave it out " +
				"for " +
				"a card of Intel's"},
		{"virtual functions of a ConnectX", "ports: 2, vfs: 7", "ports: 2, vfs: 7, model: connectx-5",
			"20:60: vfs 7: want 0 to 3: all functions of a ConnectX are on one device"},
		{"a ConnectX on a conventional bus", `behind: "41:00.0"}`, `behind: "41:00.0", model: connectx-5}`,
			"21:52: model connectx-5: a conventional PCI bus has none: remove model"},
		{"a wire between a ConnectX and another card", `vfs: 7, wires: [a, a]}`,
			"model: connectx-5, wires: [a, b]}\n  - {address: \"51:00.0\", numa_node: 0, wires: [a]}",
			"21:48: wire a joins a ConnectX and another card: want ports of a kind"},
		{"more wires than ports", "wires: [a, a]", "wires: [a, a, b]", "20:70: 3 wires in 2 ports"},
		{"a wire with one end", "wires: [a, a]", "wires: [a]",
			"20:71: wire a has one end: put it into a second port, or remove it"},
		{"a wire that is an option of QEMU's", "wires: [a, a]", `wires: ["a,x", "a,x"]`,
			`20:71: wire "a,x": want at most 24`},
		{"no name", "name: small\n", "", "no name: add a line"},
		{"nothing", good, "# nothing\n", `empty profile (want a name and NUMA nodes); start with "name: my-server"`},
		{"bytes that are no text", "small", "\xff", "not UTF-8 text"},
		{"a list", good, "- a\n", "1:1: "},
		{"deep nesting", "[10, 20]", strings.Repeat("[", 40) + strings.Repeat("]", 40), "nested too deeply"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(good, tt.old) {
				t.Fatalf("the profile has no %q", tt.old)
			}
			_, err := ParseProfile("small.yaml", []byte(strings.Replace(good, tt.old, tt.new, 1)))
			var e *strictyaml.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v of type %T, want a *strictyaml.Error", err, err)
			}
			if want := "small.yaml:" + tt.want; !strings.HasPrefix(err.Error(), want) && !strings.Contains(err.Error(),
				": "+tt.want) {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		})
	}
}

func TestScaleKeepsTheShapeAndACoreInEachNode(t *testing.T) {
	for _, p := range Builtin() {
		for _, n := range []int{1, 2, 4, 1000} {
			q := p.Scale(n)
			if f := q.check(); f != nil {
				t.Errorf("%s, scale %d: %s", p.Name, n, f.what)
			}
			if len(q.NUMANodes) != len(p.NUMANodes) || len(q.GPUs) != len(p.GPUs) || q.Memory() != p.Memory() {
				t.Errorf("%s, scale %d: the shape changed", p.Name, n)
			}
			for i := range q.NUMANodes {
				if got, want := q.NUMANodes[i].Cores, max(1, p.NUMANodes[i].Cores/n); got != want {
					t.Errorf("%s, scale %d, node %d: %d cores, want %d", p.Name, n, i, got, want)
				}
			}
		}
	}
}

func TestMemoryIsSpreadOverTheNodesInWholeHugepages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(Builtin()).Draw(t, "profile")
		total := lab.Bytes(rapid.Int64Range(0, 1<<40).Draw(t, "bytes"))
		q, err := p.WithMemory(total)
		if err != nil {
			if least := minMemory + memoryStep*lab.Bytes(len(p.NUMANodes)); total >= least {
				t.Fatalf("%v refused: %v", total, err)
			}
			return
		}
		if f := q.check(); f != nil {
			t.Fatal(f.what)
		}
		if got := q.Memory(); got > total || total-got >= memoryStep*lab.Bytes(len(p.NUMANodes))+lab.MiB {
			t.Fatalf("%v asked for, %v given", total, got)
		}
	})
}

func TestTooLittleMemorySaysHowMuchIsWanted(t *testing.T) {
	_, err := Builtin()[0].WithMemory(100 * lab.MiB)
	if want := "100MiB of memory is too little for a host with 1 NUMA nodes: want at least 1GiB"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestBuiltinProfilesAreCalledAsTheirFilesAndDescribed(t *testing.T) {
	var names []string
	for _, p := range Builtin() {
		names = append(names, p.Name)
		if p.Description == "" || len(Source(p.Name)) == 0 {
			t.Errorf("%s has no description or no file", p.Name)
		}
	}
	if diff := cmp.Diff([]string{"desktop", "epyc-7551p", "r740", "two-socket-h20"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if Source("../epyc-7551p") != nil {
		t.Error("a file elsewhere was found")
	}
}

func FuzzParseProfile(f *testing.F) {
	f.Add([]byte(good))
	for _, p := range Builtin() {
		f.Add(Source(p.Name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseProfile("x.yaml", data)
		if err != nil {
			var e *strictyaml.Error
			if !errors.As(err, &e) {
				t.Errorf("error of type %T: %v", err, err)
			}
			return
		}
		for i, a := range (machine{name: "x", profile: p, accel: "tcg"}).args() {
			if strings.ContainsAny(a, "\n\x00") {
				t.Errorf("argument %d: %q", i, a)
			}
		}
	})
}
