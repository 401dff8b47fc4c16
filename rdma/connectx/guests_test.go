package connectx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/kerneltest"
)

// firstProgram loads the adapter's driver, assigns it an address, and runs commands from the console.
const firstProgram = `#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /bb
/bin/busybox --install -s /bb
export PATH=/sbin:/bin:/usr/sbin:/usr/bin:/bb HOME=/
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t debugfs debugfs /sys/kernel/debug
for m in configfs ib_core iw_cm ib_cm ib_uverbs ib_umad rdma_cm rdma_ucm mlxfw psample \
	pci_hyperv_intf mlx5_core mlx5_ib; do
	for f in /lib/modules/$m.ko /lib/modules/$m.ko.gz; do [ ! -f $f ] || insmod $f; done
done
read -r args </proc/cmdline
for w in $args; do case $w in addr=*) addr=${w#addr=} ;; esac; done
ulimit -l unlimited
ip link set lo up
ip addr add $addr/24 dev eth0
ip link set eth0 up
for i in 1 2 3 4 5 6 7 8 9 10; do
	read -r s </sys/class/net/eth0/operstate
	[ "$s" != up ] || break
	sleep 0.3
done
echo READY $s
stty -echo
while read -r line; do
	eval "$line" </dev/null 2>&1
	echo "END@$?"
done
`

// guestFiles are the guests' files from the node's image: the drivers, their dependencies, and the tools.
var guestFiles = []string{
	"bin/busybox", "etc/*", "etc/libibverbs.d/mlx5.driver", "lib/modules/*", "lib/*/libgcc_s.so.1",
	"usr/lib/*/libibverbs/libmlx5-*", "sbin/dcb", "sbin/ethtool", "usr/bin/ib_*", "usr/bin/ibv_devinfo", "usr/bin/rdma",
	"usr/bin/rping", "usr/sbin/ibstat",
}

// guestLimit ends a hanging test. It is far above any test's duration on a busy machine.
const guestLimit = 30 * time.Minute

type machine struct {
	t    *testing.T
	name string
	con  net.Conn
	buf  []byte
	// adapters is done, with the reason, if a guest has lost its adapter. Then the test fails at once.
	adapters context.Context
}

// Kinds of guest memory: an anonymous file that the adapter maps, or QEMU's own memory that it accesses by messages.
const (
	sharedMemory  = "memory-backend-memfd,id=ram,size=512M,share=on"
	privateMemory = "memory-backend-ram,id=ram,size=512M"
)

func boot(t *testing.T, adapters context.Context, dir, name, addr, adapter, memory string, qemu, node *image.Image,
	initrd string) *machine {
	t.Helper()
	e := qemu.Emulator()
	con := filepath.Join(dir, name+".con")
	args := append(append([]string(nil), e.Lead...), "-nodefaults", "-no-reboot", "-display", "none", "-m", "512M",
		"-object", memory, "-machine", "q35,hpet=off,memory-backend=ram",
		"-accel", "tcg,thread=multi", "-cpu", "qemu64", "-kernel", node.KernelPath(), "-initrd", initrd,
		"-append", "addr="+addr+" rdinit=/first "+image.KernelArgs,
		"-chardev", "socket,id=con,server=on,wait=off,path="+con, "-serial", "chardev:con",
		"-device", "pcie-root-port,id=rp0,chassis=1",
		"-device", vm.VFIOUser{ID: "nic", Bus: "rp0", Socket: adapter}.Device())
	ctx, cancel := context.WithTimeout(t.Context(), guestLimit)
	cmd := exec.CommandContext(ctx, e.Path, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: QEMU said: %s", name, out.Bytes())
		}
		// QEMU prints this about messages that violate its protocol. For some of them it drops the adapter.
		bad := regexp.MustCompile("timed out|unexpected reply|bad header|VFIO_USER_DMA")
		if bad.Match(out.Bytes()) {
			t.Errorf("%s: QEMU said: %s", name, out.Bytes())
		}
	})
	m := &machine{t: t, name: name, adapters: adapters}
	for end := time.Now().Add(guestLimit); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("unix", con)
		if err == nil {
			m.con = c
			context.AfterFunc(adapters, func() { _ = c.Close() }) // ends the wait for the guest
			return m
		}
		if adapters.Err() != nil || time.Now().After(end) {
			t.Fatalf("%s: %v, %v", name, err, context.Cause(adapters))
		}
	}
}

