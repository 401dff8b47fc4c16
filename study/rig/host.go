package rig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/variant"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study"
)

// A hostSite is this host, as it is prepared for the lab. Another cell is another arrangement of the
// lab's plan: domains that differ are ended and started again.
type hostSite struct {
	*Rig
	place    *rack.Placement // as the host is prepared
	host     *topology.Host  // as it is now
	planner  Planner
	plans    map[string]*plan.Plan // of the labs of cells, by the lab's file
	devices  []string              // of the nodes of the last cell, see devicesOf
	arranged bool                  // the lab was brought into a cell
}

// pageSizes are the levels of hugepages, in bytes.
var pageSizes = map[string]uint64{"off": 0, "2MiB": 2 << 20, "1GiB": 1 << 30}

// A Planner plans a lab on the host as it was before it was prepared.
type Planner func(*lab.Lab) (*plan.Plan, error)

// planOf returns the plan of a cell's lab. The host is prepared for the lab as its file says, so
// that another may have less of everything, and nothing else.
func (r *hostSite) planOf(l *lab.Lab) (*plan.Plan, error) {
	whole, err := r.labFor(nil)
	if err != nil || bytes.Equal(l.YAML(), whole.YAML()) {
		return r.place.Plan, err
	}
	text := string(l.YAML())
	if p, ok := r.plans[text]; ok {
		return p, nil
	}
	if l.Name != whole.Name || l.Driver != whole.Driver {
		return nil, errors.New("name and driver of the lab stay as they are in a study")
	}
	p, err := r.planner(l)
	if err != nil {
		return nil, err
	}
	if err := r.preparedFor(whole, l, p); err != nil {
		return nil, err
	}
	// CPUs that the lab has fewer of are still kept from the host.
	// The host was booted for the whole lab, and stays so for all cells: a smaller lab must not make its own demands.
	p.Housekeeping, p.KernelArgs = r.place.Plan.Housekeeping, r.place.Plan.KernelArgs
	for i := range p.Nodes {
		for _, set := range []*topology.CPUSet{&p.Nodes[i].EmulatorCPUs, &p.Nodes[i].IOThreadCPUs} {
			// The planner of a smaller lab may put emulators on CPUs that are now free, and that the study keeps for
			// nodes.
			if *set = set.Difference(r.protected); set.IsEmpty() {
				*set = p.Housekeeping.CPUs
			}
		}
	}
	r.plans[text] = p
	return p, nil
}

// preparedFor says whether a host that is prepared for the whole lab can have another one as planned.
func (r *hostSite) preparedFor(whole, l *lab.Lab, p *plan.Plan) error {
	if more := p.NodeCPUs().Difference(r.protected); !more.IsEmpty() {
		return fmt.Errorf("the host is prepared for a lab on CPUs %s, and the plan of this one has nodes on CPUs %s",
			r.protected, more)
	}
	parts := false
	for _, n := range p.Nodes {
		for _, card := range n.Cards {
			parts = parts || card.Kind == plan.KindVF
			if !slices.ContainsFunc(r.place.Plan.Nodes, func(b plan.Node) bool {
				// The address of a virtual function is that of its node.
				return (card.Kind != plan.KindVF || b.Name == n.Name) &&
					slices.ContainsFunc(b.Cards, func(have plan.NodeDevice) bool { return sameCard(have, card) })
			}) {
				return fmt.Errorf("node %s is given %s (%s), which the host is not prepared to give it", n.Name,
					card.ID, card.Kind)
			}
		}
	}
	// The MTU of a physical function bounds that of its virtual ones, and prepare has set it.
	if parts && l.Fabric.MTU > whole.Fabric.MTU {
		return fmt.Errorf("the NICs whose virtual functions the lab has are prepared for an MTU of %d: let the lab "+
			"file have the largest, %d", whole.Fabric.MTU, l.Fabric.MTU)
	}
	return nil
}

// sameCard reports whether two devices of plans are one.
func sameCard(a, b plan.NodeDevice) bool {
	return a.ID == b.ID && a.Kind == b.Kind && (a.VF == nil) == (b.VF == nil) && (a.VF == nil || *a.VF == *b.VF)
}

