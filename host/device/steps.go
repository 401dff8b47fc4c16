package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render"
)

// Options control the preparation of devices.
type Options struct {
	// Inspect reads the current machine, which the guards judge instead of the host in the plan. It is required.
	Inspect func(ctx context.Context) (*topology.Host, error)
	// YesReally permits taking the boot console and NICs that have addresses, and interrupting a port's link for a
	// moment.
	YesReally bool
	// Firmware makes the settings that [Firmware] otherwise only lists.
	Firmware bool
	// Made is one line for generated files that names their maker, or "".
	Made string
}

// Steps depends only on the arguments, not on the machine's present state.
func Steps(p *plan.Plan, l *lab.Lab, h *topology.Host, o Options) ([]change.Step, error) {
	return stepsOn(realKernel(), p, l, h, o)
}

func stepsOn(k *kernel, p *plan.Plan, l *lab.Lab, h *topology.Host, o Options) ([]change.Step, error) {
	if p == nil || l == nil || h == nil || o.Inspect == nil {
		return nil, errors.New("devices: a plan, its lab, its host and a way to look at the machine are needed")
	}
	if p.Lab != l.Name {
		return nil, fmt.Errorf("devices: the plan is of lab %q, and the lab is %q", p.Lab, l.Name)
	}
	b := &builder{k: k, p: p, l: l, h: h, o: o, guards: newGuards(o, k)}
	if err := errors.Join(b.collect(), b.collectVFs()); err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	if len(b.whole) == 0 && len(b.pfs) == 0 {
		return nil, nil
	}
	boot, err := b.bootFiles()
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	// VFIO comes first, because the guard of its first step checks everything. NVIDIA's driver releases all its GPUs
	// before the first is handed over, and physical functions lose their virtual functions before they go.
	return slices.Concat(b.modules(), b.firmware(), b.unloadNVIDIA(), b.emptyPFs(), b.drivers(), b.virtual(), boot), nil
}

type builder struct {
	k      *kernel
	p      *plan.Plan
	l      *lab.Lab
	h      *topology.Host
	o      Options
	guards *guards
	whole  []passedFunction
	pfs    []*SRIOV
	takers map[topology.PCIAddr][]string // by physical function
}

type passedFunction struct {
	op   *Driver
	node string
	what string // "GPU", "NIC, MODEL", or "comes with 0000:01:00.0"
}

func (b *builder) card(a topology.PCIAddr) identity {
	if d := b.h.Device(a); d != nil {
		return identity{d.Vendor, d.Device}
	}
	return identity{}
}

// collect takes all functions of a card, such as a GPU's audio, because they share an IOMMU group and often a reset.
func (b *builder) collect() error {
	var errs []error
	for i := range b.p.Nodes {
		n := &b.p.Nodes[i]
		for _, c := range n.Cards {
			if c.Kind == plan.KindVF {
				continue
			}
			ids := c.Functions
			if len(ids) == 0 {
				ids = []string{c.ID}
			}
			for _, id := range ids {
				a, err := topology.ParsePCIAddr(id)
				if err != nil {
					errs = append(errs, fmt.Errorf("node %q: %w: a host that is known by another tool's matrix "+
						"cannot be prepared", n.Name, err))
					continue
				}
				if d := b.h.Device(a); b.guards.ours[a] || d != nil && d.IsBridge() {
					continue
				}
				what := "comes with " + c.ID
				if id == c.ID {
					what = strings.ToUpper(c.Kind)
					if c.Model != "" {
						what += ", " + c.Model
					}
				}
				b.guards.ours[a] = true
				b.whole = append(b.whole, passedFunction{&Driver{Address: a, Card: b.card(a), k: b.k}, n.Name, what})
			}
		}
	}
	return errors.Join(errs...)
}