// watch returns a logger for adapters, and a context that it cancels if the connection of an adapter ends.
func watch(t *testing.T) (context.Context, func(format string, args ...any)) {
	ctx, lost := context.WithCancelCause(t.Context())
	return ctx, func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		t.Log(text)
		if strings.Contains(text, "connection ends") {
			lost(errors.New(text))
		}
	}
}

func (m *machine) until(pattern string) (before string, match []string) {
	m.t.Helper()
	re := regexp.MustCompile(pattern)
	b := make([]byte, 4096)
	for end := time.Now().Add(guestLimit); ; {
		if i := re.FindSubmatchIndex(m.buf); i != nil {
			before = string(m.buf[:i[0]])
			for _, s := range re.FindSubmatch(m.buf) {
				match = append(match, string(s))
			}
			m.buf = m.buf[i[1]:]
			return before, match
		}
		_ = m.con.SetReadDeadline(end)
		n, err := m.con.Read(b)
		if err != nil {
			if cause := context.Cause(m.adapters); cause != nil {
				err = cause
			}
			m.t.Fatalf("%s: %v before %q: %s", m.name, err, pattern, m.buf)
		}
		m.buf = append(m.buf, b[:n]...)
	}
}

func (m *machine) start(command string) {
	m.t.Helper()
	m.buf = nil
	if _, err := fmt.Fprintln(m.con, command); err != nil {
		m.t.Fatal(err)
	}
}

// finish returns the output of a command, and fails the test if the command fails.
func (m *machine) finish(command string) string {
	m.t.Helper()
	out, end := m.until(`END@(\d+)\s`)
	if end[1] != "0" {
		m.t.Errorf("%s: %s: exit status %s\n%s", m.name, command, end[1], out)
	}
	return strings.ReplaceAll(out, "\r", "")
}

func (m *machine) run(command string) string {
	m.t.Helper()
	m.start(command)
	return m.finish(command)
}

// again returns a shell command that repeats another until it succeeds, at most ten times.
func again(command string) string {
	return "no=1; for i in 1 2 3 4 5 6 7 8 9 10; do { " + command + "; } && no=0 && break; sleep 1; done; [ $no = 0 ]"
}

