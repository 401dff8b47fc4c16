package vram

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/vm/guest"
)

type recordedLab struct {
	output []byte
	exit   int
	err    error
	counts [][]rack.VRAM
}

func (r *recordedLab) Run(_ context.Context, _ string, c guest.Command) (guest.Result, error) {
	if string(c.Stdin) != checks.BytesProgram {
		return guest.Result{}, errors.New("the program is not its input")
	}
	return guest.Result{Stdout: r.output, ExitCode: r.exit}, r.err
}

func (r *recordedLab) VRAM(context.Context) ([]rack.VRAM, error) {
	if len(r.counts) == 0 {
		return nil, nil
	}
	c := r.counts[0]
	r.counts = r.counts[1:]
	return c, nil
}

func (r *recordedLab) HasVRAM() bool { return r.counts != nil }

func (r *recordedLab) EndpointOf(_ string, nic int) (bench.Endpoint, error) {
	return bench.Endpoint{Device: []string{"mlx5_0", "mlx5_1"}[nic]}, nil
}

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func counts(moved uint64) []rack.VRAM {
	var all []rack.VRAM
	for i, at := range []uint64{0xff20000000, 0xff00000000} {
		all = append(all, rack.VRAM{Node: "vm00", GPU: i, Address: at, Moved: []rack.Moved{
			{NIC: "eth0", Written: moved, Read: moved}, {NIC: "eth1", Written: moved, Read: moved}}})
	}
	return all
}

func TestPairsOfRecordedNodes(t *testing.T) {
	t.Parallel()
	pair := func(gpu int, nic string, path topology.PathClass) string {
		return strings.Join([]string{string(rune('0' + gpu)), nic, path.String()}, " ")
	}
	paths := []string{pair(0, "eth0", topology.PathPIX), pair(0, "eth1", topology.PathPHB),
		pair(1, "eth0", topology.PathPHB), pair(1, "eth1", topology.PathPIX)}
	for name, tt := range map[string]struct {
		moved uint64
		want  []string // the reasons
	}{
		"all.json": {Size, []string{"", "", "", ""}},
		"unbound.json": {Size, []string{"", "", "allocate ENODEV 0: the GPU has no driver: it has no render node in " +
			"/sys/class/drm", "allocate ENODEV 0: the GPU has no driver: it has no render node in /sys/class/drm"}},
		// A control group allows five objects of the second adapter.
		"cgroup.json": {Size, []string{"", "connect EAGAIN 0: ibv_create_qp: Resource temporarily unavailable (11)", "",
			"open EAGAIN 0: ibv_reg_mr of 4194304 bytes: Resource temporarily unavailable (11)"}},
		"full.json": {Size, []string{"", "", "allocate ENOSPC 3: [Errno 28] No space left on device",
			"allocate ENOSPC 2: [Errno 28] No space left on device"}},
	} {
		lab := &recordedLab{output: recorded(t, name), counts: [][]rack.VRAM{counts(100), counts(100 + tt.moved)}}
		pairs, err := node(t.Context(), lab, "vm00", []string{"eth0", "eth1"})
		if err != nil || len(pairs) != 4 {
			t.Errorf("%s: %d pairs, error %v", name, len(pairs), err)
			continue
		}
		for i, p := range pairs {
			why := ""
			if p.Error != "" {
				why = p.Step + " " + p.Errno + " " + string(rune('0'+len(p.Kernel))) + ": " + p.Error
			}
			if got := pair(p.GPU, p.NIC, p.Path); got != paths[i] || why != tt.want[i] {
				t.Errorf("%s: got  %s: %s\nwant %s: %s", name, got, why, paths[i], tt.want[i])
			}
			if ok := p.Error == ""; ok != (p.Status == finding.OK) || p.Written == nil || *p.Written != tt.moved ||
				*p.Read != tt.moved || ok && (p.Received < Size || p.Sent < Size) {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

// Nothing is claimed of GPUs that the emulation does not know.
func TestPairsWithoutProof(t *testing.T) {
	t.Parallel()
	lab := &recordedLab{output: recorded(t, "all.json"), counts: [][]rack.VRAM{counts(0), counts(Size - 1)}}
	pairs, err := node(t.Context(), lab, "vm00", []string{"eth0", "eth1"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "the NIC has written 4194303 and read 4194303 bytes of this GPU's memory, and not 4194304"
	for _, p := range pairs {
		if p.Status != finding.Failed || p.Step != "count" || p.Error != want {
			t.Errorf("%+v", p)
		}
	}
	lab = &recordedLab{output: recorded(t, "all.json")}
	pairs, err = node(t.Context(), lab, "vm00", []string{"eth0", "eth1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		if p.Status != finding.OK || p.Written != nil || p.Read != nil {
			t.Errorf("%+v", p)
		}
	}
}

func TestOutputThatIsNotWhole(t *testing.T) {
	t.Parallel()
	whole := string(recorded(t, "all.json"))
	lines := strings.SplitAfter(strings.TrimSpace(whole), "\n")
	for what, tt := range map[string]struct{ output, want string }{
		"cut off":        {strings.Join(lines[:4], ""), "its output is cut off"},
		"a line missing": {strings.Join(lines[1:], ""), "it has 4 pairs of GPUs and NICs, and reported 3"},
		"another text":   {"FAILED: ibv_get_device_list\n", "line 1 of its output: invalid character"},
		"nothing":        {"", "its output is cut off"},
	} {
		if _, err := node(t.Context(), &recordedLab{output: []byte(tt.output)}, "vm00", nil); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %s", what, err, tt.want)
		}
	}
	if _, err := node(t.Context(), &recordedLab{err: guest.ErrNoProgram}, "vm00", nil); err == nil ||
		err.Error() != "vm00: it has no python3: its image needs the set gpu" {
		t.Error(err)
	}
}