// arrangement returns the plan of a cell with this lab. host is the machine as it is now.
func (r *hostSite) arrangement(host *topology.Host, l *lab.Lab, settings map[string]string) (*plan.Plan, error) {
	p, err := r.planOf(l)
	if err != nil {
		keys := labKeys(settings)
		for i, factor := range keys {
			keys[i] += "=" + settings[factor]
		}
		return nil, fmt.Errorf("%s: %w", strings.Join(keys, " "), err)
	}
	if level, ok := settings[study.FactorHugepages]; ok {
		if p, err = variant.Pages(p, pageSizes[level]); err != nil {
			return nil, fmt.Errorf("factor %s: level %s: %w", study.FactorHugepages, level, err)
		}
	}
	if level, ok := settings[study.FactorPlacement]; ok {
		if p, err = variant.Of(p, host, level); err != nil {
			return nil, fmt.Errorf("factor %s: level %s: %w", study.FactorPlacement, level, err)
		}
	}
	return p, nil
}

// check refuses settings of a cell that this host cannot give as it is prepared.
func (r *hostSite) check(l *lab.Lab, settings map[string]string) error {
	for _, factor := range lists.Keys(settings) {
		level := settings[factor]
		fail := func(format string, args ...any) error {
			return fmt.Errorf("factor %s: level %s: %w", factor, level, fmt.Errorf(format, args...))
		}
		_, isLink := study.LinkKey(factor)
		unpinned := factor == study.FactorPlacement && level == variant.Default
		isolation := factor == study.FactorIsolation
		switch {
		case isLink:
			return fail("the lab is on this host's own NICs, and there is no switch of rackless between them")
		case unpinned && settings[study.FactorIsolation] == study.IsolationIsolcpus:
			return fail("the kernel keeps the lab's CPUs to those who ask for them at level %s of %s, so that nodes "+
				"that are not pinned would all run on the few others", study.IsolationIsolcpus, study.FactorIsolation)
		case unpinned && settings[study.FactorIsolation] == "" && r.isolated().Overlaps(r.protected):
			return fail("the kernel keeps CPUs %s to those who ask for them (isolcpus), so that nodes that are not "+
				"pinned would all run on the few others; rackless rollback, then rackless prepare --no-reboot, makes "+
				"no such rule", r.isolated().Intersect(r.protected))
		case isolation && level == study.IsolationIsolcpus && !slices.ContainsFunc(r.place.Plan.KernelArgs,
			func(arg string) bool { return strings.HasPrefix(arg, "isolcpus=") }):
			return fail("the plan of the lab has no isolcpus among its kernel arguments")
		case isolation && level == study.IsolationNone && r.confined():
			if err := outsideTools(); err != nil {
				return fail("as this host is prepared, nothing else runs on CPUs %s, and load is to: %w",
					r.protected.Difference(r.all), err)
			}
		case isolation && level == study.IsolationCpuset && r.all.Difference(r.protected).IsEmpty():
			return fail("no CPU is left for the load: all of %s are the lab's", r.all)
		}
	}
	p, err := r.arrangement(r.host, l, settings)
	if err != nil {
		return err
	}
	if err := r.within(p); err != nil {
		return fmt.Errorf("factor %s: level %s: %w", study.FactorPlacement, settings[study.FactorPlacement], err)
	}
	return r.pagesThere(p)
}

// within says whether the kernel lets the nodes run on the CPUs that they are to be pinned to. The
// partition that prepare makes is of the CPUs of its plan, and nodes that change places stay in it;
// one that has nobody to change places with is to go to CPUs of the host's, and does not get there.
func (r *hostSite) within(p *plan.Plan) error {
	allowed, err := topology.ParseCPUSet(r.machine.text("sys/fs/cgroup/machine.slice/cpuset.cpus"))
	if err != nil || allowed.IsEmpty() {
		return nil // no cgroups of version 2, or libvirt's machines are not limited
	}
	for _, n := range p.Nodes {
		if outside := topology.CPUs(n.VCPUs...).Difference(allowed); !n.Unpinned && !outside.IsEmpty() {
			return fmt.Errorf("node %s would be on CPUs %s, and machine.slice has CPUs %s alone: give the lab "+
				"another node of this size on another NUMA node, with which it changes places, "+
				"or have the host booted with isolcpus, which makes no slices (rackless rollback, then rackless "+
				"prepare without --no-reboot)", n.Name, outside, allowed)
		}
	}
	return nil
}

