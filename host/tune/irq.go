package tune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/render"
)

const (
	irqBalance = "irqbalance.service"

	kindIRQs = "irqs"
	irqDir   = "/proc/irq/"
	// irqFile records the original affinities. It is in /run because a reboot also resets interrupt numbers and
	// affinities.
	irqFile = "/run/rackless-prepare/irqs.json"
)

// IRQs moves all interrupts to CPUs of the host, if possible on the NUMA node of their device. The set of interrupts
// and their numbers change at run time, so the op's state only records whether they were moved; see irqFile.
type IRQs struct {
	CPUs  topology.CPUSet         `json:"cpus"`
	Nodes map[int]topology.CPUSet `json:"nodes,omitempty"`
}

// A FixedIRQ is an interrupt that cannot be moved: a managed one of NVMe and some NICs, or a per-CPU one. The kernel
// argument isolcpus=managed_irq keeps managed ones away.
type FixedIRQ struct {
	IRQ  int    `json:"irq"`
	Name string `json:"name,omitempty"`
	CPUs string `json:"cpus"`
	Why  string `json:"why"` // the kernel's error
}

type irqMemory struct {
	Moved []movedIRQ `json:"moved"`
	Fixed []FixedIRQ `json:"fixed,omitempty"`
}

type movedIRQ struct {
	IRQ  int    `json:"irq"`
	Name string `json:"name,omitempty"`
	From string `json:"from"` // smp_affinity_list
	// To is the new affinity as the kernel reports it, or empty if it is not recorded yet.
	To string `json:"to,omitempty"`
}

// irqState holds only facts that can compare equal across reads.
type irqState struct {
	Moved  bool           `json:"moved"`
	Astray map[int]string `json:"astray,omitempty"`
}

// Kind implements [change.Op].
func (*IRQs) Kind() string { return kindIRQs }

// Subject implements [change.Op].
func (*IRQs) Subject() string { return irqDir }

// Read implements [change.Op].
func (q *IRQs) Read(_ context.Context, s *change.System) (change.State, error) {
	memory, err := readIRQMemory(s)
	if err != nil {
		return "", err
	}
	st := irqState{Moved: memory != nil}
	if memory != nil {
		if st.Astray, err = q.astray(s); err != nil {
			return "", err
		}
		for _, f := range memory.Fixed {
			delete(st.Astray, f.IRQ)
		}
	}
	return change.Encode(st, nil)
}

// readIRQMemory returns nil if nothing was moved.
func readIRQMemory(s *change.System) (*irqMemory, error) {
	data, err := s.ReadFile(irqFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	memory := &irqMemory{}
	if err := json.Unmarshal(data, memory); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it: interrupts then stay where they are until the next boot", irqFile,
			err)
	}
	return memory, nil
}

// astray reads the requested affinity (smp_affinity), because the effective one (effective_affinity) changes only with
// the next interrupt.
func (q *IRQs) astray(s *change.System) (map[int]string, error) {
	irqs, err := s.Numbers(irqDir, "")
	all := map[int]string{}
	for _, irq := range irqs {
		text, err := s.ValueOr(affinityFile(irq), "") // no file if it is a per-CPU interrupt, or gone by now
		if err != nil {
			return nil, err
		}
		cpus, err := topology.ParseCPUSet(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", affinityFile(irq), err)
		}
		if !cpus.IsSubsetOf(q.CPUs) {
			all[irq] = text
		}
	}
	return all, err
}

func affinityFile(irq int) string { return irqDir + strconv.Itoa(irq) + "/smp_affinity_list" }

func irqName(s *change.System, irq int) string {
	name, err := s.Value("/sys/kernel/irq/" + strconv.Itoa(irq) + "/actions")
	if err != nil {
		return "" // names only serve people, and to detect reused numbers
	}
	return name
}

// Done implements [change.Op].
func (*IRQs) Done(state change.State) bool {
	st, err := change.Decode[irqState](state)
	return err == nil && st.Moved && len(st.Astray) == 0
}

// irqPasses is more than one, because interrupts may appear in the meantime.
const irqPasses = 3

