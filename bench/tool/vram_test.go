package tool

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

func TestCommandsOfVRAM(t *testing.T) {
	t.Parallel()
	o := bench.Options{Port: 20000, Iterations: 50}
	for name, want := range map[string]string{
		"vram_write_bw":                  "rxe1 3 0 direct 1048576 50",
		"vram_write_bw/staged":           "rxe1 3 0 staged 1048576 50",
		"vram_write_bw/staged/cuda2":     "rxe1 3 2 staged 1048576 50",
		"vram_write_bw/cuda1/nic1":       "rxe1 3 1 direct 1048576 50",
		"vram_write_bw/nic0/staged/nic1": "rxe1 3 0 staged 1048576 50",
	} {
		e := mustEngine(t, name)
		const before = "env RACKLESS_GPU_PROTECT=1 "
		got := strings.Join(e.Client(n2, n1, o), " ")
		if got != before+vramPath+" client 10.0.0.1 20000 "+want {
			t.Errorf("%s: client %s", name, got)
		}
		server := strings.Join(e.Server(n1, o), " ")
		if !strings.HasPrefix(server, before+vramPath+" serve 10.0.0.1 20000 rxe0 1 ") {
			t.Errorf("%s: server %s", name, server)
		}
		// Staged, an adapter that counted bytes of a GPU's memory would be wrong.
		if _, gpu := e.GPU(); gpu == strings.Contains(name, "staged") {
			t.Errorf("%s: memory of a GPU: %t", name, gpu)
		}
		if nic, ok := e.NIC(); !ok || (nic == 1) != strings.HasSuffix(name, "nic1") {
			t.Errorf("%s: NIC %d, %t", name, nic, ok)
		}
	}
	for name, want := range map[string]string{
		"vram_write_bw/q4":    `"q4" is unknown; after a slash come staged, cudaN, nicN`,
		"vram_write_bw/dscp1": `"dscp1" is unknown`,
	} {
		if _, err := EngineByName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	e := mustEngine(t, "vram_write_bw")
	for _, tt := range []struct {
		o    bench.Options
		want string
	}{{bench.Options{Bytes: 8<<20 + 1}, "message size 8388609; give 1 to 8388608 bytes"},
		{bench.Options{Bytes: -1}, "message size -1"}, {bench.Options{Iterations: 4}, "4 iterations; give 5 to"}} {
		if err := e.Check(n2, n1, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %s", tt.o, err, tt.want)
		}
	}
	if err := e.Check(n2, n1, bench.Options{Bytes: 8 << 20}); err != nil {
		t.Error(err)
	}
}

func TestFiguresOfVRAM(t *testing.T) {
	t.Parallel()
	const line = "staged: 100 messages of 1048576 bytes in 1.000000 s, 0.838861 Gb/s; copies took 0.100000 s here " +
		"and 0.200000 s there\n"
	for _, tt := range []struct{ engine, text, want, fail string }{
		{"vram_write_bw/staged", line, "bw_average 1048576 100 0.838861 Gb/s", ""},
		{"vram_write_bw", line, "", "it moved other messages than it was told"},
		{"vram_write_bw/staged", strings.Replace(line, "100 m", "99 m", 1), "", "it moved other messages"},
		{"vram_write_bw/staged", strings.Replace(line, "in 1.0", "in 2.0", 1), "", "that is 0.419430 Gb/s"},
		{"vram_write_bw/staged", strings.Replace(line, "in 1.0", "in 0.0", 1), "", "nothing was moved"},
		{"vram_write_bw/staged", "the other side has ended\n", "", "the line of the transfer is missing"},
		{"vram_write_bw/staged", strings.TrimSuffix(line, "there\n"), "", "the line of the transfer is missing"},
	} {
		figures, err := mustEngine(t, tt.engine).ParseOutput(bench.Output{Stdout: []byte(tt.text)}, bench.Options{})
		if got := strings.Join(figureWords(figures), ", "); got != tt.want || (err == nil) != (tt.fail == "") ||
			err != nil && !strings.Contains(err.Error(), tt.fail) {
			t.Errorf("%s: %q: %s, %v; want %s%s", tt.engine, tt.text, got, err, tt.want, tt.fail)
		}
	}
}

func TestNoSuiteHasVRAM(t *testing.T) {
	t.Parallel()
	for _, suite := range bench.Suites() {
		all, err := Suite(suite)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(all, func(e bench.Engine) bool { return e.Tool == toolVRAM }) {
			t.Errorf("suite %s has vram_write_bw, which few nodes can run", suite)
		}
	}
}

func TestVRAMNeedsTheGPU(t *testing.T) {
	t.Parallel()
	given := 0
	ask := func(_ context.Context, _ string, argv ...string) (bench.Output, error) {
		if strings.Join(argv, " ") == "sh -c nvidia-smi -L" {
			return bench.Output{Stdout: []byte("GPU 0: rackless emulated H20 (UUID: GPU-1)\n")}, nil
		}
		given++
		return bench.Output{}, nil
	}
	if err := mustEngine(t, "vram_write_bw").Plugin.Prepare(t.Context(), ask, n1, n2, nil); err != nil || given != 2 {
		t.Errorf("%v, the program was given to %d nodes", err, given)
	}
	err := mustEngine(t, "vram_write_bw/cuda1").Plugin.Prepare(t.Context(), ask, n1, n2, nil)
	if _, unfit := errors.AsType[*bench.UnfitError](err); !unfit || !strings.Contains(err.Error(), "finds 1 GPUs") {
		t.Errorf("a GPU too many: %v", err)
	}
}

// The program runs on both sides, with an adapter and a GPU that are processes of this machine.
func TestVRAMMovesTheBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	library := filepath.Join(dir, "libibverbs.so.1")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, "testdata/vram/fake.c").
		CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v: %s", err, out)
	}
	if err := os.Symlink(library, filepath.Join(dir, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, gpu, client, want string }{
		{"direct", "0", "", ""},
		{"staged", "0", "", ""},
		{"direct", "0", "DROP=1", "the bytes in the other GPU are not those that were sent"},
		{"staged", "0", "DROP=1", "the bytes in the other GPU are not those that were sent"},
		{"direct", "1", "", "cuDeviceGet: error 101 of CUDA"},
	} {
		t.Run(tt.name+tt.gpu+tt.client, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			_, port, _ := net.SplitHostPort(l.Addr().String())
			l.Close()
			program := func(mode string, more ...string) *exec.Cmd {
				c := exec.CommandContext(t.Context(), "python3", slices.Concat([]string{"programs/vram.py", mode,
					"127.0.0.1", port, "mlx5_0", "3", "0", tt.name}, more)...)
				c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "FAKE="+dir, tt.client)
				return c
			}
			server := program("serve")
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			defer server.Wait() // its client decides
			var stdout, stderr []byte
			for {
				client := program("client", "65536", "21")
				client.Args[7] = tt.gpu
				var out, failed bytes.Buffer
				client.Stdout, client.Stderr = &out, &failed
				err := client.Run()
				stdout, stderr = out.Bytes(), failed.Bytes()
				if err == nil || !bytes.Contains(stderr, []byte("ConnectionRefusedError")) || t.Context().Err() != nil {
					break // otherwise the server does not listen yet
				}
			}
			if tt.want != "" {
				if !bytes.Contains(stderr, []byte(tt.want)) {
					t.Errorf("it said %q, want %s", stderr, tt.want)
				}
				return
			}
			e := mustEngine(t, map[string]string{"direct": "vram_write_bw", "staged": "vram_write_bw/staged"}[tt.name])
			figures, err := e.ParseOutput(bench.Output{Stdout: stdout}, bench.Options{Bytes: 65536, Iterations: 21})
			if err != nil || len(figures) != 1 || figures[0].Value <= 0 {
				t.Errorf("%+v, %v: %s%s", figures, err, stdout, stderr)
			}
		})
	}
}
