package hwlocxml

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func v1(body string) string {
	return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc.dtd\">\n<topology>" + body +
		"</topology>\n"
}

func v2(body string) string {
	return strings.Replace(v1(body), "<topology>", `<topology version="2.0">`, 1)
}
func v3(body string) string {
	return strings.Replace(v1(body), "<topology>", `<topology version="3.0">`, 1)
}

func object(kind, attrs string, inside ...string) string {
	return fmt.Sprintf("<object type=%q %s>%s</object>", kind, attrs, strings.Join(inside, ""))
}

func sets(cpus string) string { return fmt.Sprintf("cpuset=%q complete_cpuset=%q", cpus, cpus) }

func nodes(cpus, nodes string) string {
	return sets(cpus) + fmt.Sprintf(" nodeset=%q complete_nodeset=%q", nodes, nodes)
}

func pu(n int) string {
	return object("PU", fmt.Sprintf(`os_index="%d" cpuset="0x%x" complete_cpuset="0x%x"`, n, 1<<n, 1<<n))
}

func info(name, value string) string { return fmt.Sprintf("<info name=%q value=%q/>", name, value) }

func numa(id int, cpus, more string, inside ...string) string {
	return object("NUMANode", fmt.Sprintf(`os_index="%d" local_memory="1073741824" %s %s`, id,
		nodes(cpus, fmt.Sprintf("0x%x", 1<<id)), more), inside...)
}

func read(t *testing.T, file string) *topology.Host {
	t.Helper()
	h, err := Parse([]byte(file), "t.xml")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range inconsistencies(h) {
		t.Error(wrong)
	}
	return h
}

