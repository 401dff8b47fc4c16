package tool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/bench"
)

func TestTransfersGiveTheRateThatItPrints(t *testing.T) {
	t.Parallel()
	read := func(name string) []byte {
		return readFile(t, "testdata/mooncake/recorded-0.3.13-connectx-tcg-"+name+".txt")
	}
	write, sent := read("write"), bench.Options{Packets: bench.Packets{Sent: 35592 - 22664, Received: 59712 - 58904}}
	for _, c := range []struct {
		engine     string
		text       []byte
		o          bench.Options
		want, fail string
	}{
		{"mooncake_write", write, sent, "bw_average 65536 808 0.084523 Gb/s", ""},
		{"mooncake_read", read("read"), bench.Options{Packets: bench.Packets{Sent: 692, Received: 58904 - 47832}},
			"bw_average 65536 692 0.072381 Gb/s", ""},
		{"mooncake_write", write, bench.Options{Packets: bench.Packets{Sent: 202*4*16 - 1, Received: 1 << 40}}, "",
			"12927 packets passed the RDMA device, and 52953088 bytes take 12928"},
		{"mooncake_read", write, sent, "", "packets passed the RDMA device"},
		{"mooncake_write", read("refused"), sent, "", "it gave up: SocketHandShakePlugin: connect()10.0.0.1:24695: " +
			"Connection refused [111]"},
		{"mooncake_write", bytes.Replace(write, []byte("batch count 202"), []byte("batch count 0"), 1), sent, "",
			"nothing was moved"},
		{"mooncake_write", bytes.Replace(write, []byte("batch count 202"), []byte("batch count 303"), 1),
			bench.Options{Packets: bench.Packets{Sent: 1 << 40}}, "", "303 batches are 0.1268 Gb/s"},
		{"mooncake_write", write, bench.Options{Bytes: 4096, Packets: sent.Packets}, "", "202 batches are 0.0053 Gb/s"},
		{"mooncake_write", nil, sent, "", `the line "Test completed" is missing`},
		{"nixl_write", readFile(t, "testdata/nixl/recorded-1.5.1-connectx-tcg-write.txt"),
			bench.Options{Packets: bench.Packets{
				Sent: 27981}}, "bw_average 65536 1648 0.431897 Gb/s", ""},
		{"nixl_write", []byte("a transfer of NIXL ended with ERR\n"), sent, "", `the line "Test completed" is missing`},
		// Over TCP no packets pass the device; counting the run as RDMA would be wrong, too.
		{"mooncake_write/tcp", write, bench.Options{}, "bw_average 65536 808 0.084523 Gb/s", ""},
		{"mooncake_write/tcp", write, sent, "", "it moved them in another way"},
		{"mooncake_write/b8", write, sent, "", "202 batches are 0.1691 Gb/s"},
	} {
		figures, err := mustEngine(t, c.engine).ParseOutput(bench.Output{Stderr: c.text}, c.o)
		var bad *bench.BadResultError
		if got := strings.Join(figureWords(figures), ", "); got != c.want || (err == nil) != (c.fail == "") {
			t.Errorf("%s: %s, %v; want %s%s", c.engine, got, err, c.want, c.fail)
		}
		if c.fail != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), c.fail)) {
			t.Errorf("%s: %v, want %s", c.engine, err, c.fail)
		}
	}
}

func TestTransfersRefuseWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	client := bench.Endpoint{Node: "a", Device: "mlx5_0"}
	for name, want := range map[string]string{
		"mooncake_write/b257":   "65536 bytes in each of 257 requests do not fit into the buffer of 16777216",
		"mooncake_write":        `node "b" has no RDMA device`,
		"nixl_read/b4":          `node "b" has no RDMA device`,
		"nixl_read/b256/tcp":    "",
		"nixl_read/b0":          `word "b0": want bN for N requests at once, of 1 to 1024, or tcp`,
		"nixl_read/b2/b3":       `word "b3"`,
		"nixl_write/rdma":       `word "rdma"`,
		"mooncake_read/tcp/tcp": `word "tcp"`,
	} {
		e, err := EngineByName(name)
		if err == nil {
			if err = e.Check(client, bench.Endpoint{Node: "b", Addr: n1.Addr}, bench.Options{}); e.Name != name {
				t.Errorf("%s is called %s", name, e.Name)
			}
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// The benchmark of Mooncake's wheel with CUDA takes memory of a GPU, unless it is told to take main memory.
func TestMooncakeTakesMainMemory(t *testing.T) {
	t.Parallel()
	e, ep := mustEngine(t, "mooncake_write"), bench.Endpoint{Node: "a", Device: "mlx5_0"}
	for _, args := range [][]string{e.Plugin.Server(ep, bench.Options{}), e.Plugin.Client(ep, ep, bench.Options{})} {
		if !slices.Contains(args, "-use_vram=false") || !slices.Contains(args, "-undefok=use_vram") {
			t.Errorf("arguments are %q", args)
		}
	}
}

// By the local Python.
func TestTheProgramOfNIXLSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("make test installs it: %v", err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "nixl.py")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(program, strings.ReplaceAll(nixlProgram, "/opt/nixl", dir+"/opt"))
	say := func() string {
		out, err := exec.CommandContext(t.Context(), python, program).CombinedOutput()
		if err == nil {
			t.Fatalf("it found NIXL: %s", out)
		}
		return string(out)
	}
	if got := say(); !strings.Contains(got, "no NIXL for Python 3.") || !strings.Contains(got, "hack/wheels.sh nixl") {
		t.Error(got)
	}
	write(dir+"/opt/numpy.py", "")
	write(dir+"/opt/nixl_cu12/_bindings.cpython-27-x86_64-linux-gnu.so", "")
	if got := say(); !strings.Contains(got, "the wheel is for another Python: it has _bindings.cpython-27-") {
		t.Error(got)
	}
}

func TestNIXLIsLookedForOnBothNodes(t *testing.T) {
	t.Parallel()
	for _, lacks := range []string{"vm00", "vm01", ""} {
		err := mustEngine(t, "nixl_write").Plugin.Prepare(t.Context(),
			func(_ context.Context, node string, argv ...string) (bench.Output, error) {
				if !slices.Equal(argv[len(argv)-3:], []string{nixlPath, nixlProgram, nixlPath}) {
					t.Errorf("%q", argv)
				}
				out := bench.Output{Stderr: []byte("Traceback\nno NIXL for Python 3.11: x\n")}
				if node == lacks {
					out.ExitCode = 1
				}
				return out, nil
			}, bench.Endpoint{Node: "vm00"}, bench.Endpoint{Node: "vm01"}, &bench.Options{})
		unfit, ok := errors.AsType[*bench.UnfitError](err)
		if ok != (lacks != "") || ok && (unfit.Node != lacks ||
			!strings.Contains(err.Error(), "no NIXL for Python 3.11: x")) {
			t.Errorf("%s: %v", lacks, err)
		}
	}
}

// A client of the port reaches Mooncake.
func TestMooncakeIsReachedAtItsPort(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	requests, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer requests.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	said := "I1 1] Transfer Engine RPC using P2P handshake, listening on " + requests.Addr().String()
	cmd := exec.CommandContext(t.Context(), python, "-c", mooncakeProgram, port, "sh", "-c",
		`echo "$0" >&2; exec sleep 60`, said)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var client net.Conn
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for err := error(nil); client == nil; time.Sleep(10 * time.Millisecond) {
		if client, err = net.Dial("tcp", "127.0.0.1:"+port); err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	defer client.Close()
	server, err := requests.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	got := make([]byte, 2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		if _, err := way[0].Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(way[1], got); err != nil || string(got) != "hi" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
