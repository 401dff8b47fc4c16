package inspect

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func TestReadMemory(t *testing.T) {
	t.Parallel()
	const huge = "sys/kernel/mm/hugepages/"
	nodePool := func(id, pages string) files {
		return files{nodeDir + "/node" + id + "/cpumap": "0", nodeDir + "/node" + id +
			"/hugepages/hugepages-2048kB/nr_hugepages": pages,
			nodeDir + "/node" + id + "/hugepages/hugepages-2048kB/free_hugepages": "1"}
	}
	tests := []struct {
		name   string
		tree   files
		want   topology.Memory
		unread int
	}{
		{
			"all there is",
			files{
				"proc/meminfo": "MemTotal:  1048576 kB\nMemAvailable: 1024 kB\nHugepagesize: 1048576 " +
					"kB\nHugePages_Total: 4",
				huge + "hugepages-1048576kB/nr_hugepages":         "4",
				huge + "hugepages-1048576kB/free_hugepages":       "3",
				huge + "hugepages-1048576kB/resv_hugepages":       "2",
				huge + "hugepages-1048576kB/surplus_hugepages":    "0",
				huge + "hugepages-64kB/nr_hugepages":              "0",
				huge + "hugepages-2048kB/nr_overcommit_hugepages": "9",
				"proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n" +
					"/dev/dm-1                               partition\t1024\t\t4\t\t-2",
				"proc/sys/kernel/numa_balancing":             "1",
				"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
				"sys/kernel/mm/ksm/run":                      "0",
			},
			topology.Memory{
				TotalBytes: new(uint64(1 << 30)), AvailableBytes: new(uint64(1 << 20)),
				DefaultHuge: new(uint64(1 << 30)),
				Hugepages: []topology.HugepagePool{
					{SizeBytes: 64 << 10},
					{SizeBytes: 1 << 30, Total: 4, Free: new(uint64(3)), Reserved: new(uint64(2)),
						Surplus: new(uint64(0))},
				},
				Swap: []topology.Swap{{Path: "/dev/dm-1", SizeBytes: 1 << 20, UsedBytes: 4096}}, SwapKnown: true,
				NUMABalancing: "1", THP: "madvise", KSM: "0",
			}, 0,
		},
		{
			"no swap is in use", files{"proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"},
			topology.Memory{SwapKnown: true}, 0,
		},
		{
			"a kernel without hugepages, swap and the rest", files{"proc/meminfo": "MemTotal: 4 kB"},
			topology.Memory{TotalBytes: new(uint64(4096))}, 0,
		},
		{
			"only /proc/meminfo tells of hugepages",
			files{"proc/meminfo": "HugePages_Total: 8\nHugePages_Free: 7\nHugePages_Rsvd: 1\nHugepagesize: 2048 kB"},
			topology.Memory{DefaultHuge: new(uint64(2 << 20)), Hugepages: []topology.HugepagePool{
				{SizeBytes: 2 << 20, Total: 8, Free: new(uint64(7)), Reserved: new(uint64(1))},
			}}, 0,
		},
		{
			"only the nodes tell of hugepages", nodePool("0", "8").with(nodePool("1", "2")),
			topology.Memory{Hugepages: []topology.HugepagePool{{SizeBytes: 2 << 20, Total: 10, Free: new(uint64(2))}}},
			0,
		},
		{
			"one of the nodes does not tell", nodePool("0", "8").with(files{nodeDir + "/node1/cpumap": "0"}),
			topology.Memory{}, 0,
		},
		{
			"files that are broken or hidden",
			files{"proc/meminfo": "MemTotal: x kB", "proc/swaps": "Filename Type Size Used Priority\n/swap file",
				huge + "hugepages-2048kB/nr_hugepages": "many",
				"proc/sys/kernel/numa_balancing":       "unreadable"},
			topology.Memory{}, 4,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := test.tree.read(t)
			if diff := cmp.Diff(test.want, h.Memory); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(h.Unread) != test.unread {
				t.Errorf("unread %v; want %d", h.Unread, test.unread)
			}
		})
	}
}

var swapTexts = []struct {
	name, text string
	want       []topology.Swap
	wantErr    string
}{
	{
		"a partition and a file with a space in its name, removed since",
		"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/sda3                               " +
			"partition\t4194300\t\t0\t\t-1\n" +
			"/var/swap\\040file\\040(deleted)         file\t\t1024\t\t1024\t\t-2\n",
		[]topology.Swap{{Path: "/dev/sda3", SizeBytes: 4194300 << 10}, {Path: "/var/swap file (deleted)",
			SizeBytes: 1 << 20, UsedBytes: 1 << 20}}, "",
	},
	{"no swap", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n", nil, ""},
	{"an empty file", "", nil, ""},
	{"a line cut off", "Filename Type\n/dev/sda3 partition 5\n", nil,
		`line "/dev/sda3 partition 5" has 3 columns, not 5`},
	{"a size that is none", "/dev/sda3 partition big 0 -1\n", nil,
		`line "/dev/sda3 partition big 0 -1": size and used are not numbers of KiB`},
	{"a size beyond 64 bits", "/dev/sda3 partition 99999999999999999999 0 -1\n", nil,
		`line "/dev/sda3 partition 99999999999999999999 0 -1": size and used are not numbers of KiB`},
}

func TestParseSwapAreas(t *testing.T) {
	t.Parallel()
	for _, test := range swapTexts {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseSwapAreas(test.text)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if errorText(err) != test.wantErr {
				t.Errorf("error %q; want %q", errorText(err), test.wantErr)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestHugepageSize(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]uint64{
		"hugepages-2048kB": 2 << 20, "hugepages-1048576kB": 1 << 30, "hugepages-0kB": 0, "hugepages-2048": 0,
		"2048kB": 0, "hugepages-xkB": 0,
		"hugepages-99999999999999kB": 0,
	} {
		if got, ok := hugepageSize(name); ok != (want != 0) || ok && got != want {
			t.Errorf("hugepageSize(%q) = %d, %v; want %d", name, got, ok, want)
		}
	}
}

func TestChosen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"always [madvise] never": "madvise", "[always]": "always", "always": "",
		"[": "", "": ""} {
		if got := chosen(text); got != want {
			t.Errorf("chosen(%q) = %q; want %q", text, got, want)
		}
	}
}

func FuzzParseSwapAreas(f *testing.F) {
	for _, test := range swapTexts {
		f.Add(test.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		swaps, err := parseSwapAreas(text)
		if err != nil && swaps != nil {
			t.Errorf("swaps %v with error %v", swaps, err)
		}
		for _, s := range swaps {
			if s.SizeBytes%1024 != 0 || s.UsedBytes%1024 != 0 {
				t.Errorf("%+v is not in KiB", s)
			}
		}
	})
}
