package labbench

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackless/rackless/rack/emulated"
)

const adapterLab = `name: adapters
nodes:
  cx: {count: 2, nic: connectx-4-lx}
  rx: {count: 2, nic: virtio}
`

// BenchmarkAdapters compares emulated adapters with soft RoCE, in turn, unpaced, because a rate would hide their
// limits. A case reports both figures, their ratio and the target; floor is the machine's figure without adapters and
// guests.
func BenchmarkAdapters(b *testing.B) {
	b.Setenv(emulated.Unpaced, "1")
	m := newMachine(b)
	lab := filepath.Join(m.tmp, "adapters.yaml")
	check(b, os.WriteFile(lab, []byte(adapterLab), 0o600))
	m.rackless(b, m.cache, "up", lab)
	addr := map[string]string{}
	for _, kind := range []string{"cx", "rx"} {
		out := m.output(b, "exec", "adapters/"+kind+"01", "--", "ip", "-4", "-o", "addr", "show", "dev", "eth0")
		for _, w := range strings.Fields(out) {
			if a, _, is := strings.Cut(w, "/"); is && strings.Count(a, ".") == 3 {
				addr[kind] = a
			}
		}
	}
	const latency, bandwidth, rate = 4, 3, 4 // columns of perftest's tables
	for _, c := range []struct {
		name, unit string
		column     int
		target     float64 // to soft RoCE; 0 means none
		frames     bool
		test       []string
		few        []string // soft RoCE is slower
	}{
		{"write-lat-2", "us", latency, 25, false, []string{"ib_write_lat", "-n", "2000"}, []string{"-n", "1000"}},
		{"read-lat-2", "us", latency, 25, false, []string{"ib_read_lat", "-n", "2000"}, []string{"-n", "1000"}},
		{"send-lat-2", "us", latency, 25, false, []string{"ib_send_lat", "-n", "2000"}, []string{"-n", "1000"}},
		{"write-bw-64K", "Gb/s", bandwidth, 50, false, []string{"ib_write_bw", "-s", "65536", "-n", "5000"},
			[]string{"-n", "300"}},
		{"write-bw-1M", "Gb/s", bandwidth, 300, false, []string{"ib_write_bw", "-s", "1048576", "-n", "2000"},
			[]string{"-n", "30"}},
		{"write-bw-64K-frames", "Gb/s", bandwidth, 20, true, []string{"ib_write_bw", "-s", "65536", "-n", "1000"},
			[]string{"-n", "300"}},
		{"write-bw-1M-frames", "Gb/s", bandwidth, 20, true, []string{"ib_write_bw", "-s", "1048576", "-n", "100"},
			[]string{"-n", "30"}},
		{"messages-2", "Mpps", rate, 0, false, []string{"ib_write_bw", "-s", "2", "-n", "200000"},
			[]string{"-n", "3000"}},
		{"messages-2-list", "Mpps", rate, 0, false, []string{"ib_write_bw", "-s", "2", "-n", "400000", "-l", "32"},
			[]string{"-n", "3200"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var cx, rx float64
			for b.Loop() {
				if c.frames { // so that nothing is copied past the switch
					m.rackless(b, m.cache, "fabric", "set", "adapters", "--port", "rx00", "--delay", "1us")
				}
				cx = m.perftest(b, "cx", addr["cx"], c.column, c.test)
				m.rackless(b, m.cache, "fabric", "set", "adapters", "--clear")
				rx = m.perftest(b, "rx", addr["rx"], c.column, slices.Concat(c.test, c.few))
			}
			better := cx / rx
			if c.unit == "us" {
				better = rx / cx
			}
			b.ReportMetric(cx, c.unit+"-adapter")
			b.ReportMetric(rx, c.unit+"-rxe")
			b.ReportMetric(better, "x-rxe")
			if c.target > 0 {
				b.ReportMetric(c.target, "x-to-reach")
			}
		})
	}
	m.down(b, "adapters")
	b.Run("floor-memcpy-1M", func(b *testing.B) {
		from, to := bytes.Repeat([]byte{1}, 1<<20), make([]byte, 1<<20)
		const n = 500
		for b.Loop() {
			start := time.Now()
			for range n {
				copy(to, from)
			}
			b.ReportMetric(n*8*float64(len(to))/float64(time.Since(start).Nanoseconds()), "Gb/s")
		}
	})
	b.Run("floor-socket", func(b *testing.B) {
		for b.Loop() {
			b.ReportMetric(roundTrip(b), "us")
		}
	})
	sixteen := filepath.Join(m.tmp, "adapters16.yaml")
	check(b, os.WriteFile(sixteen,
		[]byte("name: adapters16\nnodes:\n  vm: {count: 16, nic: connectx-4-lx, memory: 256MiB}\n"), 0o600))
	m.rackless(b, m.cache, "up", sixteen) // makes the template
	m.down(b, "adapters16")
	b.Run("sixteen", func(b *testing.B) {
		for b.Loop() {
			m.rackless(b, m.cache, "up", sixteen)
			b.StopTimer()
			m.weigh(b, "adapters16")
			m.down(b, "adapters16")
			b.StartTimer()
		}
		b.ReportMetric(6, "s-to-reach")
	})
}

