package inspect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

func identified(t testing.TB) Source {
	t.Helper()
	b, err := os.ReadFile("testdata/snapshot/ids.ttar")
	if err != nil {
		t.Fatal(err)
	}
	m, err := tree.ParseText(b)
	if err != nil {
		t.Fatal(err)
	}
	return Source{Name: "quokka", FS: m, Run: func(_ context.Context, argv ...string) ([]byte, error) {
		switch line := strings.Join(argv, " "); {
		case strings.HasSuffix(line, "--uuid --state-running"):
			return []byte("c7a5fdbd-edaf-9455-926a-d65c16db1809\n\n"), nil
		case strings.HasSuffix(line, "dumpxml c7a5fdbd-edaf-9455-926a-d65c16db1809"):
			return []byte(identifiedDomain), nil
		case strings.Contains(line, "--uuid"):
			return []byte("\n"), nil
		case strings.Contains(line, "--query-gpu=") && strings.Contains(line, "compute_cap"):
			return []byte("0, 00000000:06:00.0, NVIDIA L40S, GPU-1f2e3d4c-5b6a-7988-1726-354453627180, 46068, " +
				"535.104.12, 95.02.66.00.02, Enabled, [N/A], 8.9\n"), nil
		case line == "nvidia-smi nvlink --status":
			return []byte("Unable to open a window on quokka\n"), fmt.Errorf("exit status 6")
		}
		return nil, fs.ErrNotExist
	}}
}

const identifiedDomain = `<domain type='kvm' id='3' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>wombat prod &amp; test</name>
  <uuid>c7a5fdbd-edaf-9455-926a-d65c16db1809</uuid>
  <title>The wombats</title>
  <metadata><owner xmlns="http://zoo.example/">wombat@zoo.example</owner></metadata>
  <memory unit='KiB'>4194304</memory>
  <memoryBacking><hugepages><page size='1' unit='G'/></hugepages></memoryBacking>
  <vcpu placement='static' cpuset='0-3,^1'>2</vcpu>
  <cputune><vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' cpuset='3'/><emulatorpin cpuset='0'/></cputune>
  <numatune><memory mode='strict' nodeset='0'/></numatune>
  <os><type>hvm</type><nvram>/var/lib/libvirt/qemu/nvram/wombat_VARS.fd</nvram></os>
  <devices>
    <disk type='file'><source file='/var/lib/libvirt/images/wombat.qcow2'/></disk>
    <interface type='hostdev' managed='yes'><mac address='52:54:00:6d:90:02'/>
      <source><address type='pci' domain='0x0000' bus='0x41' slot='0x00' function='0x0'/></source></interface>
    <graphics type='vnc' passwd='wombat123'/>
  </devices>
</domain>
`

