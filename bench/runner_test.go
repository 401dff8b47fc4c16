package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
)

var (
	n1 = bench.Endpoint{Node: "n1", Addr: netip.MustParseAddr("10.0.0.1"), Device: "rxe0", GIDIndex: 1}
	n2 = bench.Endpoint{Node: "n2", Addr: netip.MustParseAddr("10.0.0.2"), Device: "rxe1", GIDIndex: 3}
)

func mustEngine(t testing.TB, name string) bench.Engine {
	t.Helper()
	e, err := tool.EngineByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("tool/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type command func(ctx context.Context) (bench.Output, error)

type fakeLab struct {
	clients []command // in the order of the attempts; the last one repeats
	servers []command // if empty, a server that listens until it is killed
	deaf    bool      // servers never listen
	noProc  error
	version bench.Output
	answers map[string]bench.Output // by node and command

	mu        sync.Mutex
	listening map[string]bool // ports in hexadecimal
	running   int
	ports     []string
	log       []string // without looking for the port
}

func (l *fakeLab) next(list *[]command) command {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := (*list)[0]
	if len(*list) > 1 {
		*list = (*list)[1:]
	}
	return c
}

func (l *fakeLab) Exec(ctx context.Context, node string, argv []string) (bench.Output, error) {
	if argv[0] == "sh" || argv[0] == "taskset" && argv[len(argv)-1] == "nproc" {
		return l.answers[strings.Join(append([]string{node}, argv...), " ")], nil // installed if not set
	}
	l.mu.Lock()
	l.log = append(l.log, node+": "+strings.Join(argv, " "))
	l.mu.Unlock()
	if slices.Contains(argv, "--version") || slices.Contains(argv, "-V") {
		return l.version, nil
	}
	if slices.Contains(argv, "10.0.0.1") {
		return l.next(&l.clients)(ctx)
	}
	return l.serve(ctx, argv[slices.Index(argv, "-p")+1])
}

// ReadFile simulates a kernel that lists all sockets in tcp6.
func (l *fakeLab) ReadFile(ctx context.Context, _, path string) ([]byte, error) {
	if l.noProc != nil {
		return nil, l.noProc
	}
	if path != "/proc/net/tcp6" {
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for p := range l.listening {
		fmt.Fprintf(&b, "   0: 00000000:%s 00000000:0000 0A 0\n", p)
	}
	return []byte(b.String()), ctx.Err()
}

func (l *fakeLab) Serve(ctx context.Context, node string, argv []string, awaited <-chan struct{}) (bench.Output,
	error) {
	if awaited == nil {
		return bench.Output{}, errors.New("a server needs to be told when its end is waited for")
	}
	return l.Exec(ctx, node, argv)
}

func (l *fakeLab) serve(ctx context.Context, port string) (bench.Output, error) {
	l.mu.Lock()
	l.ports = append(l.ports, port)
	if l.running++; l.running > 1 {
		l.mu.Unlock()
		return bench.Output{}, errors.New("the last server still runs")
	}
	if l.listening == nil {
		l.listening = make(map[string]bool)
	}
	var n int
	fmt.Sscan(port, &n)
	hex := fmt.Sprintf("%04X", n)
	custom := len(l.servers) > 0
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running--
		delete(l.listening, hex)
	}()
	if custom {
		if c := l.next(&l.servers); c != nil {
			return c(ctx)
		}
	}
	time.Sleep(300 * time.Millisecond) // the first check comes too early
	if !l.deaf {
		l.mu.Lock()
		l.listening[hex] = true
		l.mu.Unlock()
	}
	<-ctx.Done()
	return bench.Output{}, ctx.Err()
}

func prints(t *testing.T, file string) command {
	out := recorded(t, ""+file)
	return func(ctx context.Context) (bench.Output, error) {
		time.Sleep(2 * time.Second)
		return bench.Output{Stdout: out}, nil
	}
}

func fails(code int, stdout, stderr string) command {
	return func(context.Context) (bench.Output, error) {
		return bench.Output{Stdout: []byte(stdout), Stderr: []byte(stderr), ExitCode: code}, nil
	}
}

func hangs(ctx context.Context) (bench.Output, error) {
	<-ctx.Done()
	return bench.Output{}, ctx.Err()
}

// miscalibrated prints zeros, with a line on stderr and status 0.
func miscalibrated(t *testing.T) command {
	zeros := string(recorded(t, "perftest/synthetic-bad-zeros.txt"))
	return fails(0, zeros, "Correlation coefficient r^2: 0.832114 < 0.9\n")
}

const goodBW = "perftest/synthetic-write_bw-a-gbits-emulated.txt"

func measure(t *testing.T, lab *fakeLab, change func(*bench.Runner)) ([]bench.Sample, []string) {
	t.Helper()
	lab.version = bench.Output{Stdout: []byte("Version: 6.06\n"), ExitCode: 1}
	var samples []bench.Sample
	var progress []string
	synctest.Test(t, func(t *testing.T) {
		r := &bench.Runner{Exec: lab, Accelerator: "tcg", Emulated: true, Progress: func(p bench.Progress) {
			progress = append(progress, fmt.Sprintf("%s %s-%s %d done=%v retry=%v failed=%v", p.Engine, p.Client,
				p.Server, p.Attempt, p.Done, p.Retry, p.Err != nil))
		}}
		if change != nil {
			change(r)
		}
		var err error
		samples, err = r.Run(t.Context(), mustEngine(t, "ib_write_bw"), n2, n1, bench.Options{})
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		if lab.running != 0 {
			t.Errorf("%d servers still run", lab.running)
		}
	})
	return samples, progress
}

func TestAGoodMeasurementGivesASampleForEachFigure(t *testing.T) {
	lab := &fakeLab{clients: []command{prints(t, goodBW)}}
	samples, progress := measure(t, lab, nil)
	if len(samples) != 69 {
		t.Fatalf("%d samples, want 23 sizes of 3 figures: %+v", len(samples), samples)
	}
	want := bench.Sample{
		Test: "ib_write_bw", Client: "n2", Server: "n1", Metric: bench.MetricBWPeak, Bytes: 2, Iterations: 20,
		Value: 0.000081, Unit: bench.UnitGbps,
		Tool: "perftest", Version: "6.06",
		Command:       "ib_write_bw -d rxe1 -x 3 --report_gbits -F -p 20000 -n 20 -u 18 -a 10.0.0.1",
		ServerCommand: "ib_write_bw -d rxe0 -x 1 --report_gbits -F -p 20000 -n 20 -u 18 -a",
		Placement:     "not pinned",
		Accelerator:   "tcg", Emulated: true, Seconds: 2, Attempt: 1,
	}
	if diff := cmp.Diff(want, samples[0], cmpopts.IgnoreFields(bench.Sample{}, "Run", "Started")); diff != "" {
		t.Errorf("first sample (-want +got):\n%s", diff)
	}
	for _, s := range samples {
		if err := bench.WriteSamples(io.Discard, []bench.Sample{s}); s.Run != samples[0].Run || s.Run == "" ||
			s.Started.IsZero() || err != nil {
			t.Fatalf("sample %+v: %v", s, err)
		}
	}
	wantProgress := []string{"ib_write_bw n2-n1 1 done=false retry=false failed=false",
		"ib_write_bw n2-n1 1 done=true retry=false failed=false"}
	if diff := cmp.Diff(wantProgress, progress); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

func TestAFigureIsHeldAgainstTheWire(t *testing.T) {
	measured := func(rate float64) []bench.Sample {
		var samples []bench.Sample
		lab := &fakeLab{clients: []command{prints(t, goodBW)}, version: bench.Output{Stdout: []byte("Version: 6.06\n"),
			ExitCode: 1}}
		synctest.Test(t, func(t *testing.T) {
			client, server := n2, n1
			client.Wire, server.Wire = bench.Wire{Rate: 100, MTU: 4096}, bench.Wire{Rate: rate, MTU: 4096}
			var err error
			if samples, err = (&bench.Runner{Exec: lab, Accelerator: "kvm", Retries: -1}).Run(t.Context(),
				mustEngine(t, "ib_write_bw"), client, server, bench.Options{}); err != nil {
				t.Error(err)
			}
		})
		return samples
	}
	good := measured(25)
	for _, s := range good {
		if (s.Limit > 0) != (s.Unit == bench.UnitGbps) || s.Limit > 25 || s.Error != "" {
			t.Fatalf("%+v", s)
		}
	}
	slow := measured(0.001)
	if len(slow) != 1 || !strings.Contains(slow[0].Error, "more than a link of 0.001 Gb/s carries") {
		t.Errorf("faster than its wire: %+v", slow)
	}
}

func TestAFailedAttemptIsRetriedOnAnotherPort(t *testing.T) {
	lab := &fakeLab{clients: []command{miscalibrated(t), miscalibrated(t), prints(t, goodBW)}}
	samples, progress := measure(t, lab, nil)
	if len(samples) != 69 || samples[0].Attempt != 3 || samples[0].Error != "" {
		t.Errorf("%d samples, the first %+v, want 69 of attempt 3", len(samples), samples[0])
	}
	if diff := cmp.Diff([]string{"20000", "20001", "20002"}, lab.ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if len(progress) != 6 || progress[3] != "ib_write_bw n2-n1 2 done=true retry=true failed=true" {
		t.Errorf("progress %q", progress)
	}
}

func TestAMeasurementThatFailsForGoodIsOneSampleWithAllReasons(t *testing.T) {
	calibration := `read result of perftest, line 1 "Correlation coefficient r^2: 0.832114 < 0.9": perftest ` +
		`could not calibrate the CPU clock and its figures mean nothing; run it again`
	tests := []struct {
		name    string
		lab     *fakeLab
		retries int
		want    string
		seconds float64
	}{
		{"the calibration fails each time", &fakeLab{clients: []command{miscalibrated(t)}}, 0, calibration, 0},
		{"the calibration fails and nothing is tried again", &fakeLab{clients: []command{miscalibrated(t)}}, -1,
			calibration, 0},
		{"the client prints zeros only", &fakeLab{clients: []command{prints(t, "perftest/synthetic-bad-zeros.txt")}},
			-1,
			`read result of perftest, line 23 "65536      350           0.000000            0.000000            ` +
				`0.000000": column BW average[Gb/sec]: value "0.000000": a value of zero is a failed measurement`, 2},
		{"the client prints the infinities of a failed calibration",
			&fakeLab{clients: []command{prints(t, "perftest/recorded-6.06-rxe-tcg-bad-calibration-write_lat.txt")}}, -1,
			`read result of perftest, line 22 "2       1000          inf            inf          inf      \t    ` +
				`   inf         \t-nan   \t\tinf     \t\tinf": column t_min[usec]: value "inf": not a decimal ` +
				`number`, 2},
		{"the client prints garbage", &fakeLab{clients: []command{fails(0, "\x00\xff!\nnot a table\n", "")}}, 0,
			`read result of perftest, line 2 "not a table": the output ends without a row of figures`, 0},
		{"the table is cut off", &fakeLab{clients: []command{prints(t, "perftest/synthetic-bad-cut-table.txt")}}, 1,
			`read result of perftest, line 24 "131072     350              0.24               0.23   \t\t   ` +
				`0.000219": the table is cut off: the line that closes it is missing`, 2},
		{"the client cannot connect", &fakeLab{clients: []command{fails(1, "",
			"Couldn't connect to 10.0.0.1:20000\n Unable to open file descriptor for socket connection\n")}}, -1,
			`run ib_write_bw on n2: exit status 1: Unable to open file descriptor for socket connection`, 0},
		{"the client fails without a word", &fakeLab{clients: []command{fails(139, "", "")}}, -1,
			`run ib_write_bw on n2: exit status 139`, 0},
		{"the client hangs", &fakeLab{clients: []command{hangs}}, 1, `run ib_write_bw on n2: no result within 3m5s`,
			185},
		{"the node does not answer", &fakeLab{clients: []command{func(context.Context) (bench.Output, error) {
			return bench.Output{}, errors.New("agent of n2: broken pipe")
		}}}, -1,
			`run ib_write_bw on n2: agent of n2: broken pipe`, 0},
		{"the server ends at once", &fakeLab{clients: []command{hangs},
			servers: []command{fails(1, "", " Unable to find the Infiniband/RoCE device\n")}}, 0,
			`server ended before it listened: run ib_write_bw on n1: exit status 1: Unable to find the ` +
				`Infiniband/RoCE device`, 0},
		{"the server's node does not answer", &fakeLab{clients: []command{hangs},
			servers: []command{func(context.Context) (bench.Output, error) {
				return bench.Output{}, errors.New("no agent")
			}}}, 0,
			`server ib_write_bw on n1 ended before it listened: no agent`, 0},
		{"the server never listens", &fakeLab{clients: []command{hangs}, deaf: true}, -1,
			`wait for ib_write_bw on n1: TCP port 20000 does not listen after 30s`, 0},
		{"the server's ports cannot be read", &fakeLab{clients: []command{hangs}, noProc: errors.New("no cat")}, -1,
			`wait for ib_write_bw on n1: TCP port 20000 does not listen after 30s; the last look failed: no cat`, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			samples, _ := measure(t, tt.lab, func(r *bench.Runner) { r.Retries = tt.retries })
			if len(samples) != 1 {
				t.Fatalf("%d samples, want 1", len(samples))
			}
			s := samples[0]
			attempts := 1 + bench.DefaultRetries
			if tt.retries != 0 {
				attempts = 1 + max(tt.retries, 0)
			}
			if tt.want == calibration && tt.retries == 0 {
				attempts = 1 + bench.CalibrationRetries
			}
			var want []string
			for i := range attempts {
				want = append(want, fmt.Sprintf("attempt %d: %s", i+1, tt.want))
			}
			if got := strings.Split(s.Error, "; attempt "); len(got) != attempts {
				t.Errorf("%d attempts, want %d: %s", len(got), attempts, s.Error)
			}
			if s.Error != strings.Join(want, "; ") {
				t.Errorf("got  %s\nwant %s", s.Error, strings.Join(want, "; "))
			}
			reached := !strings.Contains(tt.want, " listen")
			err := bench.WriteSamples(io.Discard, []bench.Sample{s})
			if s.Attempt != attempts || s.Metric != "" || s.Value != 0 || (s.Command != "") != reached ||
				s.ServerCommand == "" || !s.Emulated || err != nil {
				t.Errorf("sample %+v: %v", s, err)
			}
			if s.Seconds != tt.seconds {
				t.Errorf("took %v s, want %v", s.Seconds, tt.seconds)
			}
		})
	}
}

// Of both sides and all attempts, for diagnosis.
func TestAFailedMeasurementKeepsWhatWasPrinted(t *testing.T) {
	const maxOutput = 16 << 10
	long := strings.Repeat("x", maxOutput)
	lab := &fakeLab{
		clients: []command{
			fails(0, "line one\nline two\n", "a complaint\n"),
			func(ctx context.Context) (bench.Output, error) { // hangs after some output
				<-ctx.Done()
				return bench.Output{Stdout: []byte("half a table\xff")}, ctx.Err()
			},
			fails(1, "begins"+long+"ends", ""),
		},
		servers: []command{func(ctx context.Context) (bench.Output, error) {
			<-ctx.Done()
			return bench.Output{Stderr: []byte("the server's last words\n")}, ctx.Err()
		}},
		listening: map[string]bool{"4E20": true, "4E21": true, "4E22": true},
	}
	samples, _ := measure(t, lab, nil)
	if len(samples) != 1 {
		t.Fatalf("%d samples, want 1", len(samples))
	}
	const server = "server on n1, stderr:\nthe server's last words\n"
	want := "attempt 1:\nclient on n2, stdout:\nline one\nline two\nclient on n2, stderr:\na complaint\n" + server +
		"\nattempt 2:\nclient on n2, stdout:\nhalf a table?\n" + server +
		"\nattempt 3:\nclient on n2, stdout:\nbegins" + long[:maxOutput/2-6] + "\n(10 bytes are left out)\n" +
		long[:maxOutput/2-4] + "ends\n" + server
	if diff := cmp.Diff(want, samples[0].Output); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	lab = &fakeLab{clients: []command{prints(t, goodBW)}}
	if samples, _ = measure(t, lab, nil); samples[0].Output != "" {
		t.Errorf("a good measurement keeps %q", samples[0].Output)
	}
}

// On request: byte by byte, once, and only of the successful attempt.
func TestAGoodMeasurementKeepsWhatWasPrinted(t *testing.T) {
	table := recorded(t, ""+goodBW)
	newLab := func() *fakeLab {
		return &fakeLab{
			clients: []command{fails(1, "nothing\n", ""), func(context.Context) (bench.Output, error) {
				time.Sleep(2 * time.Second)
				return bench.Output{Stdout: table, Stderr: []byte("a \xff warning\n")}, nil
			}},
			servers: []command{func(ctx context.Context) (bench.Output, error) {
				<-ctx.Done()
				return bench.Output{Stdout: []byte(" the server's table \n\n")}, ctx.Err()
			}},
			listening: map[string]bool{"4E20": true, "4E21": true},
		}
	}
	samples, _ := measure(t, newLab(), func(r *bench.Runner) { r.KeepPrinted = true })
	want := []bench.Stream{{Name: "client stdout", Text: table}, {Name: "client stderr",
		Text: []byte("a \xff warning\n")}, {Name: "server stdout", Text: []byte(" the server's table \n\n")}}
	if diff := cmp.Diff(want, samples[0].Printed); diff != "" || samples[0].Attempt != 2 {
		t.Errorf("attempt %d (-want +got):\n%s", samples[0].Attempt, diff)
	}
	if slices.ContainsFunc(samples[1:], func(s bench.Sample) bool { return s.Printed != nil }) {
		t.Error("it is kept with more than the first sample")
	}
	if samples, _ := measure(t, newLab(), nil); samples[0].Printed != nil {
		t.Errorf("unasked it keeps %q", samples[0].Printed)
	}
}

// Ten minutes may take ten minutes plus the time limit.
func TestALongMeasurementIsNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lab := &fakeLab{clients: []command{func(ctx context.Context) (bench.Output, error) {
			select {
			case <-time.After(600 * time.Second):
				return bench.Output{Stdout: recorded(t, ""+goodBW)}, nil
			case <-ctx.Done():
				return bench.Output{}, ctx.Err()
			}
		}}}
		r := &bench.Runner{Exec: lab, Accelerator: "tcg", Emulated: true}
		samples, err := r.Run(t.Context(), mustEngine(t, "ib_write_bw"), n2, n1, bench.Options{Seconds: 600})
		if err != nil || samples[0].Error != "" || samples[0].Seconds != 600 {
			t.Errorf("%+v, %v", samples[0], err)
		}
	})
}

