package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/synthetic"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/render"
)

func labCluster() Cluster {
	c := Cluster{Name: "full", Controller: "vm00", MPI: "pmix", Made: "Made\nfor a test."}
	for _, name := range []string{"vm00", "vm01", "vm02", "vm03"} {
		c.Nodes = append(c.Nodes, Node{Name: name, Sockets: 1, Cores: 1, Threads: 1, MemoryMiB: 453,
			Devices: []Device{{Kind: NIC, Type: "mlx5_0", File: nicFile("mlx5_0")}}})
	}
	c.Nodes = append(c.Nodes, Node{Name: "big", Sockets: 2, Cores: 4, Threads: 2, MemoryMiB: 900, Devices: []Device{
		{Kind: GPU, Type: "h100", File: "/dev/nvidia0", Cores: topology.CPURange(0, 3)},
		{Kind: GPU, Type: "h100", File: "/dev/nvidia1", Cores: topology.CPURange(4, 7)},
		{Kind: NIC, Type: "mlx5_0", File: nicFile("mlx5_0"), Cores: topology.CPURange(4, 7)}}})
	c.Switches = []Switch{{Name: "spine", Switches: []string{"leaf0", "leaf1"}},
		{Name: "leaf0", Nodes: []string{"vm00", "vm01"}}, {Name: "leaf1", Nodes: []string{"vm02", "vm03", "big"}}}
	return c
}

func epyc(t testing.TB) Cluster {
	t.Helper()
	h, err := inspect.ReadFile(context.Background(), filepath.Join("../../..", "examples", "hosts", "epyc-7551p.ttar"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := NodeOf("epyc-7551p", h)
	if err != nil {
		t.Fatal(err)
	}
	return Cluster{Name: "real", Controller: "login", Nodes: []Node{n}}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Cluster{"lab": labCluster(), "epyc-7551p": epyc(t)} {
		files, err := Files(c)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, f := range files {
			fmt.Fprintf(&got, "== %s\n%s", f.Path, f.Data)
		}
		golden.Check(t, filepath.Join("testdata", name+".txt"), got.String())
	}
}

func TestWhatSlurmCannotReadIsRefused(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(c *Cluster){
		"no node":                       func(c *Cluster) { c.Nodes = nil },
		"there are two of that name":    func(c *Cluster) { c.Nodes[1].Name = "vm00" },
		"want at least 1 of each":       func(c *Cluster) { c.Nodes[0].Cores = 0 },
		`"a b" is not a name`:           func(c *Cluster) { c.Name = "a b" },
		`"vm[0-3]" is not a name`:       func(c *Cluster) { c.Controller = "vm[0-3]" },
		`"x\nPrologSlurmctld" is not a`: func(c *Cluster) { c.Nodes[4].Devices[0].Type = "x\nPrologSlurmctld" },
		`file "/dev/a b" of gpu`:        func(c *Cluster) { c.Nodes[4].Devices[0].File = "/dev/a b" },
		"cores 4-8 of nic, and it has":  func(c *Cluster) { c.Nodes[4].Devices[2].Cores = topology.CPURange(4, 8) },
		"switch leaf0: no node vm09":    func(c *Cluster) { c.Switches[1].Nodes[0] = "vm09" },
		`"-x" is not a name`:            func(c *Cluster) { c.MPI = "-x" },
	} {
		c := labCluster()
		spoil(&c)
		if files, err := Files(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v and %d files", want, err, len(files))
		}
	}
}

// Slurm numbers cores socket by socket, independent of the kernel.
func TestCoresAreThoseOfSlurm(t *testing.T) {
	t.Parallel()
	pkg := func(i int) *int { return &i }
	h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0, CPUs: topology.CPUs(0, 2, 4, 6)},
		{ID: 1, CPUs: topology.CPUs(1, 3, 5, 7)}}}
	for i := range 4 {
		h.Cores = append(h.Cores, topology.Core{ID: i, Package: pkg(i % 2), CPUs: topology.CPUs(i, i+4)})
	}
	h.GPUs = []topology.GPU{{Vendor: "NVIDIA Corporation", Model: "GA102 [GeForce RTX 3090]", NUMANode: pkg(1)},
		{Vendor: "ASPEED Technology"}, {Vendor: "Advanced Micro Devices [AMD]", Model: "Instinct MI300X"}}
	h.NICs = []topology.NIC{{RDMA: []string{"mlx5_0"}, NUMANode: pkg(0)}, {Netdevs: []string{"eno1"}}}
	n, err := NodeOf("n", h)
	if err != nil {
		t.Fatal(err)
	}
	want := "CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 Gres=gpu:rtx_3090:1,gpu:mi300x:1,nic:mlx5_0:1"
	if got := n.line(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	want = "Name=gpu Type=rtx_3090 File=/dev/nvidia0 Cores=2-3\nName=gpu Type=mi300x File=/dev/dri/renderD128\n" +
		"Name=nic Type=mlx5_0 File=/sys/class/infiniband/mlx5_0/node_guid Cores=0-1\n"
	if diff := cmp.Diff(want, n.devices()); diff != "" {
		t.Error(diff)
	}
	h.Cores = h.Cores[:3]
	if _, err := NodeOf("n", h); err == nil || !strings.Contains(err.Error(), "Slurm wants as many in each") {
		t.Errorf("uneven sockets: %v", err)
	}
	if _, err := NodeOf("n", &topology.Host{}); err == nil {
		t.Error("a machine without cores is a node")
	}
}