// The kernel's own drivers, Debian's libraries and common tools use the adapter, on both paths.
func TestUnmodifiedDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three guests")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	o := image.Options{Cache: filepath.Join(cache, "rackless", "images")}
	node, err := image.Node.Ensure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	qemu, err := image.QEMU.Ensure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m := &kerneltest.Machine{Image: node, Initrd: node.InitramfsPath()}
	m.Keep(t, guestFiles...)
	m.Add(t, cpio.StaticFile("first", firstProgram, 0o755))

	adapters, logf := watch(t)
	s := connectx.NewServer(connectx.Options{Log: logf})
	defer s.Close()
	var ports [3]*connectx.Port
	var ms [3]*machine
	mac := func(i int) [6]byte { return [6]byte{0x50, 0x6b, 0x4b, 0, 0, byte(i + 1)} }
	frames := func(from int, f []byte) {
		for i, p := range ports {
			if i != from && (f[0]&1 != 0 || [6]byte(f) == mac(i)) {
				p.Deliver(f)
			}
		}
	}
	models := []string{connectx.ConnectX4Lx, connectx.ConnectX6, connectx.ConnectX7}
	for i := range ports {
		name := string(rune('a' + i))
		ports[i], err = s.AddNIC(connectx.NIC{Name: name, MAC: mac(i), Model: models[i], Link: true,
			Socket: filepath.Join(dir, name+".nic"), Frames: func(f []byte) { frames(i, f) }})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, memory := range []string{sharedMemory, sharedMemory, privateMemory} {
		name := string(rune('a' + i))
		ms[i] = boot(t, adapters, dir, name, fmt.Sprintf("10.0.0.%d", i+1), filepath.Join(dir, name+".nic"), memory,
			qemu, node, m.Initrd)
	}
	for _, m := range ms {
		if _, up := m.until(`READY (\w+)\s`); up[1] != "up" {
			t.Fatalf("%s: the network is %s", m.name, up[1])
		}
	}
	a, server, private := ms[0], ms[1], ms[2]
	for command, wants := range map[string][]string{
		"ibstat": {"CA type: MT4117", "State: Active", "Physical state: LinkUp", "Rate: 25",
			"Link layer: Ethernet"},
		"ibv_devinfo":    {"fw_ver:\t\t\t\t14.32.1010", "board_id:\t\t\tMT_2420110034", "PORT_ACTIVE"},
		"ethtool eth0":   {"Speed: 25000Mb/s", "Link detected: yes"},
		"rdma link":      {"link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0"},
		"rdma statistic": {"rx_write_requests", "out_of_sequence", "np_cnp_sent"},
		"cat /sys/class/infiniband/mlx5_0/ports/1/gids/3 /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3": {
			":ffff:0a00:0001", "RoCE v2"},
		"cat /sys/kernel/debug/mlx5/*/cc_params/np_cnp_dscp": {"48"},
		"ping -c 3 10.0.0.2": {"3 packets received"},
	} {
		out := a.run(command)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", command, want, out)
			}
		}
	}
	for m, wants := range map[*machine][]string{
		server:  {"CA type: MT4123", "Rate: 200", "Speed: 200000Mb/s"},
		private: {"CA type: MT4129", "Rate: 400", "Speed: 400000Mb/s"},
	} {
		out := m.run("ibstat; ethtool eth0")
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", m.name, want, out)
			}
		}
	}
	// Settings of dcbnl and ethtool can be read back, and have counters.
	for _, c := range []struct{ command, want string }{
		{"ethtool -a eth0 | grep RX:", "on"},
		{"dcb pfc show dev eth0", "3:off"},
		{"dcb pfc set dev eth0 prio-pfc all:off 3:on && dcb pfc show dev eth0", "3:on"},
		{"ethtool -S eth0", "rx_prio3_pause_transition: 0"},
		{"ethtool -a eth0 | grep RX:", "off"},
		{"dcb app replace dev eth0 dscp-prio 26:4 && dcb app show dev eth0", "26:4"},
		{"! dcb app show dev eth0 | grep 26:4 || dcb app del dev eth0 dscp-prio 26:4 && echo gone", "gone"},
		{"dcb ets set dev eth0 prio-tc 3:5 && dcb ets show dev eth0", "3:5"},
		{"dcb maxrate set dev eth0 tc-maxrate 5:1Gbit && dcb maxrate show dev eth0", "5:1Gbit"},
		{"ethtool -A eth0 rx on tx on && ethtool -S eth0", "rx_global_pause: 0"},
		{"cat /sys/class/infiniband/mlx5_0/ports/1/hw_counters/roce_slow_restart", "0"},
		{"ibstat | grep 'State: Active'", "Active"},
	} {
		// dcb of Debian 12 fails if a new second begins between its two messages to the kernel.
		if out := a.run(again(c.command)); !strings.Contains(out, c.want) {
			t.Errorf("%s: no %q in\n%s", c.command, c.want, out)
		}
	}
	// between runs a tool as a server on one guest and as a client on the other.
	between := func(asServer, asClient string) {
		t.Helper()
		server.start("timeout 60 " + asServer)
		if strings.HasPrefix(asServer, "ib_") {
			server.until("Waiting for client")
		}
		// A server listens just after it prints that it does, and rping prints nothing, so the client is repeated.
		// The server accepts one client, so the repetition hides no failure of a connection.
		out := a.run(again("timeout 60 " + asClient))
		server.finish(asServer)
		t.Logf("%s: %s", asClient, out[max(0, len(out)-260):])
	}
	const dev = " -F -d mlx5_0 -x 3 "
	for _, direct := range []bool{true, false} {
		s.SetDirect(direct)
		for _, tool := range []string{"ib_write_lat" + dev + "-n 1000", "ib_send_bw" + dev + "-n 500",
			"ib_send_lat" + dev + "-e -n 200", "ib_read_bw" + dev + "-n 200", "ib_write_bw" + dev + "-s 1048576 -n 50",
			"ib_atomic_bw" + dev + "-A FETCH_AND_ADD -n 500", "ib_send_bw" + dev + "-c UD -n 500",
			"ib_write_bw" + dev + "-c UC -n 100", "ib_send_bw" + dev + "--use-srq -r 64 -q 4 -n 100",
			"ib_send_lat" + dev + "-R -n 200"} {
			between(tool, tool+" 10.0.0.2")
		}
		// rping compares all data that it reads back.
		between("rping -s -a 10.0.0.2 -V -S 65000 -C 50", "rping -c -a 10.0.0.2 -V -S 65000 -C 50")
	}
	// A guest with memory that the adapter cannot map transfers the same bytes by messages: RDMA, with data that
	// rping compares, and a file that its server sends from the page cache. QEMU answers each message from its main
	// loop, so on a busy machine the peer needs more patience than perftest's default of 8 times 67 ms.
	const file = "ib_write_bw"
	sum := strings.Fields(a.run("md5sum /usr/bin/" + file))[0]
	for _, by := range []struct {
		from *machine
		at   string
		to   *machine
	}{{private, "10.0.0.3", a}, {a, "10.0.0.1", private}} {
		by.from.start("timeout 120 rping -s -a " + by.at + " -V -S 65000 -C 5")
		by.to.run(again("timeout 60 rping -c -a " + by.at + " -V -S 65000 -C 5"))
		by.from.finish("rping -s")
		const slow = "ib_write_bw" + dev + "-u 18 -s 4096 -n 20"
		by.from.start("timeout 120 " + slow)
		by.from.until("Waiting for client")
		by.to.run(again("timeout 60 " + slow + " " + by.at))
		by.from.finish("ib_write_bw")
		by.from.run("httpd -p 80 -h /usr/bin")
		got := by.to.run(again("timeout 60 wget -q -O /tmp/got http://" + by.at + "/" + file + " && md5sum /tmp/got"))
		if fields := strings.Fields(got); len(fields) == 0 || fields[0] != sum {
			t.Errorf("%s to %s: the file has the sum %q, want %s", by.from.name, by.to.name, got, sum)
		}
	}
	// The driver notices an unplugged cable, and continues afterwards.
	ports[0].SetLink(false)
	a.run(again("ibstat | grep 'State: Down'"))
	ports[0].SetLink(true)
	a.run(again("ibstat | grep 'State: Active'"))
	// The driver is unloaded and loaded again.
	a.run("rmmod mlx5_ib && rmmod mlx5_core && insmod /lib/modules/mlx5_core.ko.gz && insmod " +
		"/lib/modules/mlx5_ib.ko.gz" +
		" && ip addr add 10.0.0.1/24 dev eth0 && ip link set eth0 up")
	a.run(again("ibstat | grep 'State: Active'"))
	between("ib_write_lat"+dev+"-n 1000", "ib_write_lat"+dev+"-n 1000 10.0.0.2")
}
