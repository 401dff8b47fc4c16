package kerneltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
)

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

var guestFiles = []string{
	"bin/busybox", "etc/*", "etc/libibverbs.d/mlx5.driver", "lib/modules/*", "lib/*/libgcc_s.so.1",
	"usr/lib/*/libibverbs/libmlx5-*", "sbin/dcb", "sbin/ethtool", "usr/bin/ib_*", "usr/bin/ibv_devinfo", "usr/bin/rdma",
	"usr/bin/rping", "usr/sbin/ibstat",
}

const guestLimit = 30 * time.Minute

// A Guest is a machine with an emulated adapter that executes commands.
type Guest struct {
	t    TB
	Name string
	con  net.Conn
	buf  []byte
	// adapters ends the tests of a guest that has lost its adapter.
	adapters context.Context
}

// SharedMemory is an anonymous file that the adapter maps. Otherwise it accesses QEMU's own memory by messages.
const (
	SharedMemory  = "memory-backend-memfd,id=ram,size=512M,share=on"
	PrivateMemory = "memory-backend-ram,id=ram,size=512M"
)

// GuestInitrd has drivers and tools of the node's image.
func GuestInitrd(t TB, node *image.Image) string {
	t.Helper()
	m := &Machine{Image: node, Initrd: node.InitramfsPath()}
	m.Keep(t, guestFiles...)
	m.Add(t, cpio.StaticFile("first", firstProgram, 0o755))
	return m.Initrd
}

// Boot starts a machine with the adapter at a socket, and does not wait; see Guest.Up. The end of adapters ends its
// tests. Its sockets are in dir.
func Boot(t TB, adapters context.Context, dir, name, addr, adapter, memory string, qemu, node *image.Image,
	initrd string) *Guest {
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
		// Violations of QEMU's protocol, for some of which it drops the adapter.
		bad := regexp.MustCompile("timed out|unexpected reply|bad header|VFIO_USER_DMA")
		if bad.Match(out.Bytes()) {
			t.Errorf("%s: QEMU said: %s", name, out.Bytes())
		}
	})
	m := &Guest{t: t, Name: name, adapters: adapters}
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

// Watch returns a logger for adapters, and a context that it cancels if one's connection ends.
func Watch(t TB) (context.Context, func(format string, args ...any)) {
	ctx, lost := context.WithCancelCause(t.Context())
	return ctx, func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		t.Log(text)
		if strings.Contains(text, "connection ends") {
			lost(errors.New(text))
		}
	}
}

// Until waits for a pattern on the console, and returns the text before it and its groups.
func (m *Guest) Until(pattern string) (before string, match []string) {
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
			m.t.Fatalf("%s: %v before %q: %s", m.Name, err, pattern, m.buf)
		}
		m.buf = append(m.buf, b[:n]...)
	}
}

// Up waits for the machine's program, and fails the test if the network is not up.
func (m *Guest) Up() {
	m.t.Helper()
	if _, up := m.Until(`READY (\w+)\s`); up[1] != "up" {
		m.t.Fatalf("%s: the network is %s", m.Name, up[1])
	}
}

// Start does not wait for the command's end; Finish does.
func (m *Guest) Start(command string) {
	m.t.Helper()
	m.buf = nil
	if _, err := fmt.Fprintln(m.con, command); err != nil {
		m.t.Fatal(err)
	}
}

// Finish returns the output of a successful command.
func (m *Guest) Finish(command string) string {
	m.t.Helper()
	out, end := m.Until(`END@(\d+)\s`)
	if end[1] != "0" {
		m.t.Errorf("%s: %s: exit status %s\n%s", m.Name, command, end[1], out)
	}
	return strings.ReplaceAll(out, "\r", "")
}

// Run is Start and Finish.
func (m *Guest) Run(command string) string {
	m.t.Helper()
	m.Start(command)
	return m.Finish(command)
}