func TestErrorsNameFileLineAndElement(t *testing.T) {
	t.Parallel()
	machine := func(inside string) string { return v2("\n" + object("Machine", sets("0x3"), "\n"+inside)) }
	root := func(inside string) string {
		return v2("\n" + object("Machine", sets("0x3"), numa(0, "0x3", "")) + "\n" + inside)
	}
	for name, c := range map[string]struct{ file, want string }{
		"an empty file": {"", `t.xml:1: no element in the file`},
		"text":          {"GPU0 GPU1", `t.xml:1: text outside of elements; is this XML?`},
		"another kind of XML": {"<system version=\"1\"></system>",
			`t.xml:1: system: root element "system"; hwloc's XML begins with topology`},
		"no object": {v2(""), `t.xml:3: topology: no object in it`},
		"two root objects": {v2("\n" + object("Machine", "") + "\n" + object("Machine", "")),
			`t.xml:5: object Machine: second root object; the first is at line 4`},
		"two root elements": {v2(object("Machine", "")) + "<topology/>",
			`t.xml:4: second root element "topology"`},
		"a version to come": {strings.Replace(v2(""), "2.0", "4.1", 1),
			`t.xml:3: topology: version "4.1"; versions 1 to 3 are known`},
		"cut off between tags": {strings.TrimSuffix(v2(""), "</topology>\n"),
			`t.xml:3: topology: the file ends inside the element of line 3: it was cut off`},
		"cut off inside a tag": {machine(`<object type="PU" os_ind`)[:160],
			`t.xml:4: topology: the file ends inside a tag: it was cut off`},
		"a tag that closes another": {v2("<object></info></object>"),
			`t.xml:3: object: </info> where </object> should close line 3`},
		"an end without a beginning": {"</topology>", `t.xml:1: </topology> without a beginning`},
		"an attribute without quotes": {v2("<object type=PU/>"),
			`t.xml:3: topology: unquoted or missing attribute value in element`},
		"declarations in the DOCTYPE": {"<!DOCTYPE topology [<!ENTITY a \"b\">]>\n<topology/>",
			`t.xml:1: DOCTYPE with declarations inside it; entities are not expanded: ` +
				`take out what is between [ and ]`},
		"an entity of its own": {v2(`<object type="&pu;"/>`),
			`t.xml:3: topology: invalid character entity &pu;`},
		"another encoding": {"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>",
			`t.xml:1: encoding "ISO-8859-1"; UTF-8 is wanted`},
		"bytes that are no UTF-8": {v2("<object type=\"\xff\"/>"), `t.xml:3: topology: invalid UTF-8`},
		"elements too deep": {v2(strings.Repeat("<object>", 300)),
			`t.xml:3: object: elements more than 256 deep`},
		"a mask that is none": {machine(object("Core", `cpuset="0xzz"`)),
			`t.xml:5: object Core: cpuset "0xzz": at byte 0: "0xzz" is not a word of 32 bits in hexadecimal`},
		"a mask without 0x": {machine(object("NUMANode", `os_index="0" cpuset="0-3"`)),
			`t.xml:5: object NUMANode: cpuset "0-3": at byte 0: "0-3" is not a word of 32 bits in hexadecimal`},
		"a mask too long": {machine(object("Core", `cpuset="`+strings.Repeat(",", 3000)+`"`)),
			`t.xml:5: object Core: cpuset "` + strings.Repeat(",", 80) +
				`...": at byte 0: mask of 3001 words; at most 2048 are taken`},
		"a number that is none": {machine(object("Package", `os_index="one"`)),
			`t.xml:5: object Package: os_index "one" is not a number`},
		"a package numbered too high": {machine(object("Package", `os_index="4294967294"`)),
			`t.xml:5: object Package: os_index 4294967294 is more than 2147483647`},
		"a CPU numbered too high": {machine(object("PU", `os_index="65536"`)),
			`t.xml:5: object PU: os_index 65536; CPUs are numbered up to 65535`},
		"a CPU without a number": {machine(object("PU", `cpuset="0x3"`)),
			`t.xml:5: object PU: neither os_index nor a cpuset of one CPU`},
		"a CPU twice": {machine(pu(1) + pu(1)),
			`t.xml:5: object PU: second PU with os_index 1; the first is at line 5: ` +
				`a file that joins several machines is not read`},
		"a core twice": {machine(object("Core", sets("0x3")) + object("Core", sets("0x2"))),
			`t.xml:5: object Core: CPUs 1 are in another core too`},
		"a cache twice": {machine(object("L3Cache", sets("0x1")) + object("L3Cache", sets("0x3"))),
			`t.xml:5: object L3Cache: CPUs 0 are in another L3 cache too`},
		"a cache of unknown size": {machine(object("L3Cache", sets("0x1")+` cache_size="big"`)),
			`t.xml:5: object L3Cache: cache_size "big" is not a number`},
		"a node twice": {machine(numa(0, "0x1", "") + "\n" + numa(0, "0x2", "")),
			`t.xml:6: object NUMANode: second NUMA node 0; the first is at line 5`},
		"a node without a number": {machine(object("NUMANode", `nodeset="0x3"`)),
			`t.xml:5: object NUMANode: neither os_index nor a nodeset of one node`},
		"memory that is no number": {machine(object("NUMANode", `os_index="0" local_memory="-5"`)),
			`t.xml:5: object NUMANode: local_memory "-5" is not a number`},
		"pages that are no number": {machine(numa(0, "0x3", "", "\n<page_type size=\"4096\" count=\"many\"/>")),
			`t.xml:6: page_type: count "many" is not a number`},
		"a kind of CPUs without a mask": {root(`<cpukind cpuset="all"/>`),
			`t.xml:5: cpukind: cpuset "all": at byte 0: "all" is not a word of 32 bits in hexadecimal`},
		"a matrix without cells": {root(
			`<distances2 type="NUMANode" nbobjs="2" kind="5" indexing="os"><indexes length="4">0 1 </indexes>` +
				`<u64values length="9">10 20 20 </u64values></distances2>`),
			`t.xml:5: distances2: 2 indexes and 3 values; 2 objects have 2 and 4`},
		"a matrix with a word": {root(
			`<distances2 type="NUMANode" nbobjs="1" kind="5" indexing="os"><indexes length="4">0</indexes>` +
				`<u64values length="9">ten</u64values></distances2>`),
			`t.xml:5: u64values: value "ten" is not a number`},
		"a matrix of too many": {root(`<distances2 type="NUMANode" nbobjs="4097" kind="5" indexing="os"/>`),
			`t.xml:5: distances2: nbobjs is missing or more than 4096`},
		"a matrix of nodes that are no numbers": {root(
			`<distances2 type="NUMANode" nbobjs="1" kind="5" indexing="os"><indexes length="4">zero</indexes>` +
				`<u64values length="9">10</u64values></distances2>`),
			`t.xml:5: distances2: index "zero" is not a number`},
		"an old matrix without cells": {v1("\n" + object("Machine", sets("0x3"),
			`<distances nbobjs="1" relative_depth="1" latency_base="10.0"/>`+numa(0, "0x3", ""))),
			`t.xml:4: distances: 0 values; 1 objects have 1`},
		"an old matrix of words": {v1("\n" + object("Machine", sets("0x3"),
			`<distances nbobjs="1" relative_depth="1" latency_base="NaN"/>`+numa(0, "0x3", ""))),
			`t.xml:4: distances: latency_base "NaN" is not a number`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := Parse([]byte(c.file), "t.xml")
			if err == nil {
				t.Fatalf("no error; got %+v", h)
			}
			if err.Error() != c.want {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
			var at *Error
			if !errors.As(err, &at) || at.File != "t.xml" || at.Line < 1 {
				t.Errorf("got %#v, want an *Error with name and line", err)
			}
		})
	}
}

