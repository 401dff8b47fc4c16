package emulate

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/qapi"
)

// A Host is an emulated host, running or not.
type Host struct {
	State
	Dir string

	unlock   func()
	adapters *adapters // nil if it has none
}

// Options are the options of Start.
type Options struct {
	Dirs    userdirs.Dirs
	Profile *Profile
	Name    string // of the host; "" means the profile's
	// Keep makes a host that outlives this process.
	Keep bool
	Boot Boot
	// Tools makes the image of the second disk with Program. If nil, there is no second disk.
	Program string
	Tools   func(ctx context.Context, progress func(string)) (path string, err error)
	// Accel is "kvm" or "tcg". AccelReason says why it is not kvm.
	Accel, AccelReason string
	Cold               bool // not from a template
	Progress           *steps.Progress
}

// bootLimit is for the largest profile, which takes minutes on two emulating cores.
const bootLimit = 15 * time.Minute

func supported(arch string) error {
	if arch == "amd64" {
		return nil
	}
	return fmt.Errorf("emulated hosts are x86-64 machines, and they have not been tested on one of %s: "+
		"labs run here, with rackless up", arch)
}

// Start makes a host run: the kept host of that name, booted if it is off, or a new one. Close or Remove ends a host
// that is not kept.
func Start(ctx context.Context, o Options) (h *Host, err error) {
	p := o.Progress
	defer func() { p.End(err) }()
	o.Name = cmp.Or(o.Name, o.Profile.Name)
	if err := cmp.Or(supported(runtime.GOARCH), checkHostName(o.Name)); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, o.Dirs, o.Name, func() error {
		if h, err := Open(o.Dirs, o.Name); err == nil && !h.Keep && h.Owner.Alive() {
			return fmt.Errorf("host %s belongs to process %d, which does not keep it: say --name for another", o.Name,
				h.Owner.PID)
		}
		p.Note("waiting for another rackless, which works on host %s", o.Name)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// The owner holds the lock until it closes the host, so that no other process removes it.
	defer func() {
		if h == nil || h.Keep {
			unlock()
		} else {
			h.unlock = unlock
		}
	}()
	have, err := Open(o.Dirs, o.Name)
	switch {
	case errors.Is(err, ErrNoHost):
	case err != nil:
		return nil, err
	case !have.Keep || !have.Ready: // the process making it was killed
		if err := removeLocked(ctx, o.Dirs, o.Name); err != nil {
			return nil, err
		}
	case !reflect.DeepEqual(have.Profile, o.Profile):
		return nil, fmt.Errorf("host %s is kept and is another machine (%s, %d CPUs, %v; asked for is %s, %d CPUs, "+
			"%v): say --name for another, or remove it with: rackless emulate rm %s",
			o.Name, have.Profile.Name, have.Profile.CPUs(), have.Profile.Memory(), o.Profile.Name, o.Profile.CPUs(),
			o.Profile.Memory(), o.Name)
	case have.Process.Alive():
		return have, nil
	default:
		return have, have.boot(ctx, o)
	}
	h, err = create(ctx, o)
	if err != nil {
		return nil, errors.Join(err, removeLocked(context.WithoutCancel(ctx), o.Dirs, o.Name))
	}
	return h, nil
}

// manyCPUs is the most that a laptop emulates in acceptable time: 64 boot twice as long as 16.
const manyCPUs = 32

// create needs the lock.
func create(ctx context.Context, o Options) (*Host, error) {
	if err := o.Profile.Fits(); err != nil {
		return nil, err
	}
	qemu, err := o.emulator(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := vm.FindProcess(os.Getpid())
	if err != nil {
		return nil, err
	}
	h := &Host{Dir: hostDir(o.Dirs, o.Name), State: State{
		Version: stateVersion, Name: o.Name, Profile: o.Profile, Keep: o.Keep, Owner: owner, Boot: o.Boot.Key,
		QEMU: qemu.Version, Accel: o.Accel, AccelReason: o.AccelReason, Made: time.Now().UTC(),
	}}
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return nil, err
	}
	// So that Sweep finds the remains of a killed rackless.
	if err := h.save(); err != nil {
		return nil, err
	}
	if n := o.Profile.CPUs(); o.Accel == "tcg" && n > manyCPUs {
		o.Progress.Note("%d CPUs are emulated by the %d of this machine: with --scale %d it starts faster", n,
			runtime.NumCPU(), (n+manyCPUs-1)/manyCPUs)
	}
	if err := h.takeTools(ctx, o); err != nil {
		return nil, err
	}
	t, err := h.template(ctx, qemu, o)
	if err != nil {
		return nil, err
	}
	if below := o.Boot.Disk; below != "" {
		if t != nil {
			below = filepath.Join(t.Dir, fileDisk)
			h.Template = t.Key
		}
		if err := vm.MakeOverlay(ctx, h.path(fileDisk), below, int64(o.Profile.Disk)); err != nil {
			return nil, err
		}
	}
	if err := h.start(ctx, qemu, o, t); err != nil {
		return nil, err
	}
	if err := h.identify(ctx); err != nil {
		return nil, err
	}
	h.Ready = true
	return h, h.save()
}

func (h *Host) takeTools(ctx context.Context, o Options) (err error) {
	if o.Tools == nil {
		h.Tools = ""
		return nil
	}
	o.Progress.Begin("tools disk")
	if h.Program, err = vm.StampOf(o.Program); err != nil {
		return err
	}
	h.Tools, err = o.Tools(ctx, o.Progress.Say)
	return err
}

// template returns nil if the host is to be booted, and ColdReason says why.
func (h *Host) template(ctx context.Context, qemu vm.Emulator, o Options) (*vm.Template, error) {
	if o.Cold {
		h.ColdReason = "asked to boot"
		return nil, nil
	}
	t, err := ensureTemplate(ctx, o, h.machine(qemu, o))
	switch {
	case err == nil:
		return t, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	h.ColdReason = err.Error()
	o.Progress.Note("no template (%v): the host is booted", err)
	return nil, nil
}

func (h *Host) machine(qemu vm.Emulator, o Options) machine {
	m := machine{name: h.Name, dir: h.Dir, profile: h.Profile, qemu: qemu, accel: h.Accel, boot: o.Boot, tools: h.Tools}
	if o.Boot.Disk != "" {
		m.disk = h.path(fileDisk)
	}
	return m
}

// boot needs the lock.
func (h *Host) boot(ctx context.Context, o Options) error {
	if err := h.Profile.Fits(); err != nil {
		return err
	}
	qemu, err := o.emulator(ctx)
	if err != nil {
		return err
	}
	if o.Boot.Key != h.State.Boot {
		o.Progress.Note("host %s continues with its own disk; its image has been built again since", h.Name)
	}
	if err := h.takeTools(ctx, o); err != nil {
		return err
	}
	h.ColdReason = "it was off, and booted from its disk"
	if err := h.start(ctx, qemu, o, nil); err != nil {
		return err
	}
	return h.save()
}

// start returns when the agent answers. On error no QEMU is left.
func (h *Host) start(ctx context.Context, qemu vm.Emulator, o Options, t *vm.Template) (err error) {
	verb := "boot"
	m := h.machine(qemu, o)
	if t != nil {
		verb, m.ram = "resume", ram{dir: t.Dir}
	}
	o.Progress.Begin(fmt.Sprintf("%s %s (%d CPUs, %v, %s)", verb, h.Name, h.Profile.CPUs(), h.Profile.Memory(),
		h.Accel))
	o.Progress.Watch(bootsAt(h.Dir))
	if err := h.serveAdapters(ctx); err != nil {
		return err
	}
	q, err := m.vmWithAdapters()
	if err != nil {
		return err
	}
	q.Bound = !h.Keep
	c, err := q.Start(t)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = c.Explain(ctx, err)
			c.Kill()
		}
	}()
	h.Process, h.Booted, h.Cloned = c.Process, time.Now().UTC(), t != nil
	if err := h.save(); err != nil {
		return err
	}
	ctx, release := c.Bind(ctx)
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit,
		fmt.Errorf("its agent did not answer within %v; the console ended: %s", bootLimit,
			vm.LastLines(h.SerialLog())))
	defer cancel()
	// A link that goes down later would show in the guest's log.
	if err := unplug(ctx, h.Dir, h.Profile.unplugged()); err != nil {
		return err
	}
	if t != nil {
		if err := c.Resume(ctx); err != nil {
			return err
		}
	}
	conn, err := awaitAgent(ctx, h.Dir)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil || t == nil || !h.Profile.comesLate() {
		return err
	}
	o.Progress.Begin("find the NICs and GPUs")
	return h.findAdapters(ctx)
}

