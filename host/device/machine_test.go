package device

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/kerneltest"
)

const insideEnv = "RACKLESS_DEVICE_INSIDE"

const partEnv = "RACKLESS_DEVICE_PART"

// machineArgs: one wire connects the NICs, so that their links are up.
var machineArgs = strings.Fields(`-machine q35,kernel-irqchip=split -cpu qemu64 -m 1024 -smp 2
-device intel-iommu,intremap=on
-netdev hubport,id=n0,hubid=0 -netdev hubport,id=n1,hubid=0
-device VGA,bus=pcie.0,addr=0x2
-device pcie-root-port,id=rp0,chassis=1,slot=1,bus=pcie.0,addr=0x4 -device igb,bus=rp0,netdev=n0,mac=52:54:00:00:00:01
-device pcie-root-port,id=rp1,chassis=2,slot=2,bus=pcie.0,addr=0x5 -device igb,bus=rp1,netdev=n1,mac=52:54:00:00:00:02
-device pcie-root-port,id=rp2,chassis=3,slot=3,bus=pcie.0,addr=0x6 -device secondary-vga,bus=rp2
-device pcie-root-port,id=rp3,chassis=4,slot=4,bus=pcie.0,addr=0x7 -device nvme,bus=rp3,serial=test,drive=d0`)

const insideInit = `#!/bin/sh
b=/bin/busybox
export PATH=/sbin:/usr/sbin:/bin:/usr/bin
$b mkdir -p /proc /sys /dev /tmp /etc/modprobe.d
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
$b mount -t tmpfs tmp /tmp
for p in modprobe rmmod; do $b ln -sf $b /sbin/$p; done
$b depmod
echo BEGIN
` + insideEnv + `=1 /device.test -test.v -test.run '^TestInAMachineWithARealKernel$/(PART)' FLAGS
echo END
$b sleep 600
`

var insideModules = []string{"igb", "igbvf", "vfio", "vfio_iommu_type1", "vfio_pci", "bochs", "nvme", "ext4",
	"crc32c_generic"}

// A real kernel reacts as only it does.
func TestInAMachineWithARealKernel(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		testInside(t)
		return
	}
	if testing.Short() {
		t.Skip("machines are not booted with -short")
	}
	testInAMachine(t, os.Getenv(partEnv), fmt.Sprintf("-parts=1 -seed=%d", storey.Seed(t)))
}

// TestE2EFaultsInAMachineWithARealKernel dies in all parts of the steps.
func TestE2EFaultsInAMachineWithARealKernel(t *testing.T) {
	storey.E2E(t)
	testInAMachine(t, "cut off anywhere", fmt.Sprintf("-parts=3 -seed=%d -every-point=%v", storey.Seed(t), *everyPoint))
}

func testInAMachine(t *testing.T, pattern, flags string) {
	t.Helper()
	m := kerneltest.Find(t)
	disk := filepath.Join(t.TempDir(), "disk")
	// Without checksums, ext4 needs no module for them.
	if out, err := exec.Command("/sbin/mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum,^has_journal", disk,
		"16M").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.Keep(t, "bin/busybox", "bin/sh", "bin/ip")
	init := strings.NewReplacer("PART", pattern, "FLAGS", flags).Replace(insideInit)
	m.Add(t, insideFiles(t, m.Image, init)...)
	text := m.Run(t, append(slices.Clone(machineArgs), "-drive", "file="+disk+",if=none,id=d0,format=raw"),
		"rdinit=/device-init intel_iommu=on iommu=pt mitigations=off")
	if !strings.Contains(text, "\nPASS\n") || strings.Contains(text, "FAIL") {
		t.Error("a test in the machine failed")
	}
}

func insideFiles(t *testing.T, img *image.Image, init string) []cpio.Record {
	t.Helper()
	return append([]cpio.Record{
		kerneltest.Self(t, "device.test"),
		cpio.StaticFile("device-init", init, 0o755),
		cpio.Directory("lib/modules", 0o755), cpio.Directory("lib/modules/"+img.KernelVer, 0o755),
	}, kerneltest.Modules(t, img, insideModules...)...)
}
