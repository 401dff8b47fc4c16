package export_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/plan/render/export"
)

var judges = flag.Bool("judges", false, "fail where a judge is not installed, instead of leaving it out")

// judge returns a program that hack/judges.sh installs.
func judge(t *testing.T, environment, program string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "rackless", "judges", environment, "bin", program)
	if _, err := os.Stat(path); err != nil {
		if *judges {
			t.Fatalf("%v: install it with hack/judges.sh %s", err, environment)
		}
		t.Skipf("no %s: make test-judges installs it", environment)
	}
	return path
}

func ask(t *testing.T, files []render.Artifact, argv ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &complaint
	cmd.Env = append(os.Environ(), "HOME="+dir, "USER=root", "RACKLESS_RUN=/run/labs", "PYTHONDONTWRITEBYTECODE=1",
		"PYTHONWARNINGS=ignore")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(argv, " "), err, out.Bytes(), complaint.Bytes())
	}
	if said := complaint.String(); strings.Contains(strings.ToLower(said), "warn") {
		t.Errorf("%s: %s", argv[0], said)
	}
	return out.Bytes()
}

func TestAnsibleReadsTheInventory(t *testing.T) {
	t.Parallel()
	inventory := judge(t, "ansible", "ansible-inventory")
	for _, c := range cases {
		if c.host != "" {
			continue
		}
		in := input(t, c.lab, "")
		files, err := export.Ansible(in)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Meta struct {
				Hosts map[string]map[string]any `json:"hostvars"`
			} `json:"_meta"`
		}
		out := ask(t, files, inventory, "-i", "inventory.yaml", "--list")
		if err := json.Unmarshal(out, &list); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, n := range in.Lab.Nodes {
			vars := list.Meta.Hosts[n.Name]
			nics, _ := vars["lab_nics"].([]any)
			if vars["ansible_host"] == nil || len(nics) != len(n.NICs) ||
				vars["lab_mtu"] != float64(in.Lab.Fabric.MTU) {
				t.Errorf("%s: %s is read as %v", c.name, n.Name, vars)
			}
		}
		if len(list.Meta.Hosts) != len(in.Lab.Nodes) {
			t.Errorf("%s: %d hosts, want %d", c.name, len(list.Meta.Hosts), len(in.Lab.Nodes))
		}
		if c.name != "slurm" {
			continue
		}
		// Ansible expands ssh's arguments.
		said := string(ask(t, files, filepath.Join(filepath.Dir(inventory), "ansible"), "-i", "inventory.yaml",
			"login", "-c", "local",
			"-m", "debug", "-a", `{"msg": "{{ ansible_ssh_common_args }} {{ ansible_ssh_private_key_file }}"}`))
		for _, want := range []string{"ProxyCommand='rackless ssh --stdio cluster/%h'", "/run/labs/cluster/known_hosts",
			"/run/labs/cluster/id_ed25519"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %s in %s", c.name, want, said)
			}
		}
	}
}

type computeHost struct {
	Cells []computeCell `json:"cells"`
}

type computeCell struct {
	ID       int         `json:"id"`
	CPUs     []int       `json:"cpus"`
	Siblings [][]int     `json:"siblings"`
	MiB      uint64      `json:"memory_mb"`
	Pages    [][2]uint64 `json:"pages"` // KiB, count
}

func computeHostOf(h *topology.Host, p *plan.Plan) computeHost {
	var c computeHost
	for _, n := range h.NUMANodes {
		cell := computeCell{ID: n.ID, MiB: *n.MemoryBytes >> 20, Siblings: [][]int{}, Pages: [][2]uint64{}}
		for cpu := range n.CPUs.All() {
			cell.CPUs = append(cell.CPUs, cpu)
		}
		for _, core := range h.Cores {
			if core.CPUs.IsSubsetOf(n.CPUs) && core.CPUs.Len() > 1 {
				var threads []int
				for cpu := range core.CPUs.All() {
					threads = append(threads, cpu)
				}
				cell.Siblings = append(cell.Siblings, threads)
			}
		}
		for _, pages := range p.Hugepages {
			if pages.NUMANode == n.ID {
				cell.Pages = append(cell.Pages, [2]uint64{pages.PageBytes >> 10, uint64(pages.Count)})
			}
		}
		c.Cells = append(c.Cells, cell)
	}
	return c
}

