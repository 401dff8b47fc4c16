package tool

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/golden"
)

const mpiStart = "env HOME=/root OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 I_MPI_PERHOST=1 mpirun " +
	"--bind-to none -host 10.0.0.2,10.0.0.1 "

func TestCommandLinesOfMPIHoldTheRanksAndNotMpirun(t *testing.T) {
	for _, tt := range []struct {
		name, engine string
		client       bench.Place
		server       bench.Place
		opts         bench.Options
		want         string
	}{
		{"all sizes", "osu_latency", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "kvm"},
			"-np 2 osu_latency -m 1:4194304"},
		{"all sizes of a bandwidth", "osu_bw", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "kvm"},
			"-np 2 osu_bw -m 1:4194304"},
		{"all sizes of a collective operation", "osu_alltoall", bench.Place{}, bench.Place{},
			bench.Options{Accelerator: "kvm"}, "-np 2 osu_alltoall -m 1:1048576"},
		{"all sizes of numbers", "osu_allreduce", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "kvm"},
			"-np 2 osu_allreduce -m 4:1048576"},
		{"quick", "osu_bibw", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "kvm", Quick: true},
			"-np 2 osu_bibw -m 65536:65536"},
		{"a quick latency", "osu_latency", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "kvm", Quick: true},
			"-np 2 osu_latency -m 8:8"},
		{"one size", "osu_bw", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "kvm", Quick: true, Bytes: 12},
			"-np 2 osu_bw -m 12:12"},
		{"iterations", "osu_bw", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "kvm", Iterations: 200},
			"-np 2 osu_bw -m 1:4194304 -i 200 -x 20"},
		{"few iterations", "osu_bw", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "kvm", Iterations: 3},
			"-np 2 osu_bw -m 1:4194304 -i 3 -x 1"},
		{"slow nodes", "osu_bw", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "tcg"},
			"-np 2 osu_bw -m 1024:65536 -i 35 -x 3"},
		{"a latency on slow nodes", "osu_latency", bench.Place{}, bench.Place{}, bench.Options{},
			"-np 2 osu_latency -m 1:65536 -i 545 -x 54"},
		{"an emulated host", "osu_bibw", bench.Place{}, bench.Place{}, bench.Options{Accelerator: bench.Nested},
			"-np 2 osu_bibw -m 1024:65536 -i 2 -x 1"},
		{"quick on an emulated host", "osu_bw", bench.Place{}, bench.Place{}, bench.Options{Accelerator: bench.Nested,
			Quick: true}, "-np 2 osu_bw -m 65536:65536 -i 1 -x 1"},

		{"CPUs of both", "osu_latency", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "kvm", Quick: true,
			CPU: "0-3"}, "-np 2 taskset -c 0-3 osu_latency -m 8:8"},
		{"CPUs and memory of both", "osu_latency", bench.Place{}, bench.Place{}, bench.Options{Accelerator: "kvm",
			Quick: true, CPU: "2", NUMA: "1"}, "-np 2 taskset -c 2 numactl --membind=1 osu_latency -m 8:8"},
		{"other CPUs on the server", "osu_allreduce", bench.Place{CPUs: "0"}, bench.Place{CPUs: "5", Memory: "1"},
			bench.Options{Accelerator: "kvm", Quick: true},
			"-np 1 taskset -c 0 osu_allreduce -m 8:8 : -np 1 taskset -c 5 numactl --membind=1 osu_allreduce -m 8:8"},
		{"CPUs on the server alone", "osu_latency", bench.Place{}, bench.Place{CPUs: "5"},
			bench.Options{Accelerator: "kvm", Quick: true},
			"-np 1 osu_latency -m 8:8 : -np 1 taskset -c 5 osu_latency -m 8:8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, server := n2, n1
			client.Place, server.Place = tt.client, tt.server
			e := mustEngine(t, tt.engine)
			if !e.Launches {
				t.Fatal("mpirun is held in its place, and not its ranks")
			}
			got, onServer := e.Client(client, server, tt.opts), e.Server(server, tt.opts)
			if want := mpiStart + tt.want; strings.Join(got, " ") != want || onServer != nil {
				t.Errorf("got  %s\nwant %s\nand none on the server: %q", strings.Join(got, " "), want, onServer)
			}
		})
	}
}

// cluster has all programs installed unless it says otherwise.
type cluster map[string]bench.Output

