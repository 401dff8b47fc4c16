package inspect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/rackless/rackless/inspect/tree"
	"github.com/rackless/rackless/topology"
)

// identified is a machine with every form of identity, and libvirt domains.
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

// unpacked returns everything that is in a snapshot, names and contents, as one text.
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
		read bool // by inspect: it is in a snapshot that keeps identities
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
	mac := nic.Ports[0].MAC
	if !strings.HasPrefix(mac, "02:00:00:00:00:") {
		t.Fatalf("MAC address %q", mac)
	}
	n := strings.TrimPrefix(mac, "02:00:00:00:00:")
	for _, test := range []struct{ what, got, want string }{
		{"the GUID has the MAC address", nic.Devices[0].NodeGUID, "0200:0003:0000:00" + n},
		{"the name of the RDMA device has the GUID", nic.Devices[0].Name, "rocex0200000300000" + "0" + n},
		{"the first GID has the MAC address", nic.Devices[0].Ports[0].GIDs[0].GID,
			"fe80:0000:0000:0000:0000:00ff:fe00:00" + n},
		{"the second GID has an IPv4 address", nic.Devices[0].Ports[0].GIDs[1].GID[:34],
			"0000:0000:0000:0000:0000:ffff:c612"},
		{"the third GID has the MAC address", nic.Devices[0].Ports[0].GIDs[2].GID,
			"2001:0db8:0000:0001:0000:00ff:fe00:00" + n},
		{"the first GID of InfiniBand has the GUID", ib.Devices[0].Ports[0].GIDs[0].GID, "fe80:0000:0000:0000:" +
			ib.Devices[0].NodeGUID},
		{"so has the address of IPoIB", strings.ReplaceAll(ib.Ports[0].MAC, ":", "")[24:],
			strings.ReplaceAll(ib.Devices[0].NodeGUID, ":", "")},
		{"the route is to the network of the address", h.Routes[0].Gateway[:9], "198.18.0."},
		{"the tenant's name", h.Tenants[0].Name, "vm-1"},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", test.what, test.got, test.want)
		}
	}
	var odd *topology.RDMADevice
	for i := range h.NICs {
		for j := range h.NICs[i].Devices {
			if d := &h.NICs[i].Devices[j]; d.Name == "odd0" {
				odd = d
			}
		}
	}
	if odd == nil || odd.Ports[0].GIDs[0].GID != "fe80:0000:0000:0000:"+odd.NodeGUID {
		t.Errorf("the GUID that is made of nothing known: %+v", odd)
	}
	for _, g := range h.GPUs {
		if g.UUID == "" || strings.Contains(g.UUID, "a1b2") || strings.Contains(g.UUID, "1f2e") {
			t.Errorf("GPU %s has the UUID %q", g.ID(), g.UUID)
		}
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

// anonymousJSON is a host with everything blanked that anonymize may change.
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
		{`"(name)": "(wombat prod \\u0026 test|vm-1)"`, `"$1": "VM"`},
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
	// What stands on which disk stays, whatever it is called.
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
		out = append(out, regexp.MustCompile(`name[0-9]+`).ReplaceAllString(n, "name"))
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

// identitiesOf returns what identifies a host, in lower case, with and without separators, but for
// what is a substitute already, or is short of digits: zeros are in every file.
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

func TestShapesOfIdentities(t *testing.T) {
	t.Parallel()
	const same = "="
	for _, test := range []struct{ name, text, want string }{
		{"a MAC address", "b8:3f:d2:0a:0b:0c\n", "02:00:00:00:00:01\n"},
		{"in capitals, with dashes", "B8-3F-D2-0A-0B-0C", "02-00-00-00-00-01"},
		{"twice", "b8:3f:d2:0a:0b:0c b8:3f:d2:0a:0b:0d b8:3f:d2:0a:0b:0c",
			"02:00:00:00:00:01 02:00:00:00:00:02 02:00:00:00:00:01"},
		{"the broadcast", "ff:ff:ff:ff:ff:ff 01:80:c2:00:00:02 00:00:00:00:00:00", same},
		{"an EUI-64 that is made from it", "b83f:d203:000a:0b0c", "0200:0003:0000:0001"},
		{"an EUI-64 with a turned bit", "ba3f:d2ff:fe0a:0b0c", "0000:00ff:fe00:0001"},
		{"an EUI-64 with dashes", "b8-3f-d2-ff-ff-0a-0b-0c", "02-00-00-ff-ff-00-00-01"},
		{"an EUI-64 that is made of nothing", "1122:3344:5566:7788", "0200:0001:0000:0001"},
		{"no GUID", "0000:0000:0000:0000", same},
		{"a GID of the link", "fe80:0000:0000:0000:ba3f:d2ff:fe0a:0b0c", "fe80:0000:0000:0000:0000:00ff:fe00:0001"},
		{"a GID of IPv4", "0000:0000:0000:0000:0000:ffff:0a4d:0809", "0000:0000:0000:0000:0000:ffff:c612:0001"},
		{"no GID", "0000:0000:0000:0000:0000:0000:0000:0000", same},
		{"an address as people write it", "2001:4860:abcd:1::7 fe80::ba3f:d2ff:fe0a:b0c%eth0 ::1 ::",
			"2001:db8:0:1::7 fe80::ff:fe00:1%eth0 ::1 ::"},
		{"the hardware address of IPoIB", "00:00:10:49:fe:80:00:00:00:00:00:00:94:6d:ae:03:00:1a:2b:3c",
			"00:00:10:49:fe:80:00:00:00:00:00:00:02:00:00:03:00:00:00:01"},
		{"bytes of another length", "aa:bb:cc:dd:ee:ff:aa:bb:cc", "00:00:00:00:00:00:00:00:01"},
		{"a UUID", "GPU-1F2E3D4C-5b6a-7988-1726-354453627180", "GPU-00000000-0000-0000-0000-000000000001"},
		{"no UUID", "00000000-0000-0000-0000-000000000000", same},
		{"addresses of PCI", "0000:41:00.0 pci0000:00 0000:00:1f.0/0000:02:00.1 0000:3b:00", same},
		{"masks of CPUs", "00000000,ffffffff,00000000,0000ffff", same},
		{"resources", "0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200", same},
		{"names of devices of ACPI and USB", "acpi:PNP0C0A: usb:v1D6Bp0002d0617dc09 1-1.4:1.0 0:0:0:0", same},
		{"a date", "2026-11-22 00:49:51", same},
		{"versions", "22.36.1010 535.104.12 95.02.66.00.02", same},
		{"the name of a library", "libibverbs.so.1.14.44.0", same},
		{"hashes that nobody knows", "0123456789abcdef0123456789abcdef01234567", same},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			want := test.want
			if want == same {
				want = test.text
			}
			d := newIdentities()
			if got := string(d.text([]byte(test.text))); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
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
		{"a share", "nas7:/export 10.1.2.3:/x //10.1.2.4/y", "name1:/export 198.18.0.1:/x //198.18.0.2/y"},
		{"the host", "/dev/quokka-vg/root", "/dev/host-vg/root"},
		{"the loopback and a netmask", "127.0.0.1 255.255.255.0 0.0.0.0", "="},
		{"a container", "/var/lib/docker/overlay2/3f2a9c/merged", "/var/lib/docker/overlay2/name1/merged"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newIdentities()
			d.hosts = []string{"quokka"}
			want := test.want
			if want == "=" {
				want = test.text
			}
			got := string(d.names([]byte(test.text)))
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if again := string(d.names([]byte(got))); regexp.MustCompile(`[0-9]`).ReplaceAllString(again,
				"") != regexp.MustCompile(`[0-9]`).ReplaceAllString(got, "") {
				t.Errorf("a second time: got %q, want %q", again, got)
			}
		})
	}
}

