package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// guards inspect the machine right before a change.
type guards struct {
	o Options
	k *kernel
	// ours are the functions that the plan passes through whole. An IOMMU group may contain them all.
	ours map[topology.PCIAddr]bool
	// emptied are physical functions whose virtual functions an earlier step removes.
	emptied map[topology.PCIAddr]bool
	pid     int // in whose session rackless runs
}

func newGuards(o Options, k *kernel) *guards {
	return &guards{o: o, k: k, ours: map[topology.PCIAddr]bool{}, emptied: map[topology.PCIAddr]bool{},
		pid: os.Getpid()}
}

type scene struct {
	g     *guards
	s     *change.System
	live  *topology.Host
	flows map[topology.PCIAddr][]carried
}

func (g *guards) look(ctx context.Context, s *change.System) (*scene, error) {
	return change.Seen(ctx, g, func() (*scene, error) {
		live, err := g.o.Inspect(ctx)
		if err != nil {
			return nil, fmt.Errorf("the machine has to be looked at before it is changed: %w", err)
		}
		if err := unread(live); err != nil {
			return nil, err
		}
		flows, err := carriedFlows(ctx, s, g.k, g.pid)
		return &scene{g, s, live, flows}, err
	})
}

func unread(live *topology.Host) error {
	needed := []string{
		"proc/self/mountinfo", "proc/1/mountinfo", "proc/self/mounts", "proc/mounts", "proc/swaps", "sys/class/block",
		"sys/block", "proc/self/net/route", "proc/net/route", "proc/self/net/ipv6_route", "proc/net/ipv6_route",
	}
	for _, u := range live.Unread {
		if !slices.Contains(needed, strings.TrimPrefix(u.Path, "/")) {
			continue
		}
		why := errors.New(u.Why)
		if u.Why == fs.ErrPermission.Error() {
			why = fs.ErrPermission
		}
		return fmt.Errorf("what the host needs cannot be read: %s: %w; run it as root", u.Path, why)
	}
	return nil
}

func (sc *scene) function(a topology.PCIAddr) function { return function{sc.s, sc.g.k, a} }

// ask returns a guard that refuses for all reasons that judge returns. It ignores nil reasons.
func (g *guards) ask(judge func(context.Context, *scene) []error) func(context.Context, *change.System) error {
	return func(ctx context.Context, s *change.System) error {
		sc, err := g.look(ctx, s)
		if err != nil {
			return err
		}
		return errors.Join(judge(ctx, sc)...)
	}
}

func (g *guards) whole(d *Driver) func(context.Context, *change.System) error {
	return g.ask(func(ctx context.Context, sc *scene) []error { return sc.whole(ctx, d) })
}

// whole collects all reasons at once. If another card is at the address, that is the only reason, because the rest is
// meaningless.
func (sc *scene) whole(ctx context.Context, d *Driver) []error {
	f := sc.function(d.Address)
	if err := f.check(d.Card); err != nil {
		return []error{err}
	}
	errs := []error{sc.answers(f.a), f.viable(func(a topology.PCIAddr) bool { return sc.g.ours[a] }), sc.direct(f.a)}
	errs = append(errs, sc.hostUses(f.a)...)
	errs = append(errs, sc.processes(f), sc.screen(f), sc.network(ctx, f))
	return append(errs, sc.virtual(ctx, f)...)
}

// answers refuses a function whose reads all return ones.
func (sc *scene) answers(a topology.PCIAddr) error {
	if d := sc.live.Device(a); d != nil && d.Dead {
		return fmt.Errorf("%s does not answer (every read gives ones): switch the machine off and on, then look "+
			"at its slot and power", a)
	}
	return nil
}

// direct refuses a function for which the firmware demands host memory. The kernel would refuse it too, with error 22
// when the guest starts.
func (sc *scene) direct(a topology.PCIAddr) error {
	for _, g := range sc.live.IOMMU.Groups {
		if slices.Contains(g.Devices, a) && len(g.Reserved) > 0 {
			return fmt.Errorf("the firmware keeps memory of the host for IOMMU group %d of %s (%s): the kernel gives "+
				"such a device to no guest; look for a setting of the machine's maker (HPE: \"conrep\"), or take "+
				"another device", g.ID, a, strings.Join(g.Reserved, "; "))
		}
	}
	return nil
}