func (c cluster) Exec(_ context.Context, node string, argv []string) (bench.Output, error) {
	key := node + " " + strings.Join(argv, " ")
	out, ok := c[key]
	if !ok && !strings.HasPrefix(key, node+" sh -c command -v ") {
		return bench.Output{}, errors.New("nobody knows " + key)
	}
	return out, nil
}

const (
	sshN1   = "n2 sh -c ssh -o BatchMode=yes -o ConnectTimeout=5 10.0.0.1 true"
	tryMPI  = "n2 timeout 25 " + mpiStart + "-np 2 uname -n"
	latency = "n2 " + mpiStart + "-np 2 osu_latency -m 1:4194304"
)

func mpiCluster(changes cluster) cluster {
	c := cluster{
		"n1 uname -n": {Stdout: []byte("vm00\n")}, "n2 uname -n": {Stdout: []byte("vm01\n")}, sshN1: {},
		tryMPI: {Stdout: []byte("vm00\nvm01\n")},
		"n2 env HOME=/root mpirun --version": {Stdout: []byte("mpirun (Open MPI) 4.1.4\n\nReport bugs to " +
			"http://www.open-mpi.org/community/help/\n")},
	}
	for key, out := range changes {
		c[key] = out
	}
	return c
}

func TestMPIIsMeasuredFromTheClient(t *testing.T) {
	table := readFile(t, "testdata/osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_latency.txt")
	r := &bench.Runner{Exec: serverless{mpiCluster(cluster{latency: {Stdout: table}})}, Accelerator: "kvm", Retries: -1}
	samples, err := r.Run(t.Context(), mustEngine(t, "osu_latency"), n2, n1, bench.Options{})
	if err != nil || len(samples) != 24 || samples[0].Error != "" {
		t.Fatalf("%d samples, the first %+v, error %v", len(samples), samples[:1], err)
	}
	s := samples[4]
	if s.Metric != bench.MetricLatencyAverage || s.Bytes != 8 || s.Value != 1.02 || s.Unit != "us" || s.Tool != "osu" ||
		s.Version != "5.6.2, Open MPI 4.1.4" || "n2 "+s.Command != latency || s.ServerCommand != "" ||
		s.Client != "n2" || s.Server != "n1" || s.Placement != "not pinned" {
		t.Errorf("%+v", s)
	}
}

