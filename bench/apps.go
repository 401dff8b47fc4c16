package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/words"
)

// An application is a program of science that the nodes of a group run together, on an input that rackless writes.
type application struct {
	noSetup
	tool string
	// fast is the work on CPUs that KVM runs, slow that on emulated ones: about 10 s on one CPU.
	fast, slow work
	parts      func(side int) int // atoms of the model; nil where the program does not print them
	make       func(w work, ranks int) Program
	read       func(text []byte) (appRun, error)
}

// work is how large a model is, in what the program counts along a side, and how many steps are made with it; 0 where
// the program has none.
type work struct{ side, steps int }

// An appRun is what an application says of a run.
type appRun struct {
	ranks, steps, parts int
	seconds             float64 // of all steps
	figures             []Figure
}

// An appEngine has what differs between the engines of applications.
func appEngine(name, tool, program, packages, about string, metrics []string, version string, a application) Engine {
	a.tool = tool
	return Engine{Name: name, Tool: tool, Suite: SuiteApps, Local: true, group: &Group{}, Program: program,
		launches: true, About: about, Package: packages + " (image: debian-12+apps in the lab file)", metrics: metrics,
		versions: slices.Concat([]versionLine{{"", lazyregexp.New(version)}}, osuVersions[1:]), plugin: a}
}

// appEngines run what 001 measures and Debian has, and the HPC Challenge.
var appEngines = []Engine{
	appEngine("lammps", toolLAMMPS, "lmp", "lammps", "steps a second of a simulation of copper atoms, over all ranks",
		[]string{MetricStepRate, MetricSimulated}, `(?m)^LAMMPS \(([^)\n]+)\)`,
		application{fast: work{20, 2000}, slow: work{10, 100}, parts: func(n int) int { return 4 * n * n * n },
			make: makeLAMMPS, read: readLAMMPS}),
	appEngine("gromacs", toolGROMACS, "gmx_mpi", "gromacs", "steps a second of a simulation of water, over all ranks",
		[]string{MetricStepRate, MetricSimulated}, `(?m)^GROMACS version: +([0-9.]+)`,
		application{fast: work{2, 2000}, slow: work{2, 40}, parts: func(n int) int { return 648 * n * n * n },
			make: makeGROMACS, read: readGROMACS}),
	appEngine("openfoam", toolOpenFOAM, "icoFoam", "openfoam", "steps a second of a flow in a box, over all ranks",
		[]string{MetricStepRate}, `(?m)^Build +: OPENFOAM=(\S+)`,
		application{fast: work{40, 200}, slow: work{20, 40}, make: makeOpenFOAM, read: readOpenFOAM}),
	appEngine("hpcc", toolHPCC, "hpcc", "hpcc", "the HPC Challenge over all ranks: Linpack, and messages around a ring",
		[]string{MetricFlopRate, MetricLatencyAverage, MetricBWAverage},
		`HPC Challenge Benchmark version ([0-9][\w.]*)`,
		application{fast: work{4000, 0}, slow: work{400, 0}, parts: func(n int) int { return n }, make: makeHPCC,
			read: readHPCC}),
}

// of returns the work that options ask for.
func (a application) of(o Options) work {
	w := words.Either(o.Accelerator == "kvm", a.fast, a.slow)
	if o.Quick {
		w.steps /= 4
	}
	w.steps = cmp.Or(o.Iterations, w.steps)
	return w
}

func (a application) check(client, _ Endpoint, o Options) error {
	switch {
	case o.Bytes != 0:
		return errors.New("it has no message sizes")
	case o.Iterations != 0 && a.fast.steps == 0:
		return errors.New("it has no steps")
	case o.Iterations < 0 || o.Iterations > maxIterations:
		return fmt.Errorf("%d steps; give 1 to %d", o.Iterations, maxIterations)
	case o.CPU != "" || o.NUMA != "" || client.Place != (Place{}):
		return errGroupPlace
	}
	return nil
}

func (a application) client(_, _ Endpoint, o Options) []string {
	p := a.program(o)
	return slices.Concat(p.Names[:1:1], p.Args)
}

func (a application) program(o Options) Program { return a.make(a.of(o), max(1, o.Ranks)) }

// parse refuses a run that was not the one asked for. Without MPI each rank would be a simulation of its own.
func (a application) parse(out Output, o Options) ([]Figure, error) {
	run, err := a.read(out.Stdout)
	if err == nil && run.figures == nil {
		err = BadOutput(a.tool, out.Stdout, "there is no line of its performance")
	}
	if err != nil {
		return nil, err
	}
	w, parts := a.of(o), 0
	if a.parts != nil {
		parts = a.parts(w.side)
	}
	if run.ranks != max(1, o.Ranks) || run.steps != w.steps || run.parts != parts {
		return nil, badResult(a.tool, "it ran %d steps with %d parts on %d ranks, not %d with %d on %d", run.steps,
			run.parts, run.ranks, w.steps, parts, o.Ranks)
	}
	return run.figures, nil
}

// stepRate makes the figures of a run. What the program prints of its rate, in steps a second, has to agree with time
// and steps within its rounding.
func (r *appRun) stepRate(printed, rounding float64) error {
	if r.seconds <= 0 || math.Abs(float64(r.steps)/r.seconds-printed) > rounding+0.001*printed {
		return fmt.Errorf("%g timesteps/s are not %d steps in %g s", printed, r.steps, r.seconds)
	}
	r.figures = append(r.figures, newFigure(MetricStepRate, 0, int64(r.steps), printed))
	return nil
}

// wholeNumbers reads whole numbers.
func wholeNumbers(texts []string, to ...*int) (err error) {
	for i, p := range to {
		n, wrong := strconv.Atoi(texts[i])
		err, *p = cmp.Or(err, wrong), n
	}
	return err
}
