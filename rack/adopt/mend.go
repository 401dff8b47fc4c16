// Package adopt checks an existing virtual machine on a host, and edits its description (domain XML of libvirt, or a
// configuration of Proxmox VE) as little as it can: the thread of the emulator first, then the memory, and a whole new
// placement by the planner last. On Linux it also applies the edits to a libvirt domain, and undoes them.
package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

// A Verdict holds the faults of a machine on a host, and the edit that mends them.
type Verdict struct {
	Machine  string            `json:"machine"`
	Host     string            `json:"host"`
	Findings []finding.Finding `json:"findings"`
	// Unread lists the parts of the description that could not be understood, and are not checked.
	Unread []string `json:"unread,omitempty"`
	// Diff removes the findings of Fixed, in the format of diff -u, or is "".
	Diff  string   `json:"diff,omitempty"`
	Fixed []string `json:"fixed,omitempty"` // IDs of checks, without duplicates
	Text  string   `json:"-"`               // description after Diff, or ""
	// NotFixed says why findings that a description can cause remain.
	NotFixed string `json:"not_fixed,omitempty"`
}

// mendable lists checks of CPUs, memory and cells. Others are about the host or devices.
var mendable = []string{"RL060", "RL061", "RL062", "RL063", "RL064", "RL065", "RL066", "RL067", "RL068", "RL070",
	"RL071", "RL072", "RL088"}

func wrong(all []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f finding.Finding) bool {
		return !slices.Contains(mendable, f.ID)
	})
}

