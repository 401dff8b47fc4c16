package tool

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

// Every operation with every transport that supports it.
func TestVariantsOfPerftestAreCommandLines(t *testing.T) {
	wide := n1
	wide.Wire = bench.Wire{MTU: 4096}
	for _, tt := range []struct{ name, canonical, command string }{
		{"ib_write_bw/rc", "ib_write_bw", "-n 350 -u 18 -s 65536"},
		{"ib_write_bw/uc", "ib_write_bw/uc", "-n 350 -u 18 -s 65536 -c UC"},
		{"ib_write_lat/uc", "ib_write_lat/uc", "-n 1000 -u 18 -s 2 -c UC"},
		{"ib_send_bw/uc", "ib_send_bw/uc", "-n 350 -u 18 -s 65536 -c UC"},
		{"ib_send_bw/ud", "ib_send_bw/ud", "-n 4150 -u 18 -s 4096 -c UD"},
		{"ib_send_lat/ud", "ib_send_lat/ud", "-n 1000 -u 18 -s 2 -c UD"},
		{"ib_atomic_bw", "ib_atomic_bw", "-n 4990 -u 18"},
		{"ib_write_bw/bidi/q4/uc", "ib_write_bw/uc/q4/bidi", "-n 40 -u 18 -s 65536 -c UC -q 4 -b"},
		{"ib_read_bw/timed", "ib_read_bw/timed", "-D 2 -u 18 -s 65536"},
		{"ib_send_lat/timed", "ib_send_lat/timed", "-D 2 -u 18 -s 2"},
		{"ib_write_bw/imm", "ib_write_bw/imm", "-n 350 -u 18 -s 65536 --write_with_imm"},
		{"ib_write_lat/imm", "ib_write_lat/imm", "-n 1000 -u 18 -s 2 --write_with_imm"},
		{"ib_send_bw/events/dscp26", "ib_send_bw/dscp26/events", "-n 350 -u 18 -s 65536 --tclass=104 -e"},
		{"ib_send_lat/dscp0", "ib_send_lat/dscp0", "-n 1000 -u 18 -s 2 --tclass=0"},
		{"ib_atomic_lat/cas", "ib_atomic_lat/cas", "-n 1000 -u 18 -A CMP_AND_SWAP"},
		{"ib_write_bw/dmabuf/cuda1", "ib_write_bw/cuda1/dmabuf",
			"-n 350 -u 18 -s 65536 --use_cuda=1 --use_cuda_dmabuf"},
	} {
		e := mustEngine(t, tt.name)
		if e.Name != tt.canonical || !reflect.DeepEqual(mustEngine(t, e.Name), e) {
			t.Errorf("%s is called %s, want %s", tt.name, e.Name, tt.canonical)
		}
		_, args, _ := strings.Cut(strings.Join(e.Server(wide, bench.Options{Quick: true, Port: 20000}), " "),
			" -p 20000 ")
		if args != tt.command {
			t.Errorf("%s: got %s, want %s", tt.name, args, tt.command)
		}
	}
}