// Nova's own code reads the files and places the servers as planned.
func TestNovaPlacesTheServers(t *testing.T) {
	t.Parallel()
	if !*judges {
		t.Skip("loading Nova takes long: make test-judges does it")
	}
	python := judge(t, "nova", "python")
	script, err := filepath.Abs("testdata/judge-nova.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases[:3] {
		in := input(t, c.lab, c.host)
		files, err := export.Nova(in)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(computeHostOf(in.Host, in.Plan))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, render.Artifact{Path: "host.json", Data: data})
		out := ask(t, files, python, script)
		want := map[string]int{}
		for _, n := range in.Plan.Nodes {
			want[in.Plan.Lab+"-"+n.Name] = len(n.VCPUs)
		}
		if c.name == "r740-eight" {
			// Five of these nodes span both NUMA nodes. Nova puts the halves on the first node with room, and finds no
			// place for the last server: see docs/export.md.
			want["r740-eight-vm07"] = 0
		}
		got := map[string]int{}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: virtual CPUs that Nova pins, by server (-want +got):\n%s", c.name, diff)
		}
	}
}

// The kubelet's own code accepts its configuration, and finds errors in wrong ones.
func TestTheKubeletTakesItsConfiguration(t *testing.T) {
	t.Parallel()
	if !*judges {
		t.Skip("make test-judges compiles the kubelet's validation")
	}
	program := judge(t, "kubelet", "../kubelet")
	for _, c := range cases[:3] {
		files, err := export.KubeVirt(input(t, c.lab, c.host))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(files, func(f render.Artifact) bool { return f.Path == "kubelet.yaml" })
		for _, edit := range []struct{ from, to, complaint string }{
			{"", "", ""},
			{"topologyManagerScope", "topologyManagerScop", `unknown field "topologyManagerScop"`},
			{"topologyManagerPolicy: ", "topologyManagerPolicy: un", "topologyManagerPolicy"},
		} {
			text := strings.Replace(string(files[i].Data), edit.from, edit.to, 1)
			said := string(ask(t, []render.Artifact{{Path: "kubelet.yaml", Data: []byte(text)}}, program,
				"kubelet.yaml"))
			if said != "" && edit.complaint == "" || !strings.Contains(said, edit.complaint) {
				t.Errorf("%s with %q: want %q, the kubelet says %q", c.name, edit.to, edit.complaint, said)
			}
		}
	}
}

func moduleFile(t *testing.T, path string) string {
	t.Helper()
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(cache)), path)
}

func kubeVirtDefinitions(t *testing.T) string {
	t.Helper()
	return moduleFile(t, "kubevirt.io/kubevirt@v1.6.0/pkg/virt-operator/resource/generate/components/"+
		"validations_generated.go")
}

// KubeVirt's own admission must also find a misspelt key and an unknown feature gate.
func TestKubeVirtTakesTheObjects(t *testing.T) {
	t.Parallel()
	if !*judges {
		t.Skip("make test-judges fetches the source of KubeVirt")
	}
	admission := judge(t, "kubevirt", "../kubevirt")
	python := judge(t, "nova", "python")
	definitions := kubeVirtDefinitions(t)
	script, err := filepath.Abs("testdata/judge-kubevirt.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases[:3] {
		files, err := export.KubeVirt(input(t, c.lab, c.host))
		if err != nil {
			t.Fatal(err)
		}
		said := func() string {
			return strings.TrimSpace(string(ask(t, files, python, script, definitions, "kubevirt.yaml",
				"machines.yaml")))
		}
		if got := said(); got != "[]" {
			t.Errorf("%s: %s", c.name, got)
		}
		admitted := func() string { return string(ask(t, files, admission, "machines.yaml", "kubevirt.yaml")) }
		if got := admitted(); got != "" {
			t.Errorf("%s: KubeVirt's admission: %s", c.name, got)
		}
		if c.name != "epyc-pair" {
			continue
		}
		kept := slices.Clone(files)
		for i := range files {
			files[i].Data = bytes.ReplaceAll(files[i].Data, []byte("- HostDevices\n"), []byte("- Snapshot\n"))
		}
		if got := admitted(); !strings.Contains(got, "Host Devices feature gate is not enabled") {
			t.Errorf("a feature gate that is not there is not found: %s", got)
		}
		files = kept
		for i := range files {
			files[i].Data = bytes.ReplaceAll(files[i].Data, []byte("dedicatedCpuPlacement"),
				[]byte("dedicatedCpuPlacment"))
		}
		if got := said(); !strings.Contains(got, "dedicatedCpuPlacment") {
			t.Errorf("a misspelt key is not found: %s", got)
		}
	}
}

