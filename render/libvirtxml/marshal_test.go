package libvirtxml

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMarshalWritesAsAPersonWould(t *testing.T) {
	d := Domain{
		Why: "the whole of it, " + strings.Repeat("explained ", 20), Type: "kvm", Name: `a<b>&"c'`,
		Metadata: &Metadata{Node: &Node{Lab: "l", Name: "'n'\t", Plan: "p"}},
		Memory:   SizeOf(3 << 29), VCPU: VCPU{Placement: "static", Count: 2},
		OS:       OS{Type: OSType{Arch: "x86_64", Machine: "q35", Value: "hvm"}},
		Features: &Features{ACPI: &Empty{}, PMU: &State{Why: "reason", State: "off"}},
		Devices: Devices{Controllers: []Controller{{
			Type: "pci", Index: new(1), Model: PCIeExpanderBus, Target: &ControllerTarget{BusNr: new(32), Node: new(0)},
			Address: &PCIAddress{Type: "pci", Slot: 10},
		}}},
		QEMU: &Commandline{Why: "needed", Args: []Arg{{Value: "-x"}}},
	}
	got, err := Marshal(&d)
	if err != nil {
		t.Fatal(err)
	}
	want := `<!-- the whole of it, explained explained explained explained explained explained explained explained
     explained explained explained explained explained explained explained explained explained explained
     explained explained -->
<domain type='kvm'>
  <name>a&lt;b&gt;&amp;"c'</name>
  <metadata>
    <rackless:node xmlns:rackless='https://github.com/rackless/rackless/libvirt/1' lab='l' name='&apos;n&apos;&#9;' plan='p'/>
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
	back, err := Unmarshal(got)
	if err != nil {
		t.Fatal(err)
	}
	d.XMLName = xml.Name{Local: "domain"}
	clearWhy(&d)
	clearWhy(back)
	if diff := cmp.Diff(&d, back); diff != "" {
		t.Errorf("read back: %s", diff)
	}
}

// clearWhy removes the comments. They stand above the element that they are about, so encoding/xml
// reads them as being of the one around it.
func clearWhy(d *Domain) {
	d.Why, d.Features.PMU.Why, d.QEMU.Why = "", "", ""
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
		if got := Comment(in); got != want {
			t.Errorf("Comment(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestMarshalRefusesACommentThatEnds(t *testing.T) {
	if b, err := Marshal(State{Why: "a--b", State: "on"}); err == nil {
		t.Errorf("wrote %s", b)
	}
}

func FuzzMarshal(f *testing.F) {
	f.Add("a", "b", "c")
	f.Add("--", "<!--", "]]>")
	f.Add("-", "'\"&\r\n", "\x00\xff\u2028")
	f.Fuzz(func(t *testing.T, why, name, text string) {
		d := Domain{Why: Comment(why), Type: name, Name: text, Features: &Features{PMU: &State{Why: Comment(why + "-"),
			State: name}}}
		b, err := Marshal(&d)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Unmarshal(b)
		if err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		if valid(name) && back.Type != name || valid(text) && back.Name != text {
			t.Errorf("wrote %q and %q, read %q and %q\n%s", name, text, back.Type, back.Name, b)
		}
	})
}

// valid reports whether XML can hold s as it is. White space at the ends and carriage returns are
// not worth a guarantee: no name has them.
func valid(s string) bool {
	return strings.ToValidUTF8(s, "") == s && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r >= 0xfffe && r <= 0xffff || r == 0xfffd
	})
}

func TestSizesKeepTheirBytes(t *testing.T) {
	for _, c := range []struct {
		bytes uint64
		want  Size
	}{
		{0, Size{"GiB", 0}},
		{1, Size{"b", 1}},
		{1024, Size{"KiB", 1}},
		{3 << 20, Size{"MiB", 3}},
		{32 << 30, Size{"GiB", 32}},
		{1<<30 + 1<<20, Size{"MiB", 1025}},
		{1<<64 - 1, Size{"b", 1<<64 - 1}},
	} {
		got := SizeOf(c.bytes)
		if got != c.want {
			t.Errorf("SizeOf(%d) = %v, want %v", c.bytes, got, c.want)
		}
		if back, err := got.Bytes(); err != nil || back != c.bytes {
			t.Errorf("%v is %d bytes, %v, want %d", got, back, err, c.bytes)
		}
	}
	for unit, want := range map[string]uint64{
		"": 2048, "b": 2, "bytes": 2, "k": 2048, "K": 2048, "KiB": 2048, "KB": 2000, "M": 2 << 20, "MiB": 2 << 20,
		"MB": 2e6, "G": 2 << 30, "GB": 2e9, "T": 2 << 40,
		"TiB": 2 << 40, "TB": 2e12,
	} {
		if got, err := (Size{unit, 2}).Bytes(); err != nil || got != want {
			t.Errorf("2 %s is %d bytes, %v, want %d", unit, got, err, want)
		}
	}
	for _, s := range []Size{{"furlong", 1}, {"TiB", 1 << 60}} {
		if got, err := s.Bytes(); err == nil {
			t.Errorf("%v is %d bytes", s, got)
		}
	}
}

func TestAddressesAreReadInAnyBase(t *testing.T) {
	d, err := Unmarshal([]byte(
		`<domain><devices><hostdev><source><address domain='0' bus='0x3b' slot='10' function='07'/></source></hostdev></devices></domain>`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := d.Devices.HostDevs[0].Source.Address, (PCIAddress{Bus: 0x3b, Slot: 10, Function: 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := Unmarshal([]byte(
		`<domain><devices><hostdev><source><address bus='x'/></source></hostdev></devices></domain>`)); err == nil ||
		!strings.Contains(err.Error(), `bus "x"`) {
		t.Errorf("error %v", err)
	}
}
