package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

// All processes of the host are below one of hostSlices; libvirt (through systemd-machined) puts its VMs in
// machineSlice.
const machineSlice = "machine.slice"

var hostSlices = []string{"system.slice", "user.slice", "init.scope"}

// slices returns the steps that keep the host off the CPUs of the lab by cgroups, or nil if kernel arguments do it.
//
// They write drop-ins, because systemd rewrites cgroup files from its configuration whenever it makes a cgroup.
// ("systemctl set-property --runtime" leaves an empty setting behind. systemd 252 applies drop-ins on daemon-reload,
// and their removal, if the kernel lets it: see [Unit.releaseSlice].)
//
// machine.slice becomes a partition if that still leaves the host CPUs of its own. The kernel then keeps all other
// tasks off its CPUs, including kernel threads and containers outside systemd's slices. QEMU's own threads are in the
// slice, so it includes their CPUs. An isolated partition balances no load, so these threads would pile up on one CPU.
func (v *view) slices() []change.Step {
	if !v.confines() || v.hasArg("isolcpus") {
		return nil
	}
	keep := v.housekeeping()
	guests := v.given.Union(v.emulators)
	partition := !v.emulators.IsEmpty() && len(v.host.Tenants) == 0 && v.plan.Housekeeping.TenantCPUs.IsEmpty() &&
		v.standsAlone(keep.Difference(v.emulators))
	if partition {
		keep = keep.Difference(v.emulators)
	}
	guard := v.guardCPUs()
	var steps []change.Step
	for _, unit := range hostSlices {
		steps = append(steps, change.Step{
			Op:   v.limit(unit, keep),
			What: fmt.Sprintf("keep %s on CPUs %s", unit, keep),
			Why: fmt.Sprintf("CPUs %s are those of the lab nodes: whatever else runs there delays a virtual CPU",
				v.given),
			Risk: "processes that are bound to other CPUs lose that; on a host with cgroups of version 1 this waits " +
				"until it is started with systemd.unified_cgroup_hierarchy=1",
			Ready: cpusetReady,
			Guard: guard,
		})
	}
	steps = append(steps, change.Step{
		Op:    &CPUMask{Path: "/sys/devices/virtual/workqueue/cpumask", CPUs: v.housekeeping()},
		What:  fmt.Sprintf("keep the kernel's work queues on CPUs %s", v.housekeeping()),
		Why:   "they run work for anybody, and are in no slice",
		Guard: guard,
	})
	if !partition {
		return steps
	}
	return append(steps, change.Step{
		Op:    v.limit(machineSlice, guests),
		What:  fmt.Sprintf("give %s CPUs %s", machineSlice, guests),
		Why:   "a partition needs CPUs of its own: those of the lab nodes, and of QEMU's own threads",
		Ready: cpusetReady,
		Guard: guard,
	}, change.Step{
		Op:   &Partition{Slice: machineSlice},
		What: "make " + machineSlice + " a partition of CPUs",
		Why:  "the kernel lets nobody else use its CPUs then, and balances load inside of it only",
		Risk: "containers and machines outside of it lose these CPUs; a kernel without partitions (before 4.20) " +
			"leaves this step waiting, and the limits of the slices stay",
		Ready: partitionReady,
		Guard: guard,
	})
}

// standsAlone reports whether cpus contains a whole core, which is the least that a host needs.
func (v *view) standsAlone(cpus topology.CPUSet) bool {
	return coresIn(v.host, cpus) > 0 || len(v.host.Cores) == 0 && !cpus.IsEmpty()
}

func (v *view) guardCPUs() func(context.Context, *change.System) error {
	p, h := v.plan, v.host
	return func(context.Context, *change.System) error { return GuardCPUs(p, h) }
}

// limit resets AllowedCPUs= first, because its settings accumulate. Its name sorts after the files of systemctl
// set-property.
func (v *view) limit(unit string, cpus topology.CPUSet) *Unit {
	return &Unit{
		Path:  unitDir + unit + ".d/99-rackless.conf",
		Data:  fmt.Appendf(nil, "# %s\n%s\n", MadeBy, strings.Join(limitLines(unit, cpus), "\n")),
		Slice: unit, CPUs: cpus,
	}
}

func limitLines(unit string, cpus topology.CPUSet) []string {
	section := "[Slice]"
	if strings.HasSuffix(unit, ".scope") {
		section = "[Scope]"
	}
	return []string{section, "AllowedCPUs=", "AllowedCPUs=" + cpus.String()}
}