func TestVariantsThatDoNotExistAreRefused(t *testing.T) {
	for name, want := range map[string]string{
		"ib_read_bw/uc":       `test "ib_read_bw/uc": UC has no read: it takes send and write`,
		"ib_atomic_lat/uc":    `test "ib_atomic_lat/uc": UC has no atomic: it takes send and write`,
		"ib_write_bw/ud":      `test "ib_write_bw/ud": UD has no write: it takes send alone`,
		"ib_read_lat/ud":      `test "ib_read_lat/ud": UD has no read: it takes send alone`,
		"ib_send_bw/imm":      `test "ib_send_bw/imm": imm is for write, not for send`,
		"ib_write_lat/cas":    `test "ib_write_lat/cas": cas is for atomic, not for write`,
		"ib_write_lat/q2":     `test "ib_write_lat/q2": bidi and more queue pairs than one are for bandwidth`,
		"ib_send_lat/bidi":    `test "ib_send_lat/bidi": bidi and more queue pairs than one are for bandwidth`,
		"ib_write_bw/dscp64":  `test "ib_write_bw/dscp64": DSCP 64; give 0 to 63`,
		"ib_write_lat/events": `test "ib_write_lat/events": events are for send, and not for timed`,
		"ib_write_bw/q0":      `test "ib_write_bw/q0": 0 queue pairs; give 1 to 16384`,
		"ib_write_bw/dmabuf":  `test "ib_write_bw/dmabuf": dmabuf needs a GPU: add cuda0`,
		"ib_write_bw/xrc": `test "ib_write_bw/xrc": "xrc" is unknown; after a slash come rc, uc or ` +
			`ud, qN, dscpN, bidi, timed, imm, cas, events, cudaN, dmabuf, nicN`,
		"ib_write_bw/": `test "ib_write_bw/": "" is unknown; after a slash come rc, uc or ud, qN, ` +
			`dscpN, bidi, timed, imm, cas, events, cudaN, dmabuf, nicN`,
		"iperf3/uc": `test "iperf3/uc": iperf3 has no variants`,
	} {
		if _, err := EngineByName(name); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	wide := n1
	wide.Wire.MTU = 1024
	other := n2
	other.Wire.MTU = 4096
	_, err := (&bench.Runner{}).Run(t.Context(), mustEngine(t, "ib_send_bw/ud"), other, wide,
		bench.Options{Bytes: 1025})
	if err == nil || !strings.HasSuffix(err.Error(),
		"message size 1025; a datagram (UD) is one packet, of at most 1024 bytes here") {
		t.Errorf("a datagram larger than a packet: %v", err)
	}
}

func TestOptionsThatATooOldPerftestLacksAreRefusedByItsHelp(t *testing.T) {
	const old = "  -b, --bidirectional  Measure\n      --use_hugepages  Use Hugepages instead of contig, memalign " +
		"allocations.\n"
	const newer = old + "      --write_with_imm  use write-with-immediate verb instead of write\n      " +
		"--use_cuda=<cuda device id>  Use CUDA\n"
	ask := func(help string) bench.AskFunc {
		return func(_ context.Context, _ string, argv ...string) (bench.Output, error) {
			if slices.Contains(argv, "nvidia-smi -L") {
				return bench.Output{Stdout: []byte("GPU 0: NVIDIA H20 (UUID: GPU-0)\n")}, nil
			}
			return bench.Output{Stdout: []byte(help), ExitCode: 1}, nil
		}
	}
	for _, tt := range []struct{ name, help, want string }{
		{"ib_write_bw", old, ""},
		{"ib_write_bw/imm", newer, ""},
		{"ib_write_bw/imm", old, "n2: ib_write_bw has no --write_with_imm: writes with immediate data need a later " +
			"perftest"},
		{"ib_write_bw/cuda0", newer, ""},
		{"ib_write_bw/cuda0", old, "n2: ib_write_bw has no --use_cuda: memory of a GPU needs a perftest that was " +
			"built with CUDA"},
		{"ib_write_bw/cuda1", newer, "n2: nvidia-smi -L finds 1 GPUs, and the test uses number 1, from 0"},
		{"ib_write_bw/cuda0/dmabuf", newer, "n2: ib_write_bw has no --use_cuda_dmabuf: dma-buf needs a later " +
			"perftest, built with CUDA"},
	} {
		err := mustEngine(t, tt.name).Plugin.Prepare(t.Context(), ask(tt.help), n2, n1, &bench.Options{})
		if got := ""; err != nil {
			got = err.Error()
			if got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
			}
		} else if tt.want != "" {
			t.Errorf("%s: no error, want %s", tt.name, tt.want)
		}
	}
}

