package tune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/render"
)

const kindUnit = "unit"

// unitDir is the directory of an administrator's units, in force from the first moment of a boot.
const unitDir = "/etc/systemd/system/"

// A Unit is a systemd unit file or drop-in. If it is enabled, it takes effect at the next boot, otherwise at once:
// systemd reloads and the affected service restarts.
type Unit struct {
	Path string `json:"path"`
	Data []byte `json:"data"`
	// Enable is the link that starts the unit at boot; empty for drop-ins.
	Enable string `json:"enable,omitempty"`
	// Service is restarted if it runs, and must then have Environment ("NAME=VALUE").
	Service     string `json:"service,omitempty"`
	Environment string `json:"environment,omitempty"`
	// Slice is a unit whose cgroup may then use only CPUs.
	Slice string          `json:"slice,omitempty"`
	CPUs  topology.CPUSet `json:"cpus,omitzero"`
}

func bootedUnit(name string, data []byte) *Unit {
	return &Unit{Path: unitDir + name, Data: data, Enable: unitDir + "multi-user.target.wants/" + name}
}

// unitState excludes systemd's copy in memory, because a possibly stale copy could not be restored.
type unitState struct {
	File change.State `json:"file"`
	Link change.State `json:"link,omitempty"`
}

// Kind implements [change.Op].
func (u *Unit) Kind() string { return kindUnit }

// Subject implements [change.Op].
func (u *Unit) Subject() string { return u.Path }

func (u *Unit) file() *change.File { return &change.File{Path: u.Path, Data: u.Data, Mode: 0o644} }

func (u *Unit) link() *change.Link { return &change.Link{Path: u.Enable, To: u.Path} }

// Read implements [change.Op].
func (u *Unit) Read(ctx context.Context, s *change.System) (change.State, error) {
	var st unitState
	var err error
	if st.File, err = u.file().Read(ctx, s); err != nil {
		return "", err
	}
	if u.Enable != "" {
		if st.Link, err = u.link().Read(ctx, s); err != nil {
			return "", err
		}
	}
	return change.Encode(st, nil)
}

// Done implements [change.Op].
func (u *Unit) Done(state change.State) bool {
	st, err := change.Decode[unitState](state)
	return err == nil && u.file().Done(st.File) && (u.Enable == "" || u.link().Done(st.Link))
}

// Do implements [change.Op].
func (u *Unit) Do(ctx context.Context, s *change.System) error {
	if err := u.file().Do(ctx, s); err != nil {
		return err
	}
	if u.Enable != "" {
		if err := u.link().Do(ctx, s); err != nil {
			return err
		}
	}
	if err := u.takeUp(ctx, s); err != nil {
		return err
	}
	if err := u.checkEnvironment(ctx, s); err != nil {
		return err
	}
	return u.checkSlice(ctx, s)
}

// Restore reloads and restarts even if the files are already restored, because an earlier one may have been cut off
// there.
func (u *Unit) Restore(ctx context.Context, s *change.System, before change.State) error {
	st, err := change.Decode[unitState](before)
	if err != nil {
		return err
	}
	if u.Enable != "" {
		if err := u.link().Restore(ctx, s, st.Link); err != nil {
			return err
		}
	}
	if err := u.file().Restore(ctx, s, st.File); err != nil {
		return err
	}
	if err := u.takeUp(ctx, s); err != nil {
		return err
	}
	return u.releaseSlice(ctx, s)
}

// Merge merges the file and the link separately.
func (u *Unit) Merge(ctx context.Context, s *change.System, undo change.Undo) (change.State, []change.Changed, error) {
	file, err := undo.Part(func(state change.State) (change.State, error) {
		st, err := change.Decode[unitState](state)
		return st.File, err
	})
	if err != nil {
		return "", nil, err
	}
	var want unitState
	var changed, more []change.Changed
	if want.File, changed, err = u.file().Merge(ctx, s, file); err != nil || u.Enable == "" {
		return encodeMerged(want, changed, err)
	}
	link, err := undo.Part(func(state change.State) (change.State, error) {
		st, err := change.Decode[unitState](state)
		return st.Link, err
	})
	if err != nil {
		return "", nil, err
	}
	want.Link, more, err = u.link().Merge(ctx, s, link)
	return encodeMerged(want, append(changed, more...), err)
}

func encodeMerged(st any, changed []change.Changed, err error) (change.State, []change.Changed, error) {
	state, err := change.Encode(st, err)
	return state, changed, err
}

// Restored compares the file and the link as [change.File] does.
func (u *Unit) Restored(before, now change.State) bool {
	b, err1 := change.Decode[unitState](before)
	n, err2 := change.Decode[unitState](now)
	return err1 == nil && err2 == nil && u.file().Restored(b.File, n.File) &&
		(u.Enable == "" || u.link().Restored(b.Link, n.Link))
}

// Shell implements [change.Manual].
func (u *Unit) Shell() []string {
	lines := append(u.file().Shell(), "systemctl daemon-reload")
	if u.Enable != "" {
		lines = append(lines, "systemctl enable "+path.Base(u.Path))
	}
	if u.Service != "" {
		lines = append(lines, "systemctl try-restart "+u.Service)
	}
	if u.Slice != "" {
		lines = append(lines, fmt.Sprintf("cat %s%s/cpuset.cpus.effective   # within %s", cgroupRoot, u.Slice, u.CPUs))
	}
	return lines
}

