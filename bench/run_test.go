package bench_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackless/rackless/bench"
)

func run(t *testing.T, lab *fakeLab, engine string, client, server bench.Endpoint, opts bench.Options) []bench.Sample {
	t.Helper()
	var samples []bench.Sample
	synctest.Test(t, func(t *testing.T) {
		var err error
		samples, err = (&bench.Runner{Exec: lab, Accelerator: "tcg", Emulated: true}).Run(t.Context(), mustEngine(t,
			engine), client, server, opts)
		if err != nil {
			t.Error(err)
		}
	})
	return samples
}

func TestBothSidesAreHeldInTheirPlaceAndTheSampleSaysSo(t *testing.T) {
	lab := &fakeLab{clients: []command{prints(t, goodBW)}, answers: map[string]bench.Output{
		"n1 taskset -c 2 nproc":   {Stdout: []byte("1\n")},
		"n2 taskset -c 0-1 nproc": {Stdout: []byte("2\n")},
	}}
	server := n1
	server.Place = bench.Place{CPUs: "2"}
	s := run(t, lab, "ib_write_bw", n2, server, bench.Options{CPU: "0-1"})[0]
	if s.Error != "" || s.Placement != "client CPUs 0-1; server CPUs 2" || !strings.HasPrefix(s.Command,
		"taskset -c 0-1 ib_write_bw ") || !strings.HasPrefix(s.ServerCommand, "taskset -c 2 ib_write_bw ") {
		t.Errorf("%+v", s)
	}
}

func TestAPlaceThatTheNodeDoesNotHaveIsRefusedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		out  bench.Output
		want string
	}{
		"fewer CPUs": {bench.Output{Stdout: []byte("1\n")}, "attempt 1: n2: of CPUs 0-1 it has 1, not 2"},
		"none of all": {bench.Output{ExitCode: 1,
			Stderr: []byte("taskset: can't set pid 7's affinity: Invalid argument\n")},
			"attempt 1: n2: nothing can run with CPUs 0-1: run nproc on n2: exit status 1: taskset: can't set pid " +
				"7's affinity: Invalid argument"},
		"nonsense": {bench.Output{Stdout: []byte("many\n")},
			"attempt 1: n2: nothing can run with CPUs 0-1: run nproc on n2: exit status 0: many"},
	} {
		t.Run(name, func(t *testing.T) {
			lab := &fakeLab{clients: []command{prints(t, goodBW)},
				answers: map[string]bench.Output{"n2 taskset -c 0-1 nproc": tt.out}}
			samples := run(t, lab, "ib_write_bw", n2, n1, bench.Options{CPU: "0-1"})
			if len(samples) != 1 || samples[0].Error != tt.want || samples[0].Attempt != 1 {
				t.Errorf("got  %+v\nwant %s", samples, tt.want)
			}
		})
	}
}

func TestAToolThatIsNotThereIsNamedWithItsPackage(t *testing.T) {
	lab := &fakeLab{answers: map[string]bench.Output{"n2 sh -c command -v sysbench": {ExitCode: 127}}}
	samples := run(t, lab, "sysbench_cpu", n2, bench.Endpoint{}, bench.Options{})
	const want = "attempt 1: n2: sysbench is not installed: install sysbench"
	if len(samples) != 1 || samples[0].Error != want || samples[0].Server != "" || samples[0].Command != "" ||
		lab.log != nil {
		t.Errorf("got %+v and commands %q, want %s", samples, lab.log, want)
	}
	err := (&bench.Runner{Exec: lab}).Fits(t.Context(), mustEngine(t, "sysbench_cpu"), bench.Options{}, n2)
	var unfit *bench.UnfitError
	if !errors.As(err, &unfit) || unfit.Node != "n2" {
		t.Errorf("Fits: %v", err)
	}
	if err := (&bench.Runner{Exec: &fakeLab{}}).Fits(t.Context(), mustEngine(t, "ping"), bench.Options{}, n1,
		n2); err != nil {
		t.Errorf("Fits where it is installed: %v", err)
	}
}

func TestWarmUpsAreDroppedAndCounted(t *testing.T) {
	lab := &fakeLab{clients: []command{miscalibrated(t), prints(t, goodBW)}}
	var began time.Time // of the bubble
	samples, _ := measure(t, lab, func(r *bench.Runner) { r.WarmUps, r.CoolDown, began = 1, time.Minute, time.Now() })
	if len(samples) != 69 || samples[0].WarmUps != 1 || samples[0].Attempt != 1 || len(lab.ports) != 2 {
		t.Errorf("%d samples, the first %+v, ports %q", len(samples), samples[0], lab.ports)
	}
	if waited := samples[0].Started.Sub(began); waited < time.Minute || waited > time.Minute+10*time.Second {
		t.Errorf("it began after %v, want the cool-down of a minute and the warm-up", waited)
	}
	if _, err := (&bench.Runner{WarmUps: -1}).Run(t.Context(), mustEngine(t, "iperf3"), n2, n1,
		bench.Options{}); err == nil {
		t.Error("fewer warm-ups than none")
	}
}

func TestTheServerMayRunElsewhereThanTheClient(t *testing.T) {
	for _, tt := range []struct {
		o         bench.Options
		cpu, numa string
		want      string
	}{
		{bench.Options{}, "", "", "not pinned"},
		{bench.Options{CPU: "0-1"}, "", "", "CPUs 0-1"},
		{bench.Options{CPU: "0-1"}, "2", "", "CPUs 2"},
		{bench.Options{CPU: "0-1", NUMA: "0"}, "2", "", "CPUs 2, memory of NUMA node 0"},
		{bench.Options{CPU: "0-1"}, "", "1", "CPUs 0-1, memory of NUMA node 1"},
		{bench.Options{}, "3", "1", "CPUs 3, memory of NUMA node 1"},
	} {
		server := bench.Endpoint{Node: "n1", Place: tt.o.ServerPlace(tt.cpu, tt.numa)}
		if got := tt.o.PlaceOf(server).String(); got != tt.want {
			t.Errorf("%+v, server %q %q: %s, want %s", tt.o, tt.cpu, tt.numa, got, tt.want)
		}
	}
}

func TestEchoesThatWereLostAreAFigure(t *testing.T) {
	in := strings.Replace(string(recorded(t, "ping/recorded-iputils-20221126.txt")), "5 received, 0%",
		"4 received, +1 errors, 20%", 1)
	lab := &fakeLab{clients: []command{fails(1, in, "")}}
	samples := run(t, lab, "ping", n2, n1, bench.Options{Iterations: 5})
	s := samples[len(samples)-1]
	if s.Metric != bench.MetricLoss || s.Value != 20 || s.Unit != "%" || s.Error != "" ||
		s.Command != "ping -c 5 -i 0.2 10.0.0.1" || s.ServerCommand != "" {
		t.Errorf("%+v", s)
	}
	lab = &fakeLab{clients: []command{fails(1,
		string(recorded(t, "ping/recorded-iputils-20221126-bad-none.txt")), "")}}
	samples = run(t, lab, "ping", n2, n1, bench.Options{})
	if len(samples) != 1 || !strings.Contains(samples[0].Error, "no echo came back") || samples[0].Attempt != 3 {
		t.Errorf("%+v", samples)
	}
}
