package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/planner"
	"github.com/rackless/rackless/study/conduct"
)

// An exitError ends the program with a code of its own. An empty err means that everything has been said.
// Errors of all other kinds end the program with 1: only what a caller can tell apart has a code.
type exitError struct {
	code int
	err  error
}

// Error returns the text of the error, empty if everything has been said.
func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap lets errors.Is and errors.As see the error inside.
func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as the caller's.
func usage(err error) error { return &exitError{exitUsage, err} }

// usagef is usage with the command and where to read more.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	// The help is named and not printed: below forty lines of it the message would be out of sight.
	where := ""
	if cmd.HasParent() { // every message begins with "rackless: " already
		where = strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") + ": "
	}
	return usage(fmt.Errorf("%s%s\nsee: %s --help", where, fmt.Sprintf(format, args...), cmd.CommandPath()))
}

// exitCode returns what an error ends the program with, and what is still to be said.
func exitCode(err error) (code int, text string) {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code, e.Error()
	}
	// Errors of other packages that are the caller's, since what was asked for cannot be done as it stands.
	_, wrong := errors.AsType[*planner.RequestError](err)
	if _, changed := errors.AsType[*conduct.ChangedError](err); wrong || changed {
		return exitUsage, err.Error()
	}
	return exitFailed, err.Error()
}

// exactArgs is cobra.ExactArgs with a message that names what is wanted.
func exactArgs(n int, what string) cobra.PositionalArgs { return rangeArgs(n, n, what) }

// maxArgs allows up to n arguments.
func maxArgs(n int, what string) cobra.PositionalArgs { return rangeArgs(0, n, what) }

// rangeArgs allows least to most arguments; what names them in the message.
func rangeArgs(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef(cmd, "want %s, have %s", what, words.Count(len(args), "argument"))
		}
		return nil
	}
}

// finish makes the commands of a tree behave alike, where cobra leaves it to each: a command that
// only holds others prints its help, and with a name that it does not have it is a usage error with
// a suggestion; every error about arguments is a usage error.
func finish(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		finish(c)
	}
	// cobra itself prints the help and ends with 0, also for a name that does not exist, which scripts
	// would take for success.
	if !cmd.Runnable() {
		cmd.Args = unknownCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		return
	}
	check := cmd.Args
	// Without a check, cobra takes any arguments.
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if _, told := errors.AsType[*exitError](err); err == nil || told {
			return err
		}
		return usagef(cmd, "%v", err)
	}
}

// unknownCommand returns a usage error for a name that is no subcommand, with the names that are close to it.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	// cobra sets its default only where it looks for suggestions itself.
	cmd.SuggestionsMinimumDistance = 2
	names := cmd.SuggestionsFor(args[0])
	for _, c := range cmd.Commands() {
		if slices.Contains(c.SuggestFor, args[0]) { // no slip: what else is written alike is not meant
			names = []string{c.Name()}
		}
	}
	hint := ""
	if len(names) > 0 {
		hint = "; did you mean " + strings.Join(names, " or ") + "?"
	}
	return usagef(cmd, "unknown command %q%s", args[0], hint)
}

// flagError is what a wrong flag leads to: the flags' own words, the nearest flag that there is,
// and where to read more.
func flagError(cmd *cobra.Command, err error) error {
	hint := ""
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := nearest(cmd, e.GetSpecifiedName()); near != "" {
			hint = "; did you mean --" + near + "?"
		}
	}
	if strings.Contains(err.Error(), "missing unit in duration") {
		hint = "; want a number with its unit, such as 30s or 5m"
	}
	return usagef(cmd, "%v%s", err, hint)
}

// nearest returns the flag of a command that is written most like name, or "".
func nearest(cmd *cobra.Command, name string) string {
	best, least := "", 3 // more than two slips are no slip
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := strictyaml.Distance(name, f.Name); !f.Hidden && d < least && d < len(f.Name) {
			best, least = f.Name, d
		}
	})
	return best
}

// oneOf is a flag that takes one of a few words. A wrong one is refused when the command line is read.
type oneOf struct {
	value *string
	words []string
}

// enumFlag adds a flag that takes one of the words, with completion. The value's present content is the default.
func enumFlag(cmd *cobra.Command, value *string, name, short, help string, words ...string) {
	// The words stand in the help as well: a flag whose values have to be looked up elsewhere is not used.
	cmd.Flags().VarP(oneOf{value, words}, name, short, help+": "+alternatives(words))
	offerWords(cmd, name, words...)
}

// offer says what a shell offers for a flag. It panics where there is no such flag.
func offer(cmd *cobra.Command, name string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, f); err != nil {
		panic(err)
	}
}

// offerWords has a shell offer these words for a flag, and no files; without words, nothing.
func offerWords(cmd *cobra.Command, name string, words ...string) {
	offer(cmd, name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// hostFlags are --host and --snapshot, which both name the host that a verb is about.
type hostFlags struct{ host, snapshot string }

// add adds the flags to a verb; what is the verb of their help.
func (h *hostFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&h.host, "host", planner.Local, what+" `HOST`: local, or a file as inspect takes")
	// Both take the same files. The second reads better where the file is one that rackless snapshot
	// wrote.
	cmd.Flags().StringVar(&h.snapshot, "snapshot", "", what+" the machine of the snapshot `FILE`")
	offer(cmd, "host", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{planner.Local}, cobra.ShellCompDirectiveDefault // or files
	})
}

// check refuses both flags together, because neither is the obvious winner.
func (h *hostFlags) check(cmd *cobra.Command) error {
	if f := cmd.Flags(); f.Changed("snapshot") && f.Changed("host") {
		return usagef(cmd, "--host %s and --snapshot %s are both the host: leave one out", h.host, h.snapshot)
	}
	return nil
}

// chosen is the host as planner.ReadHost takes it.
func (h *hostFlags) chosen() string { return cmp.Or(h.snapshot, h.host) }

// notEmpty refuses flags that are given an empty value: a variable of a script that is not set.
func notEmpty(cmd *cobra.Command, what string, names ...string) error {
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usagef(cmd, "--%s has an empty value: name %s, or leave it out", name, what)
		}
	}
	return nil
}

// String is the word now; it makes oneOf a pflag.Value, together with Set and Type.
func (o oneOf) String() string {
	if o.value == nil { // pflag asks the zero value when it prints defaults
		return ""
	}
	return *o.value
}

// Set refuses a word that is none of the list. pflag puts the name of the flag before the message.
func (o oneOf) Set(s string) error {
	if !slices.Contains(o.words, s) {
		return fmt.Errorf("want %s", alternatives(o.words))
	}
	*o.value = s
	return nil
}

// Type stands for the value in the help of a flag.
func (oneOf) Type() string { return "WORD" }

// alternatives prints "a", "a or b", "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
