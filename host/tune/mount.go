package tune

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"

	"github.com/prometheus/procfs"

	"github.com/rackless/rackless/host/change"
)

const kindMount = "mount"

// A Mount is a mounted file system of hugepages of one size. libvirt takes pages of a size only from a mount of that
// size, and systemd mounts only the kernel's default size.
type Mount struct {
	Path      string `json:"path"`
	PageBytes uint64 `json:"page_bytes"`
}

type mountState struct {
	At  string `json:"at,omitempty"`  // a mount point, if any
	Dir bool   `json:"dir,omitempty"` // Path exists
}

// libvirtDaemons look for mounts of hugepages when they start; VMs survive their restart. A host has one of the two.
var libvirtDaemons = []string{"libvirtd.service", "virtqemud.service"}

// Kind implements [change.Op].
func (m *Mount) Kind() string { return kindMount }

// Subject implements [change.Op].
func (m *Mount) Subject() string { return m.Path }

// Read implements [change.Op].
func (m *Mount) Read(_ context.Context, s *change.System) (change.State, error) {
	return change.Encode(m.state(s))
}

func (m *Mount) state(s *change.System) (*mountState, error) {
	at, err := hugeMounts(s, m.PageBytes)
	if err != nil {
		return nil, err
	}
	st := &mountState{Dir: s.Exists(m.Path)}
	if slices.Contains(at, m.Path) {
		st.At = m.Path
	} else if len(at) > 0 {
		st.At = at[0]
	}
	return st, nil
}

func hugeMounts(s *change.System, pageBytes uint64) ([]string, error) {
	proc, err := procfs.NewFS(s.Path("/proc"))
	if err != nil {
		return nil, err
	}
	mounts, err := proc.GetMounts()
	if err != nil {
		return nil, err
	}
	var at []string
	for _, m := range mounts {
		if m.FSType == "hugetlbfs" && pageSize(m.SuperOptions["pagesize"]) == pageBytes {
			at = append(at, m.MountPoint)
		}
	}
	return at, nil
}

func pageSize(text string) uint64 {
	for i, unit := range []string{"K", "M", "G"} {
		if digits, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseUint(digits, 10, 30)
			if err != nil {
				return 0
			}
			return n << (10 * (i + 1))
		}
	}
	return 0
}

// Done implements [change.Op].
func (m *Mount) Done(state change.State) bool {
	st, err := change.Decode[mountState](state)
	return err == nil && st.At != ""
}

// Do mounts; systemd treats the mount as its own mount unit of the same name.
func (m *Mount) Do(ctx context.Context, s *change.System) error {
	st, err := m.state(s)
	if err != nil {
		return err
	}
	if !st.Dir {
		if err := s.Mkdir(m.Path, 0o755); err != nil {
			return err
		}
	}
	if st.At == "" {
		options := fmt.Sprintf("pagesize=%dK,mode=0755", m.PageBytes>>10)
		if _, err := s.Program(ctx, "mount", "-t", "hugetlbfs", "-o", options, "hugetlbfs", m.Path); err != nil {
			return err
		}
	}
	return m.tellLibvirt(ctx, s)
}

// Shell implements [change.Manual].
func (m *Mount) Shell() []string {
	return []string{"mkdir -p " + m.Path,
		fmt.Sprintf("mountpoint -q %s || mount -t hugetlbfs -o pagesize=%dK,mode=0755 hugetlbfs %[1]s", m.Path,
			m.PageBytes>>10),
		"systemctl try-restart " + strings.Join(libvirtDaemons, " ")}
}

func (m *Mount) tellLibvirt(ctx context.Context, s *change.System) error {
	if !systemdRuns(s) {
		return nil
	}
	return restartRunning(ctx, s, libvirtDaemons...)
}

// Restore restarts libvirt, which would otherwise look for pages in the old mount.
func (m *Mount) Restore(ctx context.Context, s *change.System, before change.State) error {
	was, err := change.Decode[mountState](before)
	if err != nil {
		return err
	}
	now, err := m.state(s)
	if err != nil {
		return err
	}
	if was.At != m.Path && now.At == m.Path {
		if _, err := s.Program(ctx, "umount", m.Path); err != nil {
			return fmt.Errorf("%w; stop the machines that have pages from it, and try again", err)
		}
	}
	if !was.Dir {
		if err := s.Remove(m.Path); err != nil {
			return err
		}
	}
	return m.tellLibvirt(ctx, s)
}

// Merge leaves mounts of others, because Restore unmounts only Path.
func (m *Mount) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	return u.Before, nil, nil
}

// Restored ignores mounts of others.
func (m *Mount) Restored(before, now change.State) bool {
	b, err1 := change.Decode[mountState](before)
	n, err2 := change.Decode[mountState](now)
	return err1 == nil && err2 == nil && b.Dir == n.Dir && (n.At != m.Path || b.At == m.Path)
}

func (v *view) mounts() []change.Step {
	var steps []change.Step
	for _, size := range v.plan.PageSizes() {
		label := strings.TrimSuffix(strings.ReplaceAll(words.Exact(size), " ", ""), "iB") // as render names it: 1G
		name := "dev-hugepages" + label + ".mount"
		unit := v.file(unitDir + name)
		if unit == nil {
			continue // the default size
		}
		where := "/dev/hugepages" + label
		pool := fmt.Sprintf("/sys/kernel/mm/hugepages/hugepages-%dkB", size>>10)
		steps = append(steps, change.Step{
			Op:    bootedUnit(name, unit),
			Early: true,
			What:  fmt.Sprintf("mount hugepages of %s at each boot", words.Exact(size)),
			Why: "libvirt takes pages of a size only from a mount of that size, and systemd mounts only the " +
				"default one",
		}, change.Step{
			Op:   &Mount{Path: where, PageBytes: size},
			What: fmt.Sprintf("mount hugepages of %s at %s", words.Exact(size), where),
			Why:  "for libvirt, until the next boot mounts them",
			Risk: "libvirtd or virtqemud, whichever runs, is restarted: they look for mounts when they start; " +
				"machines keep running",
			Early: true,
			Ready: func(_ context.Context, s *change.System) (bool, error) { return s.Exists(pool), nil },
		})
	}
	return steps
}