const fileDisk = "disk.qcow2"

// awaitAgent repeats its request, because a starting guest may reset the port and lose it.
func awaitAgent(ctx context.Context, dir string) (*qapi.Conn, error) {
	const patience = 10 * time.Second
	for {
		if !agentGone(ctx, dir) {
			once, cancel := context.WithTimeout(ctx, patience)
			conn, err := qapi.DialAgent(once, filepath.Join(dir, vm.SocketAgent))
			cancel()
			if err == nil {
				return conn, nil
			}
		}
		if err := wait.For(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// identifyScript sets a host's name, and a clone's time and randomness, in addition to the kernel's own reseeding by
// vmgenid. No two hosts share a network, so the machine-id stays the image's. Caches are dropped, because the second
// disk may differ from the template's.
//
// It runs few programs, because an emulated CPU must first translate each. hwclock runs in the background, because it
// waits for the next full second.
//
//go:embed identify.sh
var identifyScript string

func (h *Host) identify(ctx context.Context) error {
	a, err := h.agent(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	if _, err := a.Output(ctx, "/bin/sh", "-c", identifyScript, "identify", h.Name, fmt.Sprint(time.Now().Unix()),
		guest.NewMachineID()); err != nil {
		return fmt.Errorf("host %s: set its name and clock: %w", h.Name, err)
	}
	return nil
}

func (h *Host) path(file string) string { return filepath.Join(h.Dir, file) }

// SerialLog returns the path of the log of the serial port.
func (h *Host) SerialLog() string { return h.path(vm.FileConsole) }

// Console returns the socket of the console hvc0. QEMU serves one client at a time.
func (h *Host) Console() string { return h.path(vm.SocketConsole) }

// consoleUnit is root's shell on hvc0. systemd starts it only if the initial file system has the console's driver.
const consoleUnit = "serial-getty@hvc0.service"

// OpenConsole connects to root's shell on hvc0.
func (h *Host) OpenConsole(ctx context.Context) (net.Conn, error) {
	if err := h.run(ctx, "systemctl", "start", consoleUnit); err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", h.Console())
}

// Running reports whether the host runs.
func (h *Host) Running() bool { return h.Process.Alive() }

// agent goes through the daemon for a kept host, so that several processes can connect.
func (h *Host) agent(ctx context.Context) (*guest.Agent, error) {
	if !h.Running() {
		return nil, fmt.Errorf("host %s is off: rackless emulate %s boots it", h.Name, h.Name)
	}
	limit := answerLimit + 10*time.Second // the daemon's error says more
	conn, err := qapi.DialPlain(ctx, h.path(agentsSocket), nil)
	if _, refused := errors.AsType[*net.OpError](err); refused {
		limit = 0
		conn, err = awaitAgent(ctx, h.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", h.Name, err)
	}
	a := guest.NewAgent(conn)
	a.AnswerLimit, a.Node = limit, h.Name
	return a, nil
}

// AwaitBoot returns when the agent of a restarting host answers again. waits is called with a description.
func (h *Host) AwaitBoot(ctx context.Context, waits func(what string)) error {
	if !agentGone(ctx, h.Dir) {
		return nil
	}
	waits(fmt.Sprintf("host %s restarts: waiting for it, at most %v", h.Name, bootLimit))
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit, fmt.Errorf("host %s did not answer within %v; its console "+
		"ended: %s", h.Name, bootLimit, vm.LastLines(h.SerialLog())))
	defer cancel()
	for agentGone(ctx, h.Dir) {
		if err := wait.For(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		if !h.Running() {
			return fmt.Errorf("host %s went off: rackless emulate %s boots it", h.Name, h.Name)
		}
	}
	return nil
}

// downSoon covers the seconds between the end of a host's commands and of its agent.
func (h *Host) downSoon(ctx context.Context) bool {
	const patience = 10 * time.Second
	for began := time.Now(); time.Since(began) < patience && ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		if agentGone(ctx, h.Dir) {
			return true
		}
	}
	return false
}

// restarted reports whether a command got no answer because the host went down.
func restarted(err error) bool {
	e, ok := errors.AsType[*qapi.Error](err)
	return ok && (e.Class == qapi.ClassGone || e.Class == qapi.ClassUnreachable)
}

// Exec runs a command as root, streams its output and returns its exit status, or 127 if there is no such program.
func (h *Host) Exec(ctx context.Context, environment, argv []string, stdin []byte,
	stdout, stderr io.Writer) (exit int, err error) {
	a, err := h.agent(ctx)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	c := guest.Command{Argv: append(append([]string{"env"}, environment...), argv...), Stdin: stdin}
	if exit, err = a.Stream(ctx, c, stdout, stderr); restarted(err) {
		return exit, fmt.Errorf("host %s: %w; whether the command did its work is not known, and the next one waits "+
			"for the boot", h.Name, err)
	} else if err != nil {
		return exit, fmt.Errorf("host %s: %w", h.Name, err)
	}
	return exit, nil
}

func (h *Host) run(ctx context.Context, argv ...string) error {
	a, err := h.agent(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	if _, err := a.Output(ctx, argv...); err != nil {
		return fmt.Errorf("host %s: %s: %w", h.Name, argv[0], err)
	}
	return nil
}

// Close removes a host that is not kept.
func (h *Host) Close(ctx context.Context, d userdirs.Dirs) error {
	if h.unlock == nil {
		return nil
	}
	defer h.unlock()
	var err error
	if h.adapters != nil { // the adapters remove their sockets
		err = h.adapters.close()
	}
	return errors.Join(err, removeLocked(ctx, d, h.Name))
}

const removeLimit = 30 * time.Second

// Remove ends a host and deletes its files. It reports whether there was one.
func Remove(ctx context.Context, d userdirs.Dirs, name string) (bool, error) {
	if err := checkHostName(name); err != nil {
		return false, err
	}
	if _, err := os.Stat(hostDir(d, name)); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	unlock, err := lock(ctx, d, name, func() error {
		if h, err := Open(d, name); err == nil && !h.Keep && h.Owner.Alive() {
			return fmt.Errorf("host %s belongs to process %d and goes with it", name, h.Owner.PID)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	defer unlock()
	return true, removeLocked(ctx, d, name)
}

// removeLocked needs the lock. It also finds processes by the host's directory in their arguments, because a killed
// rackless may have left the state incomplete.
func removeLocked(ctx context.Context, d userdirs.Dirs, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, removeLimit, fmt.Errorf("host %s was not gone within %v", name,
		removeLimit))
	defer cancel()
	dir := hostDir(d, name)
	procs, err := vm.Strays(dir)
	if err != nil {
		return err
	}
	daemons, err := vm.ProcessesUsing("", DaemonCommand+"\x00"+dir+"\x00")
	if err != nil {
		return err
	}
	errs := lists.Map(append(procs, daemons...), func(p vm.Process) error { return p.Kill(ctx) })
	if err := errors.Join(errs...); err != nil {
		return err
	}
	trace.Changes("remove %s", dir)
	return os.RemoveAll(dir)
}

// overhead is the memory of a QEMU beside its guest's.
const overhead = 512 << 20

// Fits checks the free memory, because the kernel would kill a host later.
func (p *Profile) Fits() error {
	available, err := vm.MemoryAvailable()
	if err != nil {
		return err
	}
	if want := p.Memory() + p.VRAM() + overhead; want > available {
		vram := ""
		if n := p.VRAM(); n > 0 {
			vram = fmt.Sprintf(", %v of memory of GPUs", n)
		}
		return fmt.Errorf("host of profile %s: %v of memory%s and 512MiB for QEMU are more than the %d MiB that this "+
			"machine has available: say --memory with less", p.Name, p.Memory(), vram, available>>20)
	}
	return nil
}

// OtherProgram reports whether the rackless on the second disk differs from the file at path in size or time.
func (h *Host) OtherProgram(path string) bool {
	have, err := vm.StampOf(path)
	return err == nil && h.Tools != "" && have != h.Program
}

// SetConsoleSize takes characters.
func (h *Host) SetConsoleSize(ctx context.Context, columns, rows int) error {
	return h.run(ctx, "stty", "-F", "/dev/hvc0", "cols", fmt.Sprint(columns), "rows", fmt.Sprint(rows))
}

// DiskUse returns the bytes allocated by the host's own disk since it was made.
func (h *Host) DiskUse() int64 {
	s, err := vm.StampOf(h.path(fileDisk))
	if err != nil { // no disk, or being removed
		return 0
	}
	return s.Data
}
