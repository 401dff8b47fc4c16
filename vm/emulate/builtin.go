package emulate

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/examples/hosts"
)

// Builtin returns the built-in profiles by name.
func Builtin() []*Profile {
	files, err := hosts.Profiles.ReadDir(".")
	if err != nil { // embedded: cannot fail
		panic(err)
	}
	var all []*Profile
	for _, f := range files { // sorted by ReadDir
		name := strings.TrimSuffix(f.Name(), ".yaml")
		b, err := hosts.Profiles.ReadFile(f.Name())
		if err != nil {
			panic(err)
		}
		p, err := ParseProfile(f.Name(), b)
		if err != nil || p.Name != name { // checked by tests
			panic(fmt.Sprintf("built-in profile %s: %v", name, err))
		}
		all = append(all, p)
	}
	return all
}

// Source returns the file of a built-in profile, or nil.
func Source(name string) []byte {
	b, err := hosts.Profiles.ReadFile(name + ".yaml")
	if err != nil {
		return nil
	}
	return b
}
