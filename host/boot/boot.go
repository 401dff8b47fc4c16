package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/topology"
)

// Kinds returns the ops of this package.
func Kinds() change.Kinds {
	return change.Kinds{
		"kernel-args-grub":       func() change.Op { return &grub{} },
		"kernel-args-entries":    func() change.Op { return &entries{} },
		"kernel-args-rpm-ostree": func() change.Op { return &rpmOSTree{} },
		"kernel-args-by-hand":    func() change.Op { return &byHand{} },
	}
}

// Steps returns the step for the machine's boot loader, or nil if args is empty. why[i] is the reason for args[i].
func Steps(s *change.System, args, why []string) ([]change.Step, error) {
	if len(args) == 0 {
		return nil, nil
	}
	if err := cmdline.Check(args, limit); err != nil {
		return nil, err
	}
	op, err := detect(s, args)
	if err != nil {
		return nil, err
	}
	var reasons []string
	for i, arg := range args {
		if i < len(why) && why[i] != "" {
			arg += ": " + why[i]
		}
		reasons = append(reasons, arg)
	}
	return []change.Step{{
		Op:   op,
		What: "give the kernel " + strconv.Itoa(len(args)) + " arguments, " + op.where(),
		Why:  strings.Join(reasons, "\n"),
		Risk: "if the machine does not boot with them, edit the entry: press e in the boot " +
			"menu, and remove them from the kernel's line",
		Boot:    true,
		InForce: inForce(args),
		Guard:   op.guard,
	}}, nil
}

var limit = cmdline.Limit(runtime.GOARCH)

func fits(line string) error {
	if len(line) >= limit {
		return fmt.Errorf("the command line would have %d characters, and the kernel reads %d: take something off "+
			"first: %s", len(line), limit-1, line)
	}
	return nil
}

// subject has the arguments, so that a plan with others undoes the old op first.
func subject(thing string, args []string) string { return thing + ": " + strings.Join(args, " ") }

// restoredState makes an op read as its earlier state after Restore, even if changes by others make the files differ.
type restoredState struct{ now, before change.State }

func (t *restoredState) recordRestored(now, before change.State) { t.now, t.before = now, before }

func (t *restoredState) read(now change.State) change.State {
	if t.before != "" && now == t.now {
		return t.before
	}
	return now
}

// otherValues returns other values of args that were not in before: others added them.
func otherValues(where string, now, before, args []string) (changed []change.Changed) {
	for _, line := range now {
		for _, word := range cmdline.Replaced(line, args) {
			c := change.Changed{What: "kernel arguments in " + where, Found: word, Set: strings.Join(args, " ")}
			was := func(line string) bool { return slices.Contains(cmdline.Replaced(line, args), word) }
			if !slices.ContainsFunc(before, was) && !slices.Contains(changed, c) {
				changed = append(changed, c)
			}
		}
	}
	return changed
}

func find(s *change.System, names ...string) string {
	for _, name := range names {
		for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
			path := dir + "/" + name
			if info, err := os.Stat(s.Path(path)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path
			}
		}
	}
	return ""
}

// follow resolves links: Fedora and its relatives have linked grubenv to the EFI system partition.
func follow(s *change.System, path string) (string, error) {
	const most = 8
	for range most {
		to, err := os.Readlink(s.Path(path))
		if err != nil { // no link, or no file
			return path, nil
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return "", fmt.Errorf("%s: more than %d links, one to another", path, most)
}

func canWrite(s *change.System, dirs ...string) error {
	for _, dir := range dirs {
		for !s.Exists(dir) {
			dir = filepath.Dir(dir)
		}
		const writable = 2 // W_OK
		if err := syscall.Access(s.Path(dir), writable); err != nil {
			return fmt.Errorf("%s cannot be written (%w): mount it for writing, or set the arguments in the image "+
				"that this machine is started from", dir, err)
		}
	}
	return nil
}

func fileText(state change.State) (text string, ok bool) {
	var st struct {
		Data    []byte
		Link    string
		Missing bool
	}
	if err := json.Unmarshal([]byte(state), &st); err != nil || st.Missing || st.Link != "" {
		return "", false
	}
	return string(st.Data), true
}

// put keeps the file's owner and mode, because its readers may not run as root.
func put(s *change.System, path, text string) error {
	info, err := os.Stat(s.Path(path))
	if err != nil {
		return err
	}
	uid, gid := os.Getuid(), os.Getgid()
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		uid, gid = int(sys.Uid), int(sys.Gid)
	}
	return s.Replace(path, []byte(text), info.Mode().Perm(), uid, gid)
}

// byHand asks the user to add the arguments, and is done once the kernel runs with them.
type byHand struct {
	Args  []string `json:"args"`
	Found string   `json:"found"`
	Todo  string   `json:"todo"` // the place for the arguments
}

const (
	handDone    change.State = "the kernel runs with the arguments"
	handMissing change.State = "the kernel runs without the arguments"
)

func (o *byHand) Kind() string    { return "kernel-args-by-hand" }
func (o *byHand) Subject() string { return subject("boot loader", o.Args) }
func (o *byHand) where() string   { return "by hand: " + o.Found }

func (o *byHand) Read(_ context.Context, s *change.System) (change.State, error) {
	if has, err := runsWith(s, o.Args); err != nil || !has {
		return handMissing, err
	}
	return handDone, nil
}

func (o *byHand) Done(state change.State) bool { return state == handDone }

func (o *byHand) guard(context.Context, *change.System) error {
	return fmt.Errorf("rackless does not change the boot loader of this machine (%s): add %q to the command line of "+
		"the kernel, in place of other values of the same, %s; "+
		"start the machine again, and prepare again", o.Found, strings.Join(o.Args, " "), o.Todo)
}

// Do is never reached, because the guard always refuses.
func (o *byHand) Do(ctx context.Context, s *change.System) error { return o.guard(ctx, s) }

// Merge reports no change, because the user undoes manual changes manually.
func (o *byHand) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	return u.Before, nil, nil
}

