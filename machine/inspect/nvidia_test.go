package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

// The second GPU has not been used since boot, so the driver does not know its UUID and BIOS.
const nvidiaTree = `
proc/driver/nvidia/version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  ` +
	`Release Build  (builder@host)  Thu Feb 22 2024\nGCC version:  gcc version 12.2.0\n"
proc/driver/nvidia/gpus/0000:1b:00.0/information = "Model: \t\t NVIDIA H100 80GB HBM3\n` +
	`IRQ:   \t\t 450\nGPU UUID: \t GPU-11111111-2222-3333-4444-555555555555\nVideo BIOS: \t 96.00.89.00.01\n` +
	`Bus Type: \t PCIe\nDMA Size: \t 52 bits\nBus Location: \t 0000:1b:00.0\nDevice Minor: \t 3\nGPU Excluded:\t No\n"
proc/driver/nvidia/gpus/0000:2a:00.0/information = "Model: \t\t Unknown\n` +
	`GPU UUID: \t GPU-????????-????-????-????-????????????\nVideo BIOS: \t ??.??.??.??.??\nDevice Minor: \t 1\n"
sys/module/nvidia/version = 550.54.14
`

type commands map[string]string

func (c commands) run(_ context.Context, argv ...string) ([]byte, error) {
	line := strings.Join(argv, " ")
	out, ok := c[line]
	if !ok {
		return nil, fmt.Errorf("%s: %w", argv[0], fs.ErrNotExist)
	}
	if why, failed := strings.CutPrefix(out, "exit status "); failed {
		code, text, _ := strings.Cut(why, "\n")
		return []byte(text), errors.New("exit status " + code)
	}
	return []byte(out), nil
}

const (
	smiNew = "nvidia-smi " +
		"--query-gpu=index,pci.bus_id,name,uuid,memory.total,driver_version,vbios_version,persistence_mode," +
		"mig.mode.current,compute_cap --format=csv,noheader,nounits"
	smiOld = "nvidia-smi " +
		"--query-gpu=index,pci.bus_id,name,uuid,memory.total,driver_version,vbios_version,persistence_mode " +
		"--format=csv,noheader,nounits"
	smiLinks = "nvidia-smi nvlink --status"
	smiTopo  = "nvidia-smi topo -m"

	twoGPUs = "0, 00000000:1b:00.0, NVIDIA H100 80GB HBM3, GPU-11111111-2222-3333-4444-555555555555, 81559, " +
		"550.54.14, 96.00.89.00.01, Enabled, Disabled, 9.0\n" +
		"1, 00000000:2A:00.0, NVIDIA H100 80GB HBM3, GPU-66666666-7777-8888-9999-000000000000, 81559, 550.54.14, " +
		"[N/A], [Not Supported], [N/A], 9.0\n"
)

func TestReadNVIDIAFromProc(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceTree(t, nvidiaTree))
	r.h.Kernel.Release = "6.8.0-31-generic"
	r.readGPUs()
	want := []topology.GPU{
		{
			Address: pciAddr(t, "0000:1b:00.0"), Name: "nvidia3", Vendor: "NVIDIA Corporation",
			Model:     "NVIDIA H100 80GB HBM3",
			DriverVer: "550.54.14", UUID: "GPU-11111111-2222-3333-4444-555555555555", VBIOS: "96.00.89.00.01",
			DMABuf: new(true),
		},
		{Address: pciAddr(t, "0000:2a:00.0"), Name: "nvidia1", Vendor: "NVIDIA Corporation", DriverVer: "550.54.14",
			DMABuf: new(true)},
	}
	if diff := cmp.Diff(want, r.h.GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]topology.Unread(nil), r.h.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}

