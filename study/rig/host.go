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

// A hostSite is this host, prepared for the lab. Each cell is a variant of the plan: domains that differ are stopped
// and started again.
type hostSite struct {
	*Rig
	place    *rack.Placement
	host     *topology.Host // current topology
	planner  Planner
	plans    map[string]*plan.Plan // by text of the lab file
	devices  []string              // in the last cell; see devicesOf
	arranged bool                  // apply has brought the lab up
}

var pageSizes = map[string]uint64{"off": 0, "2MiB": 2 << 20, "1GiB": 1 << 30}

// A Planner plans a lab on the host as before preparation.
type Planner func(*lab.Lab) (*plan.Plan, error)

// planOf plans a cell's lab, which may need less than the host was prepared for, but nothing more or different.
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
	// Unused CPUs stay reserved: the host stays booted for the whole lab.
	p.Housekeeping, p.KernelArgs = r.place.Plan.Housekeeping, r.place.Plan.KernelArgs
	for i := range p.Nodes {
		for _, set := range []*topology.CPUSet{&p.Nodes[i].EmulatorCPUs, &p.Nodes[i].IOThreadCPUs} {
			// The planner may put emulator threads on free CPUs that the study reserves for nodes.
			if *set = set.Difference(r.protected); set.IsEmpty() {
				*set = p.Housekeeping.CPUs
			}
		}
	}
	r.plans[text] = p
	return p, nil
}

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
				// A virtual function's address belongs to its node.
				return (card.Kind != plan.KindVF || b.Name == n.Name) &&
					slices.ContainsFunc(b.Cards, func(have plan.NodeDevice) bool { return sameCard(have, card) })
			}) {
				return fmt.Errorf("node %s is given %s (%s), which the host is not prepared to give it", n.Name,
					card.ID, card.Kind)
			}
		}
	}
	// The MTU of a physical function, set by prepare, limits that of its virtual functions.
	if parts && l.Fabric.MTU > whole.Fabric.MTU {
		return fmt.Errorf("the NICs whose virtual functions the lab has are prepared for an MTU of %d: let the lab "+
			"file have the largest, %d", whole.Fabric.MTU, l.Fabric.MTU)
	}
	return nil
}

func sameCard(a, b plan.NodeDevice) bool {
	return a.ID == b.ID && a.Kind == b.Kind && (a.VF == nil) == (b.VF == nil) && (a.VF == nil || *a.VF == *b.VF)
}

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

// within returns an error if cgroups keep nodes off their CPUs. Nodes can exchange places within the partition of
// prepare, but one without a partner cannot move.
func (r *hostSite) within(p *plan.Plan) error {
	allowed, err := topology.ParseCPUSet(r.machine.text("sys/fs/cgroup/machine.slice/cpuset.cpus"))
	if err != nil || allowed.IsEmpty() {
		return nil // no cgroup v2, or no limit
	}
	for _, n := range p.Nodes {
		if outside := topology.CPUs(n.VCPUs...).Difference(allowed); !n.Unpinned && !outside.IsEmpty() {
			return fmt.Errorf("node %s would be on CPUs %s, and machine.slice has CPUs %s alone: give the lab "+
				"another lab node of this size on another NUMA node, with which it changes places, "+
				"or have the host booted with isolcpus, which makes no slices (rackless rollback, then rackless "+
				"prepare without --no-reboot)", n.Name, outside, allowed)
		}
	}
	return nil
}

// A BootError reports that a run needs the host booted with, or without, isolated CPUs of the lab.
type BootError struct {
	Isolated bool
	CPUs     topology.CPUSet // CPUs of the lab
}

// Error implements error.
func (e *BootError) Error() string {
	if e.Isolated {
		return fmt.Sprintf("the next run takes this host booted with CPUs %s isolated (isolcpus)", e.CPUs)
	}
	return fmt.Sprintf("the next run takes this host booted without isolcpus for CPUs %s", e.CPUs)
}

// ready compares the isolated CPUs, which cannot change while the kernel runs.
func (r *hostSite) ready(settings map[string]string) error {
	level, ok := settings[study.FactorIsolation]
	if !ok {
		return nil
	}
	want := level == study.IsolationIsolcpus
	// With partial isolation, the kernel balances load onto some of the nodes' CPUs only.
	if have := r.protected.IsSubsetOf(r.isolated()); have != want || !want && r.isolated().Overlaps(r.protected) {
		return &BootError{Isolated: want, CPUs: r.protected}
	}
	return nil
}

// confined reports whether processes started here are kept off CPUs of the lab, as prepare does without isolcpus.
func (r *hostSite) confined() bool { return !r.protected.IsSubsetOf(r.all) }

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

func (r *hostSite) isolated() topology.CPUSet {
	return *cmp.Or(r.host.CPUs.Isolated, &topology.CPUSet{})
}

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

// apply reads devices inside the nodes each time: their NUMA nodes may change when domains restart.
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

// restoreLimit is long because nodes in an emulated host take ten minutes to boot.
const restoreLimit = 20 * time.Minute

// restore works even if the last cell could not be brought up.
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

func (r *hostSite) upArranged(ctx context.Context, l *lab.Lab, p *plan.Plan) error {
	place := *r.place
	place.Plan = p
	r.arranged = true
	o := r.options
	o.Place, o.Recreate = &place, true
	return r.upWith(ctx, l, o)
}

// pcieLinks returns trained links, as "0000:41:00.0 8.0 GT/s PCIe x8"; only the width of GPUs, whose links slow down
// when idle. Virtual functions share the link of their physical function.
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

// loadCPUs includes the lab's CPUs at level none. Without isolcpus all slices are kept off them, so load must start
// outside.
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

// describe adds links and devices: retrained or moved ones can change figures.
func (r *hostSite) describe(s *study.HostState) {
	s.Links, s.Devices = r.pcieLinks(), r.devices
	for _, n := range r.place.Plan.Nodes {
		s.Placed = append(s.Placed, n.Name+" "+topology.CPUs(n.VCPUs...).String())
	}
}

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

// devicesOf lists PCI functions, except QEMU's own, as "vm00 0000:01:00.0 -1". With one NUMA node, they do not matter.
func devicesOf(node string, f *facts.Node) []string {
	if len(f.NUMANodes) < 2 {
		return nil
	}
	var all []string
	for _, p := range f.PCI {
		if p.Vendor == nil || *p.Vendor != topology.VendorRedHat {
			all = append(all, fmt.Sprintf("%s %s %d", node, p.Address, *cmp.Or(p.NUMANode, new(-1))))
		}
	}
	return all
}

func (r *hostSite) environment() []study.Fact {
	all := []study.Fact{{Name: "libvirt", Value: r.place.URI}, {Name: "CPUs of the lab", Value: r.protected.String()}}
	if set := r.isolated(); !set.IsEmpty() {
		all = append(all, study.Fact{Name: "isolated CPUs", Value: set.String()})
	}
	// a lab may have pages of two sizes
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
