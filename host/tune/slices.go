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

// The slices of systemd. Whatever the host runs by itself is below one of the first three; libvirt
// (through systemd-machined) has its machines in the last.
const machineSlice = "machine.slice"

var hostSlices = []string{"system.slice", "user.slice", "init.scope"}

// slices returns the steps that keep the host off the CPUs of the lab by cgroups. None where kernel arguments do it.
//
// They are drop-ins of systemd, not values in cgroup files: systemd owns those, and writes what its
// configuration says whenever it makes a cgroup. A drop-in is in force from the first process of a
// boot on, its undo is to remove it, and nobody has to be asked what had been there. ("systemctl
// set-property --runtime" leaves an empty setting behind when it is undone. systemd 252 takes
// drop-ins up on daemon-reload. Their removal it takes up, too, where the kernel lets it: see
// [Unit.releaseSlice].)
//
// machine.slice becomes a partition where that leaves the host CPUs of its own: the kernel then
// keeps everything else off its CPUs, kernel threads and containers that are in no slice of
// systemd's among them. It has QEMU's own threads as well, so that their CPUs are in it. It is a
// partition root, not an isolated one: isolated ones balance no load, and QEMU's threads, which
// float, would pile up on one CPU. Pinned virtual CPUs are not moved by either.
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

// standsAlone reports whether a set holds a whole core: less is no place to run a host.
func (v *view) standsAlone(cpus topology.CPUSet) bool {
	return coresIn(v.host, cpus) > 0 || len(v.host.Cores) == 0 && !cpus.IsEmpty()
}

func (v *view) guardCPUs() func(context.Context, *change.System) error {
	p, h := v.plan, v.host
	return func(context.Context, *change.System) error { return GuardCPUs(p, h) }
}

// limit returns the drop-in that limits a slice. Settings of AllowedCPUs= add up, so that what
// others set is taken away first; the name comes after that of systemctl set-property.
func (v *view) limit(unit string, cpus topology.CPUSet) *Unit {
	return &Unit{
		Path:  unitDir + unit + ".d/99-rackless.conf",
		Data:  fmt.Appendf(nil, "# %s\n%s\n", MadeBy, strings.Join(limitLines(unit, cpus), "\n")),
		Slice: unit, CPUs: cpus,
	}
}

// limitLines are the settings of a drop-in that limits a unit to CPUs.
func limitLines(unit string, cpus topology.CPUSet) []string {
	section := "[Slice]"
	if strings.HasSuffix(unit, ".scope") {
		section = "[Scope]"
	}
	return []string{section, "AllowedCPUs=", "AllowedCPUs=" + cpus.String()}
}

// MadeBy is the first line of the files that this package thinks up.
const MadeBy = "Made by rackless prepare; rackless rollback takes it away."

// cpusetReady reports whether systemd can limit slices to CPUs: with cgroups of version 2 alone.
func cpusetReady(_ context.Context, s *change.System) (bool, error) {
	text, err := s.ValueOr(cgroupRoot+"cgroup.controllers", "")
	return err == nil && systemdRuns(s) && slices.Contains(strings.Fields(text), "cpuset"), err
}

// partitionReady reports whether the kernel makes partitions: as far as can be told before there is
// a cgroup that could be one.
func partitionReady(ctx context.Context, s *change.System) (bool, error) {
	if ok, err := cpusetReady(ctx, s); err != nil || !ok {
		return false, err
	}
	dir := cgroupRoot + hostSlices[0]
	return !s.Exists(dir+"/cpuset.cpus") || s.Exists(dir+"/cpuset.cpus.partition"), nil
}

const kindPartition = "partition"

// A Partition makes the cgroup of a slice a root of a CPU partition
// (Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition). Its CPUs are those that systemd
// gave it.
type Partition struct {
	Slice string `json:"slice"`
}

// MachinePartition is the partition that prepare makes of the slice of libvirt's machines, where the plan allows it.
func MachinePartition() *Partition { return &Partition{Slice: machineSlice} }

// Dissolve makes the slice an ordinary one again, whose CPUs others may use as well; Do makes it a
// partition again. It reports whether it was one.
func (p *Partition) Dissolve(ctx context.Context, s *change.System) (was bool, err error) {
	state, err := p.Read(ctx, s)
	if err != nil || !p.Done(state) {
		return false, err
	}
	return true, p.Restore(ctx, s, noPartition)
}

// What the file says of a cgroup.
const (
	partitionRoot = "root"
	// also where there is no file: the slice was not started, or no cgroup beside it is limited
	noPartition = "member"
)

func (p *Partition) file() string { return cgroupRoot + p.Slice + "/cpuset.cpus.partition" }

// Kind implements [change.Op].
func (p *Partition) Kind() string { return kindPartition }

// Subject implements [change.Op].
func (p *Partition) Subject() string { return cgroupRoot + p.Slice }

// Read implements [change.Op]: "member", "root", "isolated", or with a reason "root invalid (...)".
func (p *Partition) Read(_ context.Context, s *change.System) (change.State, error) {
	text, err := s.ValueOr(p.file(), noPartition)
	return change.State(text), err
}

// Done implements [change.Op].
func (p *Partition) Done(state change.State) bool { return state == partitionRoot }

// Do implements [change.Op].
//
// The slice is started for it. A rollback leaves it started: an empty slice does nothing, and to
// stop it would be to stop whatever machine came into it at that moment.
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
	// An invalid partition is an ordinary member that would become one when it can: not what anybody expects.
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

// Merge implements [change.Merger]. A root that the kernel calls invalid is one still: it lost its CPUs to others.
func (p *Partition) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	kind, _, _ := strings.Cut(string(u.Now), " ")
	return u.Whole(p, kind == partitionRoot, change.Changed{What: p.file(), Found: string(u.Now), Set: partitionRoot})
}
