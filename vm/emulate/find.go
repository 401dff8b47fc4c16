package emulate

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/machine/inspect"
)

// Find returns a built-in profile, or reads a file if arg has a dot or a slash.
func Find(arg string) (*Profile, error) {
	if strings.ContainsAny(arg, "./") {
		b, err := userfile.Read(arg, userfile.Text)
		if err != nil {
			return nil, err
		}
		p, err := ParseProfile(arg, b)
		if err != nil {
			err = inspect.Misplaced(arg, b, "the profile of an emulated host", err)
		}
		return p, err
	}
	best, least := "", 3
	var names []string
	for _, p := range Builtin() {
		if p.Name == arg {
			return p, nil
		}
		names = append(names, p.Name)
		if d := strictyaml.Distance(arg, p.Name); d < least {
			best, least = p.Name, d
		}
	}
	for _, n := range names {
		if best == "" && len(arg) > 1 && strings.Contains(n, arg) {
			best = n
		}
	}
	hint := "there are " + strings.Join(names, ", ")
	if best != "" {
		hint = "did you mean " + best + "?"
	}
	return nil, fmt.Errorf("profile %q: no such profile comes with rackless; %s", arg, hint)
}
