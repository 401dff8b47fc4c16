// Package qemu starts the nodes of a lab as QEMU processes, without a daemon and without privileges.
//
// Nodes are cloned: one machine of each shape (image, accelerator, memory, CPUs, NICs) is booted once and kept as a
// template, of whose memory each node is a copy on write. If that is impossible the node is booted, and Node.ColdReason
// says why.
package qemu

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/gpu"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/qapi"
)

// A Driver makes nodes, and is safe for concurrent use. Set its exported fields before the first use.
type Driver struct {
	Binary  string   // the emulator, e.g. "/usr/bin/qemu-system-x86_64"
	Version string   // as of vm.Find
	Lead    []string // its first arguments, see vm.Emulator
	Accel   string   // "kvm" or "tcg", by ProbeKVM or the user
	Image   *image.Image
	Cache   string // directory of the templates
	Cold    bool   // boot every node, for comparison

	bootLimit time.Duration
	moreArgs  string // for templates' kernels, by tests

	mu        sync.Mutex
	templates map[string]*vm.Template // by key, opened by Prepare
	reason    map[string]string       // why there is no template
}

func (d *Driver) vm(m machine) vm.Machine {
	m.arch = d.Image.Arch()
	return vm.Machine{Name: m.spec.Name, Binary: d.Binary, Lead: d.Lead, Dir: m.spec.Dir, Sockets: m.spec.sockets(),
		Args: m.args()}
}

func (d *Driver) image(s Spec) *image.Image { return cmp.Or(s.Image, d.Image) }

func (d *Driver) trustTSC() bool { return d.Image.Arch() == "amd64" && vm.TrustTSC(d.Accel) }

// templateKey hashes everything that the guest can see.
func (d *Driver) templateKey(s Spec) string {
	nics := lists.Map(s.NICs, func(n NIC) NIC { return NIC{NUMA: n.NUMA} })
	m := machine{spec: Spec{CPUs: s.CPUs, Memory: s.Memory, NICs: nics, Adapters: s.Adapters, GPUs: s.shapes(),
		NUMANodes: s.NUMANodes, Image: s.Image}, arch: d.Image.Arch(), accel: d.Accel, ram: "ram"}
	img := d.image(s)
	if img.IsFull() {
		m.disk = fileDisk
	}
	if s.Home.Dir != "" {
		m.spec.Home = templateHome("")
	}
	parts := append(m.args(), img.Key, img.KernelArgs(), d.Version, fmt.Sprint(d.trustTSC()))
	if img.IsFull() {
		// The template's disk is an overlay of this build; another has other blocks.
		parts = append(parts, img.DiskSum())
	}
	for _, n := range s.NICs {
		if s.Adapters {
			parts = append(parts, connectx.Shape(n.Model), fmt.Sprint(blocksFormat))
		}
	}
	for _, g := range s.GPUs {
		parts = append(parts, gpu.Shape(g.Model, g.Personality), fmt.Sprint(g.Memory))
	}
	return vm.Key(parts...)
}