// collectVFs counts a node's ports as a plan does: NICs first, then virtual functions.
func (b *builder) collectVFs() error {
	b.takers = map[topology.PCIAddr][]string{}
	byPF := map[topology.PCIAddr]*SRIOV{}
	for _, c := range b.p.VFs {
		a, err := topology.ParsePCIAddr(c.PF)
		if err != nil {
			return fmt.Errorf("virtual functions of %q: %w", c.PF, err)
		}
		op := &SRIOV{PF: a, Card: b.card(a), Count: c.Count, Autoprobe: b.autoprobe(a), VFs: []LabVF{}, k: b.k}
		byPF[a] = op
		b.pfs = append(b.pfs, op)
	}
	for i := range b.p.Nodes {
		n := &b.p.Nodes[i]
		port := lists.Count(n.Cards, func(c plan.NodeDevice) bool { return c.Kind == plan.KindNIC })
		for _, c := range n.Cards {
			if c.Kind != plan.KindVF {
				continue
			}
			a, err := topology.ParsePCIAddr(c.ID)
			if err != nil {
				return fmt.Errorf("node %q: %w", n.Name, err)
			}
			op := byPF[a]
			if op == nil || c.VF == nil || *c.VF < 0 || *c.VF >= op.Count || port >= len(n.NICs) {
				return fmt.Errorf("node %q: virtual function of %s is not among those that the plan makes, or has no "+
					"port: the plan was edited; make it again", n.Name, a)
			}
			settings, err := labSettings(n.NICs[port].MAC)
			if err != nil {
				return fmt.Errorf("node %q: %s: %w", n.Name, n.NICs[port].Name, err)
			}
			port++
			op.VFs = append(op.VFs, LabVF{*c.VF, settings})
			b.takers[a] = append(b.takers[a], n.Name)
		}
	}
	return nil
}

// labSettings lets guests change addresses and receive all frames, because bridges and tcpdump in them need it. Any
// VLAN, limit or forced link left by others is removed.
func labSettings(mac string) (VFSettings, error) {
	b, err := net.ParseMAC(mac)
	if err != nil || len(b) != 6 {
		return VFSettings{}, fmt.Errorf("MAC address %q: want six bytes with colons", mac)
	}
	// The modified EUI-64 of RFC 4291, appendix A.
	guid := binary.BigEndian.Uint64([]byte{b[0] ^ 2, b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]})
	const tagged = 0x8100 // 802.1Q
	return VFSettings{
		MAC: b.String(), VLAN: new(0), QoS: new(0), VLANProto: new(tagged), MinRate: new(0), MaxRate: new(0),
		SpoofChk: new(false), Trust: new(true), LinkState: new(0), NodeGUID: &guid, PortGUID: &guid,
	}, nil
}

// autoprobe is true, as in the kernel, unless the host says otherwise.
func (b *builder) autoprobe(a topology.PCIAddr) bool {
	if d := b.h.Device(a); d != nil && d.SRIOV != nil && d.SRIOV.Autoprobe != nil {
		return *d.SRIOV.Autoprobe
	}
	if n := b.h.NIC(a); n != nil && n.SRIOV != nil && n.SRIOV.Autoprobe != nil {
		return *n.SRIOV.Autoprobe
	}
	return true
}

// modules has a guard that checks all devices, because this step can be made before the IOMMU is on.
func (b *builder) modules() []change.Step {
	var steps []change.Step
	for i, m := range vfioModules() {
		step := change.Step{Op: m, What: "load module " + m.Name, Why: "guests get devices through VFIO"}
		if i == 0 {
			step.Guard = b.everything
		}
		steps = append(steps, step)
	}
	return steps
}

func (b *builder) everything(ctx context.Context, s *change.System) error {
	sc, err := b.guards.look(ctx, s)
	if err != nil {
		return err
	}
	var errs []error
	for _, w := range b.whole {
		state, err := w.op.Read(ctx, s)
		if err != nil {
			return err
		}
		if w.op.Done(state) {
			continue
		}
		if ready, err := b.ready(w.op.Address)(ctx, s); err != nil || !ready {
			errs = append(errs, err)
			// Without an IOMMU there are no groups to check, but the host's needs are known.
			errs = append(errs, sc.hostUses(w.op.Address)...)
			continue
		}
		errs = append(errs, sc.whole(ctx, w.op)...)
	}
	return errors.Join(errs...)
}

