package tune

import (
	"context"
	"fmt"
	"strings"

	"github.com/rackless/rackless/host/change"
)

// A GoOn has a command called at each boot, after the host is prepared, until it is taken away. It
// is no part of what a host is prepared with: whoever installs it takes it away.
type GoOn struct {
	Name        string // of the unit, without ".service"
	Description string
	Argv        []string // the program by its absolute path
	Dir         string   // where it is called
	Env         []string // NAME=VALUE
}

// bytes returns the file of the unit. A boot does not wait for the command.
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
	// systemd.exec(5): the directory is taken as it is, but for specifiers.
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

// unitWord quotes a word for a unit (systemd.syntax(7), quoting).
func unitWord(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(s) + `"`
}

// Install has it called from the next boot on. It is refused for a program that others than root could replace.
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

// Installed reports whether it is there.
func (g *GoOn) Installed(s *change.System) bool { return s.Exists(unitDir + g.Name + ".service") }

// Remove takes it away; one that is not there is no error. A command that runs goes on.
func (g *GoOn) Remove(ctx context.Context, s *change.System) error {
	u := bootedUnit(g.Name+".service", nil)
	if !g.Installed(s) {
		return nil
	}
	// the file last: while it is there, there may be something to take away
	for _, path := range []string{u.Enable, u.Path} {
		if err := s.Remove(path); err != nil {
			return err
		}
	}
	return u.takeUp(ctx, s)
}
