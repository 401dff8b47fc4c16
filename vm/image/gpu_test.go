package image

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/dump/smi"
	"github.com/rackless/rackless/machine/dump/texts"
	"github.com/rackless/rackless/rdma/gpu"
)

type gpuMachine string

func (m gpuMachine) add(t *testing.T, path string, files map[string]string) (dir string) {
	t.Helper()
	dir = filepath.Join(string(m), "sys/devices", path)
	links := filepath.Join(string(m), "sys/bus/pci/devices")
	for _, d := range []string{dir, links} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir, filepath.Join(links, filepath.Base(path))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (m gpuMachine) gpu(t *testing.T, path, node, subsystem, numa, cpus string) {
	t.Helper()
	dir := m.add(t, path, map[string]string{"vendor": "0x1af4", "device": "0x1050", "subsystem_vendor": "0x1af4",
		"subsystem_device": subsystem, "numa_node": numa, "local_cpulist": cpus, "resource": "0x0 0x0 0x0\n" +
			"0x0 0x0 0x0\n0x00000000c0000000 0x00000000c00fffff 0x000000000014220c\n0x0 0x0 0x0"})
	file := filepath.Join(string(m), "dev/dri", node)
	for _, d := range []string{filepath.Join(dir, "virtio3/drm", node), filepath.Dir(file)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
}

// nic adds an RDMA device.
func (m gpuMachine) nic(t *testing.T, path, name, numa string) {
	t.Helper()
	dir := m.add(t, path, map[string]string{"vendor": "0x15b3", "device": "0x1017", "numa_node": numa})
	class := filepath.Join(string(m), "sys/class/infiniband", name)
	if err := os.MkdirAll(class, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(class, "device")); err != nil {
		t.Fatal(err)
	}
}

func newGPUMachine(t *testing.T) gpuMachine {
	m := gpuMachine(t.TempDir())
	m.gpu(t, "pci0000:80/0000:80:01.0/0000:84:00.0", "renderD128", "0x4c01", "1", "4-7")
	m.gpu(t, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:04:00.0", "renderD129", "0x4c00", "0", "0-3")
	err := os.WriteFile(filepath.Join(string(m), "sys/bus/pci/devices/0000:04:00.0/current_link_speed"),
		[]byte("16.0 GT/s PCIe\n"), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	m.nic(t, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:05:00.0", "mlx5_0", "0")
	m.nic(t, "pci0000:80/0000:80:02.0/0000:85:00.0", "mlx5_1", "1")
	m.add(t, "pci0000:00/0000:00:03.0", map[string]string{"vendor": "0x1af4", "device": "0x1050"})
	return m
}

func gpuLibraries(t *testing.T) (out string) {
	t.Helper()
	need(t, "gcc", "gcc libc6-dev")
	need(t, "make", "make")
	out = t.TempDir()
	node, err := filepath.Abs("testdata/gpu/fake.c")
	if err != nil {
		t.Fatal(err)
	}
	outputOf(t, exec.Command("make", "--silent", "--directory", "gpu/files/mnt/gpu", "OUT="+out, "NODE="+node,
		"CFLAGS=-O1 -g -Werror"))
	libraries, err := filepath.Glob(filepath.Join(out, "librackless-*.so"))
	if err != nil || len(libraries) == 0 {
		t.Fatal(libraries, err)
	}
	for _, library := range libraries {
		name, ok := strings.CutPrefix(gpuField(t, library, "SONAME"), "lib")
		if !ok {
			t.Fatalf("%s has no SONAME", library)
		}
		if err := os.Symlink(library, filepath.Join(out, "lib"+name)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func gpuField(t *testing.T, library, name string) string {
	t.Helper()
	for line := range strings.Lines(outputOf(t, exec.Command("objdump", "-p", library))) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			return f[1]
		}
	}
	return ""
}

func outputOf(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, stderr.String())
	}
	return string(out)
}

func (m gpuMachine) command(out, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(out, program), args...)
	cmd.Env = []string{"RACKLESS_GPU_ROOT=" + string(m), "LD_LIBRARY_PATH=" + out}
	return cmd
}

// The C programs in testdata/gpu call the libraries as users' programs do.
func TestGPULibraries(t *testing.T) {
	t.Parallel()
	out, m := gpuLibraries(t), newGPUMachine(t)
	for program, library := range map[string]string{"driver": "libcuda.so.1", "runtime": "libcudart.so.12",
		"nvml": "libnvidia-ml.so.1"} {
		outputOf(t, exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-Igpu/files/mnt/gpu", "-o",
			filepath.Join(out, program), "testdata/gpu/"+program+".c", "-L"+out, "-l:"+library, "-Wl,-rpath-link,"+out,
			"-pthread"))
		for _, protect := range []string{"0", "1"} {
			t.Run(program+", protect="+protect, func(t *testing.T) {
				cmd := m.command(out, program)
				cmd.Env = append(cmd.Env, "RACKLESS_GPU_PROTECT="+protect)
				var stderr strings.Builder
				cmd.Stderr = &stderr
				if said, err := cmd.Output(); err != nil {
					t.Fatalf("%v\n%s%s", err, said, stderr.String())
				}
				const reason = "kernels can be neither loaded nor run"
				if n := strings.Count(stderr.String(), reason); n != 1 && program != "nvml" {
					t.Errorf("%q is said %d times in %q", reason, n, stderr.String())
				}
			})
		}
	}
	t.Run("visible devices", func(t *testing.T) { testVisible(t, out, m) })
	t.Run("nvidia-smi", func(t *testing.T) { testSMI(t, out, m) })
	t.Run("a lost GPU", func(t *testing.T) { testLost(t, out, newGPUMachine(t)) })
	t.Run("nothing to see", func(t *testing.T) {
		cmd := gpuMachine(t.TempDir()).command(out, "nvidia-smi", "-L")
		said, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(said), "No devices were found") ||
			!strings.Contains(string(said), "is virtio_gpu loaded?") {
			t.Errorf("%v, %s", err, said)
		}
	})
	t.Run("models", func(t *testing.T) {
		for i, name := range gpu.Models() {
			model, _ := gpu.ModelOf(name)
			m := gpuMachine(t.TempDir())
			m.gpu(t, "pci0000:00/0000:00:01.0/0000:01:00.0", fmt.Sprint("renderD", 128+i),
				fmt.Sprintf("%#x", model.Subsystem), "0", "0-3")
			got := outputOf(t, m.command(out, "nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
			if got != model.Name+"\n" {
				t.Errorf("%s is called %q, want %q", name, got, model.Name)
			}
		}
	})
	t.Run("needed functions", func(t *testing.T) { testNeeded(t, out) })
}

func testVisible(t *testing.T, out string, m gpuMachine) {
	outputOf(t, exec.Command("gcc", "-std=c11", "-Igpu/files/mnt/gpu", "-o", filepath.Join(out, "list"),
		"testdata/gpu/list.c", "-L"+out, "-l:libcuda.so.1"))
	second := strings.TrimSpace(outputOf(t, m.command(out, "nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader",
		"-i", "1")))
	for list, want := range map[string]string{"1": "0000:84:00.0\n", "1,0": "0000:84:00.0\n0000:04:00.0\n",
		second: "0000:84:00.0\n", second[:12] + ",0": "0000:84:00.0\n0000:04:00.0\n", "0,7,1": "0000:04:00.0\n",
		"": "", "-1": "", "GPU-": ""} {
		cmd := m.command(out, "list")
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+list)
		if diff := cmp.Diff(want, outputOf(t, cmd)); diff != "" {
			t.Errorf("CUDA_VISIBLE_DEVICES=%s (-want +got):\n%s", list, diff)
		}
	}
}

func testSMI(t *testing.T, out string, m gpuMachine) {
	ask := func(args ...string) string { return outputOf(t, m.command(out, "nvidia-smi", args...)) }
	names := strings.Fields(strings.TrimSpace(ask("--query-gpu=uuid", "--format=csv,noheader")))
	if len(names) != 2 || names[0] == names[1] || len(names[0]) != len("GPU-")+36 {
		t.Fatalf("UUIDs are %q", names)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-L"}, fmt.Sprintf("GPU 0: rackless emulated GPU (UUID: %s)\n"+
			"GPU 1: rackless emulated H20 (UUID: %s)\n", names[0], names[1])},
		{[]string{"--query-gpu=index,name,pci.bus_id,memory.total,utilization.gpu", "--format=csv"},
			"index, name, pci.bus_id, memory.total [MiB], utilization.gpu\n" +
				"0, rackless emulated GPU, 00000000:04:00.0, 1 MiB, [N/A]\n" +
				"1, rackless emulated H20, 00000000:84:00.0, 1 MiB, [N/A]\n"},
		{[]string{"--query-gpu", "memory.used,memory.free,gpu_bus_id", "--format", "csv,noheader,nounits", "-i", "1"},
			"0, 1, 00000000:84:00.0\n"},
		{[]string{"--query-gpu=index", "--format=csv,noheader", "--id=0000:84:00.0"}, "1\n"},
		{[]string{"--query-gpu=pci.domain,pci.bus,pci.device,pci.device_id", "--format=csv,noheader", "-i", names[0]},
			"0x0000, 0x04, 0x00, 0x10501AF4\n"},
	} {
		if diff := cmp.Diff(tt.want, ask(tt.args...)); diff != "" {
			t.Errorf("nvidia-smi %q (-want +got):\n%s", tt.args, diff)
		}
	}
	matrix, err := smi.ParseMatrix([]byte(ask("topo", "-m")))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for i, d := range matrix.Devices {
		var row []string
		for j := range matrix.Devices {
			row = append(row, matrix.Cells[i][j].String())
		}
		rows = append(rows, d.Name+": "+strings.Join(row, " "))
	}
	want := []string{"GPU0: X SYS PIX SYS", "GPU1: SYS X SYS PHB", "NIC0: PIX SYS X SYS", "NIC1: SYS PHB SYS X"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("topo -m (-want +got):\n%s", diff)
	}
	found := texts.Split([]byte(ask("-q", "-i", "1")), "q.txt", texts.Kinds)
	if len(found) != 1 {
		t.Fatalf("%d texts in the output of -q", len(found))
	}
	h, err := found[0].Read()
	if err != nil || len(h.GPUs) != 1 {
		t.Fatalf("%v, %+v", err, h)
	}
	g, size := h.GPUs[0], uint64(1<<20)
	want = []string{"0000:84:00.0", "rackless emulated H20", names[1], "Disabled"}
	if diff := cmp.Diff(want, []string{g.ID(), g.Model, g.UUID, g.MIG}); diff != "" {
		t.Errorf("-q (-want +read):\n%s", diff)
	}
	if diff := cmp.Diff([]*uint64{&size, &size}, []*uint64{g.MemoryBytes, g.BAR1Bytes}); diff != "" {
		t.Errorf("memory in -q (-want +read):\n%s", diff)
	}
	for _, args := range [][]string{{"--query-gpu=indx", "--format=csv"}, {"--query-gpu=index"}, {"-i", "7"}, {"-x"},
		{"topo", "-p2p"}} {
		if said, err := m.command(out, "nvidia-smi", args...).Output(); err == nil {
			t.Errorf("nvidia-smi %q does not fail: %s", args, said)
		}
	}
}