func TestHostLists(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want  string
		names []string
	}{
		{"vm[00-03]", []string{"vm00", "vm01", "vm02", "vm03"}},
		{"vm[00,02-03],head", []string{"vm00", "vm02", "vm03", "head"}},
		{"vm9,vm10", []string{"vm9", "vm10"}},
		{"a,b0", []string{"a", "b0"}},
		{"epyc-7551p", []string{"epyc-7551p"}},
	} {
		if got := HostList(tt.names); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-c]-?[0-9]{0,3}`)
		names := rapid.SliceOfNDistinct(name, 1, 8, rapid.ID[string]).Draw(t, "names")
		if got := expand(HostList(names)); !slices.Equal(got, names) {
			t.Fatalf("%s stands for %q", HostList(names), got)
		}
	})
}

func run(t *testing.T, c Cluster) *daemons {
	t.Helper()
	files, err := Files(c)
	if err != nil {
		t.Fatal(err)
	}
	return started(t, files)
}

func started(t *testing.T, files []render.Artifact) *daemons {
	t.Helper()
	s, err := start(files)
	if errors.Is(err, errMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Slurm itself gives jobs the cores next to their devices.
func TestSlurmRunsJobsAsTheFilesSay(t *testing.T) {
	t.Parallel()
	c := labCluster()
	c.MPI = "" // PMIx comes with Open MPI
	s := run(t, c)
	for _, tt := range []struct {
		want string
		argv []string
	}{
		{"5", []string{"--nodes=5", "sh", "-c", "echo $SLURM_NNODES"}},
		// A job of five nodes spans leaves, and one of two stays on one.
		{"spine.leaf1.big", []string{"--nodelist=big", "sh", "-c", "echo $SLURM_TOPOLOGY_ADDR"}},
		{"CPU_IDs=8-9", []string{"--nodelist=big", "--gres=nic:mlx5_0:1", "sh", "-c",
			"scontrol show job --details $SLURM_JOB_ID"}},
		{"mem=112M,node=1", []string{"--nodelist=big", "sh", "-c", "scontrol show job $SLURM_JOB_ID"}},
		{"CPU_IDs=0-1", []string{"--nodelist=big", "--gres=gpu:h100:1", "sh", "-c",
			"scontrol show job --details $SLURM_JOB_ID"}},
	} {
		out, err := s.Run(append([]string{"srun", "--immediate=30"}, tt.argv...)...)
		if err != nil || !strings.Contains(out, tt.want) {
			t.Errorf("srun %s: want %s, got %v\n%s", strings.Join(tt.argv, " "), tt.want, err, out)
		}
	}
	out, err := s.Run("scontrol", "show", "node", "vm03")
	for _, want := range []string{"CPUTot=1 ", "RealMemory=453 ", "Gres=nic:mlx5_0:1"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("vm03: want %s, got %v\n%s", want, err, out)
		}
	}
	out, err = s.Run("scontrol", "show", "config")
	for _, want := range []string{"ReturnToService         = 2\n", "CR_CORE_MEMORY\n", "topology/tree\n",
		"GresTypes               = gpu,nic\n"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("configuration: want %s, got %v\n%s", want, err, out)
		}
	}
}

// Slurm accepts nodes read from dumps.
func TestSlurmTakesRealMachines(t *testing.T) {
	t.Parallel()
	c := epyc(t)
	large, err := synthetic.Host("pack:2 numa:4 core:24 pu:2")
	if err != nil {
		t.Fatal(err)
	}
	n, err := NodeOf("large", large)
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes = append(c.Nodes, n)
	s := run(t, c)
	out, err := s.Run("scontrol", "show", "node")
	for _, want := range []string{"NodeName=epyc-7551p ", "CPUTot=64 ", "NodeName=large ", "CPUTot=384 "} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("want %s, got %v\n%s", want, err, out)
		}
	}
}
