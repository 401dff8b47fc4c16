// Package adopt checks an existing virtual machine on a host, and edits its description so that nothing is wrong with
// its placement: domain XML of libvirt, or a configuration of Proxmox VE. It changes the text alone, and as little of
// it as it can: the thread of the emulator first, then where the memory is, and a whole new placement by the planner
// last. On Linux it also applies the edits to a libvirt domain that rackless has not made, and undoes them.
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

// A Verdict is what is wrong with a machine on a host, and how to mend it.
type Verdict struct {
	Machine  string            `json:"machine"`
	Host     string            `json:"host"`
	Findings []finding.Finding `json:"findings"`
	// Unread says what of the description could not be understood. Nothing is known about that.
	Unread []string `json:"unread,omitempty"`
	// Diff changes the description so that the findings of Mended are gone, as diff -u prints it; empty where no edit
	// of the description does that.
	Diff   string   `json:"diff,omitempty"`
	Mended []string `json:"mended,omitempty"` // the checks, each once
	Text   string   `json:"-"`                // the description after Diff; empty where there is none
	// Unmended says why findings that a description can cause are still there.
	Unmended string `json:"unmended,omitempty"`
}

// mendable are the checks of what a description says of CPUs, memory and cells. All others are about the host, or about
// which devices the machine has.
var mendable = []string{"RL060", "RL061", "RL062", "RL063", "RL064", "RL065", "RL066", "RL067", "RL068", "RL070",
	"RL071", "RL072"}

// wrong returns the findings that an edit of the description could mend.
func wrong(all []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f finding.Finding) bool {
		return !slices.Contains(mendable, f.ID)
	})
}

// A syntax reads a description and writes parts of it again.
type syntax interface {
	// emulator puts QEMU's own threads on CPUs of the host.
	emulator(text string, cpus topology.CPUSet) (string, error)
	// reorder pins the virtual CPUs to these CPUs of the host, in order.
	reorder(text string, cpus []int) (string, error)
	// memory binds the machine's memory to the NUMA nodes of its CPUs.
	memory(text string, t *topology.Tenant, h *topology.Host) (string, error)
	// place takes CPUs, memory and cells from a plan of the machine alone.
	place(text string, p *placement) (string, error)
}

// Check judges a machine on a host whose other tenants are as h has them. A tenant of h with its UUID or name is the
// machine as it was, and makes way for it.
func Check(ctx context.Context, h *topology.Host, hostName string, m *inspect.Machine) (*Verdict, error) {
	others := *h
	others.Tenants = nil
	state := "shut off" // a machine that the host does not have needs what a start needs
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
		v.Findings = []finding.Finding{} // as JSON a list, even when it is empty
	}
	if len(wrong(v.Findings)) == 0 {
		return v, nil
	}
	if others.Empty() {
		v.Unmended = "it takes the host to mend it: name one with --host"
		return v, nil
	}
	if j.syntax == nil {
		v.Unmended = "only domain XML (virsh dumpxml) and a configuration of Proxmox VE (qm config) can be mended"
		return v, nil
	}
	return v, j.mend(ctx, v)
}

// CheckAll judges machines of one host. Each is held against the others too: those before it as they are when they are
// mended, so that all diffs together fit on the host.
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

// withTenant puts a tenant in the place of the one that has its UUID or name, whose state it takes, or behind all. What
// the host does not have is shut off.
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

// same reports whether two descriptions are of one machine.
func same(a, b *topology.Tenant) bool { return a.UUID != "" && a.UUID == b.UUID || a.Name == b.Name }

// NoHost is the name of the host of machines that are judged alone.
const NoHost = "none"

// Nowhere is the host of machines that are judged by their description alone.
func Nowhere() *topology.Host {
	return &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTexts}}
}

// A job is the work on one machine.
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