// Do records each interrupt's affinity before moving it.
func (q *IRQs) Do(_ context.Context, s *change.System) error {
	for range irqPasses {
		memory, err := readIRQMemory(s)
		if err != nil {
			return err
		}
		first := memory == nil
		if first {
			memory = &irqMemory{Moved: []movedIRQ{}}
		}
		places, err := q.astray(s)
		if err != nil {
			return err
		}
		for _, f := range memory.Fixed {
			delete(places, f.IRQ)
		}
		if len(places) == 0 && !first {
			return memory.complete(s)
		}
		irqs := slices.Sorted(maps.Keys(places))
		for _, irq := range irqs {
			if !slices.ContainsFunc(memory.Moved, func(m movedIRQ) bool { return m.IRQ == irq }) {
				memory.Moved = append(memory.Moved, movedIRQ{IRQ: irq, Name: irqName(s, irq), From: places[irq]})
			}
		}
		if err := memory.write(s); err != nil {
			return err
		}
		for _, irq := range irqs {
			if why := q.move(s, irq); why != nil {
				memory.fix(irq, places[irq], why)
				continue
			}
			i := slices.IndexFunc(memory.Moved, func(m movedIRQ) bool { return m.IRQ == irq })
			if memory.Moved[i].To, err = s.ValueOr(affinityFile(irq), ""); err != nil {
				return err
			}
		}
		if len(irqs) > 0 {
			if err := memory.write(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// complete records affinities that an earlier process did not, because it died.
func (m *irqMemory) complete(s *change.System) error {
	added := false
	for i := range m.Moved {
		if m.Moved[i].To != "" {
			continue
		}
		to, err := s.ValueOr(affinityFile(m.Moved[i].IRQ), "")
		if err != nil {
			return err
		}
		m.Moved[i].To, added = to, added || to != ""
	}
	if !added {
		return nil
	}
	return m.write(s)
}

func (m *irqMemory) fix(irq int, cpus string, why error) {
	i := slices.IndexFunc(m.Moved, func(m movedIRQ) bool { return m.IRQ == irq })
	m.Fixed = append(m.Fixed, FixedIRQ{irq, m.Moved[i].Name, cpus, why.Error()})
	m.Moved = slices.Delete(m.Moved, i, i+1)
}

func (m *irqMemory) write(s *change.System) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if dir := path.Dir(irqFile); !s.Exists(dir) {
		if err := s.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return s.Replace(irqFile, data, 0o644, os.Getuid(), os.Getgid())
}

// move uses any of the host's CPUs if the near ones have no vectors left. A vanished interrupt is not an error.
func (q *IRQs) move(s *change.System, irq int) error {
	var tries []topology.CPUSet
	if text, err := s.Value(irqDir + strconv.Itoa(irq) + "/node"); err == nil {
		if node, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && !q.Nodes[node].IsEmpty() {
			tries = append(tries, q.Nodes[node])
		}
	}
	var err error
	for _, cpus := range append(tries, q.CPUs) {
		if err = s.WriteValue(affinityFile(irq), cpus.String()); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Merge decides for each interrupt separately.
func (q *IRQs) Merge(ctx context.Context, s *change.System, u change.Undo) (change.State, []change.Changed, error) {
	memory, err := readIRQMemory(s)
	if err != nil || memory == nil {
		return u.Before, nil, err
	}
	_, changed, err := q.moved(ctx, s, memory)
	return u.Before, changed, err
}

// moved skips vanished interrupts and reused numbers. Moves by irqbalance among the host's CPUs do not count as
// changes.
func (q *IRQs) moved(ctx context.Context, s *change.System, memory *irqMemory) (back []movedIRQ,
	changed []change.Changed, err error) {
	balanced := false
	if systemdRuns(s) {
		pid, err := mainPID(ctx, s, irqBalance)
		if err != nil {
			return nil, nil, err
		}
		balanced = pid != "0"
	}
	for _, m := range memory.Moved {
		now, err := s.ValueOr(affinityFile(m.IRQ), m.From)
		if err != nil {
			return nil, nil, err
		}
		if now == m.From {
			continue
		}
		if name := irqName(s, m.IRQ); name != "" && m.Name != "" && name != m.Name {
			continue
		}
		cpus, err := topology.ParseCPUSet(now)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", affinityFile(m.IRQ), err)
		}
		if now == m.To || (m.To == "" || balanced) && cpus.IsSubsetOf(q.CPUs) {
			back = append(back, m)
			continue
		}
		set := m.To
		if set == "" {
			set = q.CPUs.String()
		}
		changed = append(changed, change.Changed{What: affinityFile(m.IRQ), Found: now, Set: set})
	}
	return back, changed, nil
}

// Restore implements [change.Op].
func (q *IRQs) Restore(ctx context.Context, s *change.System, before change.State) error {
	was, err := change.Decode[irqState](before)
	if err != nil {
		return err
	}
	memory, err := readIRQMemory(s)
	if err != nil || was.Moved {
		return err
	}
	if memory == nil {
		memory = &irqMemory{} // after another boot, or cut off before the file was written
	}
	back, _, err := q.moved(ctx, s, memory)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range back {
		if err := s.WriteValue(affinityFile(m.IRQ), m.From); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("interrupt %d (%s) does not go back to CPUs %s: %w", m.IRQ, m.Name, m.From,
				err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := s.Remove(irqFile); err != nil {
		return err
	}
	if err := s.Remove(path.Dir(irqFile)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Shell implements [change.Manual].
func (q *IRQs) Shell() []string {
	lines := []string{"# An error of an interrupt says that it cannot be moved: a managed one, or one of a single CPU.",
		"for irq in " + irqDir + "[0-9]*; do", "  cpus=" + q.CPUs.String()}
	if len(q.Nodes) > 0 {
		lines = append(lines, "  case $(cat $irq/node 2>/dev/null) in")
		for _, node := range slices.Sorted(maps.Keys(q.Nodes)) {
			lines = append(lines, fmt.Sprintf("    %d) cpus=%s ;;", node, q.Nodes[node]))
		}
		lines = append(lines, "  esac")
	}
	return append(lines, "  echo $cpus > $irq/smp_affinity_list", "done")
}

func (v *view) interrupts() []change.Step {
	if !v.confines() {
		return nil
	}
	keep := v.housekeeping()
	guard := v.guardCPUs()
	steps := []change.Step{{
		Op:    &CPUMask{Path: irqDir + "default_smp_affinity", CPUs: keep},
		What:  fmt.Sprintf("have new interrupts served by CPUs %s", keep),
		Why:   "drivers that start later ask for interrupts then, VFIO among them",
		Guard: guard,
	}}
	dropin := unitDir + irqBalance + ".d/" + render.UnitName(v.plan.Lab, ".conf")
	steps = append(steps, change.Step{
		Op: &Unit{
			Path: dropin, Data: v.file(dropin), Service: irqBalance, Environment: bannedCPUs + "=" + v.given.String(),
		},
		What:  fmt.Sprintf("have irqbalance leave CPUs %s alone", v.given),
		Why:   "it would move interrupts back",
		Risk:  "irqbalance is restarted where it runs",
		Guard: guardIRQBalance,
	})
	q := &IRQs{CPUs: keep, Nodes: map[int]topology.CPUSet{}}
	for _, n := range v.host.NUMANodes {
		if own := n.CPUs.Intersect(keep); !own.IsEmpty() {
			q.Nodes[n.ID] = own
		}
	}
	return append(steps, change.Step{
		Op:   q,
		What: fmt.Sprintf("move interrupts to CPUs %s", keep),
		Why:  "an interrupt of the host takes microseconds from the virtual CPU whose CPU serves it",
		Risk: "fewer CPUs serve the host's devices; managed interrupts (NVMe, some NICs) stay where they are, " +
			"and are named",
		Guard: guard,
	})
}

// bannedCPUs is read by irqbalance 1.8 and later. A file of EnvironmentFile= overrides a drop-in.
const bannedCPUs = "IRQBALANCE_BANNED_CPULIST"

func guardIRQBalance(_ context.Context, s *change.System) error {
	for _, file := range []string{"/etc/default/irqbalance", "/etc/sysconfig/irqbalance"} {
		text, err := s.ValueOr(file, "")
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			name, value, _ := strings.Cut(strings.TrimPrefix(line, "export "), "=")
			if name == bannedCPUs && strings.Trim(value, `"' `) != "" {
				return fmt.Errorf("%s has %q, which counts more than what the plan needs: remove that line", file, line)
			}
		}
	}
	return nil
}