// MadeBy is the first line of the files that this package generates.
const MadeBy = "Made by rackless prepare; rackless rollback undoes it."

// cpusetReady reports whether systemd can limit slices to CPUs, which requires cgroups of version 2.
func cpusetReady(_ context.Context, s *change.System) (bool, error) {
	text, err := s.ValueOr(cgroupRoot+"cgroup.controllers", "")
	return err == nil && systemdRuns(s) && slices.Contains(strings.Fields(text), "cpuset"), err
}

// partitionReady cannot be certain before a suitable cgroup exists.
func partitionReady(ctx context.Context, s *change.System) (bool, error) {
	if ok, err := cpusetReady(ctx, s); err != nil || !ok {
		return false, err
	}
	dir := cgroupRoot + hostSlices[0]
	return !s.Exists(dir+"/cpuset.cpus") || s.Exists(dir+"/cpuset.cpus.partition"), nil
}

const kindPartition = "partition"

// A Partition makes the cgroup of a slice the root of a CPU partition (Documentation/admin-guide/cgroup-v2.rst,
// cpuset.cpus.partition).
type Partition struct {
	Slice string `json:"slice"`
}

// MachinePartition returns the partition for the slice of libvirt's VMs.
func MachinePartition() *Partition { return &Partition{Slice: machineSlice} }

// Dissolve makes the slice an ordinary one until Do. It reports whether the slice was a partition.
func (p *Partition) Dissolve(ctx context.Context, s *change.System) (was bool, err error) {
	state, err := p.Read(ctx, s)
	if err != nil || !p.Done(state) {
		return false, err
	}
	return true, p.Restore(ctx, s, noPartition)
}

// Contents of cpuset.cpus.partition.
const (
	partitionRoot = "root"
	// also if there is no file: the slice was not started, or no cgroup beside it is limited
	noPartition = "member"
)

func (p *Partition) file() string { return cgroupRoot + p.Slice + "/cpuset.cpus.partition" }

// Kind implements [change.Op].
func (p *Partition) Kind() string { return kindPartition }

// Subject implements [change.Op].
func (p *Partition) Subject() string { return cgroupRoot + p.Slice }

// Read returns "member", "root", "isolated", or with a reason "root invalid (...)".
func (p *Partition) Read(_ context.Context, s *change.System) (change.State, error) {
	text, err := s.ValueOr(p.file(), noPartition)
	return change.State(text), err
}

// Done implements [change.Op].
func (p *Partition) Done(state change.State) bool { return state == partitionRoot }

// Do starts the slice if necessary. Rollback does not stop it: an empty slice does no harm, and stopping it would also
// stop any VM that has just started in it.
func (p *Partition) Do(ctx context.Context, s *change.System) error {
	if !s.Exists(p.file()) {
		if _, err := s.Program(ctx, "systemctl", "start", "--", p.Slice); err != nil {
			return err
		}
	}
	if err := s.WriteValue(p.file(), partitionRoot); err != nil {
		return err
	}
	state, err := p.Read(ctx, s)
	if err != nil || p.Done(state) {
		return err
	}
	// An invalid partition would become a partition as soon as it can, which would surprise users.
	reason := fmt.Errorf("%s does not become a partition, the kernel says %q: another cgroup may have CPUs of it",
		p.Slice, string(state))
	return errors.Join(reason, s.WriteValue(p.file(), noPartition))
}

// Shell implements [change.Manual].
func (p *Partition) Shell() []string {
	return []string{"systemctl start " + p.Slice, change.EchoTo(p.file(), partitionRoot),
		fmt.Sprintf("cat %s   # %s; if not: echo %s > %[1]s", p.file(), partitionRoot, noPartition)}
}

// Restore implements [change.Op].
func (p *Partition) Restore(ctx context.Context, s *change.System, before change.State) error {
	if now, err := p.Read(ctx, s); err != nil || now == before || !s.Exists(p.file()) {
		return err
	}
	kind, _, _ := strings.Cut(string(before), " ") // without the reason
	return s.WriteValue(p.file(), kind)
}

// Merge takes an invalid root as made by rackless: it lost its CPUs to others.
func (p *Partition) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	kind, _, _ := strings.Cut(string(u.Now), " ")
	return u.Whole(p, kind == partitionRoot, change.Changed{What: p.file(), Found: string(u.Now), Set: partitionRoot})
}