func TestReadNVIDIAWithTools(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceTree(t, nvidiaTree+roceDevice))
	r.run = commands{
		smiNew: twoGPUs,
		smiLinks: "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\nGPU " +
			"1: NVIDIA H100\n\t Link 0: <inactive>\n",
		smiTopo: "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" +
			"GPU0\t X \tNV18\tPIX\tSYS\t0-47\t0\t\tN/A\n" +
			"GPU1\tNV18\t X \tNODE\tSYS\t0-47\t0\t\tN/A\n" +
			"NIC0\tPIX\tNODE\t X \tSYS\t\t\t\t\n" +
			"NIC1\tSYS\tSYS\tSYS\t X \t\t\t\t\n\n" +
			"NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_9\n",
	}.run
	r.readNICs()
	r.readGPUs()
	cpus := topology.CPURange(0, 47)
	want := []topology.GPU{
		{
			Address: pciAddr(t, "0000:1b:00.0"), Index: new(0), Name: "nvidia3", Vendor: "NVIDIA Corporation",
			Model:       "NVIDIA H100 80GB HBM3",
			MemoryBytes: new(uint64(81559 << 20)), DriverVer: "550.54.14",
			UUID:  "GPU-11111111-2222-3333-4444-555555555555",
			VBIOS: "96.00.89.00.01", CPUAffinity: &cpus, NVLinks: new(2), ComputeArch: "sm_90", MIG: "Disabled",
			PersistMode: new(true),
		},
		{
			Address: pciAddr(t, "0000:2a:00.0"), Index: new(1), Name: "nvidia1", Vendor: "NVIDIA Corporation",
			Model:       "NVIDIA H100 80GB HBM3",
			MemoryBytes: new(uint64(81559 << 20)), DriverVer: "550.54.14",
			UUID:        "GPU-66666666-7777-8888-9999-000000000000",
			CPUAffinity: &cpus, NVLinks: new(0), ComputeArch: "sm_90",
		},
	}
	if diff := cmp.Diff(want, r.h.GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
	// sysfs does not show NIC1, so its paths have no end.
	paths := []topology.Path{
		{A: "0000:1b:00.0", B: "0000:2a:00.0", Class: topology.PathNVLink, Links: 18},
		{A: "0000:1b:00.0", B: "0000:18:00.0", Class: topology.PathPIX},
		{A: "0000:2a:00.0", B: "0000:18:00.0", Class: topology.PathNODE},
	}
	if diff := cmp.Diff(paths, r.h.Reported); diff != "" {
		t.Errorf("reported paths (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]topology.Unread(nil), r.h.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}

func TestReadNVIDIAFailures(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		tree    string
		run     commands
		indexes []int
		unread  []topology.Unread
	}{
		{
			name: "nothing is run where no driver is loaded",
			tree: `proc/cpuinfo = x`,
			run:  commands{smiNew: twoGPUs},
		},
		{
			name: "a tool that is not installed",
			tree: nvidiaTree,
			run:  commands{},
		},
		{
			name: "a tool that does not know the newer fields",
			tree: nvidiaTree,
			run: commands{smiNew: "Field \"compute_cap\" is not a valid field to query.\n\n",
				smiOld: "0, 0000:1b:00.0, Tesla V100, GPU-1, 16160, 390.46, 88.00, Disabled\n"},
			indexes: []int{0},
		},
		{
			name: "a tool that does not know the newer fields and says so with its exit status",
			tree: nvidiaTree,
			run: commands{
				smiNew: "exit status 2\nField \"compute_cap\" is not a valid field to query.\n\n",
				smiOld: "0, 0000:1b:00.0, Tesla V100, GPU-1, 16160, 390.46, 88.00, Disabled\n",
			},
			indexes: []int{0},
		},
		{
			name: "a driver that does not answer",
			tree: nvidiaTree,
			run: commands{smiNew: "exit status 18\nFailed to initialize NVML: Driver/library version " +
				"mismatch\nNVML library version: 550.54\n"},
			unread: []topology.Unread{{Path: smiNew,
				Why: `exit status 18: "Failed to initialize NVML: Driver/library version mismatch"`}},
		},
		{
			name: "a loaded driver without devices",
			tree: `sys/module/nvidia/version = 550.54.14`,
			run:  commands{smiNew: "No devices were found\n"},
		},
		{
			name: "a line that is not the answer: what was before it is kept",
			tree: `sys/module/nvidia/version = 550.54.14`,
			run: commands{smiNew: strings.SplitAfter(twoGPUs, "\n")[0] + "Unable to determine the device handle\n",
				smiTopo: "exit status 1\n"},
			indexes: []int{0},
			unread: []topology.Unread{
				{Path: smiNew, Why: `line 2: "Unable to determine the device handle" has 1 fields; 10 were asked for`},
				{Path: smiTopo, Why: "exit status 1"},
			},
		},
		{
			name: "an address in /proc that is none",
			tree: `proc/driver/nvidia/gpus/first/information = "Model: x\n"`,
			unread: []topology.Unread{{Path: "/proc/driver/nvidia/gpus/first",
				Why: `PCI address "first": no bus; ` +
					`want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.tree))
			r.run = tt.run.run
			r.readGPUs()
			var indexes []int
			for _, g := range r.h.GPUs {
				if g.Index != nil {
					indexes = append(indexes, *g.Index)
				}
			}
			if diff := cmp.Diff(tt.indexes, indexes); diff != "" {
				t.Errorf("indexes of GPUs that the tool described (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.unread, r.h.Unread); diff != "" {
				t.Errorf("unread (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCommandThatHangsIsLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		calls := 0
		r := deviceReader(t, deviceTree(t, nvidiaTree))
		// as a process stuck in the driver
		r.run = func(context.Context, ...string) ([]byte, error) {
			calls++
			<-stuck
			return nil, nil
		}
		start := time.Now()
		r.readGPUs()
		close(stuck)
		if took := time.Since(start); took != commandTime {
			t.Errorf("reading took %v; want %v", took, commandTime)
		}
		if calls != 1 {
			t.Errorf("%d commands ran; want 1: what hangs is not asked again", calls)
		}
		want := []topology.Unread{{Path: smiNew, Why: "no answer within 10s"}}
		if diff := cmp.Diff(want, r.h.Unread); diff != "" {
			t.Errorf("unread (-want +got):\n%s", diff)
		}
	})
}

func TestCommandEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	r := deviceReader(t, deviceTree(t, nvidiaTree))
	r.ctx = ctx
	r.run = func(ctx context.Context, _ ...string) ([]byte, error) { return nil, ctx.Err() }
	if _, err := r.output("nvidia-smi"); err == nil || err.Error() != "interrupted" {
		t.Errorf("output() = %v; want interrupted", err)
	}
}

func TestReadNUMAStatus(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceTree(t, `
		proc/driver/nvidia/gpus/0004:05:00.0/numa_status = "Node:      255\nStatus:    online\n`+
		`Address:   40000000000\nSize:      3f0000000\n"
		proc/driver/nvidia/gpus/0035:04:00.0/numa_status = "Node: -1\nStatus: offline\nSize: 0\n"`))
	r.readGPUs()
	want := []topology.GPU{
		{Address: pciAddr(t, "0004:05:00.0"), Vendor: "NVIDIA Corporation", MemoryNode: new(255),
			MemoryBytes: new(uint64(0x3f0000000))},
		{Address: pciAddr(t, "0035:04:00.0"), Vendor: "NVIDIA Corporation"},
	}
	if diff := cmp.Diff(want, r.h.GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

func TestParseNVRM(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in      string
		version string
		open    bool
	}{
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.12  Wed Sep 20 09:35:17 UTC 2023\nGCC version:  " +
			"gcc version 11.4.0\n", "535.104.12", false},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (b@h)  Thu Feb 22 " +
			"01:26:15 UTC 2024", "550.54.14", true},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  595.84  Release Build", "595.84", true},
		{"NVRM version: NVIDIA UNIX ppc64le Kernel Module  418.67  Sat Apr  6 02:26:32 CDT 2019", "418.67", false},
		{"GCC version:  gcc version 11.4.0", "", false},
		{"NVRM version:", "", false},
		{"NVRM version: .. 5", "", false},
		{"", "", false},
	}
	for _, tt := range tests {
		version, open := parseNVRM(tt.in)
		if version != tt.version || open != tt.open {
			t.Errorf("parseNVRM(%q) = %q, %v; want %q, %v", tt.in, version, open, tt.version, tt.open)
		}
	}
}

func TestNVIDIADMABuf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		version string
		open    bool
		kernel  string
		want    *bool
	}{
		{"the open module on a new kernel", "550.54.14", true, "6.8.0", new(true)},
		{"the first kernel and release that can", "515.43", true, "5.12", new(true)},
		{"the open module on an older kernel, which may have it ported back", "550.54.14", true, "4.18.0-513.el8", nil},
		{"a kernel that is not known", "550.54.14", true, "", nil},
		{"the proprietary module", "550.54.14", false, "6.8.0", new(false)},
		{"no version", "", false, "6.8.0", nil},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, nvidiaDMABuf(tt.version, tt.open, tt.kernel)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestParseGPUQuery(t *testing.T) {
	t.Parallel()
	fields := []string{"index", "pci.bus_id", "memory.total"}
	tests := []struct {
		name string
		in   string
		want []topology.GPU
		err  string
	}{
		{"one GPU", "0, 00000000:3B:00.0, 24576\n", []topology.GPU{{Index: new(0), Address: pciAddr(t, "0000:3b:00.0"),
			MemoryBytes: new(uint64(24576 << 20))}}, ""},
		{"values that it does not know", "[N/A], 00000000:3B:00.0, [Unknown Error]\n",
			[]topology.GPU{{Address: pciAddr(t, "0000:3b:00.0")}}, ""},
		{"N/A without brackets", "7, 0000:3B:00.0, N/A",
			[]topology.GPU{{Index: new(7), Address: pciAddr(t, "0000:3b:00.0")}}, ""},
		{"nothing", "", nil, ""},
		{"no devices", "No devices were found\n", nil, ""},
		{"no address", "0, [N/A], 24576\n", nil, `line 1: "0, [N/A], 24576" has no PCI address`},
		{"an address that is none", "0, 3B, 24576\n", nil,
			`line 1: pci.bus_id: PCI address "3B": no bus; ` +
				`want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`},
		{"an index that is none", "-1, 0000:3b:00.0, 24576\n", nil, `line 1: index: "-1" is not the number of a GPU`},
		{"memory with its unit", "0, 0000:3b:00.0, 24576 MiB\n", nil,
			`line 1: memory.total: "24576 MiB" is not a number of MiB`},
		{"more memory than 64 bits hold", "0, 0000:3b:00.0, 99999999999999\n", nil,
			`line 1: memory.total: "99999999999999" is not a number of MiB`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseGPUQuery(tt.in, fields)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("GPUs (-want +got):\n%s", diff)
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tt.err {
				t.Errorf("error = %q; want %q", text, tt.err)
			}
		})
	}
}

func FuzzParseGPUQuery(f *testing.F) {
	f.Add(twoGPUs)
	f.Add("0, 00000000:3B:00.0, [N/A], [Unknown Error], 18446744073709551615, , , , , \n")
	f.Add("Field \"compute_cap\" is not a valid field to query.\n")
	f.Add(",,,,,,,,,")
	f.Fuzz(func(t *testing.T, s string) {
		all, err := parseGPUQuery(s, newFields)
		for i := range all {
			if all[i].Address == nil {
				t.Errorf("GPU %d of %q has no address", i, s)
			}
		}
		if err != nil && !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("error %q; want one that starts with the line", err)
		}
	})
}

func FuzzInformation(f *testing.F) {
	f.Add("Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-11111111\nVideo BIOS: \t ??.??.??.??.??\nDevice "+
		"Minor: \t 0\n", "Node: 255\nSize: 3f0000000\n")
	f.Add("Device Minor: 99999999999999999999\nModel:", "Node: -1\nSize: zz\n")
	f.Add(":\n::\n", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.12")
	f.Fuzz(func(t *testing.T, information, status string) {
		var g topology.GPU
		readInformation(&g, information)
		if strings.Contains(g.UUID+g.VBIOS+g.Model, "??") {
			t.Errorf("readInformation(%q) took a value that the driver does not know: %+v", information, g)
		}
		r := deviceReader(t, deviceTree(t, "s = "+quoteForTree(status)))
		r.readNUMAStatus(&g, "s")
		if g.MemoryNode != nil && *g.MemoryNode < 0 {
			t.Errorf("memory node %d of %q", *g.MemoryNode, status)
		}
		parseNVRM(status)
	})
}