func TestErrorsUnwrap(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(v2(object("Machine", `cpuset="what"`))), "t.xml")
	var set *topology.CPUSetError
	if !errors.As(err, &set) || set.In != "what" {
		t.Errorf("got %v, want a CPUSetError of the mask", err)
	}
}

func TestFilesTooLargeAreRefused(t *testing.T) {
	t.Parallel()
	_, err := Parse(make([]byte, limits.Bytes+1), "t.xml")
	if want := "t.xml:1: file of 67108865 bytes; at most 67108864 are read"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if testing.Short() {
		t.Skip("a million elements take a while")
	}
	_, err = Parse([]byte(v2(strings.Repeat("<a/>", 1<<20))), "t.xml")
	if want := "t.xml:3: topology: more than 1048576 elements"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSniff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		head string
		want bool
	}{
		"version 1":         {v1("")[:100], true},
		"version 2":         {v2("")[:100], true},
		"version 3":         {v3("")[:100], true},
		"a byte order mark": {"\xef\xbb\xbf<topology version=\"2.0\">", true},
		"comments before the DOCTYPE": {"<?xml version=\"1.0\"?>\n<!-- a > b -->\n<!DOCTYPE topology SYSTEM " +
			"\"hwloc2.dtd\">\n<topology>", true},
		"no DOCTYPE":                  {"<topology>\n", true},
		"an empty topology":           {"<topology/>", true},
		"declarations in the DOCTYPE": {"<!DOCTYPE topology [<!ENTITY a \"b\">]>\n<topology/>", true},
		"nothing":                     {"", false},
		"the name cut off":            {"<topology", false},
		"a longer name":               {"<topologydiff refname=\"a\">", false},
		"NCCL's topology":             {"<system version=\"1\">\n  <cpu numaid=\"0\"", false},
		"libvirt's capabilities":      {"<capabilities>\n  <host>\n    <topology>", false},
		"a comment that does not end": {"<!-- " + strings.Repeat("a", 100), false},
		"text with the word":          {"topology <topology>", false},
		"a tarball":                   {"BZh91AY&SY", false},
		"nvidia-smi -q -x": {"<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM " +
			"\"nvsmi_device_v12.dtd\">\n<nvidia_smi_log>", false},
		"the DTD of an old hwloc only": {"<!DOCTYPE topology SYSTEM \"hwloc.dtd\">", false},
	} {
		if got := Sniff([]byte(c.head)); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestStatesOfCPUs(t *testing.T) {
	t.Parallel()
	machine := func(cpuset, complete, more string) string {
		return object("Machine", fmt.Sprintf("cpuset=%q complete_cpuset=%q %s", cpuset, complete, more))
	}
	set := func(s string) *topology.CPUSet {
		v, err := topology.ParseCPUSet(s)
		if err != nil {
			t.Fatal(err)
		}
		return &v
	}
	for name, c := range map[string]struct {
		file   string
		want   topology.CPUStates
		unread string
	}{
		"all are there": {v2(machine("0xff", "0xff", `allowed_cpuset="0xff"`)),
			topology.CPUStates{Present: set("0-7"), Online: *set("0-7"), Offline: set("")}, ""},
		"version 2 does not tell offline from not allowed": {v2(machine("0x0f", "0xff", `allowed_cpuset="0x0f"`)),
			topology.CPUStates{Online: *set("0-3")},
			"complete_cpuset also has CPUs 4-7: they are offline, or not allowed to whoever made the dump"},
		"where CPUs that are not allowed are shown, the others are offline": {v2(machine("0x3f", "0xff",
			`allowed_cpuset="0x0f"`)),
			topology.CPUStates{Online: *set("0-5"), Offline: set("6-7")}, ""},
		"version 1 has a set of its own for online CPUs": {v1(machine("0x0f", "0xff",
			`online_cpuset="0x3f" allowed_cpuset="0x0f"`)),
			topology.CPUStates{Online: *set("0-5"), Offline: set("6-7")}, ""},
		"hwloc 1 fills it": {v1(object("Machine",
			`cpuset="0x0f" complete_cpuset="0xff" online_cpuset="0x0f" allowed_cpuset="0x0f"`,
			info("hwlocVersion", "1.11.8"))),
			topology.CPUStates{Online: *set("0-3"), Offline: set("4-7")}, ""},
		"hwloc 2 copies cpuset to it": {v1(object("Machine",
			`cpuset="0x0f" complete_cpuset="0xff" online_cpuset="0x0f" allowed_cpuset="0x0f"`,
			info("hwlocVersion", "2.9.0"))),
			topology.CPUStates{Online: *set("0-3")},
			"complete_cpuset also has CPUs 4-7: they are offline, or not allowed to whoever made the dump"},
		"an infinite set is as large as the machine": {v1(object("Machine",
			`cpuset="0xf...f" complete_cpuset="0xf...f" online_cpuset="0xf...f"`, pu(0), pu(3))),
			topology.CPUStates{Present: set("0,3"), Online: *set("0,3"), Offline: set("")}, ""},
		"an infinite set with words": {v1(object("Machine", `cpuset="0xf...f,0x00000002" complete_cpuset="0x9"`, pu(1),
			pu(3), object("PU", `os_index="40"`))),
			topology.CPUStates{Online: *set("1,40"), Present: nil, Offline: nil},
			"complete_cpuset also has CPUs 0,3: they are offline, or not allowed to whoever made the dump"},
		"without sets the PUs are what there is": {v2(object("Machine", "", pu(0), pu(1))),
			topology.CPUStates{Online: *set("0-1")}, ""},
		"a PU without os_index is numbered by its cpuset": {v2(object("Machine", "", object("PU", `cpuset="0x20"`),
			object("PU", `os_index="4294967295" cpuset="0x10"`))),
			topology.CPUStates{Online: *set("4-5")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := read(t, c.file)
			if diff := gocmp.Diff(c.want, h.CPUs); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var want []topology.Unread
			if c.unread != "" {
				want = []topology.Unread{{Path: "t.xml:3: object Machine", Why: c.unread}}
			}
			if diff := gocmp.Diff(want, h.Unread); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPackagesDiesAndCores(t *testing.T) {
	t.Parallel()
	h := read(t, v2(object("Machine", sets("0xff"),
		object("Package", `os_index="7" `+sets("0x3"), info("CPUModel", "EPYC"),
			object("Die", `os_index="1" `+sets("0x1"), object("Core", `os_index="5" `+sets("0x1"), pu(0))),
			object("Die", sets("0x2"), object("Core", sets("0x2"), pu(1)))),
		object("Package", sets("0xc"), object("Group", `kind="104" os_index="3" `+sets("0x4"),
			object("Core", sets("0x4"), pu(2))),
			object("Group", `subtype="Die" os_index="4" `+sets("0x8"), object("Core", sets("0x8"), pu(3)))),
		object("Package", `os_index="7" `+sets("0x30"), object("Core", `os_index="5" `+sets("0x30"), pu(4), pu(5))),
		object("Die", sets("0x40"), object("Core", sets("0x40"), pu(6))),
		pu(7),
	)))
	zero, one, three, four, five, seven := 0, 1, 3, 4, 5, 7
	wantPackages := []topology.Package{
		{ID: 0, CPUs: topology.CPUs(2, 3), Dies: []topology.Die{{ID: 3, CPUs: topology.CPUs(2)},
			{ID: 4, CPUs: topology.CPUs(3)}}},
		{ID: 1, CPUs: topology.CPUs(4, 5)},
		{ID: 7, CPUs: topology.CPUs(0, 1), Model: "EPYC", Dies: []topology.Die{{ID: 1, CPUs: topology.CPUs(0)},
			{ID: 1, CPUs: topology.CPUs(1)}}},
	}
	if diff := gocmp.Diff(wantPackages, h.Packages); diff != "" {
		t.Errorf("packages without a number get a free one (-want +got):\n%s", diff)
	}
	wantCores := []topology.Core{
		{ID: 0, OSID: &five, Package: &seven, Die: &one, CPUs: topology.CPUs(0)},
		{ID: 1, Package: &seven, Die: &one, CPUs: topology.CPUs(1)},
		{ID: 2, Package: &zero, Die: &three, CPUs: topology.CPUs(2)},
		{ID: 3, Package: &zero, Die: &four, CPUs: topology.CPUs(3)},
		{ID: 4, OSID: &five, Package: &one, CPUs: topology.CPUs(4, 5)},
		{ID: 5, CPUs: topology.CPUs(6)},
	}
	if diff := gocmp.Diff(wantCores, h.Cores); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if h.System.CPUModel != "EPYC" {
		t.Errorf("got CPU model %q, want that of the first package that has one", h.System.CPUModel)
	}
}

func TestCaches(t *testing.T) {
	t.Parallel()
	size := uint64(4096)
	want := []topology.L3{{ID: 0, CPUs: topology.CPUs(0), SizeBytes: &size}, {ID: 1, CPUs: topology.CPUs(1)}}
	old := read(t, v1(object("Machine", sets("0x3"),
		object("Cache", sets("0x1")+` depth="3" cache_type="0" cache_size="4096"`,
			object("Cache", sets("0x1")+` depth="2" cache_type="0"`, pu(0))),
		object("Cache", sets("0x2")+` depth="3" cache_type="0" cache_size="0"`,
			object("Cache", sets("0x2")+` depth="3" cache_type="2"`, pu(1))))))
	if diff := gocmp.Diff(want, old.L3); diff != "" {
		t.Errorf("version 1 (-want +got):\n%s", diff)
	}
	now := read(t, v2(object("Machine", sets("0x3"), object("L3Cache", sets("0x2")+` cache_size="0"`,
		object("L3iCache", sets("0x2"), pu(1))),
		object("L3Cache", sets("0x1")+` cache_size="4096"`, object("L2Cache", sets("0x1"), pu(0))))))
	if diff := gocmp.Diff(want, now.L3); diff != "" {
		t.Errorf("version 2 (-want +got):\n%s", diff)
	}
}

func TestKindsOfCores(t *testing.T) {
	t.Parallel()
	machine := object("Machine", sets("0x7"), object("Core", sets("0x1"), pu(0)), object("Core", sets("0x2"), pu(1)),
		object("Core", sets("0x4"), pu(2)))
	kind := func(mask, attrs string, infos ...string) string {
		return fmt.Sprintf("<cpukind cpuset=%q %s>%s</cpukind>", mask, attrs, strings.Join(infos, ""))
	}
	for name, c := range map[string]struct {
		kinds string
		want  []string
	}{
		"none": {"", []string{"", "", ""}},
		"one":  {kind("0x7", "", info("CoreType", "IntelCore")), []string{"", "", ""}},
		"Intel": {kind("0x4", "", info("CoreType", "IntelAtom")) + kind("0x3", "",
			info("CoreType", "IntelCore")), []string{"performance", "performance", "efficiency"}},
		"Intel, two speeds": {kind("0x4", "", info("CoreType", "IntelAtom")) + kind("0x2", "",
			info("CoreType", "IntelCore")) + kind("0x1", "", info("CoreType", "IntelCore")),
			[]string{"performance", "performance", "efficiency"}},
		"ARM": {kind("0x1", "", info("LinuxCapacity", "1024")) + kind("0x2", "",
			info("LinuxCapacity", "420")) + kind("0x4", "", info("LinuxCapacity", "1024")),
			[]string{"performance", "efficiency", "performance"}},
		"forced": {kind("0x1", `forced_efficiency="0"`) + kind("0x6", `forced_efficiency="3"`),
			[]string{"efficiency", "performance", "performance"}},
		"efficiency not known": {kind("0x1", `forced_efficiency="-1"`) + kind("0x6", `forced_efficiency="3"`),
			[]string{"", "", ""}},
		"frequencies alone": {kind("0x1", "", info("FrequencyMaxMHz", "3000")) + kind("0x6", "",
			info("FrequencyMaxMHz", "2000")), []string{"", "", ""}},
	} {
		h := read(t, v2(machine+c.kinds))
		var got []string
		for _, core := range h.Cores {
			got = append(got, core.Kind)
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	h := read(t, v2(machine+kind("0x2", "", info("FrequencyMaxMHz", "3541"))))
	if h.Cores[0].MaxKHz != nil || h.Cores[1].MaxKHz == nil || *h.Cores[1].MaxKHz != 3541000 {
		t.Errorf("got %v and %v, want the frequency of core 1 alone", h.Cores[0].MaxKHz, h.Cores[1].MaxKHz)
	}
}

func TestTheMachine(t *testing.T) {
	t.Parallel()
	infos := info("DMISysVendor", "ACME ") + info("DMIProductName", " Anvil") + info("DMIBoardName", "B1") +
		info("DMIBIOSVersion", "2.0") +
		info("DMIBIOSDate", "01/02/2023") + info("DMIProductSerial", "SECRET") + info("HostName", "SECRET") +
		info("Architecture", "x86_64") +
		info("OSName", "Linux") + info("OSRelease", "6.1.0") + info("hwlocVersion", "v2.10.0") +
		"<info name=\"Empty\"/>"
	want := topology.System{Vendor: "ACME", Product: "Anvil", Board: "B1", BIOS: "2.0 01/02/2023", Arch: "x86_64"}
	for name, file := range map[string]string{
		"version 2, inside the root":   v2(object("Machine", sets("0x1"), infos)),
		"version 3, beside the object": v3(object("Machine", sets("0x1")) + infos),
	} {
		h := read(t, file)
		if diff := gocmp.Diff(want, h.System); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if h.Kernel.Release != "6.1.0" || h.Provenance.Tool != "hwloc 2.10.0" ||
			h.Provenance.Kind != topology.SourceHwloc || h.Provenance.Name != "t.xml" {
			t.Errorf("%s: got kernel %q and provenance %+v", name, h.Kernel.Release, h.Provenance)
		}
		if strings.Contains(fmt.Sprintf("%+v", h), "SECRET") {
			t.Errorf("%s: host name or serial number kept", name)
		}
	}
	h := read(t, v2(object("Machine", sets("0x1"), info("PlatformModel", "PowerNV 8335-GTB")+info("OSName", "FreeBSD")+
		info("OSRelease", "14")+info("CPUModel", "POWER8"))))
	if h.System.Product != "PowerNV 8335-GTB" || h.Kernel.Release != "" || h.Provenance.Tool != "hwloc" ||
		h.System.CPUModel != "POWER8" {
		t.Errorf("got %+v, kernel %q, tool %q", h.System, h.Kernel.Release, h.Provenance.Tool)
	}
}
