package inspect

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rackless/rackless/machine/topology"
)

func pins(cpus ...int) []topology.Pin {
	var out []topology.Pin
	for i, c := range cpus {
		out = append(out, topology.Pin{VCPU: i, CPUs: topology.CPUs(c)})
	}
	return out
}

const pinnedDomain = `<domain type='kvm' id='3'>
  <name>vm 00</name>
  <uuid>6695eb01-f6a4-8304-79aa-97f2502e193f</uuid>
  <memory unit='GiB'>32</memory>
  <currentMemory unit='GiB'>16</currentMemory>
  <memoryBacking><hugepages><page size='2' unit='M' nodeset='1'/><page size='1' unit='G' nodeset='0'/>
    </hugepages><locked/></memoryBacking>
  <vcpu placement='static' cpuset='0-7,^3,32-39' current='2'>4</vcpu>
  <iothreads>2</iothreads><os><type arch='x86_64'>hvm</type></os>
  <cputune>
    <shares>2048</shares>
    <vcpupin vcpu='3' cpuset='19'/>
    <vcpupin vcpu='0' cpuset='16,48'/>
    <emulatorpin cpuset='0-1'/>
    <iothreadpin iothread='1' cpuset='2'/>
    <iothreadpin iothread='2' cpuset='34'/>
  </cputune>
  <numatune>
    <memory mode='strict' nodeset='0,2'/>
    <memnode cellid='0' mode='preferred' nodeset='3'/>
  </numatune>
  <cpu mode='host-passthrough'><numa><cell id='0' cpus='0-1' memory='16' unit='GiB'/>
    <cell id='1' cpus='2-3' memory='16' unit='GiB'/></numa></cpu>
  <devices>
    <disk type='file'><source file='/a.qcow2'/><target dev='vda' bus='virtio'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x04' function='0x0'/></disk>
    <disk type='nvme'><source type='pci' managed='yes' namespace='1'>
      <address domain='0x0000' bus='0x44' slot='0x00' function='0x0'/></source><target dev='vdb' bus='virtio'/>
      </disk>
    <interface type='bridge'><source bridge='br0'/>
      <address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></interface>
    <interface type='hostdev' managed='yes'>
      <mac address='52:54:00:6d:90:02'/>
      <source><address type='pci' domain='0x0000' bus='0x41' slot='0x02' function='0x1'/></source>
      <address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x0'/>
    </interface>
    <hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source></hostdev>
    <hostdev mode='subsystem' type='mdev' model='vfio-pci'><source>
      <address uuid='c2177883-f1bb-47f0-914d-32a22e3a8804'/></source></hostdev>
    <hostdev mode='subsystem' type='pci' managed='no'>
      <source><address bus='6' slot='0' function='1'/></source>
      <address type='pci' domain='0x0000' bus='0x07' slot='0x00' function='0x0'/>
    </hostdev>
  </devices>
</domain>`

var guestApart = cmpopts.IgnoreFields(topology.Tenant{}, "GuestThreads", "GuestNodes", "GuestSwitches",
	"GuestExpanders", "Cells",
	"Absent", "FreeIOThreads")

func TestWhatTheGuestOfATenantSees(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in                 string
		threads, cells, upstream int
	}{
		{name: "threads, cells and a switch",
			in: `<domain><name>a</name><cpu><topology sockets='1' cores='2' threads='2'/>` +
				`<numa><cell id='0' cpus='0-1' memory='1'/><cell id='1' cpus='2-3' memory='1'/></numa></cpu><devices>` +
				`<controller type='pci' model='pcie-switch-upstream-port'/>` +
				`<controller type='pci' model='pcie-root-port'/>` +
				`</devices></domain>`, threads: 2, cells: 2, upstream: 1},
		{name: "nothing of it", in: `<domain><name>a</name><devices/></domain>`},
	} {
		got, problems := parseDomain([]byte(tt.in))
		if len(problems) > 0 || got.GuestThreads != tt.threads || *got.GuestNodes != tt.cells ||
			*got.GuestSwitches != tt.upstream {
			t.Errorf("%s: %+v, %v", tt.name, got, problems)
		}
	}
}