func TestWhatMPILacksIsSaid(t *testing.T) {
	v6 := n1
	v6.Addr = netip.MustParseAddr("fd00::1")
	for _, tt := range []struct {
		name, engine string
		server       bench.Endpoint
		opts         bench.Options
		changes      cluster
		want         string
	}{
		{"no program on the server", "osu_latency", n1, bench.Options{},
			cluster{"n1 sh -c command -v osu_latency": {ExitCode: 127}},
			"n1: osu_latency is not installed: install the OSU micro-benchmarks (5.4 or later), built with the " +
				"nodes' MPI"},
		{"no mpirun on the client", "osu_bw", n1, bench.Options{},
			cluster{"n2 sh -c command -v mpirun": {ExitCode: 127}},
			"n2: mpirun is not installed: install openmpi-bin, mpich or Intel MPI on all nodes"},
		{"no mpirun on the server", "osu_bw", n1, bench.Options{},
			cluster{"n1 sh -c command -v mpirun": {ExitCode: 127}},
			"n1: mpirun is not installed: install openmpi-bin, mpich or Intel MPI on all nodes"},
		{"no key", "osu_bw", n1, bench.Options{}, cluster{sshN1: {ExitCode: 255,
			Stderr: []byte("root@10.0.0.1: Permission denied (publickey,password).\r\n")}},
			"n2: ssh to n1 (10.0.0.1) without a password does not work, and mpirun starts programs by it: exit " +
				"status 255: root@10.0.0.1: Permission denied (publickey,password)."},
		{"no daemon on the server", "osu_bw", n1, bench.Options{},
			cluster{tryMPI: {ExitCode: 1, Stderr: []byte("bash: line 1: orted: command not found\n----------\nORTE " +
				"was unable to reliably start one or more daemons.\n")}},
			"n2: mpirun cannot start a program on n1: exit status 1: bash: line 1: orted: command not found"},
		{"a ruler first", "osu_bw", n1, bench.Options{},
			cluster{tryMPI: {ExitCode: 213, Stderr: []byte("\n-----------\nThere are not enough slots " +
				"available\n-----\n")}},
			"n2: mpirun cannot start a program on n1: exit status 213: There are not enough slots available"},
		{"both ranks on the client", "osu_bw", n1, bench.Options{}, cluster{tryMPI: {Stdout: []byte("vm01\nvm01\n")}},
			`n2: mpirun started no program on n1: its host name "vm00" is not among what two ranks printed: ` +
				`"vm01\nvm01"`},
		{"IPv6", "osu_bw", v6, bench.Options{}, nil,
			"n1: mpirun takes a host with an IPv4 address (a colon begins a number of processes); the node " +
				"has fd00::1"},
		{"half a number", "osu_allreduce", n1, bench.Options{Bytes: 6}, nil,
			"n2: osu_allreduce works on numbers of 4 bytes: a message of 6 bytes is none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &bench.Runner{Exec: serverless{mpiCluster(tt.changes)}, Accelerator: "kvm"}
			e := mustEngine(t, tt.engine)
			samples, err := r.Run(t.Context(), e, n2, tt.server, tt.opts)
			if err != nil || len(samples) != 1 || samples[0].Error != "attempt 1: "+tt.want {
				t.Errorf("got  %+v, error %v\nwant %s", samples, err, tt.want)
			}
			// The node that is checked first need not be the client.
			_, want, _ := strings.Cut(tt.want, ": ")
			var unfit *bench.UnfitError
			if err := r.Fits(t.Context(), e, tt.opts, tt.server, n2); !errors.As(err, &unfit) || unfit.Reason != want {
				t.Errorf("Fits: got %v, want %s", err, want)
			}
		})
	}
	for _, o := range []bench.Options{{Bytes: -1}, {Bytes: maxBytes + 1}, {Iterations: -1}, {Iterations: maxIterations +
		1}} {
		if _, err := (&bench.Runner{}).Run(t.Context(), mustEngine(t, "osu_bw"), n2, n1, o); err == nil {
			t.Errorf("%+v is not refused", o)
		}
	}
	if err := (&bench.Runner{Exec: serverless{mpiCluster(nil)}}).Fits(t.Context(), mustEngine(t, "osu_bw"),
		bench.Options{}, n1, n2); err != nil {
		t.Errorf("nodes that have all: %v", err)
	}
}

func TestAnMPIRunThatFailsSaysItsFirstWords(t *testing.T) {
	const said = "--------------------------------------------------------------------------\nPMIX ERROR: " +
		"UNREACHABLE\n\nmore\n---\n2 total processes failed to start\n"
	r := &bench.Runner{Exec: serverless{mpiCluster(cluster{latency: {ExitCode: 1, Stderr: []byte(said)}})},
		Accelerator: "kvm", Retries: -1}
	samples, err := r.Run(t.Context(), mustEngine(t, "osu_latency"), n2, n1, bench.Options{})
	if want := "attempt 1: run osu_latency on n2: exit status 1: PMIX ERROR: UNREACHABLE"; err != nil ||
		len(samples) != 1 || samples[0].Error != want {
		t.Errorf("got %+v, error %v, want %s", samples, err, want)
	}
}

