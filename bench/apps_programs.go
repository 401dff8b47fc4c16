package bench

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// lammpsInput is copper by the embedded atom method, in a cube of so many cells of four atoms a side, for so many
// steps. "loop geom" gives the atoms the same velocities on any number of ranks.
//
//go:embed programs/lammps.in
var lammpsInput string

func makeLAMMPS(w work, _ int) Program {
	return Program{Names: []string{"lmp", "lmp_mpi"}, Args: []string{"-log", "none"},
		Stdin: fmt.Appendf(nil, lammpsInput, w.side, w.steps)}
}

// What LAMMPS prints after a run.
var (
	lammpsLoop = lazyregexp.New(`^Loop time of (\S+) on ([0-9]+) procs for ([0-9]+) steps with ([0-9]+) atoms\s*$`)
	lammpsRate = lazyregexp.New(`^Performance: (\S+) ns/day, \S+ hours/ns, (\S+) timesteps/s`)
)

// readLAMMPS reads what LAMMPS printed of its last run, in the units "metal" or "real".
func readLAMMPS(text []byte) (run appRun, err error) {
	err = EachLine(toolLAMMPS, text, func(line string) (err error) {
		if m := lammpsLoop.FindStringSubmatch(line); m != nil {
			run = appRun{}
			if run.seconds, _, err = parseNumber(m[1]); err != nil {
				return err
			}
			return wholeNumbers(m[2:], &run.ranks, &run.steps, &run.parts)
		}
		m := lammpsRate.FindStringSubmatch(line)
		if m == nil {
			return nil
		}
		rate, rounding, err := parseNumber(m[2])
		if err != nil {
			return err
		}
		if err := run.stepRate(rate, rounding); err != nil {
			return err
		}
		return run.simulated(m[1])
	})
	return run, err
}

// gromacsInput is water in a cube of so many boxes a side, of 216 molecules each, as GROMACS brings them, for so many
// steps of 2 fs. Forces over long ways are those of particle mesh Ewald, whose transform all ranks share.
//
//go:embed programs/gromacs.in
var gromacsInput string

func makeGROMACS(w work, _ int) Program {
	return Program{Names: []string{"gmx_mpi"}, Input: fmt.Sprintf(gromacsInput, w.side, w.steps),
		Env: []string{"GMX_MAXBACKUP=-1"},
		Args: []string{"mdrun", "-s", "water.tpr", "-g", "md.log", "-ntomp", "1", "-pin", "off", "-notunepme",
			"-dlb", "no", "-noconfout"},
		Results: "md.log"}
}

// What the log of GROMACS says of a run.
var (
	gromacsLine = lazyregexp.New(`^Using ([0-9]+) MPI process|^ +nsteps += ([0-9]+)\s*$|^There are: ([0-9]+) Atoms`)
	gromacsTime = lazyregexp.New(`^ +Time: +\S+ +(\S+) +\S+\s*$`)
	gromacsRate = lazyregexp.New(`^Performance: +(\S+) +\S+\s*$`)
)

// gromacsStep is a step of the input in nanoseconds.
const gromacsStep = 2e-6

// readGROMACS reads the log of one run.
func readGROMACS(text []byte) (run appRun, err error) {
	err = EachLine(toolGROMACS, text, func(line string) error {
		for i, to := range []*int{&run.ranks, &run.steps, &run.parts} {
			if m := gromacsLine.FindStringSubmatch(line); m != nil && m[1+i] != "" {
				return wholeNumbers(m[1+i:], to)
			}
		}
		if m := gromacsTime.FindStringSubmatch(line); m != nil {
			var err error
			run.seconds, _, err = parseNumber(m[1])
			return err
		}
		m := gromacsRate.FindStringSubmatch(line)
		if m == nil {
			return nil
		}
		day, rounding, err := parseNumber(m[1])
		if err != nil {
			return err
		}
		// It counts the forces of the start as a step.
		perDay := 1 / gromacsStep / 86400 * float64(run.steps) / float64(run.steps+1)
		if err := run.stepRate(day*perDay, rounding*perDay); err != nil {
			return err
		}
		return run.simulated(m[1])
	})
	return run, err
}