func TestAServerThatDiesDoesNotLeaveTheClientWaiting(t *testing.T) {
	lab := &fakeLab{clients: []command{hangs}}
	lab.servers = []command{func(ctx context.Context) (bench.Output, error) {
		lab.mu.Lock()
		lab.listening["4E20"] = true
		lab.mu.Unlock()
		time.Sleep(10 * time.Second)
		return bench.Output{ExitCode: 139, Stderr: []byte("Segmentation fault\n")}, nil
	}}
	samples, _ := measure(t, lab, func(r *bench.Runner) { r.Retries = -1 })
	const want = `attempt 1: run ib_write_bw on n2: context canceled (server ended before the client: run ` +
		`ib_write_bw on n1: exit status 139: Segmentation fault)`
	if len(samples) != 1 || samples[0].Error != want {
		t.Fatalf("got %+v, want error %s", samples, want)
	}
	if s := samples[0].Seconds; s < 10 || s > 16 {
		t.Errorf("took %v s, want the server's 10 and the grace of 5", s)
	}
}

func TestAServerThatEndsByItselfIsNotWaitedFor(t *testing.T) {
	lab := &fakeLab{clients: []command{prints(t, goodBW)}}
	lab.servers = []command{func(ctx context.Context) (bench.Output, error) {
		lab.mu.Lock()
		lab.listening["4E20"] = true
		lab.mu.Unlock()
		time.Sleep(time.Second) // before the client's 2 s, as perftest's server may
		return bench.Output{}, nil
	}}
	samples, _ := measure(t, lab, nil)
	if len(samples) != 69 {
		t.Errorf("%d samples, want 69", len(samples))
	}
}

