package checks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// seenByNode was recorded on Debian 13 (kernel 6.12).
const seenByNode = `nic 0000:03:00.0 eth0 mlx5_0 -1 ` +
	`/sys/devices/pci0000:00/0000:00:03.0/0000:01:00.0/0000:02:00.0/0000:03:00.0
gpu 0000:04:00.0 f41a virtio_gpu renderD128 0x00000000d0000000 0x00000000dfffffff 0x000000000014220c -1 ` +
	`/sys/devices/pci0000:00/0000:00:03.0/0000:01:00.0/0000:02:01.0/0000:04:00.0
end
`

type gpuLab struct {
	*fakeLab
	gpus []GPU
	err  error
	seen map[string]string // output of gpuScript by node
	// server and client answer BytesProgram; nil succeeds.
	server, client func() (bench.Output, error)
	dmesg          string
}

func (g *gpuLab) GPUs(context.Context) ([]GPU, error) { return g.gpus, g.err }

func newGPULab(t *testing.T) *gpuLab {
	t.Helper()
	l, err := lab.Parse("gpu.yaml", []byte("name: gpu\ndefaults: {image: debian-13+gpu, nic: connectx-5}\n"+
		"nodes: {vm: {count: 2, gpus: 1}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := &gpuLab{fakeLab: newFakeLab(t, l), seen: map[string]string{}}
	for _, n := range l.Nodes {
		f.gpus = append(f.gpus, GPU{Node: n.Name, Model: "generic", Memory: 256 << 20, Beside: "eth0",
			Path: topology.PathPIX, Connected: true, Driver: true, Address: 0xd0000000})
		f.seen[n.Name] = seenByNode
	}
	f.run = f.answer
	return f
}

func (g *gpuLab) answer(node string, argv []string) (bench.Output, error) {
	last := argv[len(argv)-1]
	switch {
	case last == gpuScript:
		if text, ok := g.seen[node]; ok {
			return prints(0, text, "")
		}
		return bench.Output{}, errors.New("the agent does not answer")
	case strings.Contains(last, "/device/infiniband"):
		return prints(0, "mlx5_0\n", "")
	case strings.Contains(last, "dmesg"):
		return prints(0, g.dmesg, "")
	case len(argv) > 7 && argv[6] == "serve" && argv[2] == "DMABUF_DEVICE=mlx5_0" && argv[7] == g.memory():
		if g.server != nil && node == "vm01" {
			return g.server()
		}
		return prints(0, "serving\nOK\n", "")
	case len(argv) > 7 && argv[6] == "client":
		if g.client != nil && node == "vm00" {
			return g.client()
		}
		return prints(0, "OK\n", "")
	}
	return bench.Output{}, fmt.Errorf("%s: %q is not expected", node, argv)
}

// memory returns the name that BytesProgram has for the memory of a GPU.
func (g *gpuLab) memory() string {
	if g.gpus[0].Personality == lab.PersonalityVFIO {
		return "vfio:0000:04:00.0"
	}
	return "drm:/dev/dri/renderD128"
}

// vfio makes all GPUs those of the personality vfio.
func (g *gpuLab) vfio() {
	for i := range g.gpus {
		g.gpus[i].Personality = lab.PersonalityVFIO
		g.seen[g.gpus[i].Node] = strings.Replace(seenByNode, "f41a virtio_gpu renderD128", "de10 vfio-pci vfio/17", 1)
	}
}

func (g *gpuLab) check(t *testing.T) (lines []string, all []finding.Finding) {
	t.Helper()
	all, err := Lab(t.Context(), g.lab, g, finding.Names(finding.GPU), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		line := fmt.Sprintf("%s | %s | %s | %s", f.ID, f.Subject, f.Status, f.Have)
		if f.Status == finding.Failed {
			line += " | " + f.Fix
			if f.Consequence == "" || f.Evidence == "" || f.Want == "" {
				t.Errorf("the finding lacks something: %+v", f)
			}
		}
		if !strings.HasPrefix(f.Code, "RL70") {
			t.Errorf("code %q of %s", f.Code, f.ID)
		}
		lines = append(lines, line)
	}
	return lines, all
}

const (
	bytesOfVM00 = "gpu-bytes | vm00 gpu0 <- vm01 | ok | 1024 KiB written and read by mlx5_0 of vm01 by way of " +
		"mlx5_0, " +
		"and compared"
	bytesOfVM01 = "gpu-bytes | vm01 gpu0 <- vm00 | ok | 1024 KiB written and read by mlx5_0 of vm00 by way of " +
		"mlx5_0, " +
		"and compared"
)

func TestGPUsOfAHealthyLab(t *testing.T) {
	got, _ := newGPULab(t).check(t)
	want := []string{"gpu | lab gpu | ok | 2 GPUs", "gpu-bus | lab gpu | ok | 2 GPUs", "gpu-driver | lab gpu | ok | " +
		"2 GPUs",
		"gpu-memory | lab gpu | ok | 2 GPUs", "gpu-path | lab gpu | ok | 2 GPUs: 2 PIX",
		"gpu-nic | lab gpu | ok | 2 GPUs", bytesOfVM00, bytesOfVM01}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// GPUs of the personality vfio belong to vfio-pci, and their memory is exported by it.
func TestGPUsOfVFIO(t *testing.T) {
	change := func(old, text string) func(g *gpuLab) {
		return func(g *gpuLab) { g.seen["vm01"] = strings.Replace(g.seen["vm01"], old, text, 1) }
	}
	const fix = "in the node: modprobe vfio-pci; it takes a GPU only in a node with an IOMMU, see dmesg"
	const refused = "mlx5_core 0000:03:00.0: cannot be used for peer-to-peer DMA as the client and provider " +
		"(0000:04:00.0) do not share an upstream bridge or whitelisted host bridge"
	for name, tt := range map[string]struct {
		change func(g *gpuLab)
		want   string // the failed finding, or "" for none
	}{
		"healthy": {func(*gpuLab) {}, ""},
		"another driver": {change("vfio-pci vfio/17", "nouveau -"),
			"gpu-driver | vm01 gpu0 | failed | nouveau | " + fix},
		"no driver": {change("vfio-pci vfio/17", "- -"), "gpu-driver | vm01 gpu0 | failed | no driver | " + fix},
		"no group": {change("vfio/17", "-"),
			"gpu-driver | vm01 gpu0 | failed | vfio-pci, without a group in /dev/vfio | " + fix},
		"the kernel refuses the path": {func(g *gpuLab) {
			g.server = func() (bench.Output, error) {
				return prints(1, "FAILED: ibv_reg_dmabuf_mr of 1048576 bytes: Invalid argument (22)\n", "")
			}
			g.client = func() (bench.Output, error) { return prints(0, "OK\n", "") }
			// It was refused long ago, and another pair since.
			g.dmesg = "900.25\n[  100.200000] " + refused + "\n[  500.000000] " +
				strings.Replace(refused, "0000:04", "0000:05", 1) + "\n"
		}, "gpu-bytes | vm01 gpu0 <- vm00 | failed | vm01: ibv_reg_dmabuf_mr of 1048576 bytes: Invalid argument (22) " +
			"| " + fixRefusedDMA},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGPULab(t)
			g.vfio()
			tt.change(g)
			lines, all := g.check(t)
			got := ""
			for i, f := range all {
				if f.Status != finding.OK {
					got += lines[i]
				}
				if f.Status == finding.Failed && g.dmesg != "" && !strings.HasSuffix(f.Evidence, "; dmesg: "+
					"[  100.200000] "+refused) {
					t.Errorf("evidence %q", f.Evidence)
				}
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// No later check is made of the GPU.
func TestFaultsOfGPUs(t *testing.T) {
	replaced := func(old, text string) func(g *gpuLab) {
		return func(g *gpuLab) { g.seen["vm01"] = strings.Replace(seenByNode, old, text, 1) }
	}
	const again = "rackless down and up start the node with the GPUs of its lab file"
	for _, tt := range []struct {
		name   string
		change func(g *gpuLab)
		want   string
	}{
		{"the connection ended", func(g *gpuLab) { g.gpus[1].Connected = false },
			"gpu | vm01 gpu0 | failed | the node has lost it, as the lab's daemon ended or the connection to it | " +
				again},
		{"the node does not see it", replaced("gpu 0000:04:00.0", "was 0000:04:00.0"),
			"gpu | vm01 gpu0 | failed | the node sees 0 GPUs, and this one is missing | " + again},
		{"the node does not answer", func(g *gpuLab) { delete(g.seen, "vm01") },
			"gpu | vm01 | unknown | the agent does not answer"},
		{"the list is cut off", replaced("end\n", ""),
			`gpu | vm01 | unknown | the list of PCI devices is not whole: "gpu 0000:04:00.0 f41a virtio_gpu ` +
				`renderD128 ` +
				"0x00000000d0000000 0x00000000dfffffff 0x000000000014220c -1 /sys/devices/pci0000:00/0000:00:03.0/" +
				`0000:01:00.0/0000:02:01.0/0000:04:00.0"`},
		{"lost", func(g *gpuLab) { g.gpus[1].Fault = GPULost },
			"gpu-bus | vm01 gpu0 | failed | all reads give ones: it is lost, and NICs do not reach its memory | " +
				"rackless gpu fault gpu/vm01 --clear"},
		{"the node reads ones", replaced("f41a", "ffff"),
			"gpu-bus | vm01 gpu0 | failed | all reads give ones: it is lost, and NICs do not reach its memory | " +
				again},
		{"no driver", replaced("virtio_gpu renderD128", "- -"),
			"gpu-driver | vm01 gpu0 | failed | no driver | in the node: modprobe virtio_gpu; the kernel argument " +
				"nomodeset " +
				"keeps it away, see dmesg"},
		{"no render node", replaced("renderD128", "-"),
			"gpu-driver | vm01 gpu0 | failed | virtio_gpu, without a node in /dev/dri | in the node: modprobe " +
				"virtio_gpu; " +
				"the kernel argument nomodeset keeps it away, see dmesg"},
		{"the daemon has seen no driver", func(g *gpuLab) { g.gpus[1].Driver = false },
			"gpu-driver | vm01 gpu0 | failed | virtio_gpu, and the daemon says that it has not set the GPU up | in " +
				"the " +
				"node: modprobe virtio_gpu; the kernel argument nomodeset keeps it away, see dmesg"},
		{"a wrong size", replaced("dfffffff", "d7ffffff"),
			"gpu-memory | vm01 gpu0 | failed | 128 MiB and not 256 MiB | " + again},
		{"a place that the daemon does not know", func(g *gpuLab) { g.gpus[1].Address = 0xe0000000 },
			"gpu-memory | vm01 gpu0 | failed | at 0xd0000000, and the daemon has it at 0xe0000000 | " + again},
		{"another path", replaced("/0000:01:00.0/0000:02:01.0/0000:04:00.0", "/0000:04:00.0"),
			"gpu-path | vm01 gpu0 | failed | PXB to eth0, and not PIX | " + again},
		{"another host bridge's port", replaced("/0000:00:03.0/0000:01:00.0/0000:02:01.0/0000:04:00.0",
			"/0000:00:05.0/0000:04:00.0"), "gpu-path | vm01 gpu0 | failed | PHB to eth0, and not PIX | " + again},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGPULab(t)
			tt.change(g)
			got, _ := g.check(t)
			var not []string
			for _, line := range got {
				if !strings.Contains(line, " | ok | ") {
					not = append(not, line)
				} else if strings.Contains(line, "vm01 gpu0") {
					t.Errorf("a later check: %s", line)
				}
			}
			if diff := cmp.Diff([]string{tt.want}, not); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTheDaemonOfGPUsDoesNotAnswer(t *testing.T) {
	g := newGPULab(t)
	g.err = errors.New("lab gpu: its daemon does not answer")
	got, _ := g.check(t)
	want := []string{"gpu | lab gpu | failed | lab gpu: its daemon does not answer | rackless up with the lab's file " +
		"starts the daemon and the nodes again"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestBytesDoNotReachAGPU(t *testing.T) {
	output := func(code int, out, err string) func() (bench.Output, error) {
		return func() (bench.Output, error) { return prints(code, out, err) }
	}
	blocked := func(g *gpuLab) { g.gpus[1].Fault = GPUPeerBlocked }
	for _, tt := range []struct {
		name   string
		change func(g *gpuLab)
		want   string // or "" for no finding
	}{
		{"the NIC does not reach it", func(g *gpuLab) {
			g.client = output(1, "FAILED: write at 0: status 11\n", "")
			g.server = output(1, "serving\nFAILED: the client has failed\n", "")
			blocked(g)
		}, "failed | vm00: write at 0: status 11 (remote operation error) | rackless gpu fault gpu/vm01 --clear"},
		{"the GPU refuses memory", func(g *gpuLab) {
			ended := make(chan struct{})
			g.server = func() (bench.Output, error) {
				defer close(ended)
				return prints(1, "FAILED: mmap of the GPU's memory: Invalid argument (22)\n", "")
			}
			g.client = func() (bench.Output, error) {
				<-ended
				return bench.Output{}, context.Canceled
			}
			g.gpus[1].Fault = GPUExportRefused
			g.dmesg = "100.25\n[   40.000000] [drm:x [virtio_gpu]] *ERROR* old\n" +
				"[  100.200000] [drm:x [virtio_gpu]] *ERROR* response 0x1200 (command 0x10c)\n" +
				"[  100.210000] [drm:x [virtio_gpu]] *ERROR* response 0x1203 (command 0x208)\n"
		}, "failed | vm01: mmap of the GPU's memory: Invalid argument (22) | rackless gpu fault gpu/vm01 --clear"},
		{"other bytes", func(g *gpuLab) {
			g.server = output(1, "serving\nFAILED: the CPU sees other bytes at 0\n",
				"")
		},
			"failed | vm01: the CPU sees other bytes at 0 | rackless logs --daemon gpu and dmesg in the node say " +
				"what failed"},
		{"the program breaks", func(g *gpuLab) { g.client = output(1, "", "Traceback\nKeyError: 1\n") },
			"failed | vm00: exit status 1: KeyError: 1 | rackless logs --daemon gpu and dmesg in the node say what " +
				"failed"},
		{"the node does not answer", func(g *gpuLab) {
			g.client = func() (bench.Output, error) { return bench.Output{}, errors.New("the agent hung up") }
		}, "unknown | the agent hung up"},
		{"no Python", func(g *gpuLab) { g.client = output(127, "", "env: python3: No such file") }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGPULab(t)
			tt.change(g)
			got, all := g.check(t)
			var not []string
			for i, line := range got {
				if rest, ok := strings.CutPrefix(line, "gpu-bytes | vm01 gpu0 <- vm00 | "); ok {
					not = append(not, rest)
					if found := strings.HasSuffix(all[i].Evidence,
						"response 0x1200 (command 0x10c)"); found != (g.dmesg != "") {
						t.Errorf("evidence %q", all[i].Evidence)
					}
				} else if !strings.Contains(line, " | ok | ") {
					t.Errorf("another check: %s", line)
				}
			}
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			if diff := cmp.Diff(want, not); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The kernel numbers them in its own order.
func TestGPUsAreToldApartByTheirAddresses(t *testing.T) {
	t.Parallel()
	const place = "/sys/devices/pci0000:00/0000:00:0"
	n, err := parseGPUs("gpu 0000:01:00.0 f41a virtio_gpu renderD128 0xe0000000 0xe0ffffff 0x14220c 0 " + place +
		"1.0/0000:01:00.0\ngpu 0000:02:00.0 f41a virtio_gpu renderD129 0xd0000000 0xd0ffffff 0x14220c 1 " + place +
		"2.0/0000:02:00.0\nend\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range joinGPUs([]GPU{{Number: 0, Address: 0xd0000000}, {Number: 1}, {Number: 2}}, n) {
		name := "none"
		if s.seen != nil {
			name = s.seen.render
		}
		got = append(got, name)
	}
	if diff := cmp.Diff([]string{"renderD129", "renderD128", "none"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, bad := range []string{"gpu x f41a virtio_gpu renderD128 0x1 0x2 0x3 -1 " + place + "1.0\nend\n",
		"gpu 0000:01:00.0 f41a virtio_gpu renderD128 1x 0x2 0x3 -1 " + place + "1.0\nend\n",
		"gpu 0000:01:00.0 f41a virtio_gpu renderD128 0x1 0x2 0x3 -1 /sys/devices/x\nend\n",
		"nic 0000:01:00.0 eth0 mlx5_0 -1 /sys/devices/pci0000:00/x\nend\n"} {
		if _, err := parseGPUs(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