func TestMPIsAreToldApartByTheirVersions(t *testing.T) {
	table := bench.Output{Stdout: []byte("\n# OSU MPI-CUDA MANAGED Bi-Directional Bandwidth Test v7.5\r\n")}
	for _, tt := range []struct{ name, told, want string }{
		{"Open MPI", "mpirun (Open MPI) 5.0.11\n\nReport bugs to\n", "7.5, Open MPI 5.0.11"},
		{"Open MPI by another name", "mpirun.openmpi (OpenRTE) 4.1.4\n", "7.5, Open MPI 4.1.4"},
		{"MPICH", "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date:       " +
			"  Thu Apr  7\n", "7.5, MPICH 4.0.2"},
		{"Intel MPI", "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929 (id: 1821d9b)\nCopyright " +
			"2003-2026, Intel Corporation.\n", "7.5, Intel MPI 2021.19.0"},
		{"none of them", "slurmstepd\n", "7.5"},
	} {
		if got := mustEngine(t, "osu_bw").Version(table, bench.Output{Stdout: []byte(tt.told)}); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestBandwidthOfBothWaysMayBeTwiceTheLink(t *testing.T) {
	w := bench.Wire{Rate: 100, MTU: 4096}
	for _, tt := range []struct {
		engine string
		gbps   float64
		good   bool
	}{{"osu_bw", 98, true}, {"osu_bw", 101, false}, {"osu_bibw", 190, true}, {"osu_bibw", 201.5, false}} {
		figures := []bench.Figure{{Metric: bench.MetricBWAverage, Bytes: 65536, Value: tt.gbps, Unit: bench.UnitGbps}}
		if err := w.Check(mustEngine(t, tt.engine), figures); (err == nil) != tt.good {
			t.Errorf("%s of %g Gb/s: %v", tt.engine, tt.gbps, err)
		}
	}
	// 4 MiB take 335 us at 100 Gb/s in any operation.
	for _, tt := range []struct{ engine, metric string }{{"osu_latency", bench.MetricLatencyAverage},
		{"osu_allreduce", bench.MetricCollectiveTime}, {"osu_alltoall", bench.MetricCollectiveTime}} {
		for us, good := range map[float64]bool{334.9: true, 300: false} {
			if err := w.Check(mustEngine(t, tt.engine),
				[]bench.Figure{{Metric: tt.metric, Bytes: 1 << 22, Value: us,
					Unit: bench.UnitUsec}}); (err == nil) != good {
				t.Errorf("%s of %g us: %v", tt.engine, us, err)
			}
		}
	}
}

// The tables of the OSU micro-benchmarks and of 7-Zip.
func TestEveryFixtureOfATableParsesAsItsGoldenFileSays(t *testing.T) {
	for _, dir := range []string{"osu", "7-zip"} {
		files, err := filepath.Glob("testdata/" + dir + "/*")
		if err != nil || len(files) < 4 {
			t.Fatalf("%s: %d files, error %v", dir, len(files), err)
		}
		for _, file := range files {
			t.Run(dir+" "+filepath.Base(file), func(t *testing.T) {
				in := readFile(t, file)
				figures, err := parsers[dir](in)
				var got string
				if err != nil {
					got = err.Error() + "\n"
				} else {
					got = strings.Join(figureWords(figures), "\n") + "\n"
				}
				golden.Check(t, filepath.Join("testdata/golden", filepath.Base(file)+".golden"), got)
				if bad := strings.Contains(file, "-bad-"); bad == (err == nil) {
					t.Errorf("the name says that it is bad: %v; error %v", bad, err)
				}
			})
		}
	}
}

// Every second word between the header and the end is a figure.
func TestRowsOfOSUAreTheFiguresOfItsOutput(t *testing.T) {
	files, err := filepath.Glob("testdata/osu/stackhpc-*gcc9-*-osu_*.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		if strings.Contains(file, "mbw_mr") { // two figures in a row
			continue
		}
		in := string(readFile(t, file))
		res, err := ParseOSU([]byte(in))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		_, table, _ := strings.Cut(in, ")\n")
		fields := strings.Fields(table)
		scale := 1.0
		if strings.HasSuffix(file, "bw.txt") {
			scale = 1000. / 8
		}
		if 2*len(res.Figures) != len(fields) || res.Version != "5.6.2" {
			t.Errorf("%s: %d figures of release %s, want %d of 5.6.2", file, len(res.Figures), res.Version,
				len(fields)/2)
			continue
		}
		for i, f := range res.Figures {
			want, _, err := parseNumber(fields[2*i+1])
			size, _ := parseCount(fields[2*i])
			if err != nil || f.Bytes != size || !near(f.Value*scale, want, 1e-12) {
				t.Errorf("%s: %+v, want %s and %s", file, f, fields[2*i], fields[2*i+1])
			}
			n++
		}
	}
	if want := 7*23 + 3 + 19 + 2*21; n != want { // collective operations have fewer sizes
		t.Errorf("%d figures, want %d", n, want)
	}
}

// With other columns, or other lines above.
func TestTablesOfOSUBesideTheUsual(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, output, program, figure string }{
		{"no bytes", "# OSU MPI Latency Test v7.4\n# Size       Avg Latency(us)\n0    1.20\n1    1.25\n", "osu_latency",
			"latency_average 0 1.2"},
		{"in GPU memory", "# OSU MPI-CUDA Latency Test v7.4\n# Size          Latency (us)\n8    3.20\n",
			"osu_latency/cuda", "latency_average 8 3.2"},
		{"not blocking", "# OSU MPI Non-blocking Allreduce Latency Test v7.3\n# Datatype: MPI_INT.\n" +
			"# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n" +
			"# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n" +
			"4                       8.69              4.20              4.10              0.00\n", "osu_iallreduce",
			"collective_time 4 4.1"},
		{"of another type", "# OSU MPI Allreduce Latency Test v7.3\n# Datatype: MPI_FLOAT.\n" +
			"# Size       Avg Latency(us)\n4    8.69\n", "osu_allreduce/float", "collective_time 4 8.69"},
		{"a barrier", "# OSU MPI Barrier Latency Test v7.3\n# Avg Latency(us)   Min Latency(us)\n      12.50   11.00\n",
			"osu_barrier", "collective_time 0 12.5"},
		{"one-sided", "# OSU MPI_Put Latency Test v5.9\n# Window creation: MPI_Win_create\n" +
			"# Synchronization: MPI_Win_fence\n# Size          Latency (us)\n1    2.20\n",
			"osu_put_latency/create/fence", "latency_average 1 2.2"},
		{"between GPU and host", "# OSU MPI-CUDA Latency Test v7.4\n" +
			"# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)\n" +
			"# Size          Latency (us)\n8    3.20\n", "osu_latency/cuda/device-host", "latency_average 8 3.2"},
		{"a barrier that is not blocking", "# OSU MPI Non-blocking Barrier Latency Test v7.4\n" +
			"# Overall(us)   Compute(us)    Coll. Init(us)   MPI_Test(us)   MPI_Wait(us)    " +
			"Pure Comm.(us)    Overlap(%)\n" +
			"7.12          3.40              0.22           0.00           3.44            3.31          0.00\n",
			"osu_ibarrier", "collective_time 0 3.31"},
		{"all to all, not blocking", "# OSU MPI Non-blocking All-to-All Latency Test v7.4\n" +
			"# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n" +
			"1                       8.08              4.40              4.19             12.27\n", "osu_ialltoall",
			"collective_time 1 4.19"},
		{"of NCCL", "# OSU NCCL-CUDA Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n4    25.41\n",
			"osu_allreduce/nccl/cuda", "collective_time 4 25.41"},
		{"of several threads", "# Number of Sender threads: 1 \n# Number of Receiver threads: 2\n" +
			"# OSU MPI Multi-threaded Latency Test v7.4\n# Size          Latency (us)\n1    5.07\n",
			"osu_latency_mt/1/2", "latency_average 1 5.07"},
	} {
		res, err := ParseOSU([]byte(tt.output))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		f := res.Figures[0]
		if got := fmt.Sprintf("%s %d %g", f.Metric, f.Bytes, f.Value); res.Program != tt.program || got != tt.figure {
			t.Errorf("%s: %s with %s, want %s with %s", tt.name, res.Program, got, tt.program, tt.figure)
		}
	}
}