// Debian 13's ucx_perftest 1.18.1 was built with MPI. Debian 12's refuses the option.
func TestUCXThatWasBuiltWithMPIIsToldThatThereIsNone(t *testing.T) {
	t.Parallel()
	const without = "     -p <port>      TCP port to use for data exchange (13337)\n     -h             show this " +
		"help message\n"
	const with = "     -P <0|1>       disable/enable MPI mode (1)\n" + without
	helps := map[string]string{n1.Node: without, n2.Node: with}
	e := mustEngine(t, "ucx_put_lat")
	o := bench.Options{Port: 20001, WithMPI: []string{n1.Node}}
	err := e.Plugin.Prepare(t.Context(), func(_ context.Context, node string, _ ...string) (bench.Output, error) {
		return bench.Output{Stdout: []byte(helps[node])}, nil
	}, n2, n1, &o)
	if err != nil {
		t.Fatal(err)
	}
	if client := strings.Join(e.Plugin.Client(n2, n1, o), " "); !strings.Contains(client, " -P 0 ") {
		t.Errorf("client: %s", client)
	}
	if server := strings.Join(e.Plugin.Server(n1, o), " "); strings.Contains(server, " -P ") {
		t.Errorf("server: %s", server)
	}
}

// An average of nothing after the last line of progress is 0/0, as in this row of UCX 1.18.1.
func TestAverageOfNothingOfUCXIsNoFailure(t *testing.T) {
	t.Parallel()
	whole := string(readFile(t, "testdata/ucx/recorded-1.18.1-rxe-tcg-put_bw.txt"))
	row := "                        1770      5.000      -nan  2315.038        -nan      27.00        -nan      " +
		"   432\n"
	at := strings.LastIndex(strings.TrimSuffix(whole, "\n"), "\n") + 1
	figures, err := ParseUCX([]byte(whole[:at]+row), 65536)
	if err != nil || len(figures) != 2 || !near(figures[0].Value, 27*mibToGb, 1e-9) || !near(figures[1].Value, 432e-6,
		1e-9) {
		t.Errorf("%+v, error %v", figures, err)
	}
}

func TestSuitesHoldEveryEngineOnce(t *testing.T) {
	n := 0
	for _, name := range bench.Suites() {
		engines, err := Suite(name)
		if err != nil || len(engines) == 0 {
			t.Errorf("%s: %d engines, error %v", name, len(engines), err)
		}
		if name == bench.SuiteAll {
			want := len(Catalogue()) + len(variants) - len(vramEngines) // which are found by name only
			if n != len(engines) || n != want {
				t.Errorf("the suites have %d engines, all has %d, and there are %d", n, len(engines), want)
			}
			continue
		}
		if name != bench.SuiteGPUDirect {
			n += len(engines)
		}
	}
	if _, err := Suite("disk"); err == nil ||
		err.Error() != `find suite "disk": unknown; use one of rdma, tcp, cpu, memory, gpu, mpi, apps, ai, `+
			`gpudirect, all` {
		t.Errorf("a suite that is not there: %v", err)
	}
	var names []string
	for _, e := range Catalogue() {
		if e.Program == "" || e.Package == "" || e.About == "" || len(e.Metrics()) == 0 {
			t.Errorf("%+v is not complete", e)
		}
		for _, m := range e.Metrics() {
			if bench.MetricOf(m).Unit == "" {
				t.Errorf("%s: %s has no unit", e.Name, m)
			}
		}
		names = append(names, e.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(Catalogue()) {
		t.Error("two engines have one name")
	}
}

// All of table 38 of the InfiniBand Architecture Specification that perftest can measure.
func TestSuiteRDMAHasEveryOperationWithEveryTransport(t *testing.T) {
	engines, err := Suite(bench.SuiteRDMA)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ test, transports string }{
		{"ib_send", "rc uc ud"}, {"ib_write", "rc uc"}, {"ib_read", "rc"}, {"ib_atomic", "rc"}, {"ib_write imm", "rc"},
		{"ib_atomic cas", "rc"},
	} {
		operation, word, _ := strings.Cut(want.test, " ")
		for _, figure := range []string{"_bw", "_lat"} {
			for transport := range strings.FieldsSeq(want.transports) {
				name := operation + figure + "/" + transport
				if word != "" {
					name += "/" + word
				}
				if e := mustEngine(t, name); !holds(engines, e) {
					t.Errorf("%s is not in it", e.Name)
				}
			}
		}
	}
}

// All sizes, several queue pairs, both ways and a duration.
func TestSuiteRDMAHasEveryWayToRunPerftest(t *testing.T) {
	engines, err := Suite(bench.SuiteRDMA)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ name, args string }{
		{"ib_write_bw", "-n 20 -u 18 -a"},
		{"ib_write_bw/q4", "-n 10 -u 18 -a -q 4"},
		{"ib_write_bw/bidi", "-n 10 -u 18 -a -b"},
		{"ib_write_bw/timed", "-D 5 -u 18 -s 65536"},
	} {
		e := mustEngine(t, want.name)
		_, args, _ := strings.Cut(strings.Join(e.Server(n1, bench.Options{Port: 20000}), " "), " -p 20000 ")
		if !holds(engines, e) || args != want.args {
			t.Errorf("%s: in it: %v; runs with %s, want %s", e.Name, holds(engines, e), args, want.args)
		}
	}
	// On the slowest nodes four queue pairs send no more than one.
	args := mustEngine(t, "ib_write_bw/q4").Server(n1, bench.Options{Accelerator: bench.Nested})
	if i := slices.Index(args, "-n"); args[i+1] != "5" {
		t.Errorf("%q, want 5 iterations of each queue pair", args)
	}
	for _, e := range Engines() {
		if strings.Contains(e.Name, "/") {
			t.Errorf("%s is run where nothing is asked for", e.Name)
		}
	}
}

