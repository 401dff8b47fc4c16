package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// lammpsEngines run LAMMPS. 001 measures its EAM benchmark, a metallic solid, and so does this.
var lammpsEngines = []Engine{{
	Name: "lammps", Tool: toolLAMMPS, Suite: SuiteApps, Local: true, group: &Group{}, Program: "lmp", launches: true,
	About:   "steps a second of a simulation of copper atoms, over all ranks",
	Package: "lammps (image: debian-12+apps in the lab file)",
	metrics: []string{MetricStepRate, MetricSimulated},
	versions: append([]versionLine{{"", regexp.MustCompile(`(?m)^LAMMPS \(([^)\n]+)\)`)}},
		osuVersions[1:]...),
	plugin: lammps{},
}}

// lammps is LAMMPS, with the input that it reads.
type lammps struct{ noSetup }

// lammpsInput is copper by the embedded atom method, in a cube of so many cells of four atoms a side, for so many
// steps. "loop geom" gives the atoms the same velocities on any number of ranks.
const lammpsInput = `units metal
atom_style atomic
lattice fcc 3.615
region all block 0 %[1]d 0 %[1]d 0 %[1]d
create_box 1 all
create_atoms 1 box
pair_style eam
pair_coeff 1 1 /usr/share/lammps/potentials/Cu_u3.eam
velocity all create 1500 20261 loop geom
neighbor 1 bin
neigh_modify every 1 delay 5 check yes
fix motion all nve
timestep 0.005
thermo %[2]d
run %[2]d
`

// size is the number of cells a side and of steps: about 10 s on one emulated CPU or on one core.
func (lammps) size(o Options) (cells, steps int) {
	cells, steps = 20, 2000
	if o.Accelerator != "kvm" {
		cells, steps = 10, 100
	}
	if o.Quick {
		steps /= 4
	}
	return cells, cmp.Or(o.Iterations, steps)
}

func (lammps) check(client, _ Endpoint, o Options) error {
	switch {
	case o.Bytes != 0:
		return errors.New("it has no message sizes")
	case o.Iterations < 0 || o.Iterations > maxIterations:
		return fmt.Errorf("%d steps; give 1 to %d", o.Iterations, maxIterations)
	case o.CPU != "" || o.NUMA != "" || client.Place != (Place{}):
		return errGroupPlace
	}
	return nil
}

func (l lammps) client(_, _ Endpoint, o Options) []string {
	p := l.program(o)
	return append(p.Names[:1:1], p.Args...)
}

func (l lammps) program(o Options) Program {
	cells, steps := l.size(o)
	return Program{Names: []string{"lmp", "lmp_mpi"}, Args: []string{"-log", "none"},
		Stdin: fmt.Appendf(nil, lammpsInput, cells, steps)}
}

// What LAMMPS prints after a run.
var (
	lammpsLoop = regexp.MustCompile(`^Loop time of (\S+) on ([0-9]+) procs for ([0-9]+) steps with ([0-9]+) atoms\s*$`)
	lammpsRate = regexp.MustCompile(`^Performance: (\S+) ns/day, \S+ hours/ns, (\S+) timesteps/s`)
)

// A LAMMPSRun is what LAMMPS says of one run in the units "metal" or "real".
type LAMMPSRun struct {
	Ranks, Steps, Atoms int
	Seconds             float64 // of the loop over the steps
	Figures             []Figure
}

// ParseLAMMPS reads what LAMMPS printed of its last run. The rate that it prints has to agree with the time and the
// number of steps.
func ParseLAMMPS(output []byte) (LAMMPSRun, error) {
	var run LAMMPSRun
	err := EachLine(toolLAMMPS, output, func(line string) (err error) {
		if m := lammpsLoop.FindStringSubmatch(line); m != nil {
			run = LAMMPSRun{}
			run.Seconds, _, err = parseNumber(m[1])
			for i, to := range []*int{&run.Ranks, &run.Steps, &run.Atoms} {
				n, wrong := strconv.Atoi(m[2+i])
				err, *to = cmp.Or(err, wrong), n
			}
			return err
		}
		m := lammpsRate.FindStringSubmatch(line)
		if m == nil {
			return nil
		}
		rate, rounding, err := parseNumber(m[2])
		if err != nil {
			return err
		}
		day, err := ParseValue(MetricSimulated, m[1])
		if err != nil {
			return err
		}
		if run.Seconds <= 0 || math.Abs(float64(run.Steps)/run.Seconds-rate) > rounding+0.001*rate {
			return fmt.Errorf("%g timesteps/s are not %d steps in %g s", rate, run.Steps, run.Seconds)
		}
		run.Figures = []Figure{newFigure(MetricStepRate, 0, int64(run.Steps), rate),
			newFigure(MetricSimulated, 0, int64(run.Steps), day)}
		return nil
	})
	if err == nil && run.Figures == nil {
		err = BadOutput(toolLAMMPS, output, "there is no line of its performance")
	}
	if err != nil {
		return LAMMPSRun{}, err
	}
	return run, nil
}

func (l lammps) parse(out Output, o Options) ([]Figure, error) {
	run, err := ParseLAMMPS(out.Stdout)
	if err != nil {
		return nil, err
	}
	cells, steps := l.size(o)
	// Without MPI each rank would be a simulation of its own.
	if atoms := 4 * cells * cells * cells; run.Ranks != max(1, o.Ranks) || run.Steps != steps || run.Atoms != atoms {
		return nil, badResult(toolLAMMPS, "it ran %d steps of %d atoms on %d ranks, not %d of %d on %d", run.Steps,
			run.Atoms, run.Ranks, steps, atoms, o.Ranks)
	}
	return run.Figures, nil
}