// Shell implements [change.Manual].
func (o *byHand) Shell() []string {
	return []string{"# " + o.Found + ": add to the command line of the kernel, " + o.Todo + ":",
		"# " + strings.Join(o.Args, " ")}
}

// ByHand returns a step for each kind of boot loader, without reading the machine.
func ByHand(args []string) []change.Step {
	if len(args) == 0 {
		return nil
	}
	return []change.Step{
		{Op: &grub{Args: args, Config: "/boot/grub/grub.cfg", Program: "grub-mkconfig", Settings: grubDropIn,
			DropIn: true}, What: "GRUB that reads /etc/default/grub.d: Debian, Ubuntu", Boot: true},
		{Op: &grub{Args: args, Config: "/boot/grub/grub.cfg", Program: "grub-mkconfig", Settings: grubSettings},
			What: "GRUB that does not read /etc/default/grub.d: Arch, openSUSE (grub2-mkconfig, /boot/grub2)",
			Boot: true},
		{Op: &entries{Args: args, Dirs: []string{"/boot/loader/entries"}},
			What: "boot entries: Fedora, RHEL and their relatives; systemd-boot", Boot: true},
		{Op: &rpmOSTree{Args: args, Program: "rpm-ostree"}, What: "rpm-ostree: Fedora CoreOS, Silverblue", Boot: true},
	}
}

// Restore does nothing.
func (o *byHand) Restore(context.Context, *change.System, change.State) error { return nil }

func runsWith(s *change.System, args []string) (bool, error) {
	line, err := s.Value("/proc/cmdline")
	return cmdline.Has(line, args), err
}

// inForce returns an error if the kernel has args but sysfs shows another effect, because another reboot would not
// help.
func inForce(args []string) func(context.Context, *change.System) (bool, error) {
	return func(_ context.Context, s *change.System) (bool, error) {
		if has, err := runsWith(s, args); err != nil || !has {
			return false, err
		}
		for _, arg := range args {
			if err := effect(s, arg); err != nil {
				return false, err
			}
		}
		return true, nil
	}
}

func effect(s *change.System, arg string) error {
	const dir = "/sys/devices/system/cpu/"
	file := ""
	want, ok := cmdline.Isolcpus(arg)
	flags := strings.Split(strings.TrimPrefix(arg, "isolcpus="), ",")
	has := func(flag string) bool { return slices.Contains(flags, flag) }
	switch {
	// The file lists only CPUs outside the scheduler's domains. isolcpus= without flags implies "domain"
	// (housekeeping_isolcpus_setup in kernel/sched/isolation.c).
	case ok && (has("domain") || !has("nohz") && !has("managed_irq")):
		file = dir + "isolated"
	case ok:
		return nil
	default:
		if want, ok = cmdline.NohzFull(arg); !ok {
			return nil
		}
		want, file = want.Difference(topology.CPUs(cmdline.BootCPU)), dir+"nohz_full"
	}
	text, err := s.Value(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // this kernel does not show it
	}
	if err != nil {
		return err
	}
	have, err := topology.ParseCPUSet(strings.TrimSpace(text))
	if err != nil {
		have = topology.CPUSet{}
	}
	possible, err := s.ValueOr(dir+"possible", "")
	if err != nil {
		return err
	}
	if set, err := topology.ParseCPUSet(strings.TrimSpace(possible)); err == nil && !set.IsEmpty() {
		want = want.Intersect(set)
	}
	if missing := want.Difference(have); !missing.IsEmpty() {
		return fmt.Errorf("the kernel was started with %s, and %s has %q, without CPUs %s: see what dmesg says of "+
			"it; another reboot will not help", arg, file, strings.TrimSpace(text), missing)
	}
	return nil
}
