package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The code between sender and receiver runs in another process, as in a lab: this test binary with middleEnv set.
const (
	middleEnv = "FABRIC_BENCH_MIDDLE"
	dirEnv    = "FABRIC_BENCH_DIR" // has its sockets a and b
)

// middles are compared. Relays, which copy bytes without parsing, are the minimum.
var middles = map[string]func(dir string) error{
	"switch":         switchMiddle,
	"switch-shaped":  switchMiddle, // with impaired links; see between
	"relay-blocking": relayBlocking,
	"relay-netpoll":  relayNetpoll,
	"relay-epoll":    relayEpoll,
}

func TestMain(m *testing.M) {
	name := os.Getenv(middleEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := middles[name](os.Getenv(dirEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func switchMiddle(dir string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	ports := []Port{{Name: "a", Path: filepath.Join(dir, "a")}, {Name: "b", Path: filepath.Join(dir, "b")}}
	return Run(ctx, Config{Ports: ports, Control: filepath.Join(dir, "control"), ready: func(*bridge) {
		fmt.Println("ready")
	}})
}

func acceptTwo(dir string) (conns [2]*net.UnixConn, err error) {
	var listeners [2]net.Listener
	for i, name := range []string{"a", "b"} {
		if listeners[i], err = net.Listen("unix", filepath.Join(dir, name)); err != nil {
			return conns, err
		}
	}
	fmt.Println("ready")
	for i, l := range listeners {
		c, err := l.Accept()
		if err != nil {
			return conns, err
		}
		conns[i] = c.(*net.UnixConn)
		if err := conns[i].SetWriteBuffer(sendBuffer); err != nil {
			return conns, err
		}
	}
	return conns, nil
}

func relayNetpoll(dir string) error {
	conns, err := acceptTwo(dir)
	if err != nil {
		return err
	}
	done := make(chan error, 2)
	for i := range conns {
		go func() {
			buf := make([]byte, readSize)
			for {
				n, err := conns[i].Read(buf)
				if err == nil {
					_, err = conns[1-i].Write(buf[:n])
				}
				if err != nil {
					done <- err
					return
				}
			}
		}()
	}
	return ignoreEnd(<-done)
}

func relayBlocking(dir string) error {
	fds, err := blockingFDs(dir)
	if err != nil {
		return err
	}
	done := make(chan error, 2)
	for i := range fds {
		go func() {
			buf := make([]byte, readSize)
			for {
				n, err := unix.Read(fds[i], buf)
				if err == nil && n == 0 {
					err = io.EOF
				}
				if err == nil {
					err = writeAll(fds[1-i], buf[:n])
				}
				if err != nil {
					done <- err
					return
				}
			}
		}()
	}
	return ignoreEnd(<-done)
}

// relayEpoll blocks in write if the receiver is slow.
func relayEpoll(dir string) error {
	fds, err := blockingFDs(dir)
	if err != nil {
		return err
	}
	epfd, err := unix.EpollCreate1(0)
	if err != nil {
		return err
	}
	for i, fd := range fds {
		if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN,
			Fd: int32(i)}); err != nil {
			return err
		}
	}
	buf := make([]byte, readSize)
	events := make([]unix.EpollEvent, 2)
	for {
		n, err := unix.EpollWait(epfd, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for _, ev := range events[:n] {
			n, err := unix.Read(fds[ev.Fd], buf)
			if err == nil && n == 0 {
				return nil
			}
			if err == nil {
				err = writeAll(fds[1-ev.Fd], buf[:n])
			}
			if err != nil {
				return ignoreEnd(err)
			}
		}
	}
}

func blockingFDs(dir string) (fds [2]int, err error) {
	conns, err := acceptTwo(dir)
	if err != nil {
		return fds, err
	}
	for i, c := range conns {
		if fds[i], err = blocking(c); err != nil {
			return fds, err
		}
	}
	return fds, nil
}

func blocking(c *net.UnixConn) (int, error) {
	f, err := c.File()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		return 0, err
	}
	return fd, errors.Join(c.Close(), unix.SetNonblock(fd, false))
}

func ignoreEnd(err error) error {
	if err == io.EOF || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && err != unix.EINTR {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

func readAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && err != unix.EINTR {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

// between starts a middle, or with "none" a socket pair. finish returns the middle's CPU time, including its start.
func between(b *testing.B, middle string) (fds [2]int, counters func() Counters, finish func() time.Duration) {
	b.Helper()
	closeBoth := func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	}
	if middle == "none" {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			b.Fatal(err)
		}
		return fds, nil, func() time.Duration { unix.Close(fds[0]); unix.Close(fds[1]); return 0 }
	}
	dir := b.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), middleEnv+"="+middle, dirEnv+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		b.Fatal(err)
	}
	for i, name := range []string{"a", "b"} {
		c, err := net.Dial("unix", filepath.Join(dir, name))
		if err != nil {
			b.Fatal(err)
		}
		if fds[i], err = blocking(c.(*net.UnixConn)); err != nil {
			b.Fatal(err)
		}
	}
	if strings.HasPrefix(middle, "switch") {
		client, err := Dial(filepath.Join(dir, "control"))
		if err != nil {
			b.Fatal(err)
		}
		counters = func() Counters {
			c, err := client.Counters(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			return c
		}
		for c := counters(); !c.Ports[0].Connected || !c.Ports[1].Connected; c = counters() {
		}
		if middle == "switch-shaped" { // all impairments that cost time but delay or lose almost nothing
			l := Link{Rate: MaxRate, Jitter: 1, Delay: 1, Loss: 1e-18, ECN: RED{1 << 20, 2 << 20, 0.1},
				PFC: PFC{High: 4 << 20, Low: 2 << 20}}
			if err := client.SetLink(context.Background(), AllPorts, l); err != nil {
				b.Fatal(err)
			}
		}
	}
	return fds, counters, func() time.Duration {
		closeBoth()
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
}

// BenchmarkStream sends one way. At most 16 pieces of 64 KiB are under way, less than the switch's queue, so that no
// frame is dropped.
//
// "batch" is the number of frames in one write. QEMU's own stream netdev writes each frame separately.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{64, 4200} {
		for _, batch := range []int{1, 32} {
			for _, middle := range []string{"none", "relay-blocking", "relay-netpoll", "relay-epoll", "switch",
				"switch-shaped"} {
				b.Run("size="+strconv.Itoa(size)+"/batch="+strconv.Itoa(batch)+"/"+middle, func(b *testing.B) {
					stream(b, size, batch, middle)
				})
			}
		}
	}
}

func stream(b *testing.B, size, batch int, middle string) {
	fds, counters, finish := between(b, middle)
	// The receiver sends first, so that the switch learns its address.
	hello := framed(frame(broadcast, station(2), 64, 0))
	if err := writeAll(fds[1], hello); err != nil {
		b.Fatal(err)
	}
	if err := readAll(fds[0], hello); err != nil {
		b.Fatal(err)
	}
	one := framed(frame(station(2), station(1), size, 0))
	var many []byte
	for range batch {
		many = append(many, one...)
	}
	const piece, window = 64 << 10, 16
	total := b.N * len(one)
	credit := make(chan struct{}, window+total/piece+1)
	for range window {
		credit <- struct{}{}
	}
	sent := make(chan error, 1)
	b.SetBytes(int64(size))
	b.ResetTimer()
	go func() {
		owed := 0
		for left := total; left > 0; {
			n := min(left, len(many))
			if err := writeAll(fds[0], many[:n]); err != nil {
				sent <- err
				return
			}
			left -= n
			for owed += n; owed >= piece; owed -= piece {
				<-credit
			}
		}
		sent <- nil
	}()
	buf := make([]byte, 68<<10) // like QEMU's NET_BUFSIZE
	owed, reads := 0, 0
	for left := total; left > 0; {
		n, err := unix.Read(fds[1], buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			b.Fatalf("read: %d, %v", n, err)
		}
		reads++
		left -= n
		for owed += n; owed >= piece; owed -= piece {
			credit <- struct{}{}
		}
	}
	b.StopTimer()
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
	if counters != nil {
		c := counters()
		p, q := c.Ports[0], c.Ports[1]
		if q.TxFrames != uint64(b.N) || q.Drops.Total() != 0 {
			b.Fatalf("%d frames through, %d dropped, want %d", q.TxFrames, q.Drops.Total(), b.N)
		}
		b.ReportMetric(float64(p.Reads)/float64(b.N), "reads/frame")
		b.ReportMetric(float64(q.Writes)/float64(b.N), "writes/frame")
	}
	if cpu := finish(); cpu > 0 {
		b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N), "middle-cpu-ns/frame")
	}
}

// BenchmarkPingPong measures the round trip of a 64-byte frame: two passages and four wakeups.
func BenchmarkPingPong(b *testing.B) {
	for _, middle := range []string{"none", "relay-blocking", "relay-netpoll", "relay-epoll", "switch",
		"switch-shaped"} {
		b.Run(middle, func(b *testing.B) {
			fds, _, finish := between(b, middle)
			ping := framed(frame(station(2), station(1), 64, 0))
			pong := framed(frame(station(1), station(2), 64, 0))
			done := make(chan error, 1)
			rounds := b.N + 1 // the first teaches the switch
			go func() {
				buf := make([]byte, len(ping))
				for range rounds {
					if err := errors.Join(readAll(fds[1], buf), writeAll(fds[1], pong)); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			buf := make([]byte, len(pong))
			for i := range rounds {
				if i == 1 {
					b.ResetTimer()
				}
				if err := errors.Join(writeAll(fds[0], ping), readAll(fds[0], buf)); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			if cpu := finish(); cpu > 0 {
				b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N), "middle-cpu-ns/round")
			}
		})
	}
}