// A BootError says that a run needs this host booted differently: with the CPUs of the lab
// isolated, or with none of them isolated.
type BootError struct {
	Isolated bool
	CPUs     topology.CPUSet // of the lab
}

// Error implements error.
func (e *BootError) Error() string {
	if e.Isolated {
		return fmt.Sprintf("the next run takes this host booted with CPUs %s isolated (isolcpus)", e.CPUs)
	}
	return fmt.Sprintf("the next run takes this host booted without isolcpus for CPUs %s", e.CPUs)
}

// ready compares the CPUs that the kernel was booted with isolated with the level of isolation: they
// cannot be changed while it runs.
func (r *hostSite) ready(settings map[string]string) error {
	level, ok := settings[study.FactorIsolation]
	if !ok {
		return nil
	}
	want := level == study.IsolationIsolcpus
	// Partly isolated fits neither level: some of the nodes' CPUs would have load balanced onto them and others not.
	if have := r.protected.IsSubsetOf(r.isolated()); have != want || !want && r.isolated().Overlaps(r.protected) {
		return &BootError{Isolated: want, CPUs: r.protected}
	}
	return nil
}

// confined reports whether what is started here is kept off CPUs of the lab, as prepare has it without isolcpus.
func (r *hostSite) confined() bool { return !r.protected.IsSubsetOf(r.all) }

// pagesThere says whether the host has the hugepages of a plan.
func (r *hostSite) pagesThere(p *plan.Plan) error {
	for _, want := range p.Hugepages {
		var total uint64
		if node := r.host.NUMANode(want.NUMANode); node != nil {
			if pool := topology.Pool(node.Hugepages, want.PageBytes); pool != nil {
				total = pool.Total
			}
		}
		if need := uint64(want.Count + want.Held); total < need {
			return fmt.Errorf("NUMA node %d has %d pages of %d KiB, and the lab needs %d in one of the cells: write "+
				"the number to /sys/devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages",
				want.NUMANode, total, want.PageBytes>>10, need, want.NUMANode, want.PageBytes>>10)
		}
	}
	return nil
}

// isolated are the CPUs that the kernel balances no load on.
func (r *hostSite) isolated() topology.CPUSet {
	return *cmp.Or(r.host.CPUs.Isolated, &topology.CPUSet{})
}

// survey reads the host, for what follows from it.
func (r *hostSite) survey() error {
	u, err := url.Parse(r.place.URI)
	if err != nil {
		return err
	}
	if u.Host != "" {
		return fmt.Errorf("libvirt at %s is on another machine, and load is made and the host watched here: run the "+
			"study there", r.place.URI)
	}
	if r.host, err = inspect.Read(context.Background(), inspect.Live()); err != nil {
		return err
	}
	r.protected = r.place.Plan.NodeCPUs()
	if r.protected.IsEmpty() {
		return errors.New("the plan gives the lab no CPUs")
	}
	return nil
}

// apply brings the lab up by the plan of the cell. What the nodes were given is read from inside them
// each time: domains that were started again may see their devices on other NUMA nodes.
func (r *hostSite) apply(ctx context.Context, l *lab.Lab, settings map[string]string) error {
	p, err := r.arrangement(r.host, l, settings)
	if err != nil {
		return err
	}
	if err := r.upArranged(ctx, l, p); err != nil {
		return err
	}
	if err := r.readDevices(ctx); err != nil {
		return err
	}
	return r.look(ctx)
}

// restoreLimit bounds restore. Nodes that are emulated in an emulated host boot in ten minutes.
const restoreLimit = 20 * time.Minute

// restore brings the lab back to its plan, also where the last cell could not be brought up.
func (r *hostSite) restore(ctx context.Context) error {
	if !r.arranged {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, restoreLimit)
	defer cancel()
	l, err := r.labFor(nil)
	if err != nil {
		return err
	}
	return r.upArranged(ctx, l, r.place.Plan)
}

