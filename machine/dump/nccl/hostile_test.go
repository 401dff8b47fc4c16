package nccl_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/dump/nccl"
	"github.com/rackless/rackless/machine/topology"
)

func TestErrorsNameThePlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"an empty file", "", "t.xml:1: no element in the file"},
		{"white space", " \n\n", "t.xml:3: no element in the file"},
		{"no XML", "GPU0 GPU1", "t.xml:1: text outside of elements; is this XML?"},
		{"a graph", "<graphs version=\"1\">\n</graphs>",
			"t.xml:1: this is a graph of NCCL (NCCL_GRAPH_DUMP_FILE): it has rings and trees, not the machine; give " +
				"what NCCL_TOPO_DUMP_FILE writes"},
		{"a topology of hwloc", "<?xml version=\"1.0\"?>\n<topology version=\"2.0\"/>",
			"t.xml:2: this is a topology of hwloc, not of NCCL"},
		{"other XML", "<domain/>", "t.xml:1: the file starts with <domain>; want <system>, as NCCL_TOPO_DUMP_FILE " +
			"writes it"},
		{"an empty topology", "<system version=\"1\">\n</system>",
			"t.xml:1: no <cpu> in <system>: the topology is empty"},
		{"cut off", "<system version=\"1\">\n<cpu numaid=\"0\">\n",
			"t.xml:3: cpu: the file ends inside the element of line 2: it was cut off"},
		{"cut off in a tag", "<system version=\"1\">\n<cpu numaid=\"0",
			"t.xml:2: system: the file ends inside a tag: it was cut off"},
		{"tags that do not match", "<system>\n<cpu>\n</system>",
			"t.xml:3: cpu: </system> where </cpu> should close line 2"},
		{"declared entities", "<!DOCTYPE x [<!ENTITY a \"aaaa\">]>\n<system/>",
			"t.xml:1: DOCTYPE with declarations inside it; entities are not expanded: " +
				"take out what is between [ and ]"},
		{"an entity", "<system>\n<cpu numaid=\"&a;\"/></system>", "t.xml:2: system: invalid character entity &a;"},
		{"two topologies", "<system/>\n<system/>", `t.xml:2: second root element "system"`},
		{"a function without an address", "<system><cpu>\n<pci class=\"0x030200\"/></cpu></system>",
			"t.xml:2: <pci> has no busid"},
		{"an address that is none", "<system><cpu>\n<pci busid=\"GPU0\"/></cpu></system>",
			`t.xml:2: <pci> busid: PCI address "GPU0": no bus; ` +
				`want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`},
		{"a mask that is none", "<system>\n<cpu numaid=\"0\" affinity=\"0-7\"/></system>",
			`t.xml:2: <cpu> affinity: CPU list "0-7": at byte 0: "0-7" is not a word of 32 bits in hexadecimal`},
		{"a node twice", "<system><cpu numaid=\"0\" affinity=\"1\"/>\n<cpu numaid=\"0\" affinity=\"2\"/></system>",
			`t.xml:2: a second <cpu> with numaid="0"`},
		{"a GPU outside of a function", "<system><cpu>\n<gpu dev=\"0\"/></cpu></system>",
			"t.xml:2: <gpu> in <cpu>; want it in <pci>"},
		{"a link outside of a GPU", "<system><cpu><pci busid=\"0000:01:00.0\">\n<nvlink/></pci></cpu></system>",
			"t.xml:2: <nvlink> in <pci>; want it in <gpu>"},
		{"a net outside of a nic", "<system><cpu>\n<net name=\"mlx5_0\"/></cpu></system>",
			"t.xml:2: <net> in <cpu>; want it in <nic>"},
		{"a link to nowhere", "<system><cpu><pci busid=\"0000:01:00.0\"><gpu>\n<nvlink " +
			"count=\"1\"/></gpu></pci></cpu></system>", "t.xml:2: <nvlink> has no target"},
		{"an attribute twice", "<system>\n<cpu numaid=\"0\" numaid=\"1\"/></system>",
			`t.xml:2: system: <cpu> has the attribute "numaid" twice`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := nccl.Parse([]byte(c.text), "t.xml")
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			var e *nccl.Error
			if !errors.As(err, &e) || e.File != "t.xml" {
				t.Errorf("error is %T; want *nccl.Error with the file", err)
			}
		})
	}
}

