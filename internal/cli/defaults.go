package cli

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rackless/rackless/internal/strictyaml"
)

// AllVerbs is the key of a file of defaults whose flags count for every verb that has them.
const AllVerbs = "all"

// defaultsFile are the limits of a file of defaults. It names each flag once, so it is small.
var defaultsFile = &strictyaml.Format{Name: "config", File: "config file", MaxSize: 64 << 10, MaxTokens: 4000,
	MaxDepth: 4, EmptyWant: "verbs and their flags", EmptyFix: `begin with "up: {accel: tcg}"`, LooseText: true,
	LargeFix: "it is no config file of rackless", AliasFix: "write the value out"}

// Defaults are values of flags that a user has chosen for all command lines, in a file: a mapping for each verb ("up",
// "study run"), or for [AllVerbs], of flags and their values. The zero value has none.
type Defaults struct {
	values map[string]map[string]string // by verb and flag
	file   *strictyaml.Reader           // for places in messages
}

// ReadDefaults reads a file of defaults for the commands below root. A verb or a flag that is not there is a fault,
// whatever command runs: else a slip would never be found. The error is a [strictyaml.Errors].
func ReadDefaults(root *cobra.Command, file string, text []byte) (Defaults, error) {
	r := strictyaml.New(defaultsFile, file)
	d := Defaults{file: r}
	if len(bytes.TrimSpace(text)) == 0 {
		return d, nil
	}
	r.Parse(text, &d.values)
	verbs := commands(root)
	for verb, values := range d.values {
		flags, known := verbs[verb]
		if !known {
			path := strictyaml.Join("", verb)
			r.Fail(r.Keys[path], strictyaml.Error{Key: path, What: "no such verb", Fix: near(verb, verbs)})
			continue
		}
		for flag := range values {
			if path := strictyaml.Join(strictyaml.Join("", verb), flag); flags[flag] == nil {
				r.Fail(r.Keys[path], strictyaml.Error{Key: path, What: "no such flag", Fix: near(flag, flags)})
			}
		}
	}
	if r.Errs.Sort(); len(r.Errs) > 0 {
		return d, Usage(r.Errs)
	}
	return d, nil
}

// commands returns the flags of each verb by name, and of all verbs together.
func commands(root *cobra.Command) map[string]map[string]*pflag.Flag {
	verbs := map[string]map[string]*pflag.Flag{AllVerbs: {}}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Hidden || !c.Runnable() || c == root {
			return
		}
		flags := map[string]*pflag.Flag{}
		add := func(f *pflag.Flag) {
			if f.Name != "help" {
				flags[f.Name], verbs[AllVerbs][f.Name] = f, f
			}
		}
		c.LocalFlags().VisitAll(add)
		c.InheritedFlags().VisitAll(add)
		verbs[verbOf(c)] = flags
	}
	walk(root)
	return verbs
}

// verbOf is the path of a command without the program: "study run".
func verbOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// near advises on a name that is none of those known.
func near[V any](name string, known map[string]V) string {
	if best := strictyaml.Nearest(name, slices.Sorted(maps.Keys(known))); best != "" {
		return "did you mean " + best + "?"
	}
	return ""
}

// Set sets the flags of a command that its command line leaves out: by the environment, else by the defaults of its
// verb, else by those of all verbs. The variable of --accel of "study run" is RACKLESS_STUDY_RUN_ACCEL.
func (d Defaults) Set(cmd *cobra.Command, env func(string) string) error {
	if cmd.Hidden { // the program starts those itself
		return nil
	}
	var faults []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed && f.Name != "help" {
			faults = append(faults, d.set(cmd, f.Name, env))
		}
	})
	return errors.Join(faults...)
}

// set sets one flag.
func (d Defaults) set(cmd *cobra.Command, flag string, env func(string) string) error {
	verb := verbOf(cmd)
	name := variable(cmd.Root().Name() + " " + verb + " " + flag)
	if value := env(name); value != "" {
		if err := cmd.Flags().Set(flag, value); err != nil {
			return Usagef(cmd, "variable %s: %v", name, err)
		}
		return nil
	}
	for _, of := range []string{verb, AllVerbs} {
		value, ok := d.values[of][flag]
		if !ok {
			continue
		}
		if err := cmd.Flags().Set(flag, value); err != nil {
			path := strictyaml.Join(strictyaml.Join("", of), flag)
			d.file.Fail(d.file.Place(path), strictyaml.Error{Key: path, What: err.Error()})
			return Usage(d.file.Errs)
		}
		return nil
	}
	return nil
}

// variable is the name of an environment variable for words: capitals, with underscores between them.
func variable(text string) string {
	return strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(text))
}