func testLost(t *testing.T, out string, m gpuMachine) {
	t.Helper()
	for address, first := range map[string]string{"0000:04:00.0": "\xff\xff\xff\xff",
		"0000:84:00.0": "\xf4\x1a\x50\x10"} {
		err := os.WriteFile(filepath.Join(string(m), "sys/bus/pci/devices", address, "config"), []byte(first), 0o644)
		if err != nil {
			t.Fatal(err)
		}
	}
	const lost = "Unable to determine the device handle for GPU0: 0000:04:00.0: GPU is lost.  Reboot the system to " +
		"recover this GPU\n"
	for _, tt := range []struct {
		args []string
		want string // beginning, and part
		part string
	}{
		{[]string{"-L"}, lost + "GPU 1: rackless emulated ", ""},
		{nil, "| GPU ", "\n" + lost + "|   1 | "},
		{[]string{"-q"}, "\n====", "\n" + lost + "GPU 00000000:84:00.0\n"},
		{[]string{"--query-gpu=index,memory.total", "--format=csv,noheader"},
			"[GPU is lost], [GPU is lost]\n1, 1 MiB\n", ""},
	} {
		said, err := m.command(out, "nvidia-smi", tt.args...).Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 15 || !strings.HasPrefix(string(said), tt.want) ||
			!strings.Contains(string(said), tt.part) {
			t.Errorf("nvidia-smi %q: %v\n%s", tt.args, err, said)
		}
	}
	outputOf(t, exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Igpu/files/mnt/gpu", "-o",
		filepath.Join(out, "lost"), "testdata/gpu/lost.c", "-L"+out, "-l:libcuda.so.1", "-l:libnvidia-ml.so.1",
		"-Wl,-rpath-link,"+out, "-pthread"))
	outputOf(t, m.command(out, "lost"))
}