func unpacked(t testing.TB, b []byte) string {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	all, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

func TestNothingIdentifiesInASnapshot(t *testing.T) {
	t.Parallel()
	src := identified(t)
	kept, removed := unpacked(t, snapshotOf(t, src, SnapshotOptions{KeepIDs: true})),
		unpacked(t, snapshotOf(t, src, SnapshotOptions{}))
	for _, id := range []struct {
		what string
		text string
		read bool // by inspect, so a snapshot with identities has it
	}{
		{"name of the host", "quokka", true},
		{"its domain", "zoo.example", true},
		{"name of a person", "wombat", true},
		{"pool of disks", "wallaby", true},
		{"MAC address", "b8:3f:d2:0a:0b:0c", true},
		{"its last half", "0a:0b:0c", true},
		{"as a GUID", "b83f:d203:000a:0b0c", true},
		{"in a GID", "ba3f:d2ff:fe0a:0b0c", true},
		{"in a GID without colons", "ba3fd2fffe0a0b0c", true},
		{"in the name of a device", "b83fd203000a0b0c", true},
		{"in the number of a switch", "0c0b0a0003d23fb8", true},
		{"MAC address in capitals", "3C:18:A0:D1:E2:F3", true},
		{"in the name of a network device", "3c18a0d1e2f3", true},
		{"GUID of InfiniBand", "946d:ae03:001a:2b3c", true},
		{"in the address of IPoIB", "94:6d:ae:03:00:1a:2b:3c", true},
		{"GUID of its own kind", "1122:3344:5566:7788", true},
		{"IPv4 address", "10.77.8.", true},
		{"in a route", "01084D0A", true},
		{"in another route", "00084D0A", true},
		{"in a GID", "0a4d:0809", true},
		{"IPv6 network", "2001:4860:abcd", true},
		{"in a route", "20014860abcd", true},
		{"UUID of a file system", "8d1f6a2e", true},
		{"UUID in capitals", "0A1B2C3D", true},
		{"UUID of a GPU", "1f2e3d4c", true},
		{"UUID of a virtual machine", "c7a5fdbd", true},
		{"MAC address of a virtual machine", "52:54:00:6d:90:02", true},
		{"serial number of a GPU", "a1b2c3d4e5f60718", true},
		{"in decimal", fmt.Sprint(uint64(0xa1b2c3d4e5f60718)), true},
		{"serial number of a board", "deadc0de", true},
		{"serial number in the database of udev", "S4EVNX0R123456", true},
		{"EUI of a disk", "0025385b71b0c1d2", true},
		{"serial number of a disk", "S64GNE0R503426", false},
		{"WWID of a disk", "36344730525034260025384500000001", false},
		{"UUID of a volume", "3zSHSR5Nbf4j7g6auAAefWY2CMaX01theZYEvQyecVsm2WtX3iY5q51qq5dWWOq7", false},
		{"password", "wombat123", true},
	} {
		if got := strings.Contains(kept, id.text); got != id.read {
			t.Errorf("%s %q is read: %v, want %v", id.what, id.text, got, id.read)
		}
		if i := strings.Index(strings.ToLower(removed), strings.ToLower(id.text)); i >= 0 {
			t.Errorf("%s %q is in the snapshot: %q", id.what, id.text, removed[max(0, i-60):min(len(removed), i+80)])
		}
	}
}

func TestIdentitiesStayTogether(t *testing.T) {
	t.Parallel()
	src := identified(t)
	h := reread(t, snapshotOf(t, src, SnapshotOptions{}))
	nic := h.NICs[nicAt(t, h, "0000:41:00.0")]
	ib := h.NICs[nicAt(t, h, "0000:81:00.0")]
	plain := func(s string) string { return strings.ReplaceAll(s, ":", "") }
	for _, test := range []struct{ what, got, form string }{
		{"the MAC address", nic.Ports[0].MAC, `02(:[0-9a-f]{2}){5}`},
		{"the name of the RDMA device has the GUID", nic.Devices[0].Name, "rocex" + plain(nic.Devices[0].NodeGUID)},
		{"the first GID is of the link", nic.Devices[0].Ports[0].GIDs[0].GID, `fe80:0000:0000:0000:02.*`},
		{"the second GID has an IPv4 address", nic.Devices[0].Ports[0].GIDs[1].GID,
			`0000:0000:0000:0000:0000:ffff:0a[0-9a-f]{2}:[0-9a-f]{2}09`},
		{"the third GID has the lower half of the first", nic.Devices[0].Ports[0].GIDs[2].GID,
			`2001:0db8:[0-9a-f:]{9}` + nic.Devices[0].Ports[0].GIDs[0].GID[19:]},
		{"the first GID of InfiniBand has the GUID", ib.Devices[0].Ports[0].GIDs[0].GID,
			"fe80:0000:0000:0000:" + ib.Devices[0].NodeGUID},
		{"so has the address of IPoIB", plain(ib.Ports[0].MAC)[24:], plain(ib.Devices[0].NodeGUID)},
		{"the route is to the network of the address", h.Routes[0].Gateway, `10\.\d+\.\d+\.1`},
		{"the tenant's name", h.Tenants[0].Name, "vm-[0-9a-f]{8}"},
	} {
		if !regexp.MustCompile("^" + test.form + "$").MatchString(test.got) {
			t.Errorf("%s: got %q, want %q", test.what, test.got, test.form)
		}
	}
	address, err := netip.ParseAddr(nic.Devices[0].Ports[0].GIDs[1].GID)
	if err != nil || !strings.HasPrefix(h.Routes[0].Gateway, strings.TrimSuffix(address.Unmap().String(), "9")) {
		t.Errorf("the gateway %s is not in the network of the address %s", h.Routes[0].Gateway, address)
	}
	for _, g := range h.GPUs {
		if g.UUID == "" || strings.Contains(g.UUID, "a1b2") || strings.Contains(g.UUID, "1f2e") {
			t.Errorf("GPU %s has the UUID %q", g.ID(), g.UUID)
		}
	}
}

// Otherwise identities could be found by trial from one snapshot.
func TestSubstitutesDependOnSecretsOfTheMachine(t *testing.T) {
	t.Parallel()
	mac := func(id string) string {
		var b tree.Builder
		if err := b.File("etc/machine-id", []byte(id)); err != nil {
			t.Fatal(err)
		}
		s := &snapshot{entries: []tree.Entry{{Name: "address", Data: []byte("b8:3f:d2:0a:0b:0c")}}}
		s.anonymize(b.Mem())
		return string(s.entries[0].Data)
	}
	first, again, other := mac("1"), mac("1"), mac("2")
	if first != again || first == other {
		t.Errorf("substitutes %s and %s of one machine, and %s of another", first, again, other)
	}
}

func nicAt(t testing.TB, h *topology.Host, address string) int {
	t.Helper()
	for i := range h.NICs {
		if h.NICs[i].ID() == address {
			return i
		}
	}
	t.Fatalf("no NIC %s", address)
	return 0
}

// anonymousJSON leaves out values that anonymize may change.
func anonymousJSON(t testing.TB, h *topology.Host) string {
	t.Helper()
	s := hostJSON(t, h)
	for _, r := range []struct{ find, put string }{
		{`"(cmdline|mac|phys_switch_id|node_guid|gid|uuid|gateway)": ".*"`, `"$1": "X"`},
		{`(?s)"(asked)": \[.*?\n  \]`, `"$1": []`},
		{`enx[0-9a-f]{12}`, "enxM"}, {`rocex[0-9a-f]{16}`, "rocexG"},
		{`"path": "/(home|mnt|srv|media|data|var|run|root|opt|tmp|nix|snap)[^"]*"`, `"path": "/$1/X"`},
		{`(?s)"mounts": \[.*?\]`, `"mounts": []`},
		{`"why": ".*"`, `"why": "X"`},
		{`"(name)": "(wombat prod \\u0026 test|vm-[0-9a-f]{8})"`, `"$1": "VM"`},
	} {
		s = regexp.MustCompile(r.find).ReplaceAllString(s, r.put)
	}
	return s
}

func TestSnapshotWithoutIdentitiesIsTheSameMachine(t *testing.T) {
	t.Parallel()
	src := identified(t)
	want, err := Read(context.Background(), src)
	if err != nil {
		t.Fatal(err)
	}
	got := reread(t, snapshotOf(t, src, SnapshotOptions{}))
	if diff := cmp.Diff(anonymousJSON(t, want), anonymousJSON(t, got)); diff != "" {
		t.Errorf("host (-with +without identities):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/", "/boot", "/home/name", "/srv/pool", "[SWAP]"},
		blanked(got.Storage[0].Mounts)); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if len(want.Kernel.Asked) != len(got.Kernel.Asked) {
		t.Errorf("parameters: %v, want %v", got.Kernel.Asked, want.Kernel.Asked)
	}
	if diff := cmp.Diff(want.Kernel.Asked, got.Kernel.Asked); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

func blanked(names []string) (out []string) {
	for _, n := range names {
		out = append(out, regexp.MustCompile(`name[0-9a-f]{8}`).ReplaceAllString(n, "name"))
	}
	return out
}

func TestSnapshotOfASnapshot(t *testing.T) {
	t.Parallel()
	first := snapshotOf(t, identified(t), SnapshotOptions{})
	o, err := openStream(bytes.NewReader(first), "first", "")
	if err != nil {
		t.Fatal(err)
	}
	second := snapshotOf(t, o.Source, SnapshotOptions{KeepIDs: true})
	if diff := cmp.Diff(hostJSON(t, reread(t, first)), hostJSON(t, reread(t, second))); diff != "" {
		t.Errorf("host (-first +second):\n%s", diff)
	}
}

func checkAnonymous(t *testing.T, o *Opened, want *topology.Host) {
	t.Helper()
	b := snapshotOf(t, o.Source, SnapshotOptions{})
	all := strings.ToLower(unpacked(t, b))
	for _, id := range identitiesOf(want) {
		if strings.Contains(all, id) {
			t.Errorf("%q is in the snapshot", id)
		}
	}
	got := reread(t, b)
	if diff := cmp.Diff(anonymousJSON(t, want), anonymousJSON(t, got)); diff != "" {
		t.Errorf("host (-with +without identities):\n%s", diff)
	}
}

// identitiesOf leaves out values with few digits: zeros are in every file.
func identitiesOf(h *topology.Host) (out []string) {
	add := func(s string) {
		plain := strings.NewReplacer(":", "", "-", "").Replace(strings.ToLower(s))
		if strings.HasPrefix(plain, "020000") || len(strings.Trim(plain, "0f")) < 6 {
			return
		}
		out = append(out, strings.ToLower(s), plain)
	}
	for i := range h.NICs {
		for _, p := range h.NICs[i].Ports {
			add(p.MAC)
			add(p.Switch)
		}
		for _, d := range h.NICs[i].Devices {
			add(d.NodeGUID)
			for _, p := range d.Ports {
				for _, g := range p.GIDs {
					add(g.GID)
					add(g.GID[len(g.GID)/2:])
				}
			}
		}
	}
	for i := range h.GPUs {
		add(strings.TrimPrefix(h.GPUs[i].UUID, "GPU-"))
	}
	for i := range h.Tenants {
		add(h.Tenants[i].UUID)
	}
	return out
}

func TestAnonymousSnapshotOfThisMachine(t *testing.T) {
	t.Parallel()
	want, s := recordedRead(t, Live())
	s.anonymize(tree.Live())
	var b bytes.Buffer
	if err := s.write(&b, SnapshotOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(anonymousJSON(t, want), anonymousJSON(t, reread(t, b.Bytes()))); diff != "" {
		t.Errorf("host (-live +without identities):\n%s", diff)
	}
	all := strings.ToLower(unpacked(t, b.Bytes()))
	for _, id := range identitiesOf(want) {
		if strings.Contains(all, id) {
			t.Errorf("%q is in the snapshot", id)
		}
	}
}

func testAnonymizer() *anonymizer {
	return &anonymizer{key: []byte("key"), keep: map[string]bool{}, hosts: []string{"quokka"}}
}

// In want, h is a hexadecimal digit, and "=" the text itself.
func TestShapesOfIdentities(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"a MAC address", "b8:3f:d2:0a:0b:0c\n", "02:hh:hh:hh:hh:hh\n"},
		{"in capitals, with dashes", "B8-3F-D2-0A-0B-0C", "02-HH-HH-HH-HH-HH"},
		{"the broadcast", "ff:ff:ff:ff:ff:ff 01:80:c2:00:00:02 00:00:00:00:00:00", "="},
		{"an EUI-64", "b83f:d203:000a:0b0c", "02hh:hhhh:hhhh:hhhh"},
		{"an EUI-64 with dashes", "b8-3f-d2-ff-ff-0a-0b-0c", "02-hh-hh-hh-hh-hh-hh-hh"},
		{"no GUID", "0000:0000:0000:0000", "="},
		{"a GID of the link", "fe80:0000:0000:0000:ba3f:d2ff:fe0a:0b0c", "fe80:0000:0000:0000:02hh:hhhh:hhhh:hhhh"},
		{"a GID of IPv4", "0000:0000:0000:0000:0000:ffff:0a4d:0809", "0000:0000:0000:0000:0000:ffff:0ahh:hh09"},
		{"no GID", "0000:0000:0000:0000:0000:0000:0000:0000", "="},
		{"an address as people write it", "2001:4860:abcd:1::7 ::1 ::", "2001:db8:h+:h+::7 ::1 ::"},
		{"the hardware address of IPoIB", "00:00:10:49:fe:80:00:00:00:00:00:00:94:6d:ae:03:00:1a:2b:3c",
			"00:00:10:49:fe:80:00:00:00:00:00:00:02:hh:hh:hh:hh:hh:hh:hh"},
		{"bytes of another length", "aa:bb:cc:dd:ee:ff:aa:bb:cc", "02:hh:hh:hh:hh:hh:hh:hh:hh"},
		{"a UUID", "GPU-1F2E3D4C-5b6a-7988-1726-354453627180", "GPU-hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh"},
		{"no UUID", "00000000-0000-0000-0000-000000000000", "="},
		{"devices called after their addresses", "enx3c18a0d1e2f3 rocexb83fd203000a0b0c/ports wlx3c18a0d1e2f3_a",
			"enx02hhhhhhhhhh rocex02hhhhhhhhhhhhhh/ports wlx02hhhhhhhhhh_a"},
		{"addresses of PCI", "0000:41:00.0 pci0000:00 0000:00:1f.0/0000:02:00.1 0000:3b:00", "="},
		{"masks of CPUs", "00000000,ffffffff,00000000,0000ffff", "="},
		{"resources", "0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200", "="},
		{"names of devices of ACPI and USB", "acpi:PNP0C0A: usb:v1D6Bp0002d0617dc09 1-1.4:1.0 0:0:0:0", "="},
		{"a date", "2026-11-22 00:49:51", "="},
		{"versions", "22.36.1010 535.104.12 95.02.66.00.02", "="},
		{"the name of a library", "libibverbs.so.1.14.44.0", "="},
		{"hashes that nobody knows", "0123456789abcdef0123456789abcdef01234567", "="},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			looksLike(t, test.text, testAnonymizer().text(test.text), test.want)
		})
	}
	const mac, other = "b8:3f:d2:0a:0b:0c", "b8:3f:d2:0a:0b:0d"
	got := strings.Fields(testAnonymizer().text(mac + " " + other + " B8-3F-D2-0A-0B-0C enxb83fd20a0b0c"))
	if got[0] == got[1] || got[2] != strings.ToUpper(strings.ReplaceAll(got[0], ":", "-")) ||
		got[3] != "enx"+strings.ReplaceAll(got[0], ":", "") {
		t.Errorf("two MAC addresses, and the first in other forms, become %q", got)
	}
}