func TestOddValuesAreNoted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"a width that is none", one(`<pci busid="0000:01:00.0" link_width="wide"/>`),
			`<pci> link_width="wide" is not a number`},
		{"a width that is too large", one(`<pci busid="0000:01:00.0" link_width="4096"/>`),
			`<pci> link_width="4096" is too large to be right`},
		{"a class that is none", one(`<pci busid="0000:01:00.0" class="gpu"/>`),
			`<pci> class: PCI ID "gpu": want a hexadecimal number of at most 24 bits, such as 0x15b3`},
		{"a vendor that is none", one(`<pci busid="0000:01:00.0" vendor="NVIDIA"/>`),
			`<pci> vendor: PCI ID "NVIDIA": want a hexadecimal number of at most 16 bits, such as 0x15b3`},
		{"a leaf twice", one(`<pci busid="0000:01:00.0"/><pci busid="0000:01:00.0"/>`),
			`<pci> busid="0000:01:00.0" is that of line 1 as well; this one is not read`},
		{"nodes that share CPUs", `<system><cpu numaid="0" affinity="ff"/><cpu numaid="1" affinity="f0"/></system>`,
			`<cpu> affinity: CPUs 4-7 are those of node 0 as well`},
		{"a node that cannot be", `<system><cpu numaid="70000"/></system>`,
			`<cpu> numaid="70000" is too large to be right`},
		{"links that differ", one(
			`<pci busid="0000:01:00.0"><gpu><nvlink target="0000:02:00.0" count="2"/></gpu></pci>` +
				`<pci busid="0000:02:00.0"><gpu><nvlink target="0000:01:00.0" count="3"/></gpu></pci>`),
			`<nvlink> 2 links from 0000:01:00.0 to 0000:02:00.0, but 3 back: 2 are taken`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := parse(t, c.text)
			if len(h.Unread) != 1 || h.Unread[0].Path != "t.xml:1" || h.Unread[0].Why != c.want {
				t.Errorf("got %v\nwant %s", h.Unread, c.want)
			}
		})
	}
}

func TestUnknownElementsAreLeftOut(t *testing.T) {
	t.Parallel()
	h := parse(t, one(`<pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="90"><c2c bw="1"/></gpu>`+
		`<new><pci busid="bad"/></new></pci><other/><other/>`))
	if len(h.PCI) != 1 || len(h.GPUs) != 1 || len(h.Unread) != 2 || !strings.Contains(h.Unread[1].Why, "<other>") {
		t.Errorf("got %s", summary(h))
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"size", strings.Repeat(" ", 17<<20), "file of 17825792 bytes; at most 16777216 are read"},
		{"depth", "<system>" + strings.Repeat(`<cpu>`, 1) + strings.Repeat(`<pci busid="0000:01:00.0">`, 100),
			"elements more than 64 deep"},
		{"depth of unknown elements", "<system>" + strings.Repeat("<x>", 500_000), "elements more than 64 deep"},
		{"elements", "<system>" + strings.Repeat("<cpu/>", 100_001), "more than 100000 elements"},
		{"attributes", "<system " + strings.Repeat(`a="" `, 100) + "/>",
			"<system> has 100 attributes; at most 64 are taken"},
		{"CPUs", `<system><cpu numaid="0" affinity="` + strings.Repeat("ffffffff,", 5000) + `ff"/></system>`,
			"mask of 5001 words"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := nccl.Parse([]byte(c.text), "t.xml")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %q in it", err, c.want)
			}
		})
	}
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "<pci busid=\"%04x:01:00.0\" link_speed=\"fast\"/>\n", i)
	}
	if h := parse(t, one(b.String())); len(h.Unread) != 100 {
		t.Errorf("%d notes; want them limited to 100", len(h.Unread))
	}
}

func TestCutOffAnywhere(t *testing.T) {
	t.Parallel()
	b := strings.TrimSpace(string(readFile(t, "hgx-nvswitch.xml")))
	for n := range len(b) {
		if _, err := nccl.Parse([]byte(b[:n]), "t.xml"); err == nil {
			t.Fatalf("no error for the first %d bytes", n)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(one(`<pci busid="0000:01:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">` +
		`<pci busid="0000:02:00.0" class="0x030200"/></pci>`)))
	f.Add([]byte(one(`<pci busid="0000:01:00.0"><gpu dev="0" sm="80">` +
		`<nvlink target="0000:02:00.0" count="12" tclass="0x030200"/></gpu></pci>`)))
	f.Add([]byte(one(`<nic><net name="mlx5_0+mlx5_1" speed="100000" port="1"/></nic>`)))
	f.Add([]byte(`<system version="2"><cpu numaid="-1" affinity="f,ffffffff" host_hash="0x1"/></system>`))
	f.Add([]byte(`<graphs version="1"/>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := nccl.Parse(b, "fuzz")
		if err != nil {
			var e *nccl.Error
			if !errors.As(err, &e) || e.Line < 0 || e.Line > 2+strings.Count(string(b), "\n") {
				t.Fatalf("error %#v", err)
			}
			return
		}
		tree := topology.NewTree(h)
		for i := range h.PCI {
			if d := &h.PCI[i]; d.Parent != nil && tree.Device(*d.Parent) == nil {
				t.Fatalf("%s is behind %s, which is not there", d.Address, d.Parent)
			}
		}
		if len(h.PCI) < 50 {
			tree.Paths()
		}
	})
}
