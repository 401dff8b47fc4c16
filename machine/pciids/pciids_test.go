package pciids

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVendor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		vendor uint16
		want   string
	}{
		{"the first of the list", 0x0001, "SafeNet (wrong ID)"},
		{"the last of the list", 0xffff, "Illegal Vendor ID"},
		{"a maker of GPUs", 0x10de, "NVIDIA Corporation"},
		{"a maker of NICs", 0x15b3, "Mellanox Technologies"},
		{"the vendor with the most devices", 0x8086, "Intel Corporation"},
		{"a number that nobody has", 0x0002, ""},
		{"zero", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Vendor(tt.vendor); got != tt.want {
				t.Errorf("Vendor(%#04x) = %q, want %q", tt.vendor, got, tt.want)
			}
		})
	}
}

func TestDevice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		vendor, device uint16
		want           string
	}{
		{"H100 SXM", 0x10de, 0x2330, "GH100 [H100 SXM5 80GB]"},
		{"H200 SXM", 0x10de, 0x2335, "GH100 [H200 SXM 141GB]"},
		{"H20", 0x10de, 0x2329, "GH100 [H20]"},
		{"B200", 0x10de, 0x2901, "GB100 [B200]"},
		{"RTX 3090", 0x10de, 0x2204, "GA102 [GeForce RTX 3090]"},
		{"ConnectX-4 Lx", 0x15b3, 0x1015, "MT27710 Family [ConnectX-4 Lx]"},
		{"ConnectX-7", 0x15b3, 0x1021, "MT2910 Family [ConnectX-7]"},
		{"ConnectX-8", 0x15b3, 0x1023, "CX8 Family [ConnectX-8]"},
		{"BlueField-3", 0x15b3, 0xa2dc, "MT43244 BlueField-3 integrated ConnectX-7 network controller"},
		{"virtio network", 0x1af4, 0x1041, "Virtio 1.0 network device"},
		{"a device that its vendor does not list", 0x10de, 0x0001, ""},
		{"a device of a vendor that is not there", 0x0002, 0x2330, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Device(tt.vendor, tt.device); got != tt.want {
				t.Errorf("Device(%#04x, %#04x) = %q, want %q", tt.vendor, tt.device, got, tt.want)
			}
		})
	}
}

func TestClass(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		class uint32
		want  string
	}{
		{"a subclass", 0x020000, "Ethernet controller"},
		{"a subclass whose interface has a name of its own", 0x010802, "Non-Volatile memory controller"},
		{"the unknown subclass of a class", 0x02fe00, "Network controller"},
		{"a class without subclasses", 0x400000, "Coprocessor"},
		{"an accelerator", 0x120000, "Processing accelerators"},
		{"a class that does not exist", 0x770000, ""},
		{"bits above 24 are not looked at", 0xff020000, "Ethernet controller"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Class(tt.class); got != tt.want {
				t.Errorf("Class(%#06x) = %q, want %q", tt.class, got, tt.want)
			}
		})
	}
}

func TestVersionIsADay(t *testing.T) {
	t.Parallel()
	parts := strings.Split(version(), ".")
	if len(parts) != 3 || parts[0] < "2026" {
		t.Errorf("version() = %q, want a day of 2026 or later, such as 2026.10.24", version())
	}
}

func TestEveryLineIsFoundByItsKey(t *testing.T) {
	t.Parallel()
	var keys []string
	for line := range strings.Lines(ids) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		key, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || want == "" {
			t.Fatalf("line %q has no name", line)
		}
		keys = append(keys, key)
		if got := lookup([]byte(key)); got != want {
			t.Fatalf("lookup(%q) = %q, want %q", key, got, want)
		}
	}
	if len(keys) < 20000 || !slices.IsSorted(keys) {
		t.Errorf("%d keys, sorted: %t; want more than 20000, sorted", len(keys), slices.IsSorted(keys))
	}
}

func TestEveryOtherNumberIsNotFound(t *testing.T) {
	t.Parallel()
	known := map[uint64]bool{}
	for line := range strings.Lines(ids) {
		key, _, _ := strings.Cut(line, " ")
		if v, err := strconv.ParseUint(key, 16, 16); err == nil && len(key) == 4 {
			known[v] = true
		}
	}
	for v := range uint64(1 << 16) {
		if got := Vendor(uint16(v)); (got != "") != known[v] {
			t.Fatalf("Vendor(%#04x) = %q, want it to be there: %t", v, got, known[v])
		}
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	var names int
	allocs := testing.AllocsPerRun(100, func() {
		names += len(Vendor(0x15b3)) + len(Device(0x15b3, 0x1021)) + len(Class(0x020000))
	})
	if allocs != 0 || names == 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

func TestGen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gen := filepath.Join(dir, "gen")
	args := append(compilerFlags(), "-o", gen, "gen.go")
	if out, err := exec.Command("go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, tt := range []struct {
		name, in  string
		want      string
		wantError string
	}{
		{
			name: "subsystems, interfaces, comments and empty lines are left out, and the lines are sorted",
			in: "#\n#\tVersion: 2030.01.02\n\n10de  NVIDIA\n\t2330  H100\n\t\t10de 16c1  a board\n\t0001  old\n# " +
				"comment\n0e11  Compaq\n\n" +
				"C 03  Display\n\t00  VGA\n\t\t01  interface\n",
			want: "0e11 Compaq\n10de NVIDIA\n10de0001 old\n10de2330 H100\nC03 Display\nC0300 VGA\n",
		},
		{
			name:      "a list without a version",
			in:        "10de  NVIDIA\n",
			wantError: "gen: in: no version in its header\n",
		},
		{
			name:      "a line that is none",
			in:        "#\tVersion: 1\n10DE  NVIDIA\n",
			wantError: "gen: in: line 2: \"10DE  NVIDIA\": want 4 hexadecimal digits, two spaces and a name\n",
		},
		{
			name:      "a device before the first vendor",
			in:        "#\tVersion: 1\n\t2330  H100\n",
			wantError: "gen: in: line 2: indented below nothing\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "in"), []byte(tt.in), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(gen, "-out", "out", "in")
			cmd.Dir = dir
			message, err := cmd.CombinedOutput()
			if (err != nil) != (tt.wantError != "") {
				t.Fatalf("error %v, want %q", err, tt.wantError)
			}
			if diff := cmp.Diff(tt.wantError, string(message)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if tt.wantError != "" {
				return
			}
			got, err := os.ReadFile(filepath.Join(dir, "out"))
			if err != nil {
				t.Fatal(err)
			}
			_, lines, _ := strings.Cut(string(got), "beside this one.\n")
			if diff := cmp.Diff(tt.want, lines); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
}

// With other flags, go build would compile the standard library again.
func compilerFlags() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var flags []string
	for _, s := range info.Settings {
		if s.Key == "-gcflags" {
			flags = append(flags, s.Key+"="+s.Value)
		}
	}
	return flags
}

func FuzzLookup(f *testing.F) {
	for _, key := range []string{"15b3", "15b31021", "C0200", "", "#", "zzzz", "15b3 "} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		name := lookup([]byte(key))
		if name != "" && !strings.Contains(ids, "\n"+key+" "+name+"\n") {
			t.Errorf("lookup(%q) = %q, which is not in the list", key, name)
		}
	})
}

func BenchmarkDevice(b *testing.B) {
	for b.Loop() {
		if Device(0x15b3, 0x1021) == "" {
			b.Fatal("not found")
		}
	}
}

const versionLabel = "# Version: "

func version() string {
	_, after, _ := strings.Cut(ids, versionLabel)
	version, _, _ := strings.Cut(after, "\n")
	return version
}