func looksLike(t *testing.T, text, got, form string) {
	t.Helper()
	if form == "=" {
		form = text
	}
	want := strings.NewReplacer("h+", "[0-9a-f]+", "h", "[0-9a-f]", "H", "[0-9A-F]").Replace(
		strings.ReplaceAll(regexp.QuoteMeta(form), `h\+`, "h+"))
	if form == text {
		want = regexp.QuoteMeta(text)
	}
	if !regexp.MustCompile("^" + want + "$").MatchString(got) {
		t.Errorf("got %q, want %q", got, form)
	}
}

func TestNamesThatPeopleGive(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"a mount", "31 22 253:2 / /home/alice/data rw,relatime shared:31 - ext4 /dev/sda1 rw\n",
			"31 22 253:2 / /home/name1/data rw,relatime shared:31 - ext4 /dev/sda1 rw\n"},
		{"a volume by both of its names", "/dev/alice/root /dev/mapper/alice-root /dev/mapper/a--lice-root",
			"/dev/name1/root /dev/mapper/name1-root /dev/mapper/name2--name3-root"},
		{"a short name that is hexadecimal", "/home/ada /home/b0b", "/home/name1 /home/b0b"},
		{"a name that is not ASCII", "/home/jürgen", "/home/name1"},
		{"a name with a space", `/mnt/my\040disk`, `/mnt/name1\040disk`},
		{"devices", "/dev/nvme0n1p2 /dev/md127 /dev/vda1 /dev/mmcblk0p1 /dev/dm-12 /dev/xvda", "="},
		{"a share", "nas7:/export /x", "name1:/export /x"},
		{"the host", "/dev/quokka-vg/root", "/dev/host-vg/root"},
		{"the loopback and a netmask", "127.0.0.1 255.255.255.0 0.0.0.0", "="},
		{"a container", "/var/lib/docker/overlay2/3f2a9c/merged", "/var/lib/docker/overlay2/name1/merged"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := testAnonymizer()
			if test.want == "=" {
				test.want = test.text
			}
			got := a.names(test.text)
			if numbered(got) != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if again := a.names(got); again != got {
				t.Errorf("a second time: got %q, want %q", again, got)
			}
		})
	}
	got := testAnonymizer().names("192.0.2.3:/x 192.0.2.4:/x 198.51.100.3:/x")
	m := regexp.MustCompile(`^(10\.\d+\.\d+)\.3:/x (10\.\d+\.\d+)\.4:/x (10\.\d+\.\d+)\.3:/x$`).FindStringSubmatch(got)
	if m == nil || m[1] != m[2] || m[1] == m[3] {
		t.Errorf("two addresses of one network and one of another become %q", got)
	}
}

