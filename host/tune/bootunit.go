package tune

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/wait"
)

const bootUnitName = "rackless-prepare.service"

// bootUnitLimit is long: preparing a host with hundreds of devices takes minutes.
const bootUnitLimit = 20 * time.Minute

// hasJob needs a number, because systemctl may print the property without one.
var hasJob = lazyregexp.New(`(?m)^Job=[1-9]`)

// AwaitBootUnit waits until the boot unit is not running. If it has to wait, it first calls waits.
func AwaitBootUnit(ctx context.Context, s *change.System, waits func(what string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootUnitLimit, fmt.Errorf("%s still works after %v: see journalctl "+
		"-u %s", bootUnitName, bootUnitLimit, bootUnitName))
	defer cancel()
	for first := true; ; first = false {
		state, err := s.Query(ctx, "systemctl", "show", "--property=ActiveState,Job", bootUnitName)
		// A oneshot unit is activating while its program runs. Earlier in the boot it has a start job.
		if err != nil || !strings.Contains(string(state), "=activating") && !hasJob().Match(state) {
			return context.Cause(ctx)
		}
		if first {
			waits(fmt.Sprintf("%s goes on with the preparation after the boot: waiting for it, at most %v",
				bootUnitName,
				bootUnitLimit))
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// BootUnit makes systemd run binary with "prepare --resume" at each boot. It is refused if anybody but root could
// replace the program, because it runs as root.
func BootUnit(binary string) []change.Step {
	return []change.Step{{
		Op:   bootedUnit(bootUnitName, bootUnit(binary)),
		What: "go on at each boot (" + bootUnitName + ")",
		Why:  "a boot resets devices, pages and values to the kernel's defaults",
		Risk: "machines that libvirt starts by itself wait for it at boot",
		Guard: func(_ context.Context, s *change.System) error {
			return guardProgram(s, binary, func(uid uint32) bool { return uid == 0 })
		},
	}}
}

// bootUnitText runs after device drivers, the network setup, which configures physical functions and requests
// interrupts, and services that set governors or move interrupts, but before anything starts a guest. It has no
// ExecStop, because the next boot would have to redo everything that a shutdown undid.
//
//go:embed boot.service
var bootUnitText string

func bootUnit(binary string) []byte {
	// systemd.unit(5), specifiers; the guard refuses other special characters
	word := strings.ReplaceAll(binary, "%", "%%")
	return []byte(strings.NewReplacer("MADE-BY", MadeBy, "PROGRAM", word).Replace(bootUnitText))
}

// maxLinks limits the links in a path, as the kernel does (path_resolution(7)).
const maxLinks = 40

// guardProgram refuses a program that untrusted users could write or replace: it checks the file, the directories that
// lead to it, and the targets of links.
func guardProgram(s *change.System, program string, trusted func(uid uint32) bool) error {
	for _, c := range program {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("/._+-%@", c) {
			return fmt.Errorf("%q has %q in its path, which does not go into a unit of systemd: install rackless to "+
				"/usr/local/bin", program, c)
		}
	}
	if !path.IsAbs(program) || path.Clean(program) != program {
		return fmt.Errorf("%q is not an absolute path without dots: install rackless to /usr/local/bin", program)
	}
	done, rest := "/", strings.Split(program[1:], "/")
	for links := 0; ; {
		info, err := os.Lstat(s.Path(done))
		if err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink != 0 {
			if links++; links > maxLinks {
				return fmt.Errorf("%s: too many links", program)
			}
			to, err := os.Readlink(s.Path(done))
			if err != nil {
				return err
			}
			// Replacing the link requires write access to its directory, which was checked.
			target := path.Join(path.Dir(done), to)
			if path.IsAbs(to) {
				target = path.Clean(to)
			}
			done, rest = "/", append(strings.Split(strings.TrimPrefix(target, "/"), "/"), rest...)
			continue
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !trusted(st.Uid) || info.Mode().Perm()&0o022 != 0 && !(st.Gid == 0 && info.Mode().Perm()&0o002 == 0) {
			return fmt.Errorf("%s can be written by others than root (%s, owner %d), and would run as root at each "+
				"boot: install rackless with install -o root -g root -m 0755 to /usr/local/bin, "+
				"or chown root: and chmod go-w %s", done, info.Mode(), st.Uid, done)
		}
		if len(rest) == 0 {
			if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
				return fmt.Errorf("%s is not a program (%s)", done, info.Mode())
			}
			return nil
		}
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", done)
		}
		done, rest = path.Join(done, rest[0]), rest[1:]
	}
}

// A GoOn runs a command at each boot, after the host is prepared. The caller installs it and removes it.
type GoOn struct {
	Name        string // unit name, without ".service"
	Description string
	Argv        []string // program (an absolute path) and arguments
	Dir         string
	Env         []string // NAME=VALUE
}

func (g *GoOn) bytes() ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by rackless, which takes it away when the command has come to its "+
		"end.\n[Unit]\nDescription=%s\nAfter=%s libvirtd.service virtqemud.service\n\n[Service]\n", g.Description,
		bootUnitName)
	for _, text := range append([]string{g.Dir, g.Description}, append(g.Env, g.Argv...)...) {
		if i := strings.IndexFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }); i >= 0 {
			return nil, fmt.Errorf("%q has %q in it, which does not go into a unit of systemd", text, text[i])
		}
	}
	// systemd.exec(5): taken literally, except for specifiers.
	fmt.Fprintf(&b, "WorkingDirectory=%s\n", strings.ReplaceAll(g.Dir, "%", "%%"))
	for _, e := range g.Env {
		fmt.Fprintf(&b, "Environment=%s\n", unitWord(e))
	}
	words := []string{strings.ReplaceAll(g.Argv[0], "%", "%%")}
	for _, a := range g.Argv[1:] {
		words = append(words, strings.ReplaceAll(unitWord(a), "$", "$$"))
	}
	fmt.Fprintf(&b, "ExecStart=%s\n\n[Install]\nWantedBy=multi-user.target\n", strings.Join(words, " "))
	return []byte(b.String()), nil
}

// unitWord quotes as in systemd.syntax(7).
func unitWord(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(s) + `"`
}

// Install makes systemd run the command from the next boot on. It fails if anybody but root could replace the program.
func (g *GoOn) Install(ctx context.Context, s *change.System) error {
	if err := guardProgram(s, g.Argv[0], func(uid uint32) bool { return uid == 0 }); err != nil {
		return err
	}
	data, err := g.bytes()
	if err != nil {
		return err
	}
	return bootedUnit(g.Name+".service", data).Do(ctx, s)
}

// Installed reports whether the unit is installed.
func (g *GoOn) Installed(s *change.System) bool { return s.Exists(unitDir + g.Name + ".service") }

// Remove leaves a running command alone.
func (g *GoOn) Remove(ctx context.Context, s *change.System) error {
	u := bootedUnit(g.Name+".service", nil)
	if !g.Installed(s) {
		return nil
	}
	// The unit file goes last: Installed checks it, so an interrupted Remove can be repeated.
	for _, path := range []string{u.Enable, u.Path} {
		if err := s.Remove(path); err != nil {
			return err
		}
	}
	return u.takeUp(ctx, s)
}