// simulated adds the figure of the time that a day simulates, as printed.
func (r *appRun) simulated(printed string) error {
	day, err := ParseValue(MetricSimulated, printed)
	r.figures = append(r.figures, newFigure(MetricSimulated, 0, int64(r.steps), day))
	return err
}

// openFOAMInput is a flow in a cube of so many cells a side, whose lid moves, for so many steps. A step is 1 s, in
// which the lid moves two fifths of a cell. The cube is cut into a x b bars, one for each rank.
//
//go:embed programs/openfoam.in
var openFOAMInput string

func makeOpenFOAM(w work, ranks int) Program {
	across := 1
	for n := 2; n*n <= ranks; n++ {
		if ranks%n == 0 {
			across = n
		}
	}
	p := Program{Names: []string{"icoFoam"}, Env: []string{"WM_PROJECT_DIR=/usr/share/openfoam"},
		Input:   fmt.Sprintf(openFOAMInput, w.side, w.steps, ranks/across, across),
		Results: fmt.Sprintf("%d/uniform/profiling", w.steps)}
	if ranks > 1 {
		p.Args, p.Results = []string{"-parallel"}, "processor0/"+p.Results
	}
	return p
}

// What OpenFOAM prints, and what its profile says of the loop over the steps.
var (
	openFOAMRanks = lazyregexp.New(`^nProcs : ([0-9]+)\s*$`)
	openFOAMValue = lazyregexp.New(`^\s+(description|calls|totalTime) +(.*);\s*$`)
)

// readOpenFOAM reads what a solver printed and its profile: the times that it prints are those of a CPU, or whole
// seconds.
func readOpenFOAM(text []byte) (run appRun, err error) {
	within := false // the entry of the loop
	err = EachLine(toolOpenFOAM, text, func(line string) (err error) {
		if m := openFOAMRanks.FindStringSubmatch(line); m != nil {
			return wholeNumbers(m[1:], &run.ranks)
		}
		m := openFOAMValue.FindStringSubmatch(line)
		switch {
		case m == nil:
		case m[1] == "description":
			within = strings.HasPrefix(m[2], `"time.run() `)
		case within && m[1] == "calls":
			return wholeNumbers(m[2:], &run.steps)
		case within && run.figures == nil:
			if run.seconds, _, err = parseNumber(m[2]); err == nil && run.seconds > 0 {
				return run.stepRate(float64(run.steps)/run.seconds, 0)
			}
		}
		return err
	})
	return run, err
}

// hpccInput has the sizes of all tests follow from Linpack's matrix of so many rows, on a grid of 1 x ranks. The
// program reads numbers at the beginnings of lines, by their places.
//
//go:embed programs/hpcc.in
var hpccInput string

func makeHPCC(w work, ranks int) Program {
	return Program{Names: []string{"hpcc"}, Input: fmt.Sprintf(hpccInput, w.side, ranks), Results: "hpccoutf.txt"}
}

// hpccFigures are those of its summary that are read, with what makes them ours.
var hpccFigures = map[string]struct {
	metric string
	scale  float64
}{
	"HPL_Tflops":                          {MetricFlopRate, 1000},
	"RandomlyOrderedRingLatency_usec":     {MetricLatencyAverage, 1},
	"RandomlyOrderedRingBandwidth_GBytes": {MetricBWAverage, 8},
}

// readHPCC reads the summary at the end of the file of results. One rank has no messages.
func readHPCC(text []byte) (run appRun, err error) {
	whole := false
	err = EachLine(toolHPCC, text, func(line string) error {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		whole = whole || name == "End of Summary section."
		switch f, wanted := hpccFigures[name]; {
		case !ok:
		case name == "CommWorldProcs":
			return wholeNumbers([]string{value}, &run.ranks)
		case name == "HPL_N":
			return wholeNumbers([]string{value}, &run.parts)
		case name == "Success" && value != "1":
			return errors.New("a test of it found wrong results")
		case wanted && (run.ranks > 1 || f.metric == MetricFlopRate): // one rank has no ring
			v, err := ParseValue(f.metric, value)
			run.figures = append(run.figures, newFigure(f.metric, 0, 0, v*f.scale))
			return err
		}
		return nil
	})
	if err == nil && !whole {
		run.figures = nil
	}
	return run, err
}
