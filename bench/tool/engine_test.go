package tool

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/bench"
)

var (
	n1 = bench.Endpoint{Node: "n1", Addr: netip.MustParseAddr("10.0.0.1"), Device: "rxe0", GIDIndex: 1}
	n2 = bench.Endpoint{Node: "n2", Addr: netip.MustParseAddr("10.0.0.2"), Device: "rxe1", GIDIndex: 3}
)

func mustEngine(t testing.TB, name string) bench.Engine {
	t.Helper()
	e, err := EngineByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// These are the arguments that docs/measuring.md promises.
func TestCommandLinesAreExactlyThese(t *testing.T) {
	tests := []struct {
		engine         string
		opts           bench.Options
		server, client string
	}{
		{"ib_write_bw", bench.Options{Accelerator: "tcg"},
			"ib_write_bw -d rxe0 -x 1 --report_gbits -F -p 20000 -n 20 -u 18 -a",
			"ib_write_bw -d rxe1 -x 3 --report_gbits -F -p 20000 -n 20 -u 18 -a 10.0.0.1"},
		{"ib_write_bw", bench.Options{Accelerator: bench.Nested, Quick: true},
			"ib_write_bw -d rxe0 -x 1 --report_gbits -F -p 20000 -n 50 -u 18 -s 65536",
			"ib_write_bw -d rxe1 -x 3 --report_gbits -F -p 20000 -n 50 -u 18 -s 65536 10.0.0.1"},
		{"ib_write_lat", bench.Options{Accelerator: bench.Nested, Quick: true},
			"ib_write_lat -d rxe0 -x 1 --report_gbits -F -p 20000 -n 70 -u 18 -s 2",
			"ib_write_lat -d rxe1 -x 3 --report_gbits -F -p 20000 -n 70 -u 18 -s 2 10.0.0.1"},
		{"ib_read_bw", bench.Options{Accelerator: "kvm"},
			"ib_read_bw -d rxe0 -x 1 --report_gbits -F -p 20000 -n 550 -a",
			"ib_read_bw -d rxe1 -x 3 --report_gbits -F -p 20000 -n 550 -a 10.0.0.1"},
		{"ib_send_bw", bench.Options{Quick: true},
			"ib_send_bw -d rxe0 -x 1 --report_gbits -F -p 20000 -n 350 -u 18 -s 65536",
			"ib_send_bw -d rxe1 -x 3 --report_gbits -F -p 20000 -n 350 -u 18 -s 65536 10.0.0.1"},
		{"ib_write_bw", bench.Options{Bytes: 8 << 20},
			"ib_write_bw -d rxe0 -x 1 --report_gbits -F -p 20000 -n 20 -u 18 " + "-s 8388608",
			"ib_write_bw -d rxe1 -x 3 --report_gbits -F -p 20000 -n 20 -u 18 -s 8388608 10.0.0.1"},
		{"ib_write_lat", bench.Options{}, "ib_write_lat -d rxe0 -x 1 --report_gbits -F -p 20000 -n 5000 -u 18 -s 2",
			"ib_write_lat -d rxe1 -x 3 --report_gbits -F -p 20000 -n 5000 -u 18 -s 2 10.0.0.1"},
		{"ib_send_lat", bench.Options{Quick: true},
			"ib_send_lat -d rxe0 -x 1 --report_gbits -F -p 20000 -n 1000 -u 18 -s 2",
			"ib_send_lat -d rxe1 -x 3 --report_gbits -F -p 20000 -n 1000 -u 18 -s 2 10.0.0.1"},
		{"ib_read_lat", bench.Options{Accelerator: "kvm"},
			"ib_read_lat -d rxe0 -x 1 --report_gbits -F -p 20000 -n 10000 -s 2",
			"ib_read_lat -d rxe1 -x 3 --report_gbits -F -p 20000 -n 10000 -s 2 10.0.0.1"},
		{"ib_atomic_lat", bench.Options{Bytes: 64, Iterations: 77},
			"ib_atomic_lat -d rxe0 -x 1 --report_gbits -F -p 20000 -n 77 -u 18",
			"ib_atomic_lat -d rxe1 -x 3 --report_gbits -F -p 20000 -n 77 -u 18 10.0.0.1"},
		{"iperf3", bench.Options{}, "iperf3 -s -1 -p 20000", "iperf3 -c 10.0.0.1 -p 20000 -t 5 --json"},
		{"iperf3", bench.Options{Quick: true}, "iperf3 -s -1 -p 20000", "iperf3 -c 10.0.0.1 -p 20000 -t 2 --json"},
		{"fi_pingpong", bench.Options{}, "fi_pingpong -p verbs -e msg -d rxe0 -I 60 -B 20000",
			"fi_pingpong -p verbs -e msg -d rxe1 -I 60 -P 20000 10.0.0.1"},
		{"fi_pingpong", bench.Options{Quick: true, Iterations: 7},
			"fi_pingpong -p verbs -e msg -d rxe0 -I 7 -S 64 -B 20000",
			"fi_pingpong -p verbs -e msg -d rxe1 -I 7 -S 64 -P 20000 10.0.0.1"},
		{"iperf3", bench.Options{Seconds: 60}, "iperf3 -s -1 -p 20000", "iperf3 -c 10.0.0.1 -p 20000 -t 60 --json"},
	}
	for _, tt := range tests {
		t.Run(tt.client, func(t *testing.T) {
			e := mustEngine(t, tt.engine)
			tt.opts.Port = 20000
			if got := strings.Join(e.Server(n1, tt.opts), " "); got != tt.server {
				t.Errorf("server: got  %s\n        want %s", got, tt.server)
			}
			if got := strings.Join(e.Client(n2, n1, tt.opts), " "); got != tt.client {
				t.Errorf("client: got  %s\n        want %s", got, tt.client)
			}
		})
	}
}

func TestEveryEngineIsFoundByItsName(t *testing.T) {
	if n := len(Engines()); n != 8 {
		t.Errorf("%d engines without a suite, want 8", n)
	}
	for _, e := range Engines() {
		if got := mustEngine(t, e.Name); !reflect.DeepEqual(got, e) || e.About == "" {
			t.Errorf("got %+v, want %+v", got, e)
		}
	}
	Engines()[0].Name = "changed"
	if Engines()[0].Name != "ib_write_bw" {
		t.Error("a caller can change the table")
	}
	_, err := EngineByName("ib_bw")
	const want = `there is no test "ib_bw"; did you mean osu_bw? use one of ib_write_bw, ib_read_bw, ib_send_bw, ` +
		`ib_atomic_bw, ib_write_lat, ib_send_lat, ib_read_lat, ib_atomic_lat, iperf3, ping, ucx_put_bw, ` +
		`ucx_put_lat, fi_pingpong, sysbench_cpu_single, sysbench_cpu, stress_stream, lat_mem_rd, ` +
		`gpu_bandwidth_h2d, gpu_bandwidth_d2h, gpu_bandwidth_local, nccl_all_reduce, osu_bw, osu_bibw, ` +
		`osu_latency, osu_allreduce, osu_alltoall, mpi_latency, mpi_mbw_mr, mpi_allreduce, mpi_alltoall, ` +
		`7zip, lammps, gromacs, openfoam, hpcc, mooncake_write, mooncake_read, nixl_write, nixl_read, ` +
		`gloo_all_reduce, ucc_all_reduce, vram_write_bw`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestChosenIterationsStayWithinPerftestsLimitsAndTheTime(t *testing.T) {
	for _, e := range Engines() {
		p, ok := e.Plugin.(perftest)
		if !ok {
			continue
		}
		for _, accel := range []string{"tcg", "kvm", "", bench.Adapter} {
			for _, quick := range []bool{false, true} {
				for _, size := range []int64{0, 1, 2, 4096, 65536, 1 << 20, 8 << 20} {
					o := bench.Options{Accelerator: accel, Quick: quick, Bytes: size}
					n := p.iterations(o)
					if n < leastIterations || n > mostIterations || n%10 != 0 {
						t.Errorf("%s %+v: %d iterations", e.Name, o, n)
					}
					if !p.bandwidth && p.size(bench.Endpoint{}, o) <= 8 && n < 1000 {
						t.Errorf("%s %+v: %d iterations are too few for a p99.9", e.Name, o, n)
					}
				}
			}
		}
	}
}

func TestEnginesParseWhatTheyAreRunFor(t *testing.T) {
	tests := []struct {
		engine, file string
		figures      int
		want         string
	}{
		{"ib_write_bw", "perftest/synthetic-write_bw-a-gbits-emulated.txt", 69, ""},
		{"ib_send_bw", "perftest/synthetic-send_bw-a-cx5-100g.txt", 69, ""},
		{"ib_write_lat", "perftest/synthetic-write_lat-emulated.txt", 7, ""},
		{"ib_atomic_lat", "perftest/synthetic-atomic_lat.txt", 7, ""},
		{"ib_write_bw", "perftest/recorded-6.06-rxe-tcg-write_bw-a.txt", 69, ""},
		{"ib_read_bw", "perftest/recorded-6.06-rxe-tcg-read_bw-a.txt", 69, ""},
		{"ib_send_bw", "perftest/recorded-6.06-rxe-tcg-send_bw-a.txt", 69, ""},
		{"ib_write_bw", "perftest/recorded-6.06-rxe-tcg-write_bw-64k.txt", 3, ""},
		{"ib_write_lat", "perftest/recorded-6.06-rxe-tcg-write_lat.txt", 6, ""},
		{"ib_send_lat", "perftest/recorded-6.06-rxe-tcg-send_lat.txt", 7, ""},
		{"ib_read_lat", "perftest/recorded-6.06-rxe-tcg-read_lat.txt", 7, ""},
		{"ib_atomic_lat", "perftest/recorded-6.06-rxe-tcg-atomic_lat.txt", 7, ""},
		{"iperf3", "iperf3/recorded-3.12-tcp.json", 2, ""},
		{"iperf3", "iperf3/recorded-3.12-refused.json", 0, "unable to connect to server: Connection refused"},
		{"ib_write_bw", "perftest/synthetic-bad-cut-table.txt", 0,
			"the table is cut off: the line that closes it is missing"},
		{"ib_write_bw", "perftest/synthetic-bad-zeros.txt", 0, "a value of zero is a failed measurement"},
		{"ib_write_bw", "perftest/synthetic-write_lat-emulated.txt", 0,
			"ib_write_bw printed no bw_average for 2 bytes"},
		{"ib_write_lat", "perftest/synthetic-write_bw-a-gbits-emulated.txt", 0,
			"ib_write_lat printed no latency_min for 2 bytes"},
		{"ib_write_lat", "perftest/synthetic-write_lat-threecolumns-2.x.txt", 0,
			"ib_write_lat printed no latency_average for 2 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.engine+" "+tt.file, func(t *testing.T) {
			figures, err := mustEngine(t, tt.engine).Parse(readFile(t, "testdata/"+tt.file))
			if tt.want == "" {
				if err != nil || len(figures) != tt.figures {
					t.Errorf("%d figures, error %v, want %d", len(figures), err, tt.figures)
				}
				return
			}
			var bad *bench.BadResultError
			if !errors.As(err, &bad) || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("got %d figures, error %v, want %s", len(figures), err, tt.want)
			}
		})
	}
}