// Prepare opens the template for s, so that Start is fast, or makes it if it is missing or damaged. If that is
// impossible it returns no error; nodes are then booted and say why.
func (d *Driver) Prepare(ctx context.Context, s Spec, progress func(string)) error {
	key := d.templateKey(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.templates == nil {
		d.templates, d.reason = make(map[string]*vm.Template), make(map[string]string)
	}
	if d.templates[key] != nil || d.reason[key] != "" {
		return nil
	}
	if d.Cold {
		d.reason[key] = "asked to boot every node"
		return nil
	}
	c := vm.Cache{Dir: d.Cache, Note: func(format string, args ...any) { progress(fmt.Sprintf(format, args...)) }}
	t, err := c.Ensure(ctx, key, func() (*vm.Template, error) { return d.makeTemplate(ctx, c, key, s) })
	switch {
	case err == nil:
		d.templates[key] = t
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case d.image(s).BootsItself():
		return fmt.Errorf("image %s does not become a node: %w", d.image(s).Recipe.Disk, err)
	default:
		d.reason[key] = err.Error()
		c.Note("no template (%v): nodes will be booted", err)
	}
	return nil
}

// clockAttempts are boots until the kernel measures its TSC well.
const clockAttempts = 3

// makeTemplate boots again if the kernel could not measure its clock.
func (d *Driver) makeTemplate(ctx context.Context, c vm.Cache, key string, s Spec) (*vm.Template, error) {
	c.Note("boot the template (%d CPU, %d MiB, %s)", s.CPUs, s.Memory>>20, d.Accel)
	if d.trustTSC() && !d.image(s).BootsItself() { // its kernel accepts no arguments
		for range clockAttempts {
			t, err := d.bootTemplate(ctx, c, key, s, true)
			if !errors.Is(err, vm.ErrClock) {
				return t, err
			}
			c.Note("%v: boot it again", err)
		}
		c.Note("boot it with a kernel that judges its clock itself")
	}
	return d.bootTemplate(ctx, c, key, s, false)
}

// bootLimit is until the agent answers: normally 4 s under TCG on an idle core, or 20 s for a full node. A user's image
// starts more programs, and took 20 minutes beside 35 busy processes.
const bootLimit, fullBootLimit = 180 * time.Second, 30 * time.Minute

// systemStarted waits for systemd and udev, and syncs the disk. Failed units are a matter of the image.
const systemStarted = "systemctl is-system-running --wait >/dev/null; udevadm settle --timeout=600; sync"

// bootTemplate returns vm.ErrClock if the kernel should have doubted its TSC.
func (d *Driver) bootTemplate(ctx context.Context, c vm.Cache, key string, s Spec,
	trustTSC bool) (*vm.Template, error) {
	shape := Spec{Lab: "template", Name: key, CPUs: s.CPUs, Memory: s.Memory, Adapters: s.Adapters, GPUs: s.shapes(),
		NUMANodes: s.NUMANodes, Image: s.Image}
	for i, n := range s.NICs {
		shape.NICs = append(shape.NICs, NIC{MAC: fmt.Sprintf("52:54:00:00:00:%02x", i+1), Model: n.Model, NUMA: n.NUMA})
	}
	img := d.image(s)
	home := s.Home.Dir != ""
	m := machine{spec: shape, arch: img.Arch(), accel: d.Accel, image: img, share: true, trustTSC: trustTSC,
		moreArgs: d.moreArgs}
	b := vm.Boot{
		Machine: func(_ context.Context, dir string) (vm.Machine, error) {
			m.spec.Dir, m.ram = dir, filepath.Join(dir, fileRAM)
			return d.vm(m), nil
		},
		Settle: func(ctx context.Context, dir string) (func(), error) { return settle(ctx, dir, m, nil) },
		Files:  []string{fileRAM},
		Limit:  cmp.Or(d.bootLimit, bootLimit),
	}
	var adapters templateAdapters
	defer adapters.close()
	if s.Adapters {
		if err := d.withAdapters(&b, &m, &adapters); err != nil {
			return nil, err
		}
	}
	if s.full() {
		withDisk(&b, &m, home)
	}
	t := vm.Template{Key: key, Image: img.Key, QEMU: d.Version, Accelerator: d.Accel, CPUs: s.CPUs,
		Memory: s.Memory, NICs: len(s.NICs)}
	return c.Make(ctx, t, b)
}

func templateHome(dir string) Home { return Home{Dir: filepath.Join(dir, "home"), Security: "none"} }

func withDisk(b *vm.Boot, m *machine, home bool) {
	made := b.Machine
	b.Machine = func(ctx context.Context, dir string) (vm.Machine, error) {
		if home {
			m.spec.Home = templateHome(dir)
			if err := os.MkdirAll(m.spec.Home.Dir, 0o700); err != nil {
				return vm.Machine{}, err
			}
		}
		m.disk = filepath.Join(dir, fileDisk)
		if err := vm.MakeOverlay(ctx, m.disk, m.image.DiskPath(), 0); err != nil {
			return vm.Machine{}, err
		}
		return made(ctx, dir)
	}
	b.Files, b.Limit = append(b.Files, fileDisk), max(b.Limit, fullBootLimit)
}

func (d *Driver) withAdapters(b *vm.Boot, m *machine, a *templateAdapters) error {
	a.blocks = numaBlocks(m.spec.Memory, max(m.spec.NUMANodes, 1))
	if m.spec.NUMANodes == 0 && !m.image.BootsItself() { // a user's kernel cannot be told
		initramfs, err := os.Stat(m.image.InitramfsPath())
		if err != nil {
			return err
		}
		a.blocks = blocks(m.spec.Memory, initramfs.Size())
	}
	b.Machine = func(_ context.Context, dir string) (_ vm.Machine, err error) {
		m.spec.Dir, m.blocks = dir, a.blocks
		for i := range m.blocks {
			m.blocks[i].path = filepath.Join(dir, blockFile(i))
		}
		if m.spec.GPUs, err = a.gpus.serve(dir, m.spec.GPUs); err == nil {
			m.spec.NICs, err = a.serve(dir, m.spec.NICs)
		}
		return d.vm(*m), err
	}
	b.Settle = func(ctx context.Context, dir string) (func(), error) {
		return settle(ctx, dir, *m, func(ctx context.Context, agent *guest.Agent) (err error) {
			if _, err = agent.Output(ctx, "sh", "-c", clearMemory); err == nil && m.spec.NUMANodes == 0 {
				a.flags, err = pageFlags(ctx, agent, m.hardware().memory)
			}
			return err
		})
	}
	b.Frozen, b.Holes, b.Files = a.save, true, []string{fileBlocks}
	for i := range a.blocks {
		b.Files = append(b.Files, blockFile(i))
	}
	for i := range m.spec.NICs {
		b.Files = append(b.Files, AdapterState(i), guestState(i))
	}
	for i := range m.spec.GPUs {
		b.Files = append(b.Files, GPUState(i), gpuInGuest(i))
	}
	return nil
}

const fileRAM = "ram"

const fileDisk = "disk.qcow2"

// clearMemory fills free memory with zeros, because leftovers of the boot would be copied to each clone. It spares 16
// MiB and a thirty-second, so that no program is killed. The built-in image's root is unlimited memory; a full node's
// is a disk.
//
//go:embed clear_memory.sh
var clearMemory string

// loginLimit is for a user's system that is up, but does not run its seed.
const loginLimit = 2 * time.Minute

// giveUp ends loginLimit after a login prompt on the console.
func giveUp(ctx context.Context, console string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		var up time.Time
		for wait.For(ctx, time.Second) == nil {
			said, err := vm.ReadEnd(console, 64<<10) // a guest may print without end
			switch {
			case up.IsZero() && err == nil && bytes.Contains(said, []byte(" login: ")):
				up = time.Now()
			case !up.IsZero() && time.Since(up) > loginLimit:
				cancel(errors.New("its system is up, and cloud-init has not run what is on the seed: is cloud-init " +
					"installed and enabled, with the data source NoCloud?"))
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// settle waits until the agent answers, setup programs wait for input, and the clock is right if the guest trusts the
// TSC. Then it calls last, if set.
func settle(ctx context.Context, dir string, m machine,
	last func(context.Context, *guest.Agent) error) (release func(), err error) {
	nc, err := net.Dial("unix", filepath.Join(dir, socketSetup))
	if err != nil {
		return nil, err
	}
	setup := guest.NewSetup(nc)
	agent, err := qapi.DialAgent(ctx, filepath.Join(dir, vm.SocketAgent))
	if err != nil {
		return nil, errors.Join(err, setup.Close())
	}
	ready, stop := ctx, context.CancelFunc(func() {})
	if m.image.BootsItself() {
		ready, stop = giveUp(ctx, filepath.Join(dir, vm.FileConsole))
	}
	err = setup.Ready(ready)
	stop()
	if err == nil && m.trustTSC {
		err = vm.AwaitClock(ctx, guest.NewAgent(agent))
	}
	if err == nil && m.spec.full() {
		_, err = guest.NewAgent(agent).Output(ctx, "sh", "-c", systemStarted)
	}
	if err == nil && last != nil {
		err = last(ctx, guest.NewAgent(agent))
	}
	release = func() {
		setup.Close()
		agent.Close()
	}
	if err != nil {
		release()
	}
	return release, err
}

// Start clones the template that Prepare opened, or boots. It returns when the CPUs run; the agent answers soon after.
func (d *Driver) Start(ctx context.Context, s Spec) (*Node, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	key := d.templateKey(s)
	d.mu.Lock()
	t, reason := d.templates[key], d.reason[key]
	d.mu.Unlock()

	m := machine{spec: s, accel: d.Accel}
	below := d.image(s).DiskPath()
	if t != nil {
		m.ram, below = filepath.Join(t.Dir, fileRAM), filepath.Join(t.Dir, fileDisk)
	} else {
		m.image, reason = d.image(s), cmp.Or(reason, "no template was prepared")
	}
	if s.full() {
		// For a clone's restart.
		m.image, m.disk = s.Image, filepath.Join(s.Dir, fileDisk)
		if err := vm.MakeOverlay(ctx, m.disk, below, 0); err != nil {
			return nil, err
		}
	}
	var memory []*os.File
	var restore func(context.Context) error
	if s.Adapters {
		var err error
		if memory, restore, err = d.shareMemory(&m, t); err != nil {
			return nil, err
		}
	}
	v := d.vm(m)
	v.SharedMemory, v.Restore = memory, restore
	c, err := v.Start(t)
	if err != nil {
		return nil, err
	}
	// So that the guest never finds the port closed; the connection waits in the socket's queue.
	setup, err := net.Dial("unix", filepath.Join(s.Dir, socketSetup))
	if err == nil && s.Attached != nil {
		err = s.Attached(ctx)
	}
	if err == nil && t != nil {
		err = c.Resume(ctx)
	}
	if err != nil {
		err = c.Explain(ctx, err) // QEMU may have ended
		c.Kill()
		if setup != nil {
			setup.Close()
		}
		return nil, err
	}
	n := &Node{
		Setup: setup, Name: s.Name, Process: c.Process, Accelerator: d.Accel, Cloned: t != nil,
		Started: time.Now().UTC(), Agent: filepath.Join(s.Dir, vm.SocketAgent),
		Console: filepath.Join(s.Dir, vm.SocketConsole), Log: filepath.Join(s.Dir, vm.FileConsole),
	}
	if t == nil {
		n.ColdReason = reason
	}
	return n, nil
}

// shareMemory returns memory files for the adapters' server, and a function that restores a clone's adapters after QEMU
// has loaded the template's state.
func (d *Driver) shareMemory(m *machine, t *vm.Template) (files []*os.File, _ func(context.Context) error, err error) {
	s := m.spec
	m.ram = ""
	if t == nil {
		m.blocks, files, err = emptyBlocks(s)
		return files, nil, err
	}
	adapters, err := readAdapters(t.Dir, len(s.NICs))
	if err != nil {
		return nil, nil, err
	}
	if m.blocks, files, err = readBlocks(t.Dir, s.sockets()); err != nil {
		return nil, nil, err
	}
	gpus, err := readGPUs(t.Dir, len(s.GPUs))
	if err == nil {
		err = rename(m.blocks, files, adapters, s.NICs)
	}
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	return files, func(ctx context.Context) error {
		err := s.Restore(ctx, t.Dir)
		for _, a := range adapters {
			if err == nil {
				err = a.PCI.Write(ctx, filepath.Join(s.Dir, vm.SocketTest))
			}
		}
		for _, g := range gpus {
			if err == nil {
				err = g.Write(ctx, filepath.Join(s.Dir, vm.SocketTest))
			}
		}
		return err
	}, nil
}

// probeLimit is for KVM: a working one takes about a second to its agent, a broken one never ends.
const probeLimit = 8 * time.Second

// ProbeKVM finds out whether the image boots under KVM; see [vm.Probe]. cache keeps the result until this machine's
// next boot.
func (d *Driver) ProbeKVM(ctx context.Context, cache string) (usable bool, reason string, err error) {
	return d.kvmProbe().KVM(ctx, cache)
}

// KnownKVM returns a result of ProbeKVM without a boot.
func (d *Driver) KnownKVM(cache string) (usable bool, reason string, known bool) {
	return d.kvmProbe().Known(cache)
}

func (d *Driver) kvmProbe() vm.Probe {
	return vm.Probe{QEMU: d.Version, Image: d.Image.Key, Limit: probeLimit, Machine: func(dir string) vm.Machine {
		s := Spec{Lab: "probe", Name: "kvm", Dir: dir, CPUs: 1, Memory: 256 << 20}
		return d.vm(machine{spec: s, accel: "kvm", image: d.Image})
	}}
}
