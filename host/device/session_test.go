package device

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/procfs"

	"github.com/rackless/rackless/machine/topology"
)

var compareAddr = cmpopts.EquateComparable(netip.Addr{})

func hexAddr(a netip.Addr) string {
	b := a.AsSlice()
	text := ""
	for i := 0; i < len(b); i += 4 {
		text += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(b[i:]))
	}
	return text
}

func TestConnectionsOfServersAreFound(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"192.0.2.1", "198.51.100.9"}, {"2001:db8::1", "fe80::5054:ff:fe12:3456"},
		{"::ffff:192.0.2.1", "::ffff:198.51.100.9"}} {
		local, remote := netip.MustParseAddr(pair[0]), netip.MustParseAddr(pair[1])
		line := func(n int, state, inode string) string {
			return fmt.Sprintf("%4d: %s:0016 %s:D431 %s 00000000:00000000 00:00000000 00000000     0        0 %s 1 0\n",
				n, hexAddr(local), hexAddr(remote), state, inode)
		}
		table := "  sl  local_address ...\n" + line(0, "0A", "1") + line(1, "01", "2") + line(2, "01", "2") +
			strings.TrimSuffix(line(3, "01", "3"), "\n")
		m := newSim(t)
		m.put("/proc/net/tcp6", table)
		proc, err := procfs.NewFS(m.s.Path("/proc"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := establishedPeers(proc, map[uint64]bool{1: true, 2: true})
		if diff := cmp.Diff([]peer{{local.Unmap(), remote.Unmap()}}, got, cmp.AllowUnexported(peer{}),
			compareAddr); err !=
			nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", pair[0], err, diff)
		}
		m.put("/proc/net/tcp6", table+"\n  4: short")
		if got, err := establishedPeers(proc, map[uint64]bool{2: true}); err == nil {
			t.Errorf("a damaged table has %v", got)
		}
	}
}

func TestConnectionsOfSessions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*peer{
		"192.0.2.7 50000 192.0.2.1 22":         {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.7")},
		"fe80::1%eno1 50000 fe80::2%eno1 22":   {netip.MustParseAddr("fe80::2"), netip.MustParseAddr("fe80::1")},
		"::ffff:192.0.2.7 5 ::ffff:10.0.0.1 2": {netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.7")},
		"":                                     nil,
		"UNKNOWN 1 UNKNOWN 2":                  nil,
		"192.0.2.7 192.0.2.1":                  nil,
	} {
		got, ok := parseConnection(text)
		if ok != (want != nil) || ok && got != *want {
			t.Errorf("%q: %v %v, want %v", text, got, ok, want)
		}
	}
}

func TestProcessesInALoopAreNoSession(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	for pid, parent := range map[int]int{7: 8, 8: 7} {
		dir := fmt.Sprintf("/proc/%d", pid)
		m.put(dir+"/environ", "A=b")
		m.put(dir+"/stat", fmt.Sprintf("%d (x) S %d 1", pid, parent))
	}
	if p, ok := sessionPeer(m.s, 7); ok {
		t.Errorf("session %v", p)
	}
}

func TestFunctionsBehindNetworkDevices(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	m.put("/sys/devices/virtual/net/loop0/mtu", "1500")
	m.link("/sys/devices/virtual/net/loop0/lower_loop0", "/sys/devices/virtual/net/loop0")
	m.link("/sys/devices/virtual/net/loop0/lower_eno3", "/sys/class/net/eno3")
	m.link("/sys/devices/virtual/net/loop0/lower_eno4", "/sys/class/net/eno4")
	m.link("/sys/class/net/loop0", "/sys/devices/virtual/net/loop0")
	for netdev, want := range map[string][]topology.PCIAddr{
		"eno3": {addr(simNIC)}, "loop0": {addr(simNIC), addr(simPF)}, "tun7": nil,
	} {
		got, err := functionsBehind(m.s, netdev)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", netdev, err, diff)
		}
	}
}

func TestWhoHasAFileOpenIsFoundByItsNumberToo(t *testing.T) {
	t.Parallel()
	// A container has made the device file under another name. Every test machine has /dev/null.
	m := newSim(t)
	null, err := os.Stat("/dev/null")
	if err != nil || null.Mode()&os.ModeCharDevice == 0 {
		t.Skip("no /dev/null")
	}
	m.process(50, "in a container", "/dev/null")
	m.process(51, "elsewhere", "/tmp/x", "/dev/zero")
	users, err := openers(m.s, []deviceFile{{path: "/dev/dri/card0", number: new(uint64(1<<8 | 3))}})
	if diff := cmp.Diff([]string{"in a container (50) has /dev/null open"}, users); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if users, err := openers(m.s, []deviceFile{{path: "/dev/sda", number: new(uint64(1<<8 | 3)), block: true}}); err !=
		nil || len(users) > 0 {
		t.Errorf("a character device counts as a disk: %v, %v", users, err)
	}
	if users, err := openers(m.s, nil); err != nil || users != nil {
		t.Errorf("of no files: %v, %v", users, err)
	}
}

func TestDisksBehindSeveralControllersCount(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	m.put(m.function(simDisk).path("nvme/nvme0/model"), "x")
	dir := "/sys/devices/virtual/nvme-subsystem/nvme-subsys0"
	m.put(dir+"/nvme0n1/dev", "259:1")
	m.put(dir+"/nvme0n1/uevent", "DEVNAME=nvme0n1")
	m.link(dir+"/nvme0n1/subsystem", "/sys/class/block")
	m.link(dir+"/nvme0", m.function(simDisk).path("nvme/nvme0"))
	m.link("/sys/class/nvme-subsystem/nvme-subsys0", dir)
	m.process(60, "dd", "/dev/nvme0n1")
	err := m.function(simDisk).released()
	if want := "0000:01:00.0 is in use: dd (60) has /dev/nvme0n1 open; end that first, a guest by " +
		"shutting it down"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestAGPUWhoseUsersCannotBeToldIsNotTaken(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	m.unbind(addr(simGPU))
	m.natives[addr(simGPU)] = nvidiaDriver
	m.load("nvidia")
	if err := m.function(simGPU).released(); err == nil {
		t.Error("without /proc/driver/nvidia it counts as free")
	}
	m.put("/proc/driver/nvidia/gpus/"+simGPU+"/information", "Model: x")
	if err := m.function(simGPU).released(); err == nil {
		t.Error("without a minor number it counts as free")
	}
}