// firmware changes take effect at the card's next reset, for example a reboot, so the steps that need them wait.
func (b *builder) firmware() []change.Step {
	if !b.o.Firmware {
		return nil
	}
	var steps []change.Step
	for _, f := range firmwareSettings(b.p, b.h) {
		steps = append(steps, change.Step{
			Op: f, What: fmt.Sprintf("set %s=%d in the firmware of NIC %s", f.Parameter, f.Value, f.Card), Why: f.why(),
			Risk: "the card takes it at its next reset, with all its ports; a BlueField wants the power off and on",
			Boot: true, InForce: f.InForce,
		})
	}
	return steps
}

// unloadNVIDIA unloads NVIDIA's driver if all its GPUs go to lab nodes. Its modules hold GPUs for the console and for
// CUDA, and a held GPU cannot be taken.
func (b *builder) unloadNVIDIA() []change.Step {
	gpus := lists.Filter(b.h.PCI, func(d topology.PCIDevice) bool { return d.Driver == nvidiaDriver })
	stays := func(d topology.PCIDevice) bool { return !b.guards.ours[d.Address] }
	if len(gpus) == 0 || slices.ContainsFunc(gpus, stays) {
		return nil
	}
	var steps []change.Step
	for _, name := range nvidiaModules() {
		steps = append(steps, change.Step{
			Op: &Module{Name: name, Gone: true}, What: "unload module " + name,
			Why:   "all GPUs of NVIDIA's driver go to lab nodes, and its modules hold them",
			Risk:  "no CUDA and no screen on these GPUs for the host",
			Guard: b.guards.nvidia(name),
		})
	}
	return steps
}

func (b *builder) emptyPFs() []change.Step {
	var steps []change.Step
	for _, w := range b.whole {
		a := w.op.Address
		d := b.h.Device(a)
		if d == nil || d.SRIOV == nil || d.SRIOV.Enabled == nil || *d.SRIOV.Enabled == 0 {
			continue
		}
		b.guards.emptied[a] = true
		op := &SRIOV{PF: a, Card: w.op.Card, Autoprobe: b.autoprobe(a), VFs: []LabVF{}, k: b.k}
		steps = append(steps, change.Step{
			Op: op, What: fmt.Sprintf("take the %d virtual functions of %s away", *d.SRIOV.Enabled, a),
			Why: "node " + w.node + " gets the NIC whole", Guard: b.guards.sriov(op),
		})
	}
	return steps
}

func (b *builder) drivers() []change.Step {
	var steps []change.Step
	for _, w := range b.whole {
		a := w.op.Address
		steps = append(steps, change.Step{
			Op: w.op, What: fmt.Sprintf("hand %s (%s) to vfio-pci", a, w.what), Why: "node " + w.node + " gets it",
			Risk:  b.risk(a),
			Ready: b.ready(a), Guard: b.guards.whole(w.op),
		}, change.Step{
			Op: &Driverctl{Address: a}, What: fmt.Sprintf("tell driverctl, where it is installed, that %s is for "+
				"vfio-pci", a),
			Why: "at each boot it gives devices the drivers that it remembers", Ready: b.ready(a),
		})
	}
	return steps
}

func (b *builder) risk(a topology.PCIAddr) string {
	if d := b.h.Device(a); d != nil && d.Class != nil {
		switch d.Class.Base() {
		case topology.ClassNetwork:
			return "the host loses its network devices"
		case topology.ClassDisplay:
			return "its screens go dark, and the host can no longer compute on it"
		case topology.ClassStorage:
			return "the host loses its disks"
		}
	}
	return "the host cannot use it any more"
}

// ready wants an IOMMU group, or a kernel with all IOMMU arguments of the plan, so that the guard reports any problem.
// Otherwise a reboot with the arguments comes first.
func (b *builder) ready(a topology.PCIAddr) func(context.Context, *change.System) (bool, error) {
	return func(_ context.Context, s *change.System) (bool, error) {
		if group, err := (function{s, b.k, a}).group(); err != nil || group != "" {
			return true, err
		}
		cmdline, err := s.Value("/proc/cmdline")
		if err != nil {
			return false, err
		}
		given := strings.Fields(cmdline)
		for _, arg := range b.p.KernelArgs {
			name, _, _ := strings.Cut(arg, "=")
			if (strings.HasSuffix(name, "iommu") || strings.HasPrefix(name, "iommu.")) && !slices.Contains(given, arg) {
				return false, nil
			}
		}
		return true, nil
	}
}