// numbered writes name1, name2, ... in order of appearance.
func numbered(s string) string {
	numbers := map[string]string{}
	return regexp.MustCompile(`name[0-9a-f]{8}`).ReplaceAllStringFunc(s, func(name string) string {
		if numbers[name] == "" {
			numbers[name] = fmt.Sprintf("name%d", len(numbers)+1)
		}
		return numbers[name]
	})
}

func TestFilesWithRulesOfTheirOwn(t *testing.T) {
	t.Parallel()
	config := make([]byte, 4096)
	copy(config, "\x86\x80")
	copy(config[0x100:], "\x01\x00\x02\x15")
	copy(config[0x150:], "\x03\x00\x01\x00\x0c\x0b\x0a\xff\xff\xd2\x3f\xb8\x55")
	cleaned := bytes.Clone(config)
	clear(cleaned[0x154:0x15c])
	for _, test := range []struct{ name, file, text, hidden, kept string }{
		{"serial numbers of a board", "proc/cpuinfo", "model name\t: Serial X\nSerial\t\t: 10000000abcdef01\n",
			"10000000abcdef01", "model name\t: Serial X\nSerial\t\t: "},
		{"a machine of s390", "proc/cpuinfo", "processor 0: version = FF,  identification = 0133E8,  machine = 2964\n",
			"0133E8", ",  machine = 2964\n"},
		{"the sequence code of s390", "proc/sysinfo",
			"Manufacturer:         IBM\nSequence Code:        00000000000A1B2C\n",
			"00000000000A1B2C", "Manufacturer:         IBM\n"},
		{"a partition of s390", "proc/sysinfo", "LPAR Name:            ALICE\nVM00 Control Program: z/VM    6.4.0\n",
			"ALICE", "VM00 Control Program: z/VM    6.4.0\n"},
		{"notes of hwloc", "proc/hwloc-nofile-info", "OSName: Linux\nHostName: quokka\nArchitecture: x86_64\n",
			"quokka", "OSName: Linux\nHostName: host\nArchitecture: x86_64\n"},
		{"who built the kernel", "proc/version", "Linux version 6.1.0 (alice@quokka) (gcc (Debian) 12)\n",
			"alice@quokka", "Linux version 6.1.0 (builder@host) (gcc (Debian) 12)\n"},
		{"a description of a node", "sys/class/infiniband/mlx5_0/node_desc", "quokka mlx5_0\n", "quokka", "host\n"},
		{"a serial number", "sys/block/sda/device/serial", "S64GNE0R503426\n", "S64GNE0R503426", "\n"},
		{"no serial number", "sys/class/dmi/id/board_serial", "\n", "x", "\n"},
		{"a serial number of a device tree", "proc/device-tree/serial-number", "C7F00123\x00", "C7F00123", "\x00"},
		{"a model of a device tree", "proc/device-tree/model", "Some Board\x00", "x", "Some Board\x00"},
		{"the configuration space", "sys/devices/pci0000:00/0000:00:1f.0/config", string(config), "\xb8",
			string(cleaned)},
		{"a text that is called so", "sys/module/x/config", "b8:3f:d2:0a:0b:0c", "b8:3f", "02:"},
		{"a node of AMD", "sys/class/kfd/kfd/topology/nodes/1/properties",
			"unique_id 11647081397416199064\nmax_id 7\nunique_id 0\n", "11647081397416199064",
			"\nmax_id 7\nunique_id 0\n"},
		{"routes", "proc/net/route", "Iface\tDestination\tGateway\tMask\neth0\t0008A8C0\t010008C0\t00FFFFFF\n",
			"A8C0", "\t00FFFFFF\n"},
		{"not XML", "etc/libvirt/qemu/alice.xml", "<domain><name>alice", "alice", "<domain><name>name"},
		{"XML with an element that does not end", "x.xml", "<domain><metadata>alice", "alice", "<domain><name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, ok := testAnonymizer().file(test.file, []byte(test.text))
			if !ok || strings.Contains(string(got), test.hidden) || !strings.Contains(string(got), test.kept) {
				t.Errorf("got %q, %v; want %q without %q", got, ok, test.kept, test.hidden)
			}
		})
	}
	if got, ok := testAnonymizer().file("sys/firmware/dmi/tables/DMI", []byte("\x00\x01\x02serial")); ok {
		t.Errorf("a binary file of an unknown form is kept as %q", got)
	}
}