func TestCellsStandInTheOrderOfTheirNumbers(t *testing.T) {
	t.Parallel()
	got, problems := parseDomain([]byte(`<domain><name>a</name><numatune><memory mode='strict' nodeset='0-1'/>` +
		`<memnode cellid='1' mode='strict' nodeset='1'/></numatune><cpu><numa>` +
		`<cell id='1' cpus='2-3' memory='1'/><cell id='0' cpus='0-1' memory='1'/></numa></cpu></domain>`))
	if len(problems) > 0 || got.Cells[0].VCPUs.Min() != 0 || got.Cells[1].MemoryNodes.String() != "1" {
		t.Errorf("%+v, %v", got.Cells, problems)
	}
}

func TestArgumentsOfQEMUHandDevicesOver(t *testing.T) {
	t.Parallel()
	got, problems := parseDomain([]byte(`<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>` +
		`<name>a</name><devices/><qemu:commandline><qemu:arg value='-device'/>` +
		`<qemu:arg value='vfio-pci,id=gpu,host=3b:00.0,x-vga=on'/></qemu:commandline></domain>`))
	if len(problems) > 0 || len(got.Devices) != 1 || got.Devices[0].PCI.String() != "0000:3b:00.0" {
		t.Errorf("%+v, %v", got.Devices, problems)
	}
}