// hostUses refuses functions that the host needs for disks, the default route, ssh sessions or network storage, and
// functions that tenants use.
func (sc *scene) hostUses(a topology.PCIAddr) []error {
	var errs []error
	for _, disk := range sc.live.Storage {
		if disk.PCI == nil || *disk.PCI != a || len(disk.Mounts) == 0 {
			continue
		}
		switch {
		case slices.Contains(disk.Mounts, "/"):
			errs = append(errs, fmt.Errorf("%s has the root disk %s on it: the host runs from it; choose "+
				"another device", a, disk.Name))
		case slices.Contains(disk.Mounts, "[SWAP]"):
			errs = append(errs, fmt.Errorf("%s has disk %s with swap on it: swapoff first, or choose another device", a,
				disk.Name))
		default:
			errs = append(errs, fmt.Errorf("%s has disk %s on it, which is mounted at %s: umount first, or choose "+
				"another device", a, disk.Name, strings.Join(disk.Mounts, " ")))
		}
	}
	errs = append(errs, sc.route(a), sc.needed(a))
	for i := range sc.live.Tenants {
		t := &sc.live.Tenants[i]
		if t.State == "shut off" {
			continue
		}
		for _, held := range t.Devices {
			if held.PCI == a {
				errs = append(errs, fmt.Errorf("%s is held by virtual machine %s (%s): shut it down first, or choose "+
					"another device", a, t.Name, t.State))
			}
		}
	}
	return errs
}

// route ignores other routes than the default, because losing one does not cut the host off.
func (sc *scene) route(a topology.PCIAddr) error {
	for _, r := range sc.live.Routes {
		if slices.Contains(r.PCI, a.String()) {
			return fmt.Errorf("%s carries the default route (%s, %s): the host would lose its network; choose "+
				"another NIC, or move the route", a, r.Netdev, r.Family)
		}
	}
	return nil
}

func (sc *scene) needed(a topology.PCIAddr) error {
	hard := lists.Filter(sc.flows[a], func(c carried) bool { return !c.soft || !sc.g.o.YesReally })
	return errors.Join(lists.Map(hard, func(c carried) error { return errors.New(c.text) })...)
}

// processes refuses even with --yes-really: taking a GPU from a process hangs forever.
func (sc *scene) processes(f function) error {
	err := f.released()
	if err == nil {
		return nil
	}
	if driver, readErr := f.driver(); readErr == nil && driver == nvidiaDriver {
		return fmt.Errorf("%w; of a GPU that only waits: systemctl stop nvidia-persistenced; nvidia-smi -i %s -pm 0",
			err, f.a)
	}
	return err
}

const yesReally = "--yes-really does it all the same"

func (sc *scene) screen(f function) error {
	if sc.g.o.YesReally {
		return nil
	}
	found, err := f.console()
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%s is the host's console: %s; choose another card, or come in over the network: %s", f.a,
			strings.Join(found, ", "), yesReally)
	}
	return err
}

func (sc *scene) network(ctx context.Context, f function) error {
	if sc.g.o.YesReally {
		return nil
	}
	carries, err := f.carries(ctx)
	if err == nil && carries != "" {
		err = fmt.Errorf("%s is in use by the host: %s; take that from it, or choose another NIC; %s", f.a, carries,
			yesReally)
	}
	return err
}

// virtual refuses a physical function with virtual functions, which would go with it.
func (sc *scene) virtual(ctx context.Context, f function) []error {
	vfs, err := f.virtual()
	if err != nil {
		return []error{err}
	}
	if len(vfs) > 0 && !sc.g.emptied[f.a] {
		return []error{fmt.Errorf("%s has %d virtual functions, which the plan does not know of and which would go "+
			"with it: echo 0 > %s, or make a new plan", f.a, len(vfs), f.path(fileCount))}
	}
	return sc.idle(ctx, f.a, vfs)
}

func (sc *scene) idle(ctx context.Context, pf topology.PCIAddr, vfs []topology.PCIAddr) []error {
	var errs []error
	for i, a := range vfs {
		errs = append(errs, ofVirtual(i, pf, append(sc.hostUses(a), sc.function(a).idle(ctx)))...)
	}
	return errs
}

func ofVirtual(index int, pf topology.PCIAddr, errs []error) []error {
	errs = lists.Filter(errs, func(err error) bool { return err != nil })
	return lists.Map(errs, func(err error) error { return fmt.Errorf("virtual function %d of %s: %w", index, pf, err) })
}