// upArranged brings the lab up as a plan says; domains that differ are started again.
func (r *hostSite) upArranged(ctx context.Context, l *lab.Lab, p *plan.Plan) error {
	place := *r.place
	place.Plan = p
	r.arranged = true
	o := r.options
	o.Place, o.Recreate = &place, true
	return r.upWith(ctx, l, o)
}

// pcieLinks says how the PCIe links of the lab's devices are trained: "0000:41:00.0 8.0 GT/s PCIe
// x8". GPUs slow theirs down when they are idle, so that of those only the width counts. Virtual
// functions have the link of their physical function.
func (r *hostSite) pcieLinks() []string {
	var all []string
	for _, n := range r.place.Plan.Nodes {
		for _, card := range n.Cards {
			dir := "sys/bus/pci/devices/" + card.ID
			width := r.machine.text(dir + "/current_link_width")
			if width == "" || width == "0" {
				continue
			}
			speed := ""
			if card.Kind != plan.KindGPU {
				speed = " " + r.machine.text(dir+"/current_link_speed")
			}
			all = append(all, card.ID+speed+" x"+width)
		}
	}
	return lists.Distinct(all)
}

// loadCPUs gives load the lab's CPUs too at the level none. A host that was prepared without isolcpus
// keeps all slices of systemd off them, so that load has to be started outside of all slices there.
func (r *hostSite) loadCPUs(isolation string) (cpus topology.CPUSet, outside bool) {
	switch {
	case isolation == study.IsolationCpuset:
		return r.all.Difference(r.protected), false
	case isolation == study.IsolationNone && r.confined():
		return r.host.CPUs.Online, true
	}
	return r.all, false
}

func (r *hostSite) accelerator() string { return "kvm" }
func (r *hostSite) helpers() []int      { return r.machine.helpers() }

// describe adds links and devices: a link that was trained again, or a device that moved, is a reason
// for a figure to differ that no factor has a part in.
func (r *hostSite) describe(s *study.HostState) {
	s.Links, s.Devices = r.pcieLinks(), r.devices
	for _, n := range r.place.Plan.Nodes {
		s.Placed = append(s.Placed, n.Name+" "+topology.CPUs(n.VCPUs...).String())
	}
}

// readDevices reads on which NUMA nodes the nodes of a lab have what they were given.
func (r *hostSite) readDevices(ctx context.Context) error {
	r.devices = nil
	for _, n := range r.rack.State.Nodes {
		f, err := r.rack.Facts(ctx, n.Name)
		if err != nil {
			return err
		}
		r.devices = append(r.devices, devicesOf(n.Name, f)...)
	}
	return nil
}

// devicesOf lists the PCI functions of a node with their NUMA nodes, as "vm00 0000:01:00.0 -1":
// GPUs and NICs that are real, or real to it. Where there is but one NUMA node it does not matter
// whether the firmware names it.
func devicesOf(node string, f *facts.Node) []string {
	if len(f.NUMANodes) < 2 {
		return nil
	}
	var all []string
	for _, p := range f.PCI {
		// What QEMU makes up for every machine has no place.
		if p.Vendor == nil || *p.Vendor != topology.VendorRedHat {
			all = append(all, fmt.Sprintf("%s %s %d", node, p.Address, *cmp.Or(p.NUMANode, new(-1))))
		}
	}
	return all
}

// environment names what the host was prepared with, so that two studies can be compared.
func (r *hostSite) environment() []study.Fact {
	all := []study.Fact{{Name: "libvirt", Value: r.place.URI}, {Name: "CPUs of the lab", Value: r.protected.String()}}
	if set := r.isolated(); !set.IsEmpty() {
		all = append(all, study.Fact{Name: "isolated CPUs", Value: set.String()})
	}
	// By node and size, since a lab may have been prepared with pages of two sizes.
	pools := map[string]uint64{}
	for _, n := range r.host.NUMANodes {
		for _, pool := range n.Hugepages {
			if pool.Total > 0 {
				pools[fmt.Sprintf("NUMA node %d, %d KiB", n.ID, pool.SizeBytes>>10)] = pool.Total
			}
		}
	}
	for _, name := range lists.Keys(pools) {
		all = append(all, study.Fact{Name: "hugepages, " + name, Value: fmt.Sprint(pools[name])})
	}
	return all
}