// mend tries edits from the smallest to the largest, and keeps the one that leaves the least wrong.
func (j *job) mend(ctx context.Context, v *Verdict) error {
	before := wrong(v.Findings)
	j.emulatorWrong = slices.ContainsFunc(before, func(f finding.Finding) bool { return f.ID == "RL064" })
	best, left := j.machine.Text, before
	var reasons []error
	for _, edit := range []func(context.Context) (string, error){j.moveEmulator, j.reorder, j.moveMemory,
		j.placeAnew, j.placePresent, j.placeWithCells} {
		text, err := edit(ctx)
		if err == nil {
			edited, err := inspect.ParseMachine(ctx, text, j.machine.File)
			if err != nil {
				return fmt.Errorf("the edited description cannot be read back, which is a fault of rackless: %w", err)
			}
			if now := wrong(j.judge(edited.Tenant)); len(now) < len(left) {
				best, left = text, now
			}
		}
		if err != nil && !slices.ContainsFunc(reasons, func(r error) bool { return r.Error() == err.Error() }) {
			reasons = append(reasons, err)
		}
		if len(left) == 0 {
			break
		}
	}
	for _, f := range before {
		if !slices.ContainsFunc(left, func(l finding.Finding) bool { return l.ID == f.ID }) &&
			!slices.Contains(v.Mended, f.ID) {
			v.Mended = append(v.Mended, f.ID)
		}
	}
	if best != j.machine.Text {
		best = withLineEnds(best, j.machine.Text)
		v.Text = best
		v.Diff = string(diff.Diff(j.machine.File, []byte(j.machine.Text), j.machine.File+" (mended)", []byte(best)))
	}
	if len(left) > 0 {
		v.Unmended = cause(errors.Join(reasons...))
	}
	return nil
}

// withLineEnds ends all lines as those of the text of before do, where those all end in CRLF.
func withLineEnds(text, before string) string {
	if n := strings.Count(before, "\n"); n == 0 || n != strings.Count(before, "\r\n") {
		return text
	}
	return strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n").Replace(text)
}

func cause(err error) string {
	if err == nil {
		return "no placement on this host is without it"
	}
	return err.Error()
}

// moveEmulator puts QEMU's own threads on CPUs that nobody is pinned to.
func (j *job) moveEmulator(context.Context) (string, error) { return j.emulatorOf(j.machine.Text) }

// emulatorOf moves the emulator in a text with the pins of the machine as it is.
func (j *job) emulatorOf(text string) (string, error) {
	cpus := housekeeping(j.host, &j.machine.Tenant)
	if cpus.IsEmpty() {
		return "", errors.New("no CPU of the host is left for the threads of the emulator: each is isolated or a " +
			"tenant's")
	}
	return j.syntax.emulator(text, cpus)
}

// reorder pins the virtual CPUs to the CPUs that they have, the threads of a core side by side.
func (j *job) reorder(context.Context) (string, error) {
	own := j.machine.Tenant.Pinned()
	var order []int
	for i := range j.host.Cores {
		if c := j.host.Cores[i].CPUs; c.IsSubsetOf(own) {
			order = slices.AppendSeq(order, c.All())
		}
	}
	if own.IsEmpty() || len(order) != own.Len() || len(order) != j.machine.Tenant.VCPUs {
		return "", errors.New("its CPUs are no whole cores of the host, one for each virtual CPU")
	}
	return j.syntax.reorder(j.machine.Text, order)
}

// moveMemory binds memory to the NUMA nodes of the CPUs, and moves the emulator as well where that is wrong too.
func (j *job) moveMemory(context.Context) (string, error) {
	text, err := j.syntax.memory(j.machine.Text, &j.machine.Tenant, j.host)
	if err != nil || !j.emulatorWrong {
		return text, err
	}
	return j.emulatorOf(text)
}

// placeAnew plans the machine on the host with its devices, and with NUMA nodes in the guest where it has several.
func (j *job) placeAnew(ctx context.Context) (string, error) {
	return j.place(ctx, j.severalNodes(), topology.CPUSet{})
}

// severalNodes reports whether the machine has NUMA nodes in the guest.
func (j *job) severalNodes() bool {
	nodes := j.machine.Tenant.GuestNodes
	return nodes != nil && *nodes > 1
}

// placePresent plans the virtual CPUs that the machine starts with. oVirt lets many more be plugged in later, often
// more than the host has CPUs: those share the CPUs of the others.
func (j *job) placePresent(ctx context.Context) (string, error) {
	absent := j.machine.Tenant.Absent
	if absent == nil || absent.IsEmpty() {
		return j.machine.Text, nil
	}
	if j.severalNodes() {
		return "", errors.New("virtual CPUs that can be plugged in later are in its NUMA nodes")
	}
	return j.place(ctx, false, *absent)
}

// placeWithCells plans the machine with NUMA nodes in the guest, which it does not have now.
func (j *job) placeWithCells(ctx context.Context) (string, error) {
	return j.place(ctx, true, topology.CPUSet{})
}

// place plans the machine again; absent are virtual CPUs that get no CPUs of their own.
func (j *job) place(ctx context.Context, cells bool, absent topology.CPUSet) (string, error) {
	p, err := j.plan(ctx, cells, absent)
	if err != nil {
		return "", err
	}
	return j.syntax.place(j.machine.Text, p)
}

// housekeeping returns CPUs for the threads of a machine's emulator: online, not isolated, of no tenant, and as far as
// there are such, no sibling of a tenant's and on the NUMA nodes of its own CPUs.
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