// Left returns the IDs of checks that a description can pass and that Diff does not fix, without duplicates.
func (v *Verdict) Left() []string {
	var ids []string
	for _, f := range wrong(v.Findings) {
		if !slices.Contains(v.Fixed, f.ID) && !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

type syntax interface {
	// emulator moves QEMU's own threads.
	emulator(text string, cpus topology.CPUSet) (string, error)
	reorder(text string, cpus []int) (string, error)
	memory(text string, t *topology.Tenant, h *topology.Host) (string, error)
	place(text string, p *placement) (string, error)
}

// Check checks a machine on a host with the other tenants in h. A tenant with the machine's UUID or name is its earlier
// description, and is replaced. A domain of a plan is judged with the isolated CPUs of that plan.
func Check(ctx context.Context, h *topology.Host, hostName string, m *inspect.Machine) (*Verdict, error) {
	others := *h
	others.Tenants = nil
	if isolated := plannedIsolation(m.Text); isolated != nil {
		others.CPUs.Isolated = isolated
	}
	state := "shut off"
	for _, t := range h.Tenants {
		if same(&t, &m.Tenant) {
			state = t.State
			continue
		}
		others.Tenants = append(others.Tenants, t)
	}
	if others.Empty() {
		state = m.Tenant.State
	}
	j := job{host: &others, state: state, machine: m, hostName: hostName, syntax: syntaxOf(m.Text)}
	v := &Verdict{Machine: m.Tenant.Name, Host: hostName, Findings: j.judge(m.Tenant), Unread: m.Unread}
	if v.Findings == nil {
		v.Findings = []finding.Finding{} // [] in JSON, not null
	}
	if len(wrong(v.Findings)) == 0 {
		return v, nil
	}
	if others.Empty() {
		v.NotFixed = "the host is needed: name one with --host"
		return v, nil
	}
	if j.syntax == nil {
		v.NotFixed = "only domain XML (virsh dumpxml) and a configuration of Proxmox VE (qm config) can be edited"
		return v, nil
	}
	return v, j.mend(ctx, v)
}

// CheckAll checks machines of one host together. Earlier machines count as mended, so that all diffs together fit.
func CheckAll(ctx context.Context, h *topology.Host, hostName string, machines []*inspect.Machine) ([]*Verdict, error) {
	now := slices.Clone(machines)
	verdicts := make([]*Verdict, len(machines))
	for i, m := range machines {
		host := *h
		if hostName != NoHost {
			host.Tenants = slices.Clone(h.Tenants)
			for k, other := range now {
				if k != i {
					host.Tenants = withTenant(host.Tenants, other.Tenant)
				}
			}
		}
		v, err := Check(ctx, &host, hostName, m)
		if err != nil {
			return nil, err
		}
		verdicts[i] = v
		if v.Text == "" {
			continue
		}
		if now[i], err = inspect.ParseMachine(ctx, v.Text, m.File); err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

// withTenant replaces the tenant with t's UUID or name, keeping its state, or appends t, shut off.
func withTenant(tenants []topology.Tenant, t topology.Tenant) []topology.Tenant {
	for i := range tenants {
		if same(&tenants[i], &t) {
			t.State = tenants[i].State
			tenants[i] = t
			return tenants
		}
	}
	t.State = "shut off"
	return append(tenants, t)
}

func same(a, b *topology.Tenant) bool { return a.UUID != "" && a.UUID == b.UUID || a.Name == b.Name }

// NoHost is the host name for machines that are checked without a host.
const NoHost = "none"

// Nowhere returns the host for such machines.
func Nowhere() *topology.Host {
	return &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTexts}}
}

type job struct {
	host     *topology.Host // without the machine
	hostName string
	state    string // of the machine
	machine  *inspect.Machine
	syntax   syntax

	emulatorWrong bool
}

func (j *job) judge(t topology.Tenant) []finding.Finding {
	t.State = j.state
	return diagnose.Tenant(j.host, t)
}

// mend tries edits from the smallest to the largest, and keeps the one with the fewest faults left.
func (j *job) mend(ctx context.Context, v *Verdict) error {
	before := wrong(v.Findings)
	j.emulatorWrong = slices.ContainsFunc(before, func(f finding.Finding) bool { return f.ID == "RL064" })
	best, left, rest := j.machine.Text, before, v.Findings
	var reasons []error
	for _, edit := range []func(context.Context) (string, error){j.moveEmulator, j.reorder, j.moveMemory,
		j.placeAnew, j.placePresent, j.placeWithCells, j.placeOnSiblings} {
		text, err := edit(ctx)
		if err == nil {
			edited, err := inspect.ParseMachine(ctx, text, j.machine.File)
			if err != nil {
				return fmt.Errorf("the edited description cannot be read back, which is a fault of rackless: %w", err)
			}
			found := j.judge(edited.Tenant)
			if now := wrong(found); len(now) < len(left) && !addsError(v.Findings, found) {
				best, left, rest = text, now, found
			}
		}
		if err != nil && !slices.ContainsFunc(reasons, func(r error) bool { return r.Error() == err.Error() }) {
			reasons = append(reasons, err)
		}
		if len(left) == 0 {
			break
		}
	}
	for _, f := range v.Findings {
		if !slices.ContainsFunc(rest, func(r finding.Finding) bool { return r.ID == f.ID }) &&
			!slices.Contains(v.Fixed, f.ID) {
			v.Fixed = append(v.Fixed, f.ID)
		}
	}
	if best != j.machine.Text {
		best = withLineEnds(best, j.machine.Text)
		v.Text = best
		v.Diff = string(diff.Diff(j.machine.File, []byte(j.machine.Text), j.machine.File+" (fixed)", []byte(best)))
	}
	if len(left) > 0 {
		v.NotFixed = cause(errors.Join(reasons...), len(v.Left()))
	}
	return nil
}

// addsError reports whether a check that found nothing before now has an error.
func addsError(before, now []finding.Finding) bool {
	return slices.ContainsFunc(now, func(f finding.Finding) bool {
		return f.Severity == finding.Error && !slices.ContainsFunc(before, func(b finding.Finding) bool {
			return b.ID == f.ID
		})
	})
}

// withLineEnds keeps CRLF if all lines of before have it.
func withLineEnds(text, before string) string {
	if n := strings.Count(before, "\n"); n == 0 || n != strings.Count(before, "\r\n") {
		return text
	}
	return strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n").Replace(text)
}

func cause(err error, ids int) string {
	if err != nil {
		return err.Error()
	}
	if ids == 1 {
		return "no placement that was tried avoids it"
	}
	return "no placement that was tried avoids them"
}

func (j *job) moveEmulator(context.Context) (string, error) { return j.emulatorOf(j.machine.Text) }

func (j *job) emulatorOf(text string) (string, error) {
	cpus := housekeeping(j.host, &j.machine.Tenant)
	if cpus.IsEmpty() {
		return "", errors.New("no CPU of the host is left for the threads of the emulator: each is isolated or a " +
			"VM's")
	}
	return j.syntax.emulator(text, cpus)
}

// reorder keeps the CPUs, with the threads of a core side by side.
func (j *job) reorder(context.Context) (string, error) {
	own := j.machine.Tenant.Pinned()
	var order []int
	for i := range j.host.Cores {
		if c := j.host.Cores[i].CPUs; c.IsSubsetOf(own) {
			order = slices.AppendSeq(order, c.All())
		}
	}
	if own.IsEmpty() || len(order) != own.Len() || len(order) != j.machine.Tenant.VCPUs {
		return "", errors.New("the CPUs of the VM are not whole cores of the host, with one CPU for each virtual CPU")
	}
	return j.syntax.reorder(j.machine.Text, order)
}

// moveMemory also moves the emulator if it is wrong.
func (j *job) moveMemory(context.Context) (string, error) {
	text, err := j.syntax.memory(j.machine.Text, &j.machine.Tenant, j.host)
	if err != nil || !j.emulatorWrong {
		return text, err
	}
	return j.emulatorOf(text)
}

func (j *job) placeAnew(ctx context.Context) (string, error) {
	return j.place(ctx, shape{cells: j.severalNodes()})
}

func (j *job) severalNodes() bool {
	nodes := j.machine.Tenant.GuestNodes
	return nodes != nil && *nodes > 1
}

// placePresent plans the virtual CPUs with which the machine starts. oVirt allows many more to be plugged in later,
// often more than the host has CPUs; they share the CPUs of the others.
func (j *job) placePresent(ctx context.Context) (string, error) {
	absent := j.machine.Tenant.Absent
	if absent == nil || absent.IsEmpty() {
		return j.machine.Text, nil
	}
	if j.severalNodes() {
		return "", errors.New("virtual CPUs that can be plugged in later are in its NUMA nodes")
	}
	return j.place(ctx, shape{absent: *absent})
}

func (j *job) placeWithCells(ctx context.Context) (string, error) {
	return j.place(ctx, shape{cells: true})
}

// placeOnSiblings plans half as many cores, and shows the guest their threads. A guide's domain often has siblings for
// its virtual CPUs, and no topology that tells the guest.
func (j *job) placeOnSiblings(ctx context.Context) (string, error) {
	t := &j.machine.Tenant
	pairs := slices.ContainsFunc(j.host.Cores, func(c topology.Core) bool { return c.CPUs.Len() > 1 })
	if !pairs || t.GuestThreads > 1 || t.VCPUs%2 != 0 || t.Absent != nil && !t.Absent.IsEmpty() {
		return j.machine.Text, nil
	}
	return j.place(ctx, shape{cells: true, siblings: true})
}

// place plans the machine again.
func (j *job) place(ctx context.Context, s shape) (string, error) {
	p, err := j.plan(ctx, s)
	if err != nil {
		return "", err
	}
	return j.syntax.place(j.machine.Text, p)
}

// housekeeping returns CPUs for emulator threads: online, not isolated, not a tenant's, and if possible not siblings of
// a tenant's CPUs, and on the NUMA nodes of the machine's.
func housekeeping(h *topology.Host, t *topology.Tenant) topology.CPUSet {
	own := t.Pinned()
	taken := own.Union(topology.UnionOf(h.Tenants, func(o topology.Tenant) topology.CPUSet { return o.Pinned() }))
	cores := h.WholeCores(taken)
	var near topology.CPUSet
	for _, n := range h.NUMANodes {
		if n.CPUs.Overlaps(own) {
			near = near.Union(n.CPUs)
		}
	}
	free := h.CPUs.Online.Difference(taken)
	if h.CPUs.Isolated != nil {
		free = free.Difference(*h.CPUs.Isolated)
	}
	for _, set := range []topology.CPUSet{free.Difference(cores).Intersect(near), free.Difference(cores),
		free.Intersect(near)} {
		if !set.IsEmpty() {
			return set
		}
	}
	return free
}