// Open MPI binds each rank to virtual CPUs that libvirt's domain pins to the line's host CPUs. hwloc simulates the CPUs
// of the domain.
func TestOpenMPIBindsTheRanks(t *testing.T) {
	t.Parallel()
	mpirun := judge(t, "openmpi", "../usr/bin/mpirun.openmpi")
	root := filepath.Join(filepath.Dir(mpirun), "..")
	lib := filepath.Join(root, "lib/x86_64-linux-gnu")
	rank := regexp.MustCompile(`(?m)^(rank \d+=)(\S+)( slot=\d+) # NUMA node (\d+).*; CPUs? ([\d, ]+) of the host$`)
	for _, c := range cases[:3] {
		in := input(t, c.lab, c.host)
		files, err := export.OpenMPI(in)
		if err != nil {
			t.Fatal(err)
		}
		domains, err := render.Domains(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range domains {
			var d libvirtxml.Domain
			if err := d.Unmarshal(string(file.Data)); err != nil {
				t.Fatal(err)
			}
			pins := make(map[int]string)
			for _, p := range d.CPUTune.VCPUPin {
				pins[int(p.VCPU)] = p.CPUSet
			}
			cells := make(map[int]topology.CPUSet)
			if d.CPU.Numa != nil {
				for _, cell := range d.CPU.Numa.Cell {
					if cells[int(*cell.ID)], err = topology.ParseCPUSet(cell.CPUs); err != nil {
						t.Fatal(err)
					}
				}
			}
			var ranks strings.Builder
			var where, on []string
			for _, m := range rank.FindAllStringSubmatch(string(files[1].Data), -1) {
				if render.DomainPath(m[2]) == file.Path {
					fmt.Fprintf(&ranks, "rank %d=localhost%s\n", len(on), m[3])
					where, on = append(where, m[4]), append(on, strings.ReplaceAll(m[5], ",", ""))
				}
			}
			if len(on) == 0 {
				t.Fatalf("%s: no ranks of %s", c.name, file.Path)
			}
			topo := d.CPU.Topology
			out := ask(t, []render.Artifact{{Path: "ranks", Data: []byte(ranks.String())}}, "sh", "-c",
				`exec "$@" 2>&1`, "sh", "env", "OPAL_PREFIX="+root, "OPAL_LIBDIR="+lib,
				"OPAL_PKGLIBDIR="+lib+"/openmpi/lib/openmpi3", "LD_LIBRARY_PATH="+lib,
				fmt.Sprintf("HWLOC_SYNTHETIC=pack:%d core:%d pu:%d", topo.Sockets, topo.Cores, topo.Threads), mpirun,
				"--allow-run-as-root", "--host", fmt.Sprintf("localhost:%d", len(on)), "-np", fmt.Sprint(len(on)),
				"--rankfile", "ranks", "--display-devel-map", "true")
			bound := regexp.MustCompile(`(?m)^\s+Binding: (\S+)$`).FindAllStringSubmatch(string(out), -1)
			if len(bound) != len(on) {
				t.Fatalf("%s: %d of %d ranks are bound:\n%s", file.Path, len(bound), len(on), out)
			}
			for i, b := range bound { // [../..][BB/..]: a letter for each virtual CPU
				var to []string
				cell, _ := strconv.Atoi(where[i])
				for v, letter := range strings.NewReplacer("[", "", "]", "", "/", "").Replace(b[1]) {
					if letter == 'B' {
						to = append(to, pins[v])
						if d.CPU.Numa != nil && !cells[cell].Contains(v) {
							t.Errorf("%s: rank %d is on virtual CPU %d, outside of cell %d", file.Path, i, v, cell)
						}
					}
				}
				if got := strings.Join(to, " "); got != on[i] {
					t.Errorf("%s: rank %d is on CPUs %q by its domain, and not on %q", file.Path, i, got, on[i])
				}
			}
		}
	}
}
