package image

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/qapi"
)

// sealLimit bounds the first boot. It takes half a minute on two idle cores without KVM.
const sealLimit = 20 * time.Minute

// A boot says what a machine starts from.
type boot struct {
	disk string // of this package, or an overlay of one; it is written to
	// directory with a kernel and an initial file system to start instead of what the disk says;
	// may be empty
	direct string
	more   []string // arguments of QEMU
}

// args returns QEMU's arguments, without KVM, which here would save less time than finding out
// whether it works costs. The agent's socket is the open file 3.
func (b boot) args(dir string) []string {
	args := []string{
		"-name", "rackless-image", "-machine", "q35", "-accel", "tcg,thread=multi", "-smp", "2", "-m", "1G",
		"-nodefaults", "-no-user-config", "-display", "none",
		"-blockdev", fmt.Sprintf(
			"driver=qcow2,node-name=root,file.driver=file,file.filename=%s,discard=unmap,file.discard=unmap,cache.no-flush=on", comma(b.disk)),
		"-device", "virtio-blk-pci,drive=root,bus=pcie.0",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=ga,server=on,wait=off,fd=3",
		"-device", "virtserialport,chardev=ga,name=org.qemu.guest_agent.0",
		"-chardev", "file,id=console,path=" + comma(filepath.Join(dir, "console.log")), "-serial", "chardev:console",
	}
	if b.direct != "" {
		args = append(args, "-kernel", filepath.Join(b.direct, "vmlinuz"), "-initrd", filepath.Join(b.direct, "initrd"),
			"-append", "root=LABEL=rackless-root ro console=ttyS0")
	}
	return append(args, b.more...)
}

// comma doubles the commas of a value in one of QEMU's lists.
func comma(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// A machine is a QEMU that boots a disk of this package.
type machine struct {
	agent  *guest.Agent
	socket string     // of the agent
	ended  chan error // has QEMU's end
}

// connect waits for the agent's answer. An earlier connection is closed: the agent serves one at a time.
func (m *machine) connect(ctx context.Context) error {
	if m.agent != nil {
		m.agent.Close()
	}
	conn, err := qapi.DialAgent(ctx, m.socket)
	if err != nil {
		return fmt.Errorf("the guest agent does not answer: %w", err)
	}
	m.agent = guest.NewAgent(conn)
	return nil
}

// run boots a machine, calls f when its agent answers, and ends the machine if f leaves it running.
func (b boot) run(ctx context.Context, f func(context.Context, *machine) error) (err error) {
	runtime.LockOSThread() // Pdeathsig is bound to the thread that starts the child
	defer runtime.UnlockOSThread()
	dir, err := os.MkdirTemp("", "rackless-image-") // not beside the disk: the path of a socket has at most 107 bytes
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	socket := filepath.Join(dir, "ga.sock")
	// before QEMU runs: nobody polls for the file
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	ga, err := listener.File()
	if err := errors.Join(err, listener.Close()); err != nil {
		return err
	}
	defer ga.Close()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", b.args(dir)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.ExtraFiles = []*os.File{ga}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	m := &machine{socket: socket, ended: make(chan error, 1)}
	gone := make(chan struct{})
	go func() {
		m.ended <- cmd.Wait()
		// Whoever talks to the machine has nobody to wait for.
		kill(errors.New("the machine has ended"))
		close(gone)
	}()
	defer func() {
		kill(nil)
		<-gone
		if err != nil {
			// what it says is worth more than why it cannot be read
			console, _ := os.ReadFile(filepath.Join(dir, "console.log"))
			err = fmt.Errorf("%w\nQEMU: %s\nthe console's last lines: %s", err, lastLines(stderr.String(), 3),
				lastLines(string(console), 8))
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
	select {
	case err := <-m.ended:
		return err
	case <-ctx.Done():
		if err := context.Cause(ctx); len(m.ended) == 0 {
			return fmt.Errorf("it does not power off: %w", err)
		}
		return <-m.ended
	}
}

// seal boots the disk in work once, has GRUB installed on it, and notes in img what is on it.
func seal(ctx context.Context, work string, img *Image) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sealLimit, fmt.Errorf("not done within %v", sealLimit))
	defer cancel()
	return boot{disk: filepath.Join(work, diskName), direct: work}.run(ctx,
		func(ctx context.Context, m *machine) error {
			for _, argv := range [][]string{
				{"grub-install", "/dev/vda"},
				{"update-grub"},
				// libvirtd asks QEMU what it can do, which takes it longest of all; what it learns, it keeps.
				{"virsh", "--quiet", "--connect", "qemu:///system", "capabilities"},
				{"fstrim", "/"},
			} {
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
