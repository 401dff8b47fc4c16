package tool

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

func TestLAMMPSGivesTheRateThatItPrints(t *testing.T) {
	whole := readFile(t, "testdata/lammps/recorded-20220106-eam-2ranks.txt")
	e, o := mustEngine(t, "lammps"), bench.Options{Iterations: 25, Ranks: 2, Accelerator: "tcg"}
	figures, err := e.ParseOutput(bench.Output{Stdout: whole}, o)
	want := "step_rate 0 25 10.516 steps/s, simulated 0 25 4.543 ns/day"
	if got := strings.Join(figureWords(figures), ", "); err != nil || got != want {
		t.Fatalf("%s, %v", got, err)
	}
	if v := e.Version(bench.Output{Stdout: []byte("mpirun (Open MPI) 4.1.4")}, bench.Output{Stdout: whole}); v !=
		"29 Sep 2021 - Update 2, Open MPI 4.1.4" {
		t.Error(v)
	}
	line := bytes.Index(whole, []byte(" timesteps/s"))
	for n := range whole {
		var bad *bench.BadResultError
		if got, err := e.ParseOutput(bench.Output{Stdout: whole[:n]}, o); n <= line && !errors.As(err, &bad) ||
			err == nil && len(got) != 2 {
			t.Fatalf("%d of %d bytes: %v, %v", n, len(whole), figureWords(got), err)
		}
	}
	for name, c := range map[string]struct {
		from, to, want string
		o              bench.Options
	}{
		"a rate that is not that of the time": {"10.516", "20.516", "step_rate 20.516 does not agree with 10.516", o},
		"ranks that did not find each other":  {"on 2 procs", "on 1 procs", "ranks: 1, want 2", o},
		"other steps":                         {"", "", "steps: 25, want 50", bench.Options{Iterations: 50, Ranks: 2}},
		"a larger cube": {"", "", "parts: 4000, want 32000", bench.Options{Iterations: 25, Ranks: 2,
			Accelerator: "kvm"}},
		"no time": {"2.37734", "0", "seconds: 0: nothing was measured", o},
		"nothing": {"Performance", "Performant", "step_rate is missing", o},
	} {
		text := strings.Replace(string(whole), c.from, c.to, 1)
		if _, err := e.ParseOutput(bench.Output{Stdout: []byte(text)}, c.o); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A truncated output yields no figures, or all of them.
func TestApplicationsGiveTheRateThatTheyPrint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, want, version string
		o                   bench.Options
		broken              map[string][3]string // old text, replacement, and error
	}{
		"gromacs": {"recorded-2022.5-water-2ranks.txt",
			"step_rate 0 10 2.08333 steps/s, simulated 0 10 0.396 ns/day", "2022.5, Open MPI 4.1.4",
			bench.Options{Quick: true}, map[string][3]string{
				"a time that is not that of the rate": {"4.804      199.8", "5.804      199.8",
					"step_rate 0.396 does not agree with"},
				"ranks alone": {"Using 2 MPI", "Using 1 MPI", "ranks: 1, want 2"},
				"less water":  {"5184 Atoms", "648 Atoms", "parts: 648, want 5184"},
				"no rate":     {"Performance:", "Performant:", "simulated is missing"},
			}},
		"openfoam": {"recorded-1912-cavity-2ranks.txt", "step_rate 0 10 1.46837 steps/s", "1912, Open MPI 4.1.4",
			bench.Options{Quick: true}, map[string][3]string{
				"other steps": {"calls           10", "calls           9", "steps: 9, want 10"},
				"one rank":    {"nProcs : 2", "nProcs : 1", "ranks: 1, want 2"},
				"no time":     {"time.run()", "time.walk()", "steps is missing"},
			}},
		"hpcc": {"recorded-1.5.0-n400-2ranks.txt",
			"flop_rate 0 0 0.0915369 Gflop/s, latency_average 0 0 22.2921 us, bw_average 0 0 6.44125 Gb/s",
			"1.5.0, Open MPI 4.1.4", bench.Options{}, map[string][3]string{
				"wrong results":    {"Success=1", "Success=0", "a test of it found wrong results"},
				"a smaller matrix": {"HPL_N=400", "HPL_N=200", "side: 200, want 400"},
				"no end":           {"End of Summary", "End of summary", "there is no line of its performance"},
			}},
	} {
		whole := readFile(t, "testdata/"+name+"/"+c.file)
		e, o := mustEngine(t, name), c.o
		o.Ranks, o.Accelerator = 2, "tcg"
		figures, err := e.ParseOutput(bench.Output{Stdout: whole}, o)
		if got := strings.Join(figureWords(figures), ", "); err != nil || got != c.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if v := e.Version(bench.Output{Stdout: []byte("mpirun (Open MPI) 4.1.4")},
			bench.Output{Stdout: whole}); v != c.version {
			t.Errorf("%s: %s", name, v)
		}
		for n := 0; n < len(whole); n += 199 {
			var bad *bench.BadResultError
			if got, err := e.ParseOutput(bench.Output{Stdout: whole[:n]}, o); err != nil && !errors.As(err, &bad) ||
				err == nil && !slices.Equal(figureWords(got), figureWords(figures)) {
				t.Fatalf("%s: %d of %d bytes: %v, %v", name, n, len(whole), figureWords(got), err)
			}
		}
		for what, b := range c.broken {
			text := strings.Replace(string(whole), b[0], b[1], 1)
			if _, err := e.ParseOutput(bench.Output{Stdout: []byte(text)}, o); text == string(whole) || err == nil ||
				!strings.Contains(err.Error(), b[2]) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
}

func TestInputOfLAMMPSIsThatOfItsOptions(t *testing.T) {
	lammps := mustEngine(t, "lammps").Plugin.(lineTool)
	p := lammps.Program(bench.Options{Accelerator: "tcg", Quick: true})
	for _, want := range []string{"block 0 10 0 10 0 10\n", "\nrun 25\n", "\nthermo 25\n", "Cu_u3.eam"} {
		if !strings.Contains(string(p.Stdin), want) {
			t.Errorf("no %q in:\n%s", want, p.Stdin)
		}
	}
	if p := lammps.Program(bench.Options{Accelerator: "kvm"}); !strings.Contains(string(p.Stdin), "0 20\n") ||
		!strings.Contains(string(p.Stdin), "run 2000\n") {
		t.Errorf("%s", p.Stdin)
	}
}
