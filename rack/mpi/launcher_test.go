package mpi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm/guest"
)

type programs struct {
	fake
	has      map[string][]string // by node
	compiled int
	noMPICC  bool
}

func (p *programs) Run(ctx context.Context, node string, c guest.Command) (guest.Result, error) {
	if c.Argv[0] == "test" {
		return guest.Result{ExitCode: map[bool]int{true: 0, false: 1}[slices.Contains(p.has[node], c.Argv[2])]}, nil
	}
	switch c.Argv[2] {
	case pack:
		if p.noMPICC {
			return guest.Result{ExitCode: 1, Stderr: []byte("no space left\n")}, nil
		}
		p.compiled++
		p.has[node] = append(p.has[node], c.Argv[4])
		return guest.Result{Stdout: []byte("archive of " + c.Argv[5])}, nil
	case unpack:
		if string(c.Stdin) != "archive of blockMesh" {
			return guest.Result{ExitCode: 1}, nil
		}
		p.has[node] = append(p.has[node], c.Argv[4])
		return guest.Result{}, nil
	case have:
		for _, name := range c.Argv[4:] {
			if slices.Contains(p.has[node], name) {
				return guest.Result{Stdout: []byte(name + "\n")}, nil
			}
		}
		return guest.Result{ExitCode: 1}, nil
	case compile:
		if p.noMPICC {
			return guest.Result{ExitCode: 3, Stderr: []byte("no mpicc\n")}, nil
		}
		p.compiled++
		p.has[node] = append(p.has[node], c.Argv[4])
		return guest.Result{Stdout: []byte("ELF of " + c.Argv[5])}, nil
	case receive:
		if string(c.Stdin) != "ELF of main" {
			return guest.Result{ExitCode: 1}, nil
		}
		p.has[node] = append(p.has[node], c.Argv[4])
		return guest.Result{}, nil
	}
	return p.fake.Run(ctx, node, c)
}