func TestAnEndedContextStopsTheMeasurement(t *testing.T) {
	lab := &fakeLab{clients: []command{hangs}}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := &bench.Runner{Exec: lab}
		samples, err := r.Run(ctx, mustEngine(t, "ib_write_bw"), n2, n1, bench.Options{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the context's", err)
		}
		if len(samples) != 1 || samples[0].Attempt != 1 || samples[0].Error == "" {
			t.Errorf("samples %+v, want the broken one", samples)
		}
		if len(lab.ports) != 1 || lab.running != 0 {
			t.Errorf("%d servers started, %d run, want 1 and 0", len(lab.ports), lab.running)
		}
	})
}

func TestEachNodeIsAskedForItsVersionOnce(t *testing.T) {
	lab := &fakeLab{clients: []command{prints(t, goodBW)}, version: bench.Output{Stdout: []byte("Version: 6.06\n"),
		ExitCode: 1}}
	synctest.Test(t, func(t *testing.T) {
		r := &bench.Runner{Exec: lab}
		for range 3 {
			samples, err := r.Run(t.Context(), mustEngine(t, "ib_write_bw"), n2, n1, bench.Options{})
			if err != nil || samples[0].Version != "6.06" {
				t.Fatalf("version %q, error %v", samples[0].Version, err)
			}
		}
	})
	asked := 0
	for _, line := range lab.log {
		if strings.Contains(line, "--version") {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times: %q", asked, lab.log)
	}
}

func TestIperf3RunsAndTellsItsOwnReason(t *testing.T) {
	refused := string(recorded(t, "iperf3/recorded-3.12-refused.json"))
	lab := &fakeLab{clients: []command{fails(1, refused, ""), prints(t, "iperf3/recorded-3.12-tcp.json")},
		version: bench.Output{Stdout: []byte("iperf 3.12 (cJSON 1.7.15)\n")}}
	synctest.Test(t, func(t *testing.T) {
		var reason error
		r := &bench.Runner{Exec: lab, Accelerator: "kvm", Progress: func(p bench.Progress) {
			if p.Err != nil {
				reason = p.Err
			}
		}}
		samples, err := r.Run(t.Context(), mustEngine(t, "iperf3"), n2, n1, bench.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var exit *bench.ExitError
		if !errors.As(reason, &exit) || exit.Code != 1 || !strings.HasSuffix(reason.Error(),
			"read result of iperf3: unable to connect to server: Connection refused") {
			t.Errorf("reason of the first attempt: %v", reason)
		}
		if len(samples) != 2 || samples[0].Metric != bench.MetricThroughput ||
			samples[1].Metric != bench.MetricRetransmits || samples[1].Version != "3.12" {
			t.Errorf("samples %+v", samples)
		}
	})
}

func TestBadArgumentsAreRefusedBeforeAnythingRuns(t *testing.T) {
	tests := []struct {
		name   string
		engine string
		change func(client, server *bench.Endpoint, o *bench.Options, r *bench.Runner)
		want   string
	}{
		{"one node", "ib_write_bw", func(c, s *bench.Endpoint, o *bench.Options, r *bench.Runner) {
			*c = *s
		}, `measure ib_write_bw from "n1" to "n1": client and server are both node "n1"`},
		{"no address", "iperf3", func(c, s *bench.Endpoint, o *bench.Options, r *bench.Runner) {
			s.Addr = bench.Endpoint{}.Addr
		}, `measure iperf3 from "n2" to "n1": node "n1" has no address`},
		{"no device", "ib_read_lat", func(c, s *bench.Endpoint, o *bench.Options, r *bench.Runner) {
			c.Device = ""
		}, `measure ib_read_lat from "n2" to "n1": node "n2" has no RDMA device ("") or no GID index (3)`},
		{"no GID index", "ib_read_lat", func(c, s *bench.Endpoint, o *bench.Options, r *bench.Runner) {
			s.GIDIndex = -1
		}, `measure ib_read_lat from "n2" to "n1": node "n1" has no RDMA device ("rxe0") or no GID index (-1)`},
		{"too few iterations", "ib_write_bw", func(c, s *bench.Endpoint, o *bench.Options, r *bench.Runner) {
			o.Iterations = 4
		}, `measure ib_write_bw from "n2" to "n1": 4 iterations; perftest takes 5 to 100000000`},
		{"too large a message", "ib_write_bw", func(c, s *bench.Endpoint, o *bench.Options, r *bench.Runner) {
			o.Bytes = 1 << 24
		}, `measure ib_write_bw from "n2" to "n1": message size 16777216; give 1 to 8388608 bytes`},
		{"a duration below zero", "iperf3", func(c, s *bench.Endpoint, o *bench.Options, r *bench.Runner) {
			o.Seconds = -1
		}, `measure iperf3 from "n2" to "n1": duration of -1 s is below zero`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, server, opts := n2, n1, bench.Options{}
			lab := &fakeLab{}
			r := &bench.Runner{Exec: lab}
			tt.change(&client, &server, &opts, r)
			samples, err := r.Run(t.Context(), mustEngine(t, tt.engine), client, server, opts)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got error %v, want %s", err, tt.want)
			}
			if samples != nil || lab.log != nil {
				t.Errorf("samples %v, commands %q", samples, lab.log)
			}
		})
	}
	if _, err := (&bench.Runner{}).Run(t.Context(), bench.Engine{}, n2, n1, bench.Options{}); err == nil {
		t.Error("the zero engine runs")
	}
}
