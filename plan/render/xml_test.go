package render

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"
)

func TestXMLIsWrittenAsAPersonWould(t *testing.T) {
	mark, err := xml.Marshal(Mark{Lab: "l", Name: "'n'\t", Plan: "p"})
	if err != nil {
		t.Fatal(err)
	}
	d := libvirtxml.Domain{
		Type: "kvm", Name: `a<b>&"c'`, Metadata: &libvirtxml.DomainMetadata{XML: string(mark)},
		Memory: &libvirtxml.DomainMemory{Value: 1536, Unit: "MiB"},
		VCPU:   &libvirtxml.DomainVCPU{Placement: "static", Value: 2},
		OS:     &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "q35", Type: "hvm"}},
		Features: &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{},
			PMU: &libvirtxml.DomainFeatureState{State: "off"}},
		Devices: &libvirtxml.DomainDeviceList{Controllers: []libvirtxml.DomainController{{
			Type: "pci", Index: new(uint(1)), Model: pcieExpanderBus,
			PCI: &libvirtxml.DomainControllerPCI{
				Target: &libvirtxml.DomainControllerPCITarget{BusNr: new(uint(32)), NUMANode: new(uint(0))}},
			Address: &libvirtxml.DomainAddress{PCI: pciAddress(0, 0, 10, 0)},
		}}},
		QEMUCommandline: &libvirtxml.DomainQEMUCommandline{Args: []libvirtxml.DomainQEMUCommandlineArg{{Value: "-x"}}},
	}
	why := reasons{}
	why.add("", "the whole of it, "+strings.Repeat("explained ", 20))
	why.add("features/pmu", "reason")
	why.add("commandline", "needed")
	got, err := explainedXML(&d, why)
	if err != nil {
		t.Fatal(err)
	}
	want := `<!-- the whole of it, explained explained explained explained explained explained explained explained
     explained explained explained explained explained explained explained explained explained explained
     explained explained -->
<domain type='kvm'>
  <name>a&lt;b&gt;&amp;"c'</name>
  <metadata>
    <rackless:node xmlns:rackless='https://github.com/rackless/rackless/libvirt/1' ` +
		`lab='l' name='&apos;n&apos;&#9;' plan='p'/>
  </metadata>
  <memory unit='MiB'>1536</memory>
  <vcpu placement='static'>2</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
  </os>
  <features>
    <acpi/>
    <!-- reason -->
    <pmu state='off'/>
  </features>
  <devices>
    <controller type='pci' index='1' model='pcie-expander-bus'>
      <target busNr='32'>
        <node>0</node>
      </target>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x0a' function='0x0'/>
    </controller>
  </devices>
  <!-- needed -->
  <qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
    <qemu:arg value='-x'/>
  </qemu:commandline>
</domain>
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	again, err := explainedXML(readDomain(t, got), why)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(again)); diff != "" {
		t.Errorf("read back and written again: %s", diff)
	}
}

func TestCommentHasNoEndInside(t *testing.T) {
	for in, want := range map[string]string{
		"plain":            "plain",
		"a--b":             "a- -b",
		"a---b":            "a- - -b",
		"-->":              "- ->",
		"ends in -":        "ends in -",
		"a\x00b\nc\td\x7f": "a b c d",
		"bad \xff byte":    "bad   byte",
		"\ufffe":           "",
		" -\x01- ":         "- -",
	} {
		if got := xmlComment(in); got != want {
			t.Errorf("xmlComment(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestReasonsStandAboveOneOfSeveral(t *testing.T) {
	why := reasons{}
	why.addAt("cputune/vcpupin", 1, "the second--of two")
	got, err := explainedXML(&libvirtxml.Domain{CPUTune: &libvirtxml.DomainCPUTune{
		VCPUPin: []libvirtxml.DomainCPUTuneVCPUPin{{VCPU: 0, CPUSet: "4"}, {VCPU: 1, CPUSet: "5"}}}}, why)
	want := "<domain>\n  <cputune>\n    <vcpupin vcpu='0' cpuset='4'/>\n    <!-- the second- -of two -->\n" +
		"    <vcpupin vcpu='1' cpuset='5'/>\n  </cputune>\n</domain>\n"
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}

func FuzzXML(f *testing.F) {
	f.Add("a", "b", "c")
	f.Add("--", "<!--", "]]>")
	f.Add("-", "'\"&\r\n", "\x00\xff\u2028")
	f.Fuzz(func(t *testing.T, reason, name, text string) {
		d := libvirtxml.Domain{Type: name, Name: text,
			Features: &libvirtxml.DomainFeatureList{PMU: &libvirtxml.DomainFeatureState{State: name}}}
		why := reasons{}
		why.add("", reason)
		why.add("features/pmu", reason+"-")
		b, err := explainedXML(&d, why)
		if err != nil {
			t.Fatal(err)
		}
		back := readDomain(t, b)
		if valid(name) && back.Type != name || valid(text) && back.Name != text {
			t.Errorf("wrote %q and %q, read %q and %q\n%s", name, text, back.Type, back.Name, b)
		}
	})
}

// valid excludes white space at the ends and carriage returns, which no name contains.
func valid(s string) bool {
	return strings.ToValidUTF8(s, "") == s && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r >= 0xfffe && r <= 0xffff || r == 0xfffd
	})
}

func TestSizesKeepTheirBytes(t *testing.T) {
	for _, c := range []struct {
		bytes uint64
		value uint
		unit  string
	}{
		{0, 0, "GiB"}, {1, 1, "b"}, {1024, 1, "KiB"}, {3 << 20, 3, "MiB"}, {32 << 30, 32, "GiB"},
		{1<<30 + 1<<20, 1025, "MiB"}, {1<<64 - 1, 1<<64 - 1, "b"},
	} {
		if value, unit := scaled(c.bytes); value != c.value || unit != c.unit {
			t.Errorf("scaled(%d) = %d %s, want %d %s", c.bytes, value, unit, c.value, c.unit)
		}
	}
}