func testLab(t *testing.T) *lab.Lab {
	t.Helper()
	l, err := lab.Parse("x.yaml", []byte("name: x\ndefaults: {cpus: 2}\nnodes: {a: {}, b: {}, c: {}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSizesOfGroups(t *testing.T) {
	l := &Launcher{Lab: testLab(t)}
	for g, want := range map[bench.Group][2]int{{}: {3, 6}, {Nodes: 2}: {2, 4}, {PerNode: 1}: {3, 3},
		{Nodes: 1, PerNode: 2}: {1, 2}} {
		if nodes, ranks, err := l.Size(g); err != nil || [2]int{nodes, ranks} != want {
			t.Errorf("%+v: %d, %d, %v", g, nodes, ranks, err)
		}
	}
	for g, want := range map[bench.Group]string{{Nodes: 4}: "4 nodes: lab x has 3",
		{PerNode: 3}: "3 ranks on node a, which has 2 CPUs: give it more in the lab file (cpus: 3)"} {
		if _, _, err := l.Size(g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", g, err)
		}
	}
}

func TestLaunches(t *testing.T) {
	ranks := fmt.Sprintf(" /usr/local/bin/rackless-ranks-%.4x", sha256.Sum256([]byte("main")))
	gloo := bench.Program{Source: "main", Build: []string{"-lgloo"}, Own: true, Takes: "libgloo-dev"}
	suite := bench.Program{Names: []string{"osu_x"}, Source: "main", SourceArgs: []string{"x"},
		Args: []string{"-i", "9"}}
	everywhere := func(name string) map[string][]string {
		return map[string][]string{"a": {name}, "b": {name}, "c": {name}}
	}
	for name, c := range map[string]struct {
		lab      *programs
		group    bench.Group
		program  bench.Program
		command  string // end of the command
		compiled int
		want     string // of the error
	}{
		"the field's program": {&programs{fake: fake{rdma: 5}, has: everywhere("osu_x")}, bench.Group{}, suite,
			" osu_x -i 9", 0, ""},
		"our own, compiled once": {&programs{fake: fake{rdma: 5}, has: map[string][]string{"b": {"osu_x"}}},
			bench.Group{}, suite, " x -i 9", 1, ""},
		"one node needs no RDMA": {&programs{fake: fake{}, has: everywhere("lmp")}, bench.Group{Nodes: 1},
			bench.Program{Names: []string{"lmp_mpi", "lmp"}}, " lmp", 0, ""},
		"not one packet is no proof": {&programs{fake: fake{tcp: 10}, has: everywhere("osu_x")}, bench.Group{}, suite,
			"", 0, "no RDMA packet was sent by any node"},
		"a library of its own": {&programs{fake: fake{rdma: 5}, has: map[string][]string{}}, bench.Group{Nodes: 2},
			gloo, " -x UCX_IB_GID_INDEX=3 -x RACKLESS_NODES=a=10.0.0.1=mlx5_0=3,b=10.0.0.1=mlx5_0=3" + ranks, 1, ""},
		"that uses TCP": {&programs{fake: fake{tcp: 9e6}, has: map[string][]string{}},
			bench.Group{Nodes: 1, Transport: "tcp"}, gloo,
			" -x UCX_TLS=tcp,self,sm -x UCX_NET_DEVICES=eth0 -x RACKLESS_NODES=a=10.0.0.1==3" + ranks, 1, ""},
		"that fell back": {&programs{fake: fake{tcp: 9e6}, has: map[string][]string{}}, bench.Group{}, gloo, "", 1,
			"no RDMA packet was sent by any node"},
		"that MPI's words mean nothing to": {&programs{has: map[string][]string{}}, bench.Group{Transport: "ofi"}, gloo,
			"", 1, `its library uses RDMA devices by itself: leave out "ofi"`},
		"TCP, as asked": {&programs{fake: fake{tcp: 9e6}, has: everywhere("osu_x")}, bench.Group{Transport: "tcp"},
			suite, " osu_x -i 9", 0, ""},
		"a program that a node lacks": {&programs{has: map[string][]string{"a": {"lmp"}}}, bench.Group{},
			bench.Program{Names: []string{"lmp"}}, "", 0, "b: no program lmp: it has to be on all nodes"},
		"no compiler": {&programs{has: map[string][]string{}, noMPICC: true}, bench.Group{}, suite, "", 0,
			"compile a test of MPI: a: /usr/local/bin/rackless-ranks-"},
	} {
		l := &Launcher{Runner: c.lab, Lab: testLab(t), Endpoint: func(node string) (bench.Endpoint, error) {
			return bench.Endpoint{Node: node, Addr: netip.MustParseAddr("10.0.0.1"), Device: "mlx5_0", GIDIndex: 3}, nil
		}}
		out, err := l.Launch(t.Context(), c.group, c.program)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if c.lab.compiled != c.compiled || !strings.HasSuffix(strings.Join(out.Command, " "), c.command) {
			t.Errorf("%s: compiled %d times, ran %q", name, c.lab.compiled, out.Command)
		}
		if err == nil && (string(out.Stdout) != "out\n" || out.MPI != "mpirun (Open MPI) 4.1.4" ||
			out.RDMAPackets != c.lab.rdma*uint64(cmp.Or(c.group.Nodes, 3))) {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

func TestInputs(t *testing.T) {
	p := bench.Program{Names: []string{"icoFoam"}, Args: []string{"-parallel"}, Env: []string{"WM=/usr"},
		Input: "blockMesh", Results: "1/profiling"}
	has := map[string][]string{"a": {"icoFoam"}, "b": {"icoFoam"}, "c": {"icoFoam"}}
	f := &programs{fake: fake{rdma: 5}, has: has}
	l := &Launcher{Runner: f, Lab: testLab(t), Endpoint: func(node string) (bench.Endpoint, error) {
		return bench.Endpoint{Node: node, Device: "mlx5_0", GIDIndex: 3}, nil
	}}
	for range 2 {
		out, err := l.Launch(t.Context(), bench.Group{}, p)
		if got := strings.Join(out.Command, " "); err != nil || f.compiled != 1 ||
			!strings.HasSuffix(got, " -x WM=/usr icoFoam -parallel") {
			t.Errorf("%s, made %d times, %v", got, f.compiled, err)
		}
		ran := f.streamed[5:]
		if want := []string{"sh", "-c", ran[2], inputDir(p), p.Results}; !slices.Equal(ran[:5], want) ||
			!slices.Equal(ran[5:], out.Command) {
			t.Errorf("%q", f.streamed)
		}
	}
	has["b"] = has["b"][:1] // rebooted
	if _, err := l.Launch(t.Context(), bench.Group{}, p); err != nil || !slices.Contains(has["b"], inputDir(p)) {
		t.Errorf("%q, %v", has, err)
	}
	f.noMPICC, has["a"] = true, has["a"][:1]
	if _, err := l.Launch(t.Context(), bench.Group{}, p); err == nil ||
		!strings.Contains(err.Error(), "make the input of icoFoam: a: "+inputDir(p)+": exit status 1: no space left") {
		t.Error(err)
	}
}

func TestScriptsOfInputs(t *testing.T) {
	bin := t.TempDir()
	dir := bin + "/x"
	sh := func(stdin []byte, argv ...string) (string, error) {
		cmd := exec.Command("sh", append([]string{"-c"}, argv...)...)
		cmd.Stdin, cmd.Env = bytes.NewReader(stdin), []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
		out, err := cmd.Output()
		return string(out), err
	}
	archive, err := sh(nil, pack, "sh", dir, "echo told; echo 1 >made; mkdir sub; echo 2 >sub/made")
	if err != nil || strings.Contains(archive, "told") {
		t.Fatalf("%q, %v", archive, err)
	}
	if _, err := sh([]byte(archive), unpack, "sh", dir+"2"); err != nil {
		t.Fatal(err)
	}
	if again, err := sh(nil, pack, "sh", dir+"2", "exit 1"); err != nil || len(again) != len(archive) {
		t.Errorf("%d bytes of %d, %v", len(again), len(archive), err)
	}
	if _, err := sh(nil, pack, "sh", dir+"3", "false; true"); err == nil {
		t.Error("a step of a script failed, and nobody knows")
	}
	const source = `puts("\n");`
	cc := "#!/bin/sh\ncat >\"$4\"\n"
	if err := os.WriteFile(bin+"/mpicc.openmpi", []byte(cc), 0o755); err != nil {
		t.Fatal(err)
	}
	if made, err := sh(nil, compile, "sh", dir+"4", source, "openmpi", "-x", "c"); err != nil || made != source {
		t.Errorf("%q, %v", made, err)
	}
	p := bench.Program{Input: "x", Results: "made sub/made"}
	run := within(p, []string{"sh", "-c", "cat; test ! -e made; echo $?; echo 3 >made; echo 4 >sub/made; exit 5"})
	run[3] = dir
	out, err := sh([]byte("typed\n"), run[2:]...)
	if ended, ok := errors.AsType[*exec.ExitError](err); out != "typed\n0\n3\n4\n" || !ok || ended.ExitCode() != 5 {
		t.Errorf("%q, %v", out, err)
	}
}

func TestRunsOutsideOfNodes(t *testing.T) {
	l := &Launcher{Lab: testLab(t), BareCPUs: 2}
	l.Bare = func(context.Context, []string, []byte) (bench.Output, error) {
		return bench.Output{Stdout: []byte("mpirun (Open MPI) 4.1.4\nmore\n")}, nil
	}
	out, err := l.Launch(t.Context(), bench.Group{Bare: true, Nodes: 2}, bench.Program{Names: []string{"lmp"},
		Args: []string{"-log", "none"}})
	if got := strings.Join(out.Command, " "); err != nil || !strings.Contains(got, "-np 4 ") ||
		!strings.HasSuffix(got, " --oversubscribe lmp -log none") || out.MPI != "mpirun (Open MPI) 4.1.4" ||
		out.Where != "4 ranks on this machine, outside of nodes" {
		t.Errorf("%+v, %v", out, err)
	}
	lmp := bench.Program{Names: []string{"lmp"}}
	if out, err = l.Launch(t.Context(), bench.Group{Bare: true, Nodes: 1}, lmp); err != nil ||
		slices.Contains(out.Command, "--oversubscribe") {
		t.Errorf("%+v, %v", out, err)
	}
	lmp.Source = "x"
	if _, err := l.Launch(t.Context(), bench.Group{Bare: true}, lmp); err == nil ||
		!strings.Contains(err.Error(), "only programs of packages run outside of nodes") {
		t.Error(err)
	}
	l.Bare = func(context.Context, []string, []byte) (bench.Output, error) {
		return bench.Output{}, errors.New("unshare: Operation not permitted")
	}
	if err := l.Ready(t.Context(), bench.Group{Bare: true}); err == nil || !strings.Contains(err.Error(), "unshare") {
		t.Error(err)
	}
}