func TestFilesWithRulesOfTheirOwn(t *testing.T) {
	t.Parallel()
	config := make([]byte, 4096)
	copy(config, "\x86\x80")
	copy(config[0x100:], "\x01\x00\x02\x15") // another capability; the next is at 0x150
	copy(config[0x150:], "\x03\x00\x01\x00\x0c\x0b\x0a\xff\xff\xd2\x3f\xb8\x55")
	cleaned := bytes.Clone(config)
	clear(cleaned[0x154:0x15c])
	for _, test := range []struct{ name, file, text, want string }{
		{"serial numbers of a board", "proc/cpuinfo", "model name\t: Serial X\nSerial\t\t: 10000000abcdef01\n",
			"model name\t: Serial X\nSerial\t\t: 0000000000000001\n"},
		{"a machine of s390", "proc/cpuinfo", "processor 0: version = FF,  identification = 0133E8,  machine = 2964\n",
			"processor 0: version = FF,  identification = 000001,  machine = 2964\n"},
		{"partitions of s390", "proc/sysinfo",
			"Manufacturer:         IBM\nSequence Code:        00000000000A1B2C\nLPAR Name:            ALICE\nVM00 " +
				"Control Program: z/VM    6.4.0\n",
			"Manufacturer:         IBM\nSequence Code:        0000000000000001\nLPAR Name:            00002\nVM00 " +
				"Control Program: z/VM    6.4.0\n"},
		{"notes of hwloc", "proc/hwloc-nofile-info", "OSName: Linux\nHostName: quokka\nArchitecture: x86_64\n",
			"OSName: Linux\nHostName: host\nArchitecture: x86_64\n"},
		{"who built the kernel", "proc/version", "Linux version 6.1.0 (alice@quokka) (gcc (Debian) 12)\n",
			"Linux version 6.1.0 (builder@host) (gcc (Debian) 12)\n"},
		{"a description of a node", "sys/class/infiniband/mlx5_0/node_desc", "quokka mlx5_0\n", "host\n"},
		{"a serial number", "sys/block/sda/device/serial", "S64GNE0R503426\n", "00000000000001\n"},
		{"no serial number", "sys/class/dmi/id/board_serial", "\n", "\n"},
		{"a serial number of a device tree", "proc/device-tree/serial-number", "C7F00123\x00", "00000001\x00"},
		{"a model of a device tree", "proc/device-tree/model", "Some Board\x00", "Some Board\x00"},
		{"the configuration space", "sys/devices/pci0000:00/0000:00:1f.0/config", string(config), string(cleaned)},
		{"a text that is called so", "sys/module/x/config", "b8:3f:d2:0a:0b:0c", "02:00:00:00:00:01"},
		{"a node of AMD", "sys/class/kfd/kfd/topology/nodes/1/properties",
			"unique_id 11647081397416199064\nmax_id 7\nunique_id 0\n", "unique_id 1\nmax_id 7\nunique_id 0\n"},
		{"routes", "proc/net/route",
			"Iface\tDestination\tGateway\neth0\t0008A8C0\t00000000\neth0\t00000000\t010000C0\n",
			"Iface\tDestination\tGateway\neth0\t00000000\t010012C6\n"},
		{"not XML", "etc/libvirt/qemu/alice.xml", "<domain><name>alice", "<domain><name>name1"},
		{"XML with an element that does not end", "x.xml", "<domain><metadata>alice", "<domain><name1>name2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, ok := newIdentities().file(test.file, []byte(test.text))
			if !ok || string(got) != test.want {
				t.Errorf("got %q, %v; want %q", got, ok, test.want)
			}
		})
	}
	if got, ok := newIdentities().file("sys/firmware/dmi/tables/DMI", []byte("\x00\x01\x02serial")); ok {
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
	// An input is an edit of one of these: go test takes a minute to make one of some KiB smaller.
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
