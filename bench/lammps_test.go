package bench

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestLAMMPSGivesTheRateThatItPrints(t *testing.T) {
	whole := readFile(t, "testdata/lammps/recorded-20220106-eam-2ranks.txt")
	e, o := mustEngine(t, "lammps"), Options{Iterations: 25, Ranks: 2, Accelerator: "tcg"}
	figures, err := e.parse(Output{Stdout: whole}, o)
	want := "step_rate 0 25 10.516 steps/s, simulated 0 25 4.543 ns/day"
	if got := strings.Join(figureWords(figures), ", "); err != nil || got != want {
		t.Fatalf("%s, %v", got, err)
	}
	if v := e.version(Output{Stdout: []byte("mpirun (Open MPI) 4.1.4")}, Output{Stdout: whole}); v !=
		"29 Sep 2021 - Update 2, Open MPI 4.1.4" {
		t.Error(v)
	}
	// What is cut off has no figures, or all.
	line := bytes.Index(whole, []byte(" timesteps/s"))
	for n := range whole {
		var bad *BadResultError
		if got, err := e.parse(Output{Stdout: whole[:n]}, o); n <= line && !errors.As(err, &bad) ||
			err == nil && len(got) != 2 {
			t.Fatalf("%d of %d bytes: %v, %v", n, len(whole), figureWords(got), err)
		}
	}
	for name, c := range map[string]struct {
		from, to, want string
		o              Options
	}{
		"a rate that is not that of the time": {"10.516", "20.516", "are not 25 steps in 2.37734 s", o},
		"ranks that did not find each other":  {"on 2 procs", "on 1 procs", "on 1 ranks, not 25 of 4000 on 2", o},
		"other steps":                         {"", "", "it ran 25 steps", Options{Iterations: 50, Ranks: 2}},
		"a larger cube":                       {"", "", "not 25 of 32000", Options{Iterations: 25, Accelerator: "kvm"}},
		"no time":                             {"2.37734", "0", "are not 25 steps in 0 s", o},
		"nothing":                             {"Performance", "Performant", "there is no line of its performance", o},
	} {
		text := strings.Replace(string(whole), c.from, c.to, 1)
		if _, err := e.parse(Output{Stdout: []byte(text)}, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInputOfLAMMPSIsThatOfItsOptions(t *testing.T) {
	p := lammps{}.program(Options{Accelerator: "tcg", Quick: true})
	for _, want := range []string{"block 0 10 0 10 0 10\n", "\nrun 25\n", "\nthermo 25\n", "Cu_u3.eam"} {
		if !strings.Contains(string(p.Stdin), want) {
			t.Errorf("no %q in:\n%s", want, p.Stdin)
		}
	}
	if p := (lammps{}).program(Options{Accelerator: "kvm"}); !strings.Contains(string(p.Stdin), "0 20\n") ||
		!strings.Contains(string(p.Stdin), "run 2000\n") {
		t.Errorf("%s", p.Stdin)
	}
}