// A size that does not follow by doubling is an error.
func TestRowsThatAreLeftOutOfATable(t *testing.T) {
	t.Parallel()
	const head = "#OSU MPI Bandwidth Test v5.7\n#Size              Bandwidth (MB/s)\n"
	for _, tt := range []struct{ rows, gap, err string }{
		{"1   1.78\n2   3.55\n", "", ""},
		{"1   1.78\n8   14.18\n1024   1385.68\n", "8 bytes come after 1: a row is missing", ""},
		{"1   1.78\n3   14.18\n", "", "3 bytes come after 1"},
		{"8   1.78\n4   14.18\n", "", "4 bytes come after 8"},
	} {
		res, err := ParseOSU([]byte(head + tt.rows))
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: %v, want %s", tt.rows, err, tt.err)
			}
		case err != nil || res.Gap != tt.gap:
			t.Errorf("%q: %+v, %v; want gap %q", tt.rows, res, err, tt.gap)
		}
	}
}

// The message rate of all pairs must agree with the bandwidth.
func TestBothColumnsOfOSUsMessageRateAreFigures(t *testing.T) {
	t.Parallel()
	res, err := ParseOSU(readFile(t, "testdata/osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_mbw_mr_16.txt"))
	if err != nil || res.Program != "osu_mbw_mr" || len(res.Figures) != 2*23 {
		t.Fatalf("%+v, error %v", res, err)
	}
	for i := 0; i < len(res.Figures); i += 2 {
		bw, rate := res.Figures[i], res.Figures[i+1]
		if bw.Metric != bench.MetricBWAverage || rate.Metric != bench.MetricMessageRate || bw.Bytes != rate.Bytes ||
			!near(bw.Value*1e3, 8*rate.Value*float64(rate.Bytes), 1e-3) {
			t.Errorf("%+v and %+v", bw, rate)
		}
	}
}

