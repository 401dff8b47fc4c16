package bench_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
)

func TestWordsOfGroups(t *testing.T) {
	for name, want := range map[string]bench.Group{
		"mpi_alltoall":             {},
		"mpi_alltoall/n4/p2":       {Nodes: 4, PerNode: 2},
		"mpi_mbw_mr/tcp":           {Transport: "tcp"},
		"mpi_latency/n2/tcp/mpich": {Nodes: 2, Transport: "tcp", Library: "mpich"},
		"lammps/n2/p1/ofi/bare":    {Nodes: 2, PerNode: 1, Transport: "ofi", Bare: true},
	} {
		e := mustEngine(t, name)
		if g, ok := e.Group(); !ok || g != want || e.Name != name {
			t.Errorf("%s: %+v, %s", name, g, e.Name)
		}
	}
	for name, want := range map[string]string{
		"mpi_alltoall/n0": "want one number of 1 to 4096", "mpi_alltoall/n2/n3": "want one number",
		"mpi_alltoall/px": "want one number", "lammps/ib": "want nN for the first N nodes",
		"lammps/ucx/tcp": "want nN", "mpi_alltoall/": "want nN",
	} {
		if _, err := tool.EngineByName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := mustEngine(t, "osu_bw").Group(); ok {
		t.Error("osu_bw has a group")
	}
}

type ranks struct {
	nodes, ranks int
	out          bench.Launch
	err          error
	programs     []bench.Program
}

func (r *ranks) Size(g bench.Group) (nodes, all int, err error) {
	if g.PerNode > 1 {
		return 0, 0, errors.New("2 ranks on node vm00, which has 1 CPU")
	}
	return r.nodes, r.ranks, nil
}

func (r *ranks) Launch(_ context.Context, _ bench.Group, p bench.Program) (bench.Launch, error) {
	r.programs = append(r.programs, p)
	return r.out, r.err
}

func launch(t *testing.T, test string, r *ranks, o bench.Options) ([]bench.Sample, error) {
	t.Helper()
	var samples []bench.Sample
	var err error
	synctest.Test(t, func(t *testing.T) {
		runner := &bench.Runner{Exec: &fakeLab{}, Launcher: r, Accelerator: "tcg", Emulated: true, Retries: -1}
		samples, err = runner.RunLocal(t.Context(), mustEngine(t, test), n2, o)
	})
	return samples, err
}

func TestAGroupIsMeasuredByItsLauncher(t *testing.T) {
	table := bench.Launch{Output: bench.Output{Stdout: []byte(
		"# rackless MPI All-to-All Personalized Exchange Latency Test v1\n" +
			"# Size  Avg Latency(us)\n8                      1234.50\n")},
		Command: []string{"mpirun.openmpi", "--host", "vm00:1,vm01:1", "x"}, MPI: "mpirun (Open MPI) 4.1.4",
		Where: "4 ranks on 4 nodes by ofi", RDMAPackets: 77}
	r := &ranks{nodes: 4, ranks: 4, out: table}
	samples, err := launch(t, "mpi_alltoall", r, bench.Options{Quick: true})
	if err != nil || len(samples) != 1 {
		t.Fatalf("%+v, %v", samples, err)
	}
	s := samples[0]
	if s.Test != "mpi_alltoall/n4/p1" || s.Value != 1234.5 || s.Unit != bench.UnitUsec || s.Tool != "mpi" ||
		!s.Emulated || s.Version != "rackless 1, Open MPI 4.1.4" || s.RDMAPackets != 77 || s.Placement != table.Where ||
		s.Server != "" || s.Command != "mpirun.openmpi --host vm00:1,vm01:1 x" {
		t.Errorf("%+v", s)
	}
	p := r.programs[0]
	if p.Names[0] != "osu_alltoall" || p.SourceArgs[0] != "alltoall" || p.Args[1] != "8:8" ||
		!strings.Contains(p.Source, "MPI_Alltoall") {
		t.Errorf("%+v", p)
	}

	more := &ranks{nodes: 16, ranks: 16, out: table}
	if _, err := launch(t, "mpi_alltoall", more, bench.Options{Quick: true}); err != nil ||
		len(more.programs[0].Args[3]) >= len(p.Args[3]) {
		t.Errorf("4 ranks: %q, 16: %q, %v", p.Args, more.programs[0].Args, err)
	}
	// A run that the launcher refuses is a failed measurement, not a missing one.
	r = &ranks{nodes: 2, ranks: 2, out: table, err: errors.New("no RDMA packet was sent by any node")}
	if samples, err := launch(t, "mpi_alltoall", r, bench.Options{Quick: true}); err != nil || len(samples) != 1 ||
		!strings.Contains(samples[0].Error, "no RDMA packet was sent") || samples[0].Metric != "" {
		t.Errorf("%+v, %v", samples, err)
	}
	r = &ranks{nodes: 2, ranks: 2, out: table}
	if samples, _ := launch(t, "mpi_alltoall", r, bench.Options{Bytes: 16}); !strings.Contains(samples[0].Error,
		"cut off") {
		t.Errorf("%+v", samples)
	}
}

func TestGroupsThatCannotBeMeasured(t *testing.T) {
	for _, c := range []struct {
		test, want string
		ranks      int
		o          bench.Options
	}{
		{"mpi_alltoall/p2", "2 ranks on node vm00, which has 1 CPU", 2, bench.Options{}},
		{"mpi_latency", "measures pairs of ranks, and 3 is odd", 3, bench.Options{}},
		{"mpi_allreduce", "one rank sends no messages", 1, bench.Options{}},
		{"mpi_allreduce", "a message of 6 bytes is none", 2, bench.Options{Bytes: 6}},
		{"mpi_alltoall", "mpirun binds the ranks", 2, bench.Options{CPU: "0"}},
		{"lammps", "it has no message sizes", 2, bench.Options{Bytes: 8}},
		{"lammps", "-1 steps", 2, bench.Options{Iterations: -1}},
		{"hpcc", "it has no steps", 2, bench.Options{Iterations: 1}},
	} {
		_, err := launch(t, c.test, &ranks{nodes: c.ranks, ranks: c.ranks}, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.test, err, c.want)
		}
	}
	runner := &bench.Runner{Exec: &fakeLab{}}
	if _, err := runner.RunLocal(t.Context(), mustEngine(t, "lammps"), n2, bench.Options{}); err == nil ||
		!strings.Contains(err.Error(), "nothing here starts programs on several nodes") {
		t.Error(err)
	}
}