func FuzzAnonymize(f *testing.F) {
	f.Add("proc/cmdline", []byte("root=UUID=8d1f6a2e-5b1c-4e59-9f57-0c6a5a4b3c2d \"a b=c\" ip=10.0.0.5::10.0.0.1"))
	f.Add("proc/self/mountinfo", []byte("31 22 253:2 / /home/alice rw - ext4 /dev/mapper/x-y rw\n"))
	f.Add("a.xml", []byte(identifiedDomain))
	f.Add("sys/x/config", []byte("\x00\x01"))
	f.Add("sys/class/net/enxb83fd20a0b0c/address", []byte("b8:3f:d2:0a:0b:0c\n"))
	f.Add("proc/net/ipv6_route", []byte("00000000000000000000000000000000 00 0 00 fe80000000000000ba3fd2fffe0a0b0c 1 "+
		"1 0 3 eth0\n"))
	f.Add("proc/sysinfo", []byte("LPAR Name: X\n"))
	var b tree.Builder
	empty := b.Mem()
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if !fs.ValidPath(name) || name == "." || len(data) > 4<<10 {
			return
		}
		const mac = "b8:3f:d2:0a:0b:0c"
		s := &snapshot{entries: []tree.Entry{
			{Name: name, Data: data}, {Name: "address", Data: []byte(mac)}, {Name: "link", Mode: fs.ModeSymlink,
				Target: mac},
		}}
		s.anonymize(empty)
		for _, e := range s.entries {
			if strings.Contains(e.Target, mac) || strings.Contains(string(e.Data), " "+mac+" ") {
				t.Errorf("the MAC address is still in %+v", e)
			}
		}
	})
}