// Nothing closes the table, so the engine knows its last size.
func TestNoCutTableOfOSUIsTakenByItsEngine(t *testing.T) {
	kvm := bench.Options{Accelerator: "kvm"}
	for engine, file := range map[string]string{
		"osu_bw":        "stackhpc-ib-gcc9-impi-verbs-osu_bw.txt",
		"osu_latency":   "stackhpc-ib-gcc9-impi-verbs-osu_latency.txt",
		"osu_bibw":      "stackhpc-ib-gcc9-openmpi4-ucx-osu_bibw.txt",
		"osu_allreduce": "stackhpc-ib-gcc9-openmpi4-ucx-osu_allreduce.txt",
		"osu_alltoall":  "stackhpc-ib-gcc9-openmpi4-ucx-osu_alltoall.txt",
	} {
		e := mustEngine(t, engine)
		whole := readFile(t, "testdata/osu/"+file)
		if _, err := e.ParseOutput(bench.Output{Stdout: whole}, kvm); err != nil {
			t.Errorf("%s: %v", engine, err)
		}
		for n := range whole {
			var bad *bench.BadResultError
			if figures, err := e.ParseOutput(bench.Output{Stdout: whole[:n]}, kvm); !errors.As(err, &bad) {
				t.Fatalf("%s: %d of %d bytes give %v, error %v", engine, n, len(whole), figureWords(figures), err)
			}
		}
		for _, other := range osuEngines {
			if _, err := other.ParseOutput(bench.Output{Stdout: whole}, kvm); (err == nil) != (other.Name == engine) {
				t.Errorf("%s reads the table of %s: error %v", other.Name, engine, err)
			}
		}
		if _, err := e.ParseOutput(bench.Output{Stdout: whole}, bench.Options{Accelerator: "kvm",
			Quick: true}); err == nil || !strings.Contains(err.Error(), "the table is cut off: it has messages of ") {
			t.Errorf("%s with all sizes instead of one: %v", engine, err)
		}
	}
}

func TestLinesAroundATableOfOSUAreNoRows(t *testing.T) {
	const table = "\n# OSU MPI Bandwidth Test v7.5\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)\n1           " +
		"            1.00\n2                       2.00\n"
	want, err := ParseOSU([]byte(table))
	if err != nil || want.First != 1 || want.Last != 2 || want.Version != "7.5" || want.Test != "Bandwidth" {
		t.Fatalf("%+v, error %v", want, err)
	}
	for name, in := range map[string]string{
		"ReFrame": "Lmod is automatically replacing \"gcc\" with \"intel\".\n" + table +
			"real    0m7.045s\n",
		"a report":      "Starttime: 2024/06/17 18:50:26\n" + table + "2024/06/17 18:50:27 done\n",
		"numbers above": "2 slots, 2 ranks\n1  2\n" + table,
		"mpirun between rows": strings.Replace(table, "\n2  ",
			"\n[vm01:01234] shmem: mmap: an error occurred\n\n2  ", 1),
		"a serial console": strings.ReplaceAll(table, "\n", "\r\n"),
		"the type below": strings.Replace(table, "# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)",
			"# Size      Bandwidth (MB/s)\n# Datatype: MPI_CHAR.", 1),
		"blanks behind each row": strings.ReplaceAll(table, "\n", "    \n"),
	} {
		got, err := ParseOSU([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSuiteOfMPIIsMadeOfTwoRanksOrGroups(t *testing.T) {
	engines, err := Suite(bench.SuiteMPI)
	if err != nil || len(engines) != 9 {
		t.Fatalf("%d engines, error %v", len(engines), err)
	}
	for _, e := range engines {
		if _, group := e.Group(); e.Local != group || !e.Launches || e.Server(n1, bench.Options{}) != nil ||
			!slices.Contains(e.Client(n2, n1, bench.Options{}), e.Program) {
			t.Errorf("%+v", e)
		}
	}
}
