package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/qapi"
	"github.com/rackless/rackless/vm"
)

// sealLimit bounds the first boot. It takes half a minute on two idle cores without KVM.
const sealLimit = 20 * time.Minute

// A boot says what a machine starts from.
type boot struct {
	disk string // of this package, or an overlay of one; it is written to
	// directory with a kernel and an initial file system to start instead of what the disk says;
	// may be empty
	direct string
}

// sockets are those of a machine of this package: nobody looks at more of it than its agent.
var sockets = vm.Sockets{vm.SocketAgent}

// args returns QEMU's arguments, without KVM, which here would save less time than finding out
// whether it works costs.
func (b boot) args(dir string) []string {
	args := []string{
		"-name", "rackless-image", "-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi", "-smp", "2",
		"-m", "1G", "-nodefaults", "-no-user-config", "-display", "none",
		// With x2apic no end of an interrupt is lost (see package emulate). It takes an IOMMU that remaps interrupts.
		"-cpu", "qemu64,+x2apic", "-device", "intel-iommu,intremap=on,eim=on",
		"-blockdev", "driver=qcow2,node-name=root,file.driver=file,file.filename=" + vm.Escape(b.disk) +
			",discard=unmap,file.discard=unmap,cache.no-flush=on",
		"-device", "virtio-blk-pci,drive=root,bus=pcie.0",
		"-device", "virtio-serial-pci", "-chardev", sockets.Chardev("ga", vm.SocketAgent),
		"-device", "virtserialport,chardev=ga,name=org.qemu.guest_agent.0",
		"-chardev", "file,id=console,path=" + vm.Escape(filepath.Join(dir, vm.FileConsole)), "-serial",
		"chardev:console",
	}
	if b.direct != "" {
		args = append(args, "-kernel", filepath.Join(b.direct, "vmlinuz"), "-initrd", filepath.Join(b.direct, "initrd"),
			"-append", "root=LABEL=rackless-root ro console=ttyS0 no_timer_check")
	}
	return args
}

// A machine is a QEMU that boots a disk of this package.
type machine struct {
	agent *guest.Agent
	dir   string
	child *vm.Child
}

// connect waits for the agent's answer. An earlier connection is closed: the agent serves one at a time.
func (m *machine) connect(ctx context.Context) error {
	if m.agent != nil {
		m.agent.Close()
	}
	conn, err := qapi.DialAgent(ctx, filepath.Join(m.dir, vm.SocketAgent))
	if err != nil {
		return fmt.Errorf("the guest agent does not answer: %w", err)
	}
	m.agent = guest.NewAgent(conn)
	return nil
}

// run boots a machine, calls f when its agent answers, and ends the machine if f leaves it running.
func (b boot) run(ctx context.Context, o Options, f func(context.Context, *machine) error) (err error) {
	dir, err := os.MkdirTemp("", "rackless-image-") // not beside the disk: the path of a socket has at most 107 bytes
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m := &machine{dir: dir}
	o.watch(func() string { return vm.LastLine(filepath.Join(dir, vm.FileConsole)) })
	m.child, err = vm.Machine{Name: "the image", Binary: "qemu-system-x86_64", Dir: dir, Sockets: sockets,
		Args: b.args(dir), Bound: true}.Start(nil)
	if err != nil {
		return err
	}
	defer m.child.Kill()
	ctx, release := m.child.Bind(ctx)
	defer release()
	defer func() {
		if err != nil {
			// what it says is worth more than why it cannot be read
			console, _ := os.ReadFile(filepath.Join(dir, vm.FileConsole))
			err = fmt.Errorf("%w\nQEMU: %s\nthe console's last lines: %s", err,
				vm.LastLines(filepath.Join(dir, vm.FileLog)), lastLines(string(console), 8))
		}
	}()
	if err := m.connect(ctx); err != nil {
		return err
	}
	defer func() { m.agent.Close() }() // the last one
	return f(ctx, m)
}

// output runs a command in the machine and returns what it prints; an exit status other than 0 is an error.
func (m *machine) output(ctx context.Context, argv ...string) (string, error) {
	r, err := m.agent.Run(ctx, guest.Command{Argv: argv})
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	if r.ExitCode != 0 {
		return "", fmt.Errorf("%s: exit status %d: %s", strings.Join(argv, " "), r.ExitCode,
			lastLines(string(r.Stdout)+"\n"+string(r.Stderr), 5))
	}
	return string(r.Stdout), nil
}

// powerOffLimit bounds the wait for a machine that did not answer when it was told to power off.
const powerOffLimit = 30 * time.Second

// powerOff ends the machine from within and waits for that.
func (m *machine) powerOff(ctx context.Context) error {
	if _, err := m.output(ctx, "systemctl", "--no-block", "poweroff"); err != nil {
		// The machine may be off before its agent is asked how the command ended.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, powerOffLimit, err)
		defer cancel()
	}
	if err := m.child.Wait(ctx); err != nil {
		return fmt.Errorf("it does not power off: %w", err)
	}
	return nil
}

// seal boots the disk in work once, has GRUB installed on it, and notes in img what is on it.
func seal(ctx context.Context, o Options, work string, img *Image) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sealLimit, fmt.Errorf("not done within %v", sealLimit))
	defer cancel()
	return boot{disk: filepath.Join(work, diskName), direct: work}.run(ctx, o,
		func(ctx context.Context, m *machine) error {
			for _, argv := range [][]string{
				{"grub-install", "/dev/vda"},
				{"update-grub"},
				{"fstrim", "/"},
			} {
				o.watch(func() string { return strings.Join(argv, " ") })
				if _, err := m.output(ctx, argv...); err != nil {
					return err
				}
			}
			kernel, err := m.output(ctx, "uname", "--kernel-release")
			if err != nil {
				return err
			}
			packages, err := m.output(ctx, "dpkg-query", "--show", "--showformat", "${Package}=${Version}\n")
			if err != nil {
				return err
			}
			img.KernelVer, img.Packages = strings.TrimSpace(kernel), strings.Fields(packages)
			return m.powerOff(ctx)
		})
}
