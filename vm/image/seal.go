package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/qapi"
)

// sealLimit is for the first boot: half a minute on two idle cores without KVM.
const sealLimit = 20 * time.Minute

var sockets = vm.Sockets{vm.SocketAgent}

// sealArgs uses no KVM, which would save less time than testing it takes. QEMU writes to the disk in work.
func sealArgs(work, dir string) []string {
	disk := vm.Escape(filepath.Join(work, diskName))
	return []string{
		"-name", "rackless-image", "-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi", "-smp", "2",
		"-m", "1G", "-nodefaults", "-no-user-config", "-display", "none",
		// x2apic avoids lost ends of interrupts (see package emulate), and needs interrupt remapping.
		"-cpu", "qemu64,+x2apic", "-device", "intel-iommu,intremap=on,eim=on",
		"-blockdev", "driver=qcow2,node-name=root,file.driver=file,file.filename=" + disk +
			",discard=unmap,file.discard=unmap,cache.no-flush=on",
		"-device", "virtio-blk-pci,drive=root,bus=pcie.0",
		"-device", "virtio-serial-pci", "-chardev", sockets.Chardev("ga", vm.SocketAgent),
		"-device", "virtserialport,chardev=ga,name=org.qemu.guest_agent.0",
		"-chardev", "file,id=console,path=" + vm.Escape(filepath.Join(dir, vm.FileConsole)), "-serial",
		"chardev:console",
		"-kernel", filepath.Join(work, "vmlinuz"), "-initrd", filepath.Join(work, "initrd"), "-append",
		"root=LABEL=rackless-root ro console=ttyS0 mitigations=off nokaslr init_on_alloc=0 cryptomgr.notests " +
			"no_timer_check",
	}
}

// boot calls f when the agent answers, and ends the machine if f does not.
func boot(ctx context.Context, o Options, work string, f func(context.Context, *guest.Agent, *vm.Child) error) (
	err error) {
	dir, err := os.MkdirTemp("", "rackless-image-") // a socket path has at most 107 bytes
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.watch(func() string { return vm.LastLine(filepath.Join(dir, vm.FileConsole)) })
	child, err := vm.Machine{Name: "the image", Binary: "qemu-system-x86_64", Dir: dir, Sockets: sockets,
		Args: sealArgs(work, dir), Bound: true}.Start(nil)
	if err != nil {
		return err
	}
	defer child.Kill()
	ctx, release := child.Bind(ctx)
	defer release()
	defer func() {
		if err != nil {
			// if unreadable, the error only lacks its text
			console, _ := vm.ReadEnd(filepath.Join(dir, vm.FileConsole), 64<<10)
			err = fmt.Errorf("%w\nQEMU: %s\nthe console's last lines: %s", err,
				vm.LastLines(filepath.Join(dir, vm.FileLog)), lastLines(string(console), 8))
		}
	}()
	conn, err := qapi.DialAgent(ctx, filepath.Join(dir, vm.SocketAgent))
	if err != nil {
		return fmt.Errorf("the guest agent does not answer: %w", err)
	}
	agent := guest.NewAgent(conn)
	defer agent.Close()
	return f(ctx, agent, child)
}

func output(ctx context.Context, agent *guest.Agent, argv ...string) (string, error) {
	out, err := agent.Output(ctx, argv...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return string(out), nil
}

// powerOffLimit starts if the power-off command got no answer.
const powerOffLimit = 30 * time.Second

func powerOff(ctx context.Context, agent *guest.Agent, child *vm.Child) error {
	if _, err := output(ctx, agent, "systemctl", "--no-block", "poweroff"); err != nil {
		// The machine may be off already.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, powerOffLimit, err)
		defer cancel()
	}
	if err := child.Wait(ctx); err != nil {
		return fmt.Errorf("it does not power off: %w", err)
	}
	return nil
}

func seal(ctx context.Context, o Options, work string, img *Image) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sealLimit, fmt.Errorf("not done within %v", sealLimit))
	defer cancel()
	return boot(ctx, o, work, func(ctx context.Context, agent *guest.Agent, child *vm.Child) error {
		for _, argv := range [][]string{{"grub-install", "/dev/vda"}, {"update-grub"}, {"fstrim", "/"}} {
			o.watch(func() string { return strings.Join(argv, " ") })
			if _, err := output(ctx, agent, argv...); err != nil {
				return err
			}
		}
		kernel, err := output(ctx, agent, "uname", "--kernel-release")
		if err != nil {
			return err
		}
		packages, err := output(ctx, agent, "dpkg-query", "--show", "--showformat", "${Package}=${Version}\n")
		if err != nil {
			return err
		}
		img.KernelVer, img.Packages = strings.TrimSpace(kernel), strings.Fields(packages)
		return powerOff(ctx, agent, child)
	})
}
