package facts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func stat(head, flags, processor string) string {
	fields := strings.Fields("S 1 1 1 0 -1 FLAGS " + strings.Repeat("0 ", 29) + "PROCESSOR " + strings.Repeat("0 ", 13))
	return head + " " + strings.NewReplacer("FLAGS", flags, "PROCESSOR", processor).Replace(strings.Join(fields, " ")) +
		"\n"
}

func TestParseThread(t *testing.T) {
	const status = "Name:\tx\nTgid:\t4711\nPid:\t4712\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1,34\n"
	tests := []struct {
		name, stat, status string
		want               Thread
		err                string
	}{
		{"a thread of a program", stat("4712 (CPU 0/KVM)", "4194624", "34"), status,
			Thread{PID: 4711, TID: 4712, Name: "CPU 0/KVM", Allowed: topology.CPUs(0, 1, 34), LastCPU: 34}, ""},
		{"a name with brackets, blanks and a line break", stat("4712 (a) R (b\n(c)", "0", "1"), status,
			Thread{PID: 4711, TID: 4712, Name: "a) R (b\n(c", Allowed: topology.CPUs(0, 1, 34), LastCPU: 1}, ""},
		{"one of the kernel that may be moved", stat("4712 (kswapd0)", "2228288", "0"), status,
			Thread{PID: 4711, TID: 4712, Name: "kswapd0", Kernel: true, Allowed: topology.CPUs(0, 1, 34)}, ""},
		{"one of the kernel that belongs to a CPU", stat("4712 (ksoftirqd/1)", "69238848", "1"), status,
			Thread{PID: 4711, TID: 4712, Name: "ksoftirqd/1", Kernel: true, Fixed: true, Allowed: topology.CPUs(0, 1,
				34), LastCPU: 1}, ""},
		{"nothing", "", "", Thread{}, "want a name in brackets"},
		{"a bracket the wrong way round", ")(", status, Thread{}, "want a name in brackets"},
		{"a stat that ends too early", "1 (x) S 1 1", status, Thread{}, "3 fields behind the name, want at least 37"},
		{"no ID", stat("x (y)", "0", "0"), status, Thread{}, "ID of the thread"},
		{"flags that are none", stat("1 (y)", "x", "0"), status, Thread{}, "flags"},
		{"a processor that is none", stat("1 (y)", "0", "x"), status, Thread{}, "processor"},
		{"no process", stat("1 (y)", "0", "0"), "Cpus_allowed_list:\t0\n", Thread{}, `Tgid ""`},
		{"no CPUs", stat("1 (y)", "0", "0"), "Tgid:\t1\n", Thread{}, "no Cpus_allowed_list"},
		{"CPUs that are none", stat("1 (y)", "0", "0"), "Tgid:\t1\nCpus_allowed_list:\tall\n", Thread{},
			"is not a number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseThread(tt.stat, tt.status)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, sets); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestParseNUMAMaps(t *testing.T) {
	const page = 4 << 10
	tests := []struct {
		name, line string
		want       Mapping
		err        string
	}{
		{"hugepages of a guest",
			`7f2c00000000 bind:0,2 file=/dev/hugepages/libvirt/qemu/1-vm00/ram huge anon=16 dirty=16 N0=8 N2=8 ` +
				`kernelpagesize_kB=1048576`,
			Mapping{Start: 0x7f2c00000000, Policy: "bind:0,2", File: "/dev/hugepages/libvirt/qemu/1-vm00/ram",
				Huge: true, Anon: true,
				Pages: map[int]uint64{0: 8, 2: 8}, PageBytes: 1 << 30}, ""},
		{"memory that nothing has touched", "7f2bf8021000 default", Mapping{Start: 0x7f2bf8021000, Policy: "default"},
			""},
		{"a policy with a blank in it", "7f2c3c000000 prefer (many):0,2 anon=3 dirty=3 N2=3 kernelpagesize_kB=4",
			Mapping{Start: 0x7f2c3c000000, Policy: "prefer (many):0,2", Anon: true, Pages: map[int]uint64{2: 3},
				PageBytes: page}, ""},
		{"a heap", "55d0 default heap anon=5 dirty=5 active=0 N0=5 kernelpagesize_kB=4",
			Mapping{Start: 0x55d0, Policy: "default", Anon: true, Pages: map[int]uint64{0: 5}, PageBytes: page}, ""},
		{"words of later kernels", "10 weighted interleave:0 future=1 N=1 Nx=2 N0=1 kernelpagesize_kB=4",
			Mapping{Start: 0x10, Policy: "weighted", Pages: map[int]uint64{0: 1}, PageBytes: page}, ""},
		{"an address alone", "7f2c", Mapping{}, "want an address and a policy"},
		{"no address", "heap default", Mapping{}, "address"},
		{"too many pages", "10 default N0=999999999999999999", Mapping{}, "pages of node 0"},
		{"a size that is none", "10 default kernelpagesize_kB=big", Mapping{}, "size of its pages"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseNUMAMaps(tt.line + "\n")
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.want.Pages == nil {
				tt.want.Pages = map[int]uint64{}
			}
			if diff := cmp.Diff([]Mapping{tt.want}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func recorded(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheMemoryOfRealGuests(t *testing.T) {
	const guest = 64 << 20
	tests := []struct {
		name string
		want Mapping
	}{
		{"qemu-huge", Mapping{Policy: "bind:0", File: `/memfd:memory-backend-memfd\040(deleted)`, Huge: true,
			Bytes: guest, Pages: map[int]uint64{0: 32}, PageBytes: 2 << 20}},
		{"qemu-plain", Mapping{Policy: "bind:0", Anon: true, Bytes: guest, Pages: map[int]uint64{0: 16384},
			PageBytes: 4 << 10}},
		{"qemu-shared", Mapping{Policy: "default", File: `/memfd:memory-backend-memfd\040(deleted)`, Bytes: guest,
			Pages: map[int]uint64{}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, err := ParseNUMAMaps(recorded(t, tt.name+".numa_maps"))
			if err != nil {
				t.Fatal(err)
			}
			if err := AddSizes(all, recorded(t, tt.name+".maps")); err != nil {
				t.Fatal(err)
			}
			var got []Mapping
			for _, m := range all {
				if m.Bytes == guest {
					m.Start = 0
					got = append(got, m)
				}
			}
			if diff := cmp.Diff([]Mapping{tt.want}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if want := tt.want.PageBytes * tt.want.Pages[0]; got[0].Resident() != want {
				t.Errorf("%d bytes are there, want %d", got[0].Resident(), want)
			}
		})
	}
}

func TestAddSizesRefusesWhatIsNoRange(t *testing.T) {
	for _, line := range []string{"x", "10", "10-", "20-10 rw-p", "g-h rw-p"} {
		if err := AddSizes(nil, line+"\n"); err == nil || !strings.Contains(err.Error(), "want two addresses") {
			t.Errorf("%q: got %v", line, err)
		}
	}
	all := []Mapping{{Start: 0x10}, {Start: 0x30}}
	if err := AddSizes(all, "10-20 rw-p 0 0 0\n20-30 rw-p 0 0 0\n"); err != nil || all[0].Bytes != 0x10 ||
		all[1].Bytes != 0 {
		t.Errorf("got %+v, %v", all, err)
	}
}

func FuzzParseThread(f *testing.F) {
	f.Add(stat("4712 (CPU 0/KVM)", "4194624", "34"), "Tgid:\t1\nCpus_allowed_list:\t0-3\n")
	f.Fuzz(func(t *testing.T, stat, status string) {
		if got, err := ParseThread(stat, status); err == nil && !strings.Contains(stat, "("+got.Name+")") {
			t.Errorf("%q: name %q", stat, got.Name)
		}
	})
}

// A fuzzer tries more variants of a small input.
func fewLines(text string) string {
	lines := strings.SplitAfterN(text, "\n", 9)
	return strings.Join(lines[:min(len(lines), 8)], "")
}

func FuzzParseNUMAMaps(f *testing.F) {
	for _, name := range []string{"qemu-huge", "qemu-plain"} {
		f.Add(fewLines(recorded(f, name+".numa_maps")), fewLines(recorded(f, name+".maps")))
	}
	f.Fuzz(func(t *testing.T, text, maps string) {
		all, err := ParseNUMAMaps(text)
		if err != nil {
			return
		}
		if err := AddSizes(all, maps); err != nil {
			return
		}
		for i := range all {
			all[i].Resident()
			if i > 0 && all[i].Start < all[i-1].Start {
				t.Errorf("%x after %x", all[i].Start, all[i-1].Start)
			}
		}
	})
}
