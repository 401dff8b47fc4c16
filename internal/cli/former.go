package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// former holds the arguments of a hidden flag until Settle passes them on.
type former struct {
	given   []string
	now     string   // "--host", "-o html --out"
	set     []string // the flags that it sets
	apply   func(value string) error
	settled bool
}

// String returns "", so that a former flag has no default.
func (*former) String() string { return "" }

// Set keeps an argument.
func (f *former) Set(value string) error {
	f.given = append(f.given, value)
	return nil
}

// Type implements pflag.Value.
func (*former) Type() string { return "string" }

// Renamed adds a hidden flag under its former name. short is its former letter, or "".
func Renamed(cmd *cobra.Command, old, short, now string) {
	Replaced(cmd, old, short, "--"+now, func(value string) error { return cmd.Flags().Set(now, value) }, now)
}

// Replaced adds a hidden flag in place of the flags set. said is how they are typed.
func Replaced(cmd *cobra.Command, old, short, said string, apply func(value string) error, set ...string) {
	f := cmd.Flags().VarPF(&former{now: said, apply: apply, set: set}, old, short, "see "+said)
	f.Hidden = true
}

// Settle sets present flags by former ones, and returns how these are typed now. Giving both is an error, unless the
// flag takes several values.
func Settle(cmd *cobra.Command) (said []string, err error) {
	var given []*pflag.Flag
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if old, ok := f.Value.(*former); ok && !old.settled {
			given = append(given, f)
		}
	})
	for _, f := range given {
		old := f.Value.(*former)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand
		}
		for _, now := range old.set {
			if cmd.Flags().Changed(now) && !several(cmd, now) {
				return said, Usagef(cmd, "%s is %s now: leave one of the two out", name, old.now)
			}
		}
		for _, value := range old.given {
			if err := old.apply(value); err != nil {
				return said, Usagef(cmd, "%v", err) // it names the present flag
			}
		}
		old.settled = true
		said = append(said, name+" is now "+old.now)
	}
	return said, nil
}

func several(cmd *cobra.Command, name string) bool {
	_, ok := cmd.Flags().Lookup(name).Value.(pflag.SliceValue)
	return ok
}

func outdated(cmd *cobra.Command, f *pflag.Flag) bool {
	old, ok := f.Value.(*former)
	return ok && slices.ContainsFunc(old.set, func(now string) bool { return cmd.Flags().Changed(now) })
}