func TestNCCLTellsWhatItKnowsOfItsVersions(t *testing.T) {
	for printed, want := range map[string]string{
		"NCCL version 2.21.5+cuda12.4\n# nThread 1 nGpus 8\n":                 "NCCL 2.21.5+cuda12.4",
		"# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703\n": "2.17.1",
		"# nThread 1 nGpus 8\n": "",
	} {
		if got := mustEngine(t, "nccl_all_reduce").Version(bench.Output{Stdout: []byte(printed)}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A figure from an unknown version of a tool cannot be compared.
func TestEveryToolTellsItsVersion(t *testing.T) {
	silent := []string{"lat_mem_rd", "bw_mem"} // lmbench
	for _, e := range Catalogue() {
		if tells := e.Versions != nil || e.VersionCommand != nil; tells == slices.Contains(silent, e.Program) {
			t.Errorf("%s: it tells its version: %v", e.Name, tells)
		}
	}
}

func TestEnginesOfTheWrongShapeAreRefused(t *testing.T) {
	r := &bench.Runner{}
	if _, err := r.Run(t.Context(), mustEngine(t, "sysbench_cpu"), n2, n1, bench.Options{}); err == nil ||
		err.Error() != `measure sysbench_cpu on "n2": this engine measures one node; use RunLocal` {
		t.Error(err)
	}
	if _, err := r.RunLocal(t.Context(), mustEngine(t, "iperf3"), n2, bench.Options{}); err == nil ||
		err.Error() != `measure iperf3 from "n2" to "": this engine measures between two nodes; use Run` {
		t.Error(err)
	}
	if _, err := r.Run(t.Context(), mustEngine(t, "ping"), n2, n1, bench.Options{CPU: "0;x"}); err == nil ||
		!strings.HasSuffix(err.Error(), `CPUs "0;x": "0;x" is no number or range below 4096`) {
		t.Error(err)
	}
}

func holds(engines []bench.Engine, e bench.Engine) bool {
	return slices.ContainsFunc(engines, func(o bench.Engine) bool { return reflect.DeepEqual(o, e) })
}
