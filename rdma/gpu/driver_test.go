package gpu_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/u-root/u-root/pkg/cpio"
	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/rdma/gpu"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/kerneltest"
)

const insideEnv = "RACKLESS_GPU_INSIDE"

const insideInit = `#!/bin/busybox sh
b=/bin/busybox
export PATH=/sbin:/usr/sbin:/bin:/usr/bin
$b mkdir -p /proc /sys /dev /tmp
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
$b mount -t tmpfs tmp /tmp
$b depmod
$b modprobe virtio_pci
$b modprobe virtio_gpu
echo BEGIN
` + insideEnv + `=1 /gpu.test -test.v -test.run '^TestTheKernelsDriver$'
$b dmesg | $b grep -iE 'virtio|drm|BUG|WARN'
echo END
$b sleep 600
`

const (
	vramSize = 64 << 20
	blobSize = 4 << 20
)

// The guest and another device talk in the blob's second page.
const (
	talkAt  = 4096
	said    = "rackless: the guest has written its pattern"
	replied = "rackless: so has the other device"
	again   = "rackless: another blob, in the same place"
	seen    = "rackless: seen"
)

// The unmodified driver of Debian's kernel finds the GPU, hands out its VRAM, and exports it.
func TestTheKernelsDriver(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		testInside(t)
		return
	}
	if testing.Short() {
		t.Skip("machines are not booted with -short")
	}
	t.Parallel()
	d, err := userdirs.Default(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	o := image.Options{Cache: d.Images(), Progress: func(s string) { t.Log(s) }}
	node, err := image.Node.Ensure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	qemu, err := image.QEMU.Ensure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	e := qemu.Emulator()
	m := &kerneltest.Machine{QEMU: e.Path, Lead: e.Lead, Image: node, Initrd: node.InitramfsPath()}
	m.Keep(t, "bin/busybox", "bin/sh") // for its C library
	m.Add(t, append([]cpio.Record{
		kerneltest.Self(t, "gpu.test"), cpio.StaticFile("gpu-init", insideInit, 0o755),
		cpio.Directory("lib/modules", 0o755), cpio.Directory("lib/modules/"+node.KernelVer, 0o755),
	}, kerneltest.Modules(t, node, "virtio_pci", "virtio_gpu")...)...)

	socket := filepath.Join(t.TempDir(), "s")
	g, err := gpu.Listen(gpu.Config{Name: "gpu0", Socket: socket, Memory: vramSize, Model: "h20", Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- playNIC(ctx, g) }()
	text := m.Run(t, strings.Fields("-machine q35,memory-backend=ram -cpu qemu64 -m 512M -smp 1 "+
		"-object memory-backend-memfd,id=ram,size=512M,share=on -device pcie-root-port,id=rp0,chassis=1 -device "+
		vm.VFIOUser{ID: "gpu0", Bus: "rp0", Socket: socket}.Device()), "rdinit=/gpu-init mitigations=off")
	if !strings.Contains(text, "\nPASS\n") || strings.Contains(text, "FAIL") {
		t.Error("the test in the machine failed")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	text = strings.NewReplacer("*ERROR* response 0x1201 (command 0x10c)", "",
		"*ERROR* response 0x1203 (command 0x102)", "").Replace(text)
	for _, bad := range []string{"*ERROR*", "WARNING", "BUG:"} {
		if strings.Contains(text, bad) {
			t.Errorf("the kernel says %s", bad)
		}
	}
}

func pattern(i int) byte { return byte(i*131 + i>>8*7 + 3) }
func inverse(i int) byte { return ^pattern(i) }

func fill(b []byte, pattern func(i int) byte) {
	for i := range b {
		if i/talkAt != 1 {
			b[i] = pattern(i)
		}
	}
}

func differs(b []byte, pattern func(i int) byte) (n int) {
	for i := range b {
		if i/talkAt != 1 && b[i] != pattern(i) {
			n++
		}
	}
	return n
}

// playNIC uses VRAM like a NIC of the guest.
func playNIC(ctx context.Context, g *gpu.GPU) error {
	blob := func() []byte {
		if s := g.Status(); s.Mapped > 0 {
			return g.VRAM(s.Address, blobSize) // the driver's first place
		}
		return nil
	}
	wait := func(words string) ([]byte, error) {
		for ctx.Err() == nil {
			if b := blob(); b != nil && bytes.HasPrefix(b[talkAt:], []byte(words)) {
				return b, nil
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil, fmt.Errorf("the guest has not said %q: %+v", words, g.Status())
	}
	b, err := wait(said)
	if err != nil {
		return err
	}
	n := differs(b, pattern)
	fill(b, inverse)
	copy(b[talkAt:], replied)
	if n > 0 {
		err = fmt.Errorf("%d bytes are not as the guest has written them", n)
	}
	b, late := wait(again)
	if late != nil {
		return errors.Join(err, late)
	}
	s := g.Status()
	copy(b[talkAt:], seen)
	if s.Blobs != 1 || s.Allocated != vramSize || !s.Driver || s.Broken || !s.Connected || s.Memory != vramSize ||
		s.Messages > 0 {
		err = errors.Join(err, fmt.Errorf("status %+v", s))
	}
	return err
}

// From the kernel's drm.h and virtgpu_drm.h.
type createBlob struct {
	mem, flags, handle, _ uint32
	size                  uint64
	_                     [3]uint64
}

type mapBlob struct {
	offset    uint64
	handle, _ uint32
}

type primeFD struct {
	handle, flags uint32
	fd            int32
}

type closeHandle struct{ handle, _ uint32 }

func ioctl[T any](f *os.File, direction, number uint32, arg *T) error {
	request := direction<<30 | uint32(unsafe.Sizeof(*arg))<<16 | 'd'<<8 | number
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(request), uintptr(unsafe.Pointer(arg)))
	if errno != 0 {
		return errno
	}
	return nil
}

const (
	directionWrite = 1
	directionBoth  = 3
)

func newBlob(dri *os.File, size uint64) (handle uint32, m []byte, err error) {
	c := createBlob{mem: 2, flags: 1 | 2, size: size}
	if err := ioctl(dri, directionBoth, 0x4a, &c); err != nil {
		return 0, nil, fmt.Errorf("RESOURCE_CREATE_BLOB: %w", err)
	}
	a := mapBlob{handle: c.handle}
	if err := ioctl(dri, directionBoth, 0x41, &a); err != nil {
		return 0, nil, fmt.Errorf("VIRTGPU_MAP: %w", err)
	}
	m, err = unix.Mmap(int(dri.Fd()), int64(a.offset), int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return c.handle, m, err
}

func testInside(t *testing.T) {
	files, _ := filepath.Glob("/sys/bus/pci/drivers/virtio-pci/*:*/class")
	if len(files) != 1 {
		t.Fatalf("virtio-pci has the devices %q", files)
	}
	dir := filepath.Dir(files[0])
	for file, want := range map[string]string{"class": "0x030200", "vendor": "0x1af4", "device": "0x1050",
		"subsystem_device": "0x4c01", "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"} {
		if b, err := os.ReadFile(filepath.Join(dir, file)); strings.TrimSpace(string(b)) != want {
			t.Errorf("%s is %q, want %q (%v)", file, b, want, err)
		}
	}
	dri, err := os.OpenFile("/dev/dri/renderD128", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dri.Close()
	handle, m, err := newBlob(dri, blobSize)
	if err != nil {
		t.Fatal(err)
	}
	prime := primeFD{handle: handle, flags: unix.O_RDWR | unix.O_CLOEXEC}
	if err := ioctl(dri, directionBoth, 0x2d, &prime); err != nil {
		t.Fatalf("PRIME_HANDLE_TO_FD: %v", err)
	}
	if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", prime.fd)); !strings.Contains(name, "dmabuf") {
		t.Errorf("the exported file is %q, %v", name, err)
	}
	shared, err := unix.Mmap(int(prime.fd), 0, blobSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatalf("map the dma-buf: %v", err)
	}
	fill(m, pattern)
	copy(m[talkAt:], said)
	for !bytes.HasPrefix(shared[talkAt:], []byte(replied)) {
		time.Sleep(10 * time.Millisecond)
	}
	if n := differs(shared, inverse) + differs(m, inverse); n > 0 {
		t.Errorf("%d bytes are not as the other device has written them", n)
	}
	if err := errors.Join(unix.Munmap(shared), unix.Munmap(m), unix.Close(int(prime.fd)),
		ioctl(dri, directionWrite, 0x09, &closeHandle{handle: handle})); err != nil {
		t.Fatal(err)
	}
	// The driver frees a blob some time after it is closed, so there is room for one of the size of VRAM only then.
	for _, m, err = newBlob(dri, vramSize); err != nil; _, m, err = newBlob(dri, vramSize) {
		time.Sleep(10 * time.Millisecond)
	}
	if !bytes.Equal(m[:blobSize], make([]byte, blobSize)) {
		t.Error("the memory of a freed blob has not been cleared")
	}
	if _, _, err := newBlob(dri, 4096); err == nil {
		t.Error("more than the VRAM is allocated")
	}
	copy(m[talkAt:], again)
	for !bytes.HasPrefix(m[talkAt:], []byte(seen)) {
		time.Sleep(10 * time.Millisecond)
	}
}