func FuzzOpen(f *testing.F) {
	// go test takes a minute to minimize an input of some KiB.
	seeds := [][]byte{snapshotOf(f, identified(f), SnapshotOptions{}), tarball(f, "box/", machineFiles)}
	for _, text := range []string{someHwloc, someNCCL, someMatrix, someText, "", "words"} {
		seeds = append(seeds, []byte(text))
	}
	for i := range seeds {
		f.Add(uint8(i), uint16(0), uint8(0), []byte{})
	}
	f.Fuzz(func(t *testing.T, seed uint8, at uint16, cut uint8, put []byte) {
		b := seeds[int(seed)%len(seeds)]
		i := int(at) % (len(b) + 1)
		b = slices.Concat(b[:i], put, b[min(i+int(cut), len(b)):])
		h, err := ReadStream(context.Background(), bytes.NewReader(b), "fuzz")
		if (h == nil) == (err == nil) {
			t.Errorf("host %v and error %v", h, err)
		}
	})
}

// An address that begins with four whole groups looks like a GUID there.
func TestAnIPv6AddressIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	a := &anonymizer{key: []byte("key"), keep: map[string]bool{}}
	for _, text := range []string{"2a02:1234:5678:9abc::12", "addr=2a02:1234:5678:9abc:d::1,",
		"2a02:1234:5678:9abc:1:2:3:4", "2a02:1234::9"} {
		if got := a.text(text); strings.Contains(got, "2a02") || !strings.Contains(got, "2001:db8:") {
			t.Errorf("%s: %s", text, got)
		}
	}
	for _, text := range []string{"std::vector", "fe80:0000", "10.0.0.5::10.0.0.1"} {
		if got := a.text(text); got != text {
			t.Errorf("%s: %s", text, got)
		}
	}
}