func TestVersionsAreFoundInWhatTheToolsPrint(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"perftest", "Version: 6.06\n", "6.06"},
		{"perftest of a vendor", " Version: 5.96-0.g5f38ff6.56103\n", "5.96-0.g5f38ff6.56103"},
		{"iperf3", "iperf 3.12 (cJSON 1.7.15)\nLinux n1 6.1.0\n", "3.12"},
		{"iperf3 on one line", "iperf 3.0.11\n", "3.0.11"},
		{"UCX", "# Version 1.13.1\n# Git branch '<unknown>', revision 0000000\n", "1.13.1"},
		{"a newer UCX", "# Library version: 1.17.0\n# Library path: /usr/lib/libucs.so.0\n", "1.17.0"},
		{"a missing program", "sh: ib_write_bw: not found\n", ""},
		{"nothing", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := (bench.Engine{}).Version(bench.Output{Stdout: []byte(tt.in)}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestHowLongMeasurementsLast(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		test string
		o    bench.Options
		want time.Duration
	}{
		{"iperf3", bench.Options{}, 5200 * time.Millisecond},
		{"iperf3", bench.Options{Quick: true}, 2200 * time.Millisecond},
		{"iperf3", bench.Options{Seconds: 30}, 30200 * time.Millisecond},
		{"ping", bench.Options{Iterations: 100}, 20200 * time.Millisecond},
		{"stress_stream", bench.Options{Seconds: 1}, 6200 * time.Millisecond},
		{"ib_read_bw/timed", bench.Options{Bytes: 4096, Seconds: 10}, 11200 * time.Millisecond},
		{"ib_write_lat", bench.Options{Bytes: 2, Iterations: 1000, Accelerator: "tcg"}, 2200160 * time.Microsecond},
		{"ib_write_lat", bench.Options{Bytes: 2, Iterations: 1000, Accelerator: "kvm"}, 1300006 * time.Microsecond},
	} {
		if got := mustEngine(t, tt.test).Duration(tt.o); got.Round(time.Microsecond) != tt.want {
			t.Errorf("%s with %+v lasts %v, want %v", tt.test, tt.o, got, tt.want)
		}
	}
}