// takeUp skips units that only start at boot, because a reload takes as long as many steps of a plan together.
func (u *Unit) takeUp(ctx context.Context, s *change.System) error {
	if u.Enable != "" || !systemdRuns(s) {
		return nil
	}
	if _, err := s.Program(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	if u.Service == "" {
		return nil
	}
	return restartRunning(ctx, s, u.Service)
}

// systemdRuns does as sd_booted(3).
func systemdRuns(s *change.System) bool { return s.Exists("/run/systemd/system") }

// mainPID returns "0" if the service does not run or is not installed.
func mainPID(ctx context.Context, s *change.System, service string) (string, error) {
	out, err := s.Query(ctx, "systemctl", "show", "--property=MainPID", "--value", "--", service)
	if err != nil {
		return "", err
	}
	if pid := strings.TrimSpace(string(out)); pid != "" {
		return pid, nil
	}
	return "0", nil
}

// restartRunning skips stopped services: they read their configuration when they are started.
func restartRunning(ctx context.Context, s *change.System, services ...string) error {
	for _, service := range services {
		pid, err := mainPID(ctx, s, service)
		if err != nil {
			return err
		}
		if pid == "0" {
			continue
		}
		if _, err := s.Program(ctx, "systemctl", "try-restart", "--", service); err != nil {
			return err
		}
	}
	return nil
}

// checkEnvironment waits for the service's exec, because systemctl does not.
func (u *Unit) checkEnvironment(ctx context.Context, s *change.System) error {
	if u.Environment == "" || !systemdRuns(s) {
		return nil
	}
	name, _, _ := strings.Cut(u.Environment, "=")
	return await(ctx, func() error {
		pid, err := mainPID(ctx, s, u.Service)
		if err != nil || pid == "0" {
			return err
		}
		data, err := s.ReadFile("/proc/" + pid + "/environ")
		if errors.Is(err, fs.ErrNotExist) {
			return nil // exited in the meantime
		}
		if err != nil {
			return err
		}
		have := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
		if slices.Contains(have, u.Environment) {
			return nil
		}
		other := "no " + name
		if i := slices.IndexFunc(have, func(e string) bool { return strings.HasPrefix(e, name+"=") }); i >= 0 {
			other = have[i]
		}
		return fmt.Errorf("%s runs with %s in place of %s: see systemctl cat %s, and the files that it names with "+
			"EnvironmentFile=", u.Service, other, u.Environment, u.Service)
	})
}

const cgroupRoot = "/sys/fs/cgroup/"

// checkSlice asks the kernel, because systemd before 244 does not support the setting, and only logs that.
func (u *Unit) checkSlice(ctx context.Context, s *change.System) error {
	if u.Slice == "" || !s.Exists(cgroupRoot+u.Slice) {
		return nil // systemd will apply the drop-in when it starts
	}
	// systemd answers only after it has finished the reload.
	if _, err := s.Query(ctx, "systemctl", "show", "--property=AllowedCPUs", "--value", "--", u.Slice); err != nil {
		return err
	}
	return await(ctx, func() error {
		file := cgroupRoot + u.Slice + "/cpuset.cpus.effective"
		text, err := s.Value(file)
		if err != nil {
			return fmt.Errorf("systemd does not limit %s to CPUs %s (it has to be 244 or later): %w", u.Slice, u.CPUs,
				err)
		}
		have, err := topology.ParseCPUSet(text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if !have.IsSubsetOf(u.CPUs) {
			return fmt.Errorf("%s may still use CPUs %s, wanted %s: see systemctl cat %s for what else sets "+
				"AllowedCPUs=", u.Slice, have, u.CPUs, u.Slice)
		}
		return nil
	})
}

// releaseSlice lets the processes of a slice without a limit use all CPUs: systemd then writes an empty cpuset.cpus,
// which the kernel refuses if the cgroup has processes (systemd 252 on Linux 6.1: "No space left on device").
func (u *Unit) releaseSlice(ctx context.Context, s *change.System) error {
	file := cgroupRoot + u.Slice + "/cpuset.cpus"
	if u.Slice == "" || !systemdRuns(s) || !s.Exists(file) {
		return nil
	}
	asked, err := s.Query(ctx, "systemctl", "show", "--property=AllowedCPUs", "--value", "--", u.Slice)
	if err != nil || strings.TrimSpace(string(asked)) != "" {
		return err // another setting limits it
	}
	// If the controller is gone, so is the limit.
	limit, err := s.ValueOr(file, "")
	if err != nil || limit == "" {
		return err
	}
	all, err := s.Value("/sys/devices/system/cpu/possible")
	if err != nil || limit == all {
		return err
	}
	if err := s.WriteValue(file, all); err != nil {
		return fmt.Errorf("%s may use CPUs %s alone, and nobody asks for that any more: %w", u.Slice, limit, err)
	}
	return nil
}

// On a busy machine a service that systemd had started took more than 5 s until its exec.
const (
	awaitLimit = 30 * time.Second
	awaitPause = 20 * time.Millisecond
)

// await calls look until it returns nil, or returns its last error after awaitLimit.
func await(ctx context.Context, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, awaitLimit)
	defer cancel()
	for {
		err := look()
		if err == nil || wait.For(ctx, awaitPause) != nil {
			return err
		}
	}
}

// file returns nil if the plan has no file for the path.
func (v *view) file(path string) []byte {
	i := slices.IndexFunc(v.files, func(f render.Artifact) bool { return f.Path == path })
	if i < 0 {
		return nil
	}
	return v.files[i].Data
}