func (b *builder) virtual() []change.Step {
	var steps []change.Step
	for _, op := range b.pfs {
		link := &Link{PF: op.PF, MTU: b.l.Fabric.MTU, k: b.k}
		ready := b.vfsReady(op)
		steps = append(steps, change.Step{
			Op: link, What: fmt.Sprintf("set the port of %s up, with an MTU of at least %d bytes", op.PF, link.MTU),
			Why:   "it drops frames of its virtual functions that are larger than its own",
			Risk:  "the link may be down for a moment",
			Ready: ready, Guard: b.guards.link(link),
		}, change.Step{
			Op: op, What: fmt.Sprintf("have %d virtual functions on %s, %d of them with vfio-pci and the lab's "+
				"addresses", op.Count, op.PF, len(op.VFs)),
			Why: "they go to " + nodeList(b.takers[op.PF]),
			Risk: "where the number changes all of them are taken away and made again, and the link may be down for " +
				"a moment",
			Ready: ready, Guard: b.guards.sriov(op),
		})
	}
	return steps
}

func nodeList(nodes []string) string {
	if len(nodes) == 0 {
		return "no lab node; other VMs have them"
	}
	if len(nodes) == 1 {
		return "node " + nodes[0]
	}
	return "nodes " + strings.Join(nodes, ", ")
}

// vfsReady also waits for the NIC's firmware to offer enough functions if the firmware was set.
func (b *builder) vfsReady(op *SRIOV) func(context.Context, *change.System) (bool, error) {
	return func(ctx context.Context, s *change.System) (bool, error) {
		if ok, err := b.ready(op.PF)(ctx, s); err != nil || !ok {
			return ok, err
		}
		if !b.o.Firmware {
			return true, nil
		}
		most, err := (function{s, b.k, op.PF}).number(fileTotal)
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return most >= op.Count, err
	}
}

// bootFiles keep other drivers off the functions during boot. They come last: if the udev rule came first, a reboot
// could hand the functions over before their earlier state was recorded.
func (b *builder) bootFiles() ([]change.Step, error) {
	files, err := render.HostFiles(render.Input{Plan: b.p, Lab: b.l, Host: b.h, Made: b.o.Made})
	if err != nil {
		return nil, err
	}
	ready := func(ctx context.Context, s *change.System) (bool, error) {
		for _, w := range b.whole {
			if ok, err := b.ready(w.op.Address)(ctx, s); err != nil || !ok {
				return ok, err
			}
		}
		return true, nil
	}
	var steps []change.Step
	for _, f := range files {
		step := change.Step{Op: &change.File{Path: f.Path, Data: f.Data, Mode: f.Mode}, Ready: ready}
		switch {
		case strings.HasPrefix(f.Path, "/etc/udev/"):
			step.What = "write a udev rule that keeps the functions for vfio-pci from their first moment"
			step.Why = "at the next boot their drivers would take them first"
		case strings.HasPrefix(f.Path, "/etc/modprobe.d/"):
			step.What = "have vfio-pci loaded before the drivers of the functions"
			step.Why = "so that it is there when the udev rule names it"
		default:
			continue // units are steps of other packages
		}
		steps = append(steps, step)
	}
	list := lists.Map(vfioModules(), func(m *Module) string { return m.Name + "\n" })
	return append(steps, change.Step{
		Op: &change.File{Path: "/etc/modules-load.d/rackless-" + b.l.Name + ".conf", Mode: 0o644,
			Data: []byte("# Modules that devices are given to guests with, in order.\n" + strings.Join(list, ""))},
		What: "have VFIO's modules loaded at each boot", Why: "guests get devices through VFIO",
	}), nil
}
