package slurm

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/plan/render/slurm"
	"github.com/rackless/rackless/vm/guest"
)

type fakeNodes struct {
	facts map[string]string

	mu      sync.Mutex
	digests map[string]string            // of a node's configuration
	files   map[string]map[string]string // by node and name
	waits   int
	broken  bool
}

func (f *fakeNodes) Facts(_ context.Context, node string) (*facts.Node, error) {
	return facts.Parse([]byte(f.facts[node]))
}

func (f *fakeNodes) Run(_ context.Context, node string, c guest.Command) (guest.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	script := c.Argv[2]
	switch {
	case script == awaitIdle:
		f.waits++
		if f.broken {
			return guest.Result{ExitCode: 1, Stdout: []byte("vm00 idle\nvm01 down*\n")}, nil
		}
	case strings.Contains(script, "read -r sum"):
		if d := f.digests[node]; d == "" || !strings.Contains(script, d) {
			return guest.Result{ExitCode: 1}, nil
		}
	case script == runScript:
		files := make(map[string]string)
		for r := tar.NewReader(bytes.NewReader(c.Stdin)); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return guest.Result{}, err
			}
			b, _ := io.ReadAll(r)
			files[h.Name] = fmt.Sprintf("%s %o %s%s", h.Uname, h.Mode, h.Linkname, b)
		}
		f.files[node], f.digests[node] = files, strings.Fields(files["etc/slurm/rackless.sha256"])[2]
	default:
		return guest.Result{}, fmt.Errorf("what is %q?", script)
	}
	return guest.Result{}, nil
}

func cpus(n int) string {
	text := "node/0/meminfo Node 0 MemTotal: 464896 kB\n"
	for i := range n {
		text += fmt.Sprintf("cpu/%d/package 0\ncpu/%d/core %d\n", i, i, i)
	}
	return text + "rdma/rxe0/parent eth0\nnet/eth0/mac 52:54:00:00:00:01\n"
}

// GPUs that vfio-pci has are for one program, which opens them as root.
func TestJobsGetEmulatedGPUs(t *testing.T) {
	for gpus, want := range map[string]string{"": "", ", gpus: 2": "/dev/nvidia0 /dev/nvidia1",
		", gpus: [{personality: vfio}, {count: 1}]": "/dev/nvidia0"} {
		l, err := lab.Parse("lab.yaml", []byte("name: g\nnodes:\n  vm: {image: debian-13+gpu+slurm+vfio"+gpus+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := clusterOf(t.Context(), l, &fakeNodes{facts: map[string]string{"vm": cpus(1)}})
		if err != nil {
			t.Fatal(err)
		}
		var files []string
		for _, d := range c.Nodes[0].Devices {
			if d.Kind == slurm.GPU {
				files = append(files, d.File)
			}
		}
		if got := strings.Join(files, " "); got != want {
			t.Errorf("%q: the GPUs are %q, want %q", gpus, got, want)
		}
	}
}

func TestSlurmIsConfiguredOnce(t *testing.T) {
	parse := func(text string) *lab.Lab {
		t.Helper()
		l, err := lab.Parse("lab.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := parse("name: full\nnodes:\n  vm: {count: 2, image: debian-12+slurm}\n  small:\n")
	f := &fakeNodes{facts: map[string]string{"vm00": cpus(1), "vm01": cpus(2)}, digests: map[string]string{},
		files: map[string]map[string]string{}}
	dir := t.TempDir()
	begun := 0
	start := func() error { return Start(t.Context(), l, dir, f, func() { begun++ }) }
	for range 2 {
		if err := start(); err != nil {
			t.Fatal(err)
		}
	}
	if begun != 1 || f.waits != 1 || len(f.files) != 2 {
		t.Errorf("begun %d times, waited %d times, %d nodes", begun, f.waits, len(f.files))
	}
	conf := f.files["vm00"]["etc/slurm/slurm.conf"]
	for _, want := range []string{"ClusterName=full\nSlurmctldHost=vm00\n", "MpiDefault=none\n",
		"NodeName=vm00 CPUs=1 Sockets=1 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=454 Gres=nic:rxe0:1 State=UNKNOWN",
		"NodeName=vm01 CPUs=2 Sockets=1 CoresPerSocket=2", "PartitionName=all Nodes=vm[00-01] "} {
		if !strings.Contains(conf, want) {
			t.Errorf("no %q in\n%s", want, conf)
		}
	}
	var differ []string
	for name, text := range f.files["vm00"] {
		if f.files["vm01"][name] != text {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	if diff := cmp.Diff([]string{"etc/slurm/controller", "etc/slurm/rackless.sha256"}, differ); diff != "" {
		t.Errorf("the controller differs in: %s", diff)
	}
	for unit, file := range map[string]string{"munge": "slurm.conf", "slurmd": "slurm.conf",
		"slurmctld": "controller"} {
		text := f.files["vm00"]["etc/systemd/system/"+unit+".service.d/rackless.conf"]
		if _, sent := f.files["vm00"]["etc/slurm/"+file]; !sent ||
			!strings.Contains(text, "\nConditionPathExists=/etc/slurm/"+file+"\n") {
			t.Errorf("%s and its %s: %q", unit, file, text)
		}
	}
	key, err := os.ReadFile(filepath.Join(dir, "munge.key"))
	if err != nil || f.files["vm01"]["etc/munge/munge.key"] != "munge 600 "+string(key) {
		t.Errorf("the key: %v", err)
	}
	if fi, err := os.Stat(filepath.Join(dir, "munge.key")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the key can be read by others: %v", err)
	}

	l = parse("name: full\nslurm: {controller: vm01}\nnodes:\n  vm: {count: 3, image: debian-12+slurm+mpi}\n")
	f.facts["vm02"], f.broken = cpus(1), true
	const down = "node vm01: wait for Slurm's nodes: exit status 1: vm00 idle vm01 down*"
	if err := start(); err == nil || !strings.Contains(err.Error(), down) {
		t.Errorf("got %v", err)
	}
	if conf := f.files["vm00"]["etc/slurm/slurm.conf"]; begun != 2 || !strings.Contains(conf, "vm[00-02]") ||
		!strings.Contains(conf, "MpiDefault=pmix\n") || !strings.Contains(conf, "SlurmctldHost=vm01\n") {
		t.Errorf("begun %d times:\n%s", begun, conf)
	}
	if err := os.WriteFile(filepath.Join(dir, "munge.key"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), "has 5 bytes") {
		t.Errorf("a key that is damaged: %v", err)
	}
	l = parse("name: full\nnodes: {vm: {image: debian-12}}\n")
	if err := start(); err != nil {
		t.Errorf("a lab without Slurm: %v", err)
	}
}