func TestParseDomain(t *testing.T) {
	t.Parallel()
	set := func(cpus ...int) *topology.CPUSet { return new(topology.CPUs(cpus...)) }
	tests := []struct {
		name     string
		in       string
		want     *topology.Tenant
		problems []string
	}{
		{
			name: "everything",
			in:   pinnedDomain,
			want: &topology.Tenant{
				Name: "vm 00", UUID: "6695eb01-f6a4-8304-79aa-97f2502e193f", VCPUs: 4,
				Pins: []topology.Pin{{VCPU: 0, CPUs: topology.CPUs(16, 48)},
					{VCPU: 3, CPUs: topology.CPUs(19)}},
				EmulatorCPUs: set(0, 1), IOThreadCPUs: set(2, 34), Floating: set(0, 1, 2, 4, 5, 6, 7, 32, 33, 34, 35,
					36, 37, 38, 39),
				MemoryBytes: new(uint64(32 << 30)), Hugepages: new(uint64(1 << 30)), MemoryNodes: set(0, 2, 3),
				MemoryMode: "strict",
				Devices: []topology.TenantDevice{
					{PCI: *pciAddr(t, "0000:06:00.1")}, {PCI: *pciAddr(t, "0000:41:02.1"), Managed: true},
					{PCI: *pciAddr(t, "0000:44:00.0"), Managed: true},
				},
			},
		},
		{
			name: "a virtual machine of OpenStack on two nodes",
			in:   "insights-xml_rhosp.xml",
			want: &topology.Tenant{
				Name: "instance-000008d6", UUID: "601da52c-450f-4d8e-b502-503431536fa69", VCPUs: 4,
				Pins:         pins(1, 2, 13, 14),
				EmulatorCPUs: set(1, 2, 13, 14), MemoryBytes: new(uint64(8290304 << 10)), MemoryNodes: set(0, 1),
				MemoryMode: "strict",
			},
		},
		{
			name: "virtual functions as network interfaces",
			in:   "insights-xml_numa.xml",
			want: &topology.Tenant{
				Name: "05-s00c06h0", UUID: "02cf0bba-2bd6-11e7-8337-e4115b9a50d0", VCPUs: 4, Pins: pins(1, 2, 3, 4),
				EmulatorCPUs: set(1, 2, 3, 4), MemoryBytes: new(uint64(12582912 << 10)), MemoryNodes: set(0, 1),
				MemoryMode: "strict",
				Devices: []topology.TenantDevice{
					{PCI: *pciAddr(t, "0000:04:10.0"), Managed: true}, {PCI: *pciAddr(t, "0000:04:10.1"),
						Managed: true},
				},
			},
		},
		{
			name: "a domain that nothing is said of",
			in:   "insights-rhel_7_4_xml.xml",
			want: &topology.Tenant{
				Name: "rhel7.4", UUID: "b75610eb-06a0-4834-8286-e3d25d79c593", VCPUs: 4,
				MemoryBytes: new(uint64(4194304 << 10)),
			},
		},
		{
			name: "memory in bytes",
			in:   "kubevirt-domain_x86_64.xml",
			want: &topology.Tenant{Name: "mynamespace_testvmi", VCPUs: 1, MemoryBytes: new(uint64(8388608))},
		},
		{
			name: "a part of a domain: the cells say how much memory there is",
			in:   "kubevirt-domain_numa_topology.xml",
			want: &topology.Tenant{
				VCPUs: 4, Pins: pins(1, 5, 2, 6), MemoryBytes: new(uint64(6 << 30)), MemoryNodes: set(1, 2),
				MemoryMode: "strict",
			},
			problems: []string{"<memnode>: the guest has no NUMA cell 2: libvirt refuses this"},
		},
		{
			name:     "not a domain",
			in:       "kubevirt-cpu_pinning.xml",
			problems: []string{"domain XML: expected element type <domain> but have <cputune>"},
		},
		{
			name: "hugepages of the host's default size",
			in:   "<domain><name>a</name><memoryBacking><hugepages/></memoryBacking></domain>",
			want: &topology.Tenant{Name: "a", Hugepages: new(uint64(0))},
		},
		{
			name: "pages of the ordinary size are no hugepages",
			in: "<domain><name>a</name><memoryBacking><hugepages><page " +
				"size='4'/></hugepages></memoryBacking></domain>",
			want: &topology.Tenant{Name: "a"},
		},
		{
			name: "a placement that numad chooses says nothing before the start",
			in: "<domain><name>a</name><vcpu placement='auto' cpuset='0-3'>2</vcpu><numatune><memory " +
				"mode='preferred' placement='auto'/></numatune></domain>",
			want: &topology.Tenant{Name: "a", VCPUs: 2, MemoryMode: "preferred"},
		},
		{
			name: "what cannot be understood is left out and told",
			in: `<domain><name>a</name><memory unit='parsec'>3</memory><vcpu cpuset='5-2'>70000</vcpu>
				<memoryBacking><hugepages><page size='18446744073709551615'/></hugepages></memoryBacking>
				<cputune><vcpupin vcpu='70000' cpuset='1'/><vcpupin vcpu='1' cpuset='1,,2'/>
				<emulatorpin cpuset='70000'/></cputune>
				<devices><hostdev mode='subsystem' type='pci'><source>
				<address bus='0x100' slot='0' function='0'/></source></hostdev>
				<hostdev mode='subsystem' type='pci'><source>
				<address bus='1' slot='0x20' function='0'/></source></hostdev></devices></domain>`,
			want: &topology.Tenant{Name: "a"},
			problems: []string{
				`<vcpu>: 70000 are more than 65536 CPUs`,
				`<vcpu cpuset>: CPU list "5-2": at byte 0: range 5-2 runs backwards`,
				`<vcpupin>: vcpu 70000 is not the number of a CPU`,
				`<vcpupin>: CPU list "1,,2": empty item between commas`,
				`<emulatorpin>: CPU list "70000": at byte 0: "70000" is not a number from 0 to 65535`,
				`<memory>: 3 "parsec" is not an amount of memory`,
				`<page>: 18446744073709551615 "" is not an amount of memory`,
				`<hostdev>: bus 0x100 is not a number from 0 to 255`,
				`<hostdev>: slot 0x20 is not a number from 0 to 31`,
			},
		},
		{
			name:     "a number that is none: the whole description is in doubt",
			in:       "<domain><name>a</name><vcpu>many</vcpu></domain>",
			problems: []string{`domain XML: strconv.ParseUint: parsing "many": invalid syntax`},
		},
		{name: "no XML", in: "error: failed to get domain", problems: []string{"domain XML: EOF"}},
		{name: "an entity", in: "<!DOCTYPE d [<!ENTITY e 'x'>]><domain><name>&e;</name></domain>",
			problems: []string{"domain XML: XML syntax error on line 1: invalid character entity &e;"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := []byte(tt.in)
			if strings.HasSuffix(tt.in, ".xml") {
				var err error
				if b, err = os.ReadFile("testdata/devices/libvirt/" + tt.in); err != nil {
					t.Fatal(err)
				}
			}
			got, problems := parseDomain(b)
			if diff := cmp.Diff(tt.want, got, guestApart); diff != "" {
				t.Errorf("tenant (-want +got):\n%s", diff)
			}
			var texts []string
			for _, err := range problems {
				texts = append(texts, err.Error())
			}
			if diff := cmp.Diff(tt.problems, texts); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

const (
	uuidA = "6695eb01-f6a4-8304-79aa-97f2502e193f"
	uuidB = "b75610eb-06a0-4834-8286-e3d25d79c593"
)

func virshSays(domains map[string][]string) commands {
	c := commands{}
	for _, s := range domainStates {
		c[strings.Join(virshList(libvirtURI, s.option), " ")] = strings.Join(domains[s.option], "\n") + "\n\n"
	}
	return c
}

func TestReadTenants(t *testing.T) {
	t.Parallel()
	dump := func(uuid string) string { return strings.Join(virshDumpXML(libvirtURI, uuid), " ") }
	firstList := strings.Join(virshList(libvirtURI, "--state-running"), " ")
	both := virshSays(map[string][]string{"--state-running": {uuidA}, "--state-shutoff": {uuidB}})
	both[dump(uuidA)] = "<domain id='1'><name>a</name><vcpu>2</vcpu></domain>"
	both[dump(uuidB)] = "<domain><name>b</name><vcpu>1</vcpu></domain>"

	gone := virshSays(map[string][]string{"--state-running": {uuidA, "rm -rf"}})
	gone[dump(uuidA)] = "exit status 1\nerror: failed to get domain\n"

	tests := []struct {
		name   string
		live   bool
		tree   string
		run    commands
		want   []topology.Tenant
		unread []topology.Unread
	}{
		{
			name: "a live machine with libvirt",
			live: true,
			tree: `run/libvirt/libvirt-sock =`,
			run:  both,
			want: []topology.Tenant{
				{Name: "a", UUID: uuidA, State: "running", VCPUs: 2}, {Name: "b", UUID: uuidB, State: "shut off",
					VCPUs: 1},
			},
		},
		{
			name: "a live machine with libvirt as several daemons",
			live: true,
			tree: `run/libvirt/virtqemud-sock =`,
			run:  virshSays(nil),
		},
		{name: "a live machine without libvirt: nothing is run", live: true, tree: `run/lock/`, run: both},
		{
			name: "a snapshot with the recorded answers",
			tree: `run/lock/`,
			run:  both,
			want: []topology.Tenant{
				{Name: "a", UUID: uuidA, State: "running", VCPUs: 2}, {Name: "b", UUID: uuidB, State: "shut off",
					VCPUs: 1},
			},
		},
		{name: "a snapshot without answers", tree: `run/lock/`, run: commands{}},
		{
			name: "a daemon that refuses is asked once",
			live: true,
			tree: `run/libvirt/libvirt-sock =`,
			run: commands{firstList: "exit status 1\nerror: failed to connect to the hypervisor\nerror: Permission " +
				"denied\n"},
			unread: []topology.Unread{
				{Path: firstList, Why: `exit status 1: "error: failed to connect to the hypervisor"`},
			},
		},
		{
			name: "a domain that is gone, and a list that is not one",
			tree: `run/lock/`,
			run:  gone,
			unread: []topology.Unread{
				{Path: dump(uuidA), Why: `exit status 1: "error: failed to get domain"`},
				{Path: firstList, Why: `"rm" is not a UUID`},
				{Path: firstList, Why: `"-rf" is not a UUID`},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.tree))
			r.live, r.run = tt.live, tt.run.run
			r.readTenants()
			if diff := cmp.Diff(tt.want, r.h.Tenants, guestApart); diff != "" {
				t.Errorf("tenants (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.unread, r.h.Unread); diff != "" {
				t.Errorf("unread (-want +got):\n%s", diff)
			}
		})
	}
}

func TestListsAtOnce(t *testing.T) {
	t.Parallel()
	const whole = uuidA + "\n\n.\n\n.\n" + uuidB + "\n\n.\n\n.\n"
	lists := []string{uuidA + "\n\n", "\n", uuidB + "\n\n", "\n"}
	for _, tt := range []struct {
		name, atOnce string
		err          error
		processes    int
	}{
		{"all in one", whole, nil, 1},
		{"one list is missing", strings.Replace(whole, ".\n\n.", ".\n.", 1), nil, 5},
		{"one list is cut off", strings.Replace(whole, uuidB+"\n\n", uuidB+"\n", 1), nil, 5},
		{"the last list never came", strings.TrimSuffix(whole, ".\n"), nil, 5},
		{"it failed", whole, errors.New("exit status 1"), 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			processes := 0
			run := listsAtOnce(func(_ context.Context, argv ...string) ([]byte, error) {
				processes++
				for i, s := range domainStates {
					if slices.Equal(argv, virshList(libvirtURI, s.option)) {
						return []byte(lists[i]), nil
					}
				}
				return []byte(tt.atOnce), tt.err
			})
			for range 2 {
				processes = 0
				for i, s := range domainStates {
					out, err := run(t.Context(), virshList(libvirtURI, s.option)...)
					if string(out) != lists[i] || err != nil {
						t.Errorf("%s: got %q, %v; want %q", s.option, out, err, lists[i])
					}
				}
				if processes != tt.processes {
					t.Errorf("virsh was run %d times; want %d", processes, tt.processes)
				}
			}
		})
	}
}

// TestReadDomainsOfRealVirsh reads a domain that libvirt's test driver has rewritten.
func TestReadDomainsOfRealVirsh(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("virsh"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no virsh: install libvirt-clients to run this test")
	}
	config := filepath.Join(t.TempDir(), "node.xml")
	node := "<node>" + strings.Replace(pinnedDomain, "type='kvm' id='3'", "type='test'", 1) + "</node>"
	if err := os.WriteFile(config, []byte(node), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r := deviceReader(t, deviceTree(t, `run/lock/`))
	r.ctx = ctx
	processes := 0
	r.run = listsAtOnce(func(ctx context.Context, argv ...string) ([]byte, error) {
		processes++
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return out, err
	})
	r.readDomains("test://" + config)
	if processes != 2 {
		t.Errorf("virsh was run %d times; want once for the lists and once for the domain", processes)
	}
	if diff := cmp.Diff([]topology.Unread(nil), r.h.Unread); diff != "" {
		t.Fatalf("unread (-want +got):\n%s", diff)
	}
	if len(r.h.Tenants) != 1 {
		t.Fatalf("%d tenants; want 1", len(r.h.Tenants))
	}
	want, _ := parseDomain([]byte(pinnedDomain))
	want.State = "running"
	if diff := cmp.Diff(want, &r.h.Tenants[0], guestApart); diff != "" {
		t.Errorf("tenant (-want +got):\n%s", diff)
	}
}

func TestLibvirtSet(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		want string
		err  string
	}{
		{"0-3", "0-3", ""},
		{"1-4,^3,6", "1-2,4,6", ""},
		{" 0 , 2-3 ", "0,2-3", ""},
		{"0-7,^2-5", "0-1,6-7", ""},
		{"^1", "", ""},
		{"0,,1", "", `x: CPU list "0,,1": empty item between commas`},
		{"a", "", `x: CPU list "a": at byte 0: "a" is not a number from 0 to 65535`},
	}
	for _, tt := range tests {
		var p domainParser
		got := ""
		if set := p.set("x", tt.in); set != nil {
			got = set.String()
		}
		text := ""
		if len(p.problems) > 0 {
			text = p.problems[0].Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("set(%q) = %q, %q; want %q, %q", tt.in, got, text, tt.want, tt.err)
		}
	}
}

func TestLibvirtBytes(t *testing.T) {
	t.Parallel()
	type amount struct {
		number uint
		unit   string
	}
	for in, want := range map[amount]uint64{
		{1, ""}: 1 << 10, {1, "b"}: 1, {1, "bytes"}: 1, {1, "KB"}: 1000, {1, "k"}: 1 << 10, {1, "MiB"}: 1 << 20,
		{1, "MB"}: 1e6, {2, "G"}: 2 << 30, {1, "TiB"}: 1 << 40, {7, "KiB"}: 7 << 10, {15, "E"}: 15 << 60,
	} {
		var p domainParser
		got := p.bytes("x", in.number, in.unit)
		if got == nil || *got != want {
			t.Errorf("bytes(%d, %q) = %v; want %d", in.number, in.unit, got, want)
		}
	}
	for _, in := range []amount{{1, "kib"}, {16, "E"}, {1<<64 - 1, ""}} {
		var p domainParser
		if got := p.bytes("x", in.number, in.unit); got != nil || len(p.problems) != 1 {
			t.Errorf("bytes(%d, %q) = %d with %d problems; want none with 1", in.number, in.unit, *got, len(p.problems))
		}
	}
	for _, text := range []string{"-1", "1.5"} {
		if _, problems := parseDomain([]byte("<domain><memory>" + text + "</memory></domain>")); len(problems) != 1 {
			t.Errorf("memory %q: %v; want one problem", text, problems)
		}
	}
}

func TestIsUUID(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		uuidA: true, strings.ToUpper(uuidB): true, "": false, uuidA[1:]: false, uuidA + "0": false,
		"6695eb01-f6a4-8304-79aa-97f2502e193g": false, "6695eb01xf6a4-8304-79aa-97f2502e193f": false,
		"--file-xxxx-xxxx-xxxx-xxxxxxxxxxxxxxx": false,
	} {
		if got := uuidShape().MatchString(s); got != want {
			t.Errorf("uuidShape.MatchString(%q) = %v; want %v", s, got, want)
		}
	}
}

func FuzzParseDomain(f *testing.F) {
	f.Add([]byte(pinnedDomain))
	f.Add([]byte("<domain><vcpu cpuset='^1,0-65535'>1</vcpu><memory unit='EiB'>15</memory></domain>"))
	f.Add([]byte("<domain><cpu><numa><cell memory='18446744073709551615' unit='b'/><cell memory='1' " +
		"unit='b'/></numa></cpu></domain>"))
	f.Add([]byte("<domain"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tenant, problems := parseDomain(b)
		if tenant == nil && len(problems) == 0 {
			t.Error("neither a tenant nor a problem")
		}
		if tenant == nil {
			return
		}
		for i, p := range tenant.Pins {
			if p.VCPU < 0 || i > 0 && tenant.Pins[i-1].VCPU > p.VCPU {
				t.Errorf("pins %v are not in order", tenant.Pins)
			}
		}
		again, _ := parseDomain(b)
		if diff := cmp.Diff(tenant, again); diff != "" {
			t.Errorf("a second time (-first +second):\n%s", diff)
		}
	})
}

func TestTheTextOfAMachineIsWhatCanBeMended(t *testing.T) {
	t.Parallel()
	const domain = "<domain type='kvm'>\n  <name>vm</name>\n  <memory unit='GiB'>4</memory>\n" +
		"  <vcpu>2</vcpu>\n</domain>\n"
	for name, text := range map[string]string{
		"as it is":           domain,
		"below a command":    "root@node1:~# virsh dumpxml vm\n" + domain + "root@node1:~#\n",
		"quoted":             "> " + strings.ReplaceAll(strings.TrimSpace(domain), "\n", "\n> ") + "\n",
		"fenced":             "Mine:\n```xml\n" + domain + "```\nThanks!\n",
		"the source of HTML": "<pre>" + html.EscapeString(domain) + "</pre>\n",
		"of Notepad":         "\ufeff" + domain,
	} {
		m, err := ParseMachine(t.Context(), text, "vm.xml")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := strings.TrimSpace(m.Text); got != strings.TrimSpace(domain) {
			t.Errorf("%s: the text is %q", name, got)
		}
	}
}