// testNeeded compares the libraries with testdata/gpu/needed.tsv, from the dynamic symbols of programs that use them.
func testNeeded(t *testing.T, out string) {
	table, err := os.ReadFile("testdata/gpu/needed.tsv")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string][]string{}
	for line := range strings.Lines(string(table)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(line, "#") || len(f) != 3 {
			continue
		}
		library := f[0]
		if _, ok := have[library]; !ok {
			for symbol := range strings.Lines(outputOf(t, exec.Command("nm", "-D", "--defined-only",
				filepath.Join(out, library)))) {
				f := strings.Fields(symbol)
				name, _, _ := strings.Cut(f[len(f)-1], "@")
				have[library] = append(have[library], name)
			}
		}
		if !slices.Contains(have[library], f[1]) {
			t.Errorf("%s has no %s, which is needed by %s", library, f[1], f[2])
		}
	}
	if len(have) == 0 {
		t.Error("testdata/gpu/needed.tsv names no library")
	}
}

func TestRecipeOfGPUImages(t *testing.T) {
	t.Parallel()
	recipe := func(name string) Recipe {
		r, _, err := Full(name).recipe(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	hooks := func(r Recipe) (hooks []string) {
		for _, arg := range installArgs(inputs{recipe: r}, "root", []string{"disk.tar"}) {
			if hook, ok := strings.CutPrefix(arg, "--customize-hook="); ok {
				hooks = append(hooks, hook)
			}
		}
		return hooks
	}
	plain, gpu := recipe("debian-13"), recipe("debian-13+gpu")
	if plain.Sources != nil || gpu.FilesDigest == plain.FilesDigest || !slices.Contains(gpu.Packages, "gcc") {
		t.Errorf("recipes are %+v and %+v", plain, gpu)
	}
	want := []string{"tar-in files.tar /", "upload perftest.orig.tar /mnt/perftest.orig.tar",
		"upload libhwloc-contrib-plugins.deb /mnt/libhwloc-contrib-plugins.deb",
		`chroot "$1" /mnt/compile`, `chroot "$1" /mnt/customize.sh`, "download /mnt/out/disk.tar disk.tar"}
	if diff := cmp.Diff(want, hooks(gpu)); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Delete(want, 1, 4), hooks(plain)); diff != "" {
		t.Errorf("hooks of an image without GPUs (-want +got):\n%s", diff)
	}
	if plugins := recipe("debian-13+gpu+slurm").Unpacked; !slices.Contains(plugins, "slurm-wlm-nvml-plugin") {
		t.Errorf("Slurm gets no plug-in: %q", plugins)
	}
	suites := recipe("debian-13+suites")
	want = []string{"tar-in files.tar /", "upload libfabric.orig.tar /mnt/libfabric.orig.tar",
		"upload rdma-core.orig.tar /mnt/rdma-core.orig.tar", `chroot "$1" /mnt/compile-suites`,
		`chroot "$1" /mnt/customize.sh`, "download /mnt/out/disk.tar disk.tar"}
	if diff := cmp.Diff(want, hooks(suites)); diff != "" {
		t.Errorf("hooks of an image with suites (-want +got):\n%s", diff)
	}
	if both := hooks(recipe("debian-12+gpu+suites")); !slices.Contains(both, `chroot "$1" /mnt/compile`) ||
		!slices.Contains(both, `chroot "$1" /mnt/compile-suites`) {
		t.Errorf("hooks of both sets: %q", both)
	}
	modes := map[string]int64{}
	err := filesOf([]string{setGPU, setSlurm, setSuites})(func(name string, _ []byte, mode int64) error {
		modes[name] = mode
		return nil
	})
	if err != nil || modes["mnt/compile"] != 0o755 || modes["mnt/gpu/cuda.h"] != 0o644 ||
		modes["mnt/compile-suites"] != 0o755 ||
		modes["etc/systemd/system/munge.service.d/rackless.conf"] == 0 || modes["mnt/customize.sh"] == 0 {
		t.Errorf("files are %v, %v", modes, err)
	}
}