func (g *guards) sriov(o *SRIOV) func(context.Context, *change.System) error {
	return g.ask(func(ctx context.Context, sc *scene) []error { return sc.sriov(ctx, o) })
}

// sriov checks the port only if the number of functions changes, because setting addresses does not disturb it.
func (sc *scene) sriov(ctx context.Context, o *SRIOV) []error {
	f := sc.function(o.PF)
	if err := f.check(o.Card); err != nil {
		return []error{err}
	}
	total, err := f.optional(fileTotal)
	if err != nil {
		return []error{err}
	}
	if total == nil {
		return []error{fmt.Errorf("%s offers no SR-IOV: switch it on in the machine's firmware and in the NIC's (%s)",
			o.PF, paramSRIOV)}
	}
	if most, err := f.number(fileTotal); err != nil || most < o.Count {
		return []error{err, fmt.Errorf("%s offers %d virtual functions, and the plan needs %d: raise that in the "+
			"NIC's firmware (%s)", o.PF, most, o.Count, paramVFs)}
	}
	var errs []error
	if o.Count > 0 {
		if port, err := f.port(); err != nil || port == "" {
			errs = append(errs, err, noPort(o.PF))
		}
	}
	errs = append(errs, sc.answers(o.PF))
	st, err := f.sriov(ctx)
	if err != nil {
		return append(errs, err)
	}
	if st.Count != o.Count {
		errs = append(errs, sc.disturb(ctx, o.PF, "the number of its virtual functions changes, at which many drivers "+
			"reset the port"))
		vfs := lists.Map(st.VFs, func(vf vfState) topology.PCIAddr { return vf.Address })
		return append(errs, sc.idle(ctx, o.PF, vfs)...)
	}
	for _, want := range o.VFs {
		if want.Index >= len(st.VFs) {
			continue // Do reports it
		}
		have := st.VFs[want.Index]
		if have.Driver == vfioPCI && len(differences(have.Settings, want.Settings)) == 0 {
			continue
		}
		vf := sc.function(have.Address)
		errs = append(errs, ofVirtual(want.Index, o.PF, append(sc.hostUses(have.Address), vf.idle(ctx),
			vf.viable(alone)))...)
	}
	return errs
}

// disturb refuses changes that may take a port down for a moment while the host uses it or its virtual functions.
func (sc *scene) disturb(ctx context.Context, a topology.PCIAddr, why string) error {
	if sc.g.o.YesReally {
		return nil
	}
	vfs, err := sc.function(a).virtual()
	errs := []error{err, sc.network(ctx, sc.function(a))}
	for _, one := range append(vfs, a) {
		errs = append(errs, sc.route(one), sc.needed(one))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w\n%s would be down for a moment (%s), and back if all goes well: %s", err, a, why,
			yesReally)
	}
	return nil
}

func (g *guards) link(l *Link) func(context.Context, *change.System) error {
	return func(ctx context.Context, s *change.System) error {
		_, st, err := l.read(s)
		if err != nil {
			return err
		}
		if st.Missing {
			return noPort(l.PF)
		}
		if st.MTU >= l.MTU {
			return nil
		}
		sc, err := g.look(ctx, s)
		if err != nil {
			return err
		}
		return sc.disturb(ctx, l.PF, fmt.Sprintf("its MTU is raised from %d to %d", st.MTU, l.MTU))
	}
}

// nvidia refuses to unload NVIDIA's driver while a GPU that stays with the host is bound to it, or a process uses a
// GPU.
func (g *guards) nvidia(name string) func(context.Context, *change.System) error {
	return func(_ context.Context, s *change.System) error {
		r := reader{s: s}
		for _, entry := range r.list(pciDrivers + "/" + nvidiaDriver) {
			a, err := topology.ParsePCIAddr(entry)
			if err != nil {
				continue
			}
			if !g.ours[a] {
				return fmt.Errorf("module %s: GPU %s uses it and stays with the host: make a new plan", name, a)
			}
			if err := (&scene{g: g, s: s}).processes(function{s, g.k, a}); err != nil {
				return fmt.Errorf("module %s: %w", name, err)
			}
		}
		for _, h := range r.list("/sys/module/" + name + "/holders") {
			if !slices.Contains(nvidiaModules(), h) {
				return fmt.Errorf("module %s is used by module %s: rmmod %s first", name, h, h)
			}
		}
		return r.err
	}
}