func (m *machine) output(b *testing.B, args ...string) string {
	b.Helper()
	cmd := exec.CommandContext(m.ctx, m.bin, args...)
	cmd.Env = append(os.Environ(), "RACKLESS_RUN="+m.run)
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("rackless %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// perftest repeats runs that print 0 or inf because a busy machine prevented the calibration of the clock.
func (m *machine) perftest(b *testing.B, kind, addr string, column int, test []string) float64 {
	b.Helper()
	device := map[string][]string{"cx": {"-d", "mlx5_0", "-x", "3"}, "rx": {"-d", "rxe0", "-x", "1"}}[kind]
	args := slices.Concat([]string{"--", "timeout", "120"}, test, device, []string{"-F", "--report_gbits"})
	for range 5 {
		server := exec.CommandContext(m.ctx, m.bin, append([]string{"exec", "-n", "adapters/" + kind + "01"},
			args...)...)
		server.Env = append(os.Environ(), "RACKLESS_RUN="+m.run)
		server.Cancel = func() error { return server.Process.Signal(syscall.SIGINT) }
		check(b, server.Start())
		time.Sleep(2 * time.Second) // the server says that it listens before it does
		client := append(append([]string{"exec", "-n", "adapters/" + kind + "00"}, args...), addr)
		cmd := exec.CommandContext(m.ctx, m.bin, client...)
		cmd.Env = server.Env
		out, err := cmd.Output()
		_ = server.Wait() // the client's error is enough
		check(b, m.ctx.Err())
		for line := range strings.Lines(string(out)) {
			w := strings.Fields(line)
			if err != nil || len(w) <= column {
				continue
			}
			_, notSize := strconv.Atoi(w[0])
			v, notFigure := strconv.ParseFloat(w[column], 64)
			if notSize == nil && notFigure == nil && v > 0 && !math.IsInf(v, 0) {
				return v
			}
		}
	}
	b.Fatalf("%v: no figures in five attempts", test)
	return 0
}

// roundTrip of a byte over a Unix socket, in us, is the minimum for two guests and a server.
func roundTrip(b *testing.B) float64 {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	check(b, err)
	defer syscall.Close(fds[0])
	other := os.NewFile(uintptr(fds[1]), "socket")
	cat := exec.Command("cat") // echoes its input
	cat.Stdin, cat.Stdout = other, other
	check(b, cat.Start())
	check(b, other.Close())
	const n = 20000
	buf := []byte{1}
	start := time.Now()
	for range n {
		if _, err := syscall.Write(fds[0], buf); err != nil {
			b.Fatal(err)
		}
		if _, err := syscall.Read(fds[0], buf); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(start)
	check(b, syscall.Shutdown(fds[0], syscall.SHUT_RDWR))
	check(b, cat.Wait())
	return float64(took.Microseconds()) / n
}
