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

// unitDir is where an administrator's units are. What is here is in force from the first moment of a boot.
const unitDir = "/etc/systemd/system/"

// A Unit is a file of systemd's configuration, a unit or a drop-in, that is to be there and in
// force, from the next boot where it is started at boot, and at once otherwise: systemd reads its configuration again,
// and whoever has to take it up is started again, after the file came and after it went.
type Unit struct {
	Path string `json:"path"`
	Data []byte `json:"data"`
	// Enable is the link that has the unit started at boot; empty for drop-ins.
	Enable string `json:"enable,omitempty"`
	// Service is restarted where it runs, and has Environment ("NAME=VALUE") then.
	Service     string `json:"service,omitempty"`
	Environment string `json:"environment,omitempty"`
	// Slice is a unit whose cgroup may use CPUs only, then.
	Slice string          `json:"slice,omitempty"`
	CPUs  topology.CPUSet `json:"cpus,omitzero"`
}

// bootedUnit returns a unit of a name, "x.service" or "x.mount", that is started at boot.
func bootedUnit(name string, data []byte) *Unit {
	return &Unit{Path: unitDir + name, Data: data, Enable: unitDir + "multi-user.target.wants/" + name}
}

// unitState is what is there of a unit. What systemd has in memory is no part of it: nobody could
// make that as stale as it may have been.
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

// Restore implements [change.Op]. systemd and the service are told again even if the files are as
// they were: it may have been cut off right there.
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

// Merge implements [change.Merger]: the file and the link each for itself.
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

// Restored implements [change.Restorer], for each of the two as [change.File] does.
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

// takeUp has systemd read its configuration again, and restarts the service where it runs. What is only started at
// boot is read then: to read all units again takes systemd as long as many steps of a plan together.
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

// systemdRuns is the test of sd_booted(3).
func systemdRuns(s *change.System) bool { return s.Exists("/run/systemd/system") }

// mainPID returns the process of a service, 0 where it does not run or is not installed.
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

// restartRunning restarts those of the services that run. One that does not run is not started: it
// is not ours to start, and reads its configuration when somebody does.
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

// checkEnvironment looks whether the running service has the environment. A process has it from its
// exec on, which systemctl does not wait for.
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
			return nil // ended in the meantime
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

// checkSlice looks whether the kernel keeps the slice's tasks on its CPUs. systemd older than 244
// does not know the setting, and says so in its log alone.
func (u *Unit) checkSlice(ctx context.Context, s *change.System) error {
	if u.Slice == "" || !s.Exists(cgroupRoot+u.Slice) {
		return nil // it is not there yet: whoever starts it gives it what the file says
	}
	// systemd answers after it has done what the reload left to do.
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

// releaseSlice lets the processes of a slice that nobody limits any more use all CPUs. systemd
// empties cpuset.cpus then, which the kernel refuses where the cgroup has processes (systemd 252 on
// Linux 6.1: "No space left on device"); the limit would stay for as long as any unit needs the
// controller, the virtual machine of somebody else's for one.
func (u *Unit) releaseSlice(ctx context.Context, s *change.System) error {
	file := cgroupRoot + u.Slice + "/cpuset.cpus"
	if u.Slice == "" || !systemdRuns(s) || !s.Exists(file) {
		return nil
	}
	// systemd answers after it has done what the reload left to do.
	asked, err := s.Query(ctx, "systemctl", "show", "--property=AllowedCPUs", "--value", "--", u.Slice)
	if err != nil || strings.TrimSpace(string(asked)) != "" {
		return err // others limit it, to which systemd has seen
	}
	// Where the controller has gone, the limit went with it.
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

// How long to wait for others to do what they were told, and how often to look. On a machine that is busy, a service
// that systemd has started has needed more than 5 s until its exec.
const (
	awaitLimit = 30 * time.Second
	awaitPause = 20 * time.Millisecond
)

// await looks until there is no error, and returns the last one when it takes too long.
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

// file returns the bytes of a file that render wrote for a place on the host; nil where the plan needs none there.
func (v *view) file(path string) []byte {
	i := slices.IndexFunc(v.files, func(f render.Artifact) bool { return f.Path == path })
	if i < 0 {
		return nil
	}
	return v.files[i].Data
}
