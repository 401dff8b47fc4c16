//go:build linux

package tables

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack/vram"
)

func TestTableOfPairsInALab(t *testing.T) {
	t.Parallel()
	ok := vram.Pair{Node: "vm00", Address: "0000:04:00.0", NIC: "eth0", Device: "mlx5_0", Path: topology.PathPIX,
		Status: finding.OK, Bytes: vram.Size, Written: new(uint64(vram.Size)), Read: new(uint64(vram.Size)),
		Received: 8868104}
	full := ok
	full.Status, full.Written, full.Read, full.Received = finding.Failed, new(uint64(0)), new(uint64(0)), 0
	full.Step, full.Error, full.Errno = "allocate", "[Errno 28] No space left on device", "ENOSPC"
	full.Kernel = []string{"[drm] *ERROR* response 0x1201"}
	quiet := full
	quiet.Kernel, quiet.Written, quiet.Read, quiet.NIC, quiet.Path = nil, nil, nil, "", topology.PathUnknown
	got := VRAM(&vram.Report{Lab: "gpu", Status: finding.Failed, Emulated: true, Pairs: []vram.Pair{ok, full, quiet}},
		0)
	for _, want := range []string{
		"GPUDirect RDMA in lab gpu: done for 1 of 3 pairs, emulated\n",
		"vm00 0, 0000:04:00.0 eth0, mlx5_0 PIX done 4.00 MiB 4.00 MiB 8.46 MiB -\n",
		"vm00 0, 0000:04:00.0 eth0, mlx5_0 PIX FAILED 0 B 0 B 0 B allocate: [Errno 28] No space left on device " +
			"(ENOSPC); " +
			"kernel: [drm] *ERROR* response 0x1201\n",
		"vm00 0, 0000:04:00.0 mlx5_0 ? FAILED - - 0 B allocate: [Errno 28] No space left on device (ENOSPC); the " +
			"kernel " +
			"logged nothing\n",
		"Written, read: bytes",
	} {
		if !strings.Contains(strings.Join(strings.FieldsFunc(got, func(r rune) bool { return r == ' ' }), " "), want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	if got := VRAM(&vram.Report{Lab: "gpu", Status: finding.Failed, Pairs: []vram.Pair{quiet}},
		0); strings.Contains(got,
		"Written, read") || strings.Contains(got, "emulated") || !strings.Contains(got, ": done for 0 of 1 pair\n") {
		t.Errorf("got:\n%s", got)
	}
}
