// Package cli has the common parts of the verbs of a cobra command line.
package cli

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
)

// Annotations of renamed commands.
const (
	// Now is the present path of a hidden command under a former name.
	Now      = "now"
	formerly = "formerly"
)

// SetFormerly keeps defaults in a config file or in the environment that name the former path.
func SetFormerly(cmd *cobra.Command, old string) {
	if cmd.Annotations == nil {
		cmd.Annotations = make(map[string]string)
	}
	cmd.Annotations[formerly] = old
}

// CodeUsage is the exit code for a wrong command line or a wrong input file.
const CodeUsage = 2

// An Error has its own exit code, all other errors have 1. If Err is nil, nothing is printed.
type Error struct {
	Code int
	Err  error
}

// Error returns the text of Err, or "" if it is nil.
func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Exit returns an error that prints nothing, or nil for 0.
func Exit(status int) error {
	if status == 0 {
		return nil
	}
	return &Error{status, nil}
}

// Usage marks an error as a usage error.
func Usage(err error) error { return &Error{CodeUsage, err} }

// Usagef returns a usage error with the command's name and a pointer to its help.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	// The help itself, forty lines, would push the message out of sight.
	where := ""
	if cmd.HasParent() { // the program prints "rackless: " before every message
		where = strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") + ": "
	}
	return Usage(fmt.Errorf("%s%s\nsee: %s --help", where, fmt.Sprintf(format, args...), cmd.CommandPath()))
}

// ExactArgs is like cobra.ExactArgs, and names the arguments in its message.
func ExactArgs(n int, what string) cobra.PositionalArgs { return RangeArgs(n, n, what) }

// MaxArgs allows up to n arguments.
func MaxArgs(n int, what string) cobra.PositionalArgs { return RangeArgs(0, n, what) }

// SomeArgs requires one argument or more.
func SomeArgs(what string) cobra.PositionalArgs { return RangeArgs(1, math.MaxInt, what) }

// RangeArgs allows least to most arguments.
func RangeArgs(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return Usagef(cmd, "want %s, have %s", what, words.Count(len(args), "argument"))
		}
		return nil
	}
}

// Finish makes a command with only subcommands print its help; an unknown subcommand and every error about arguments is
// a usage error.
func Finish(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		Finish(c)
	}
	// cobra itself exits with 0, even for a subcommand that does not exist.
	if !cmd.Runnable() {
		cmd.Args = unknownCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		return
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if _, told := errors.AsType[*Error](err); err == nil || told {
			return err
		}
		return Usagef(cmd, "%v", err)
	}
}

const goneKey = "gone "

// Gone makes the error for a flag that has left the program say what to use instead.
func Gone(cmd *cobra.Command, name, instead string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[goneKey+name] = instead
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	// cobra sets its default only when it looks for suggestions itself.
	cmd.SuggestionsMinimumDistance = 2
	names := likeliest(args[0], cmd.SuggestionsFor(args[0]))
	for _, c := range cmd.Commands() {
		if slices.Contains(c.SuggestFor, args[0]) { // an alias of one command, so similar names are not meant
			names = []string{c.Name()}
		}
	}
	hint := ""
	if len(names) > 0 {
		hint = "; did you mean " + strings.Join(names, " or ") + "?"
	}
	return Usagef(cmd, "unknown command %q%s", args[0], hint)
}

// likeliest returns the names with the fewest wrong letters. The beginning of a name and letters in another order count
// as one.
func likeliest(word string, names []string) []string {
	letters := func(s string) string {
		b := []byte(s)
		slices.Sort(b)
		return string(b)
	}
	wrong := func(name string) int {
		if strings.HasPrefix(name, word) || letters(name) == letters(word) {
			return 1
		}
		return strictyaml.Distance(word, name)
	}
	fewest := len(word) + 1
	for _, name := range names {
		fewest = min(fewest, wrong(name))
	}
	return slices.DeleteFunc(names, func(name string) bool { return wrong(name) > fewest })
}

// FlagError adds the most similar flag and a pointer to the help.
func FlagError(cmd *cobra.Command, err error) error {
	hint := ""
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if instead := cmd.Annotations[goneKey+e.GetSpecifiedName()]; instead != "" {
			hint = ", which has left: " + instead
		} else if near := nearest(cmd, e.GetSpecifiedName()); near != "" {
			hint = "; did you mean --" + near + "?"
		} else if f := cmd.Flag("output"); f != nil && slices.Contains([]string{"json", "yaml"}, e.GetSpecifiedName()) {
			hint = "; did you mean -o " + e.GetSpecifiedName() + "?"
		} else if e.GetSpecifiedName() == "f" {
			hint = "; files are given without a flag"
		}
	}
	if strings.Contains(err.Error(), "missing unit in duration") {
		hint = "; want a number with its unit, such as 30s or 5m"
	}
	return Usagef(cmd, "%v%s", err, hint)
}

func nearest(cmd *cobra.Command, name string) string {
	best, least := "", 3 // more than two wrong letters are no typing error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := strictyaml.Distance(name, f.Name); !f.Hidden && d < least && d < len(f.Name) {
			best, least = f.Name, d
		}
	})
	return best
}

type oneOf struct {
	value *string
	words []string
}

// EnumFlag adds a flag that takes one of the allowed words. The current value is the default.
func EnumFlag(cmd *cobra.Command, value *string, name, short, help string, allowed ...string) {
	// Users do not use a flag if they have to look its values up elsewhere.
	cmd.Flags().VarP(oneOf{value, allowed}, name, short, help+": "+words.Or(allowed))
	OfferWords(cmd, name, allowed...)
}

// Offer sets the shell completion of a flag. It panics if there is no such flag.
func Offer(cmd *cobra.Command, name string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, f); err != nil {
		panic(err)
	}
}

// OfferWords completes a flag with these words and no files.
func OfferWords(cmd *cobra.Command, name string, words ...string) {
	Offer(cmd, name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// NotEmpty refuses empty values, which usually come from an unset variable in a script.
func NotEmpty(cmd *cobra.Command, what string, names ...string) error {
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return Usagef(cmd, "--%s has an empty value: name %s, or leave it out", name, what)
		}
	}
	return nil
}

// String returns the current word.
func (o oneOf) String() string {
	if o.value == nil { // pflag calls String on the zero value when it prints defaults
		return ""
	}
	return *o.value
}

// Set refuses a word that is not in the list.
func (o oneOf) Set(s string) error {
	if !slices.Contains(o.words, s) {
		return fmt.Errorf("want %s", words.Or(o.words))
	}
	*o.value = s
	return nil
}

// Type is the placeholder for the value in the help.
func (oneOf) Type() string { return "WORD" }

type completer struct {
	shell     string
	xdg, home string
	file      string
	write     func(root *cobra.Command, b *bytes.Buffer) error
	then      string // advice on the remaining step; DIR is the directory
}

var completers = []completer{
	{"bash", "XDG_DATA_HOME", ".local/share", "bash-completion/completions/rackless",
		func(root *cobra.Command, b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"New shells use it, where the package bash-completion is installed."},
	{"zsh", "XDG_DATA_HOME", ".local/share", "zsh/site-functions/_rackless",
		func(root *cobra.Command, b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"If your ~/.zshrc has no such line yet, add it before compinit: fpath+=(DIR)"},
	{"fish", "XDG_CONFIG_HOME", ".config", "fish/completions/rackless.fish",
		func(root *cobra.Command, b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
		"New shells use it."},
}

// InstallCompletion writes a shell's completion script and returns a message. dir maps an XDG variable and a path below
// home to a directory.
func InstallCompletion(cmd *cobra.Command, shell string, dir func(xdg, home string) (string, error)) (string, error) {
	i := slices.IndexFunc(completers, func(c completer) bool { return c.shell == shell })
	if i < 0 {
		return "", Usagef(cmd, "shell %q: want bash, zsh or fish; rackless completion powershell prints that of "+
			"PowerShell", shell)
	}
	c := completers[i]
	base, err := dir(c.xdg, c.home)
	if err != nil {
		return "", err
	}
	path := filepath.Join(base, c.file)
	var script bytes.Buffer
	if err := c.write(cmd.Root(), &script); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if err := atomicfile.WriteFile(path, script.Bytes(), 0o644); err != nil {
		return "", err
	}
	return fmt.Sprintf("wrote %s\n%s\n", path, strings.ReplaceAll(c.then, "DIR", filepath.Dir(path))), nil
}

// AllVerbs is the key in a defaults file for every verb.
const AllVerbs = "all"

var defaultsFile = &strictyaml.Format{Name: "config", File: "config file", MaxSize: 64 << 10, MaxTokens: 4000,
	MaxDepth: 4, EmptyWant: "verbs and their flags", EmptyFix: `begin with "up: {accel: tcg}"`, LooseText: true,
	LargeFix: "it is not a config file of rackless", AliasFix: "write the value out"}

// Defaults map verbs ("up", "study run"), or [AllVerbs], to flags and their values.
type Defaults struct {
	values map[string]map[string]string // by verb and flag
	file   *strictyaml.Reader           // for positions in messages
}

// ReadDefaults reports an unknown verb or flag even of other commands, or typing errors would never be found. The error
// is a [strictyaml.Errors].
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

func commands(root *cobra.Command) map[string]map[string]*pflag.Flag {
	verbs := map[string]map[string]*pflag.Flag{AllVerbs: {}}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Hidden && c.Annotations[Now] == "" || !c.Runnable() || c == root {
			return
		}
		flags := map[string]*pflag.Flag{}
		add := func(f *pflag.Flag) {
			if f.Name != "help" {
				flags[f.Name] = f
				// A former flag may mean something else in other verbs.
				if _, old := f.Value.(*former); !old {
					verbs[AllVerbs][f.Name] = f
				}
			}
		}
		c.LocalFlags().VisitAll(add)
		c.InheritedFlags().VisitAll(add)
		verbs[verbOf(c)] = flags
	}
	walk(root)
	return verbs
}

func verbOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

func near[V any](name string, known map[string]V) string {
	if best := strictyaml.Nearest(name, slices.Sorted(maps.Keys(known))); best != "" {
		return "did you mean " + best + "?"
	}
	return ""
}

// Set sets flags that the command line leaves out, from the environment (RACKLESS_STUDY_RUN_ACCEL), else from the
// verb's defaults, else from those for all verbs.
func (d Defaults) Set(cmd *cobra.Command, env func(string) string) error {
	if cmd.Hidden && cmd.Annotations[Now] == "" { // the program starts these commands itself
		return nil
	}
	var faults []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed && f.Name != "help" && !outdated(cmd, f) {
			faults = append(faults, d.set(cmd, f.Name, env))
		}
	})
	return errors.Join(faults...)
}

func (d Defaults) set(cmd *cobra.Command, flag string, env func(string) string) error {
	verbs := []string{verbOf(cmd)}
	if former := cmd.Annotations[formerly]; former != "" {
		verbs = append(verbs, former)
	}
	for _, verb := range verbs {
		name := variable(cmd.Root().Name() + " " + verb + " " + flag)
		if value := env(name); value != "" {
			if err := cmd.Flags().Set(flag, value); err != nil {
				return Usagef(cmd, "variable %s: %v", name, err)
			}
			return nil
		}
	}
	_, old := cmd.Flags().Lookup(flag).Value.(*former)
	for _, of := range append(verbs, AllVerbs) {
		value, ok := d.values[of][flag]
		if !ok || old && of == AllVerbs {
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

// Slips returns an error for environment variables (NAME=VALUE) that look misspelt, because nothing would read them.
func Slips(root *cobra.Command, environ []string, others ...string) error {
	known := lists.SetOf(others, func(name string) string { return name })
	verbs := commands(root)
	delete(verbs, AllVerbs)
	for verb, flags := range verbs {
		for flag := range flags {
			known[variable(root.Name()+" "+verb+" "+flag)] = true
		}
	}
	names := slices.Sorted(maps.Keys(known))
	var faults []error
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variable(root.Name()+" ")) || known[name] || value == "" {
			continue
		}
		for _, n := range names {
			if strictyaml.Distance(name, n) <= 2 {
				faults = append(faults, fmt.Errorf("variable %s: no such variable; did you mean %s?", name, n))
				break
			}
		}
	}
	if len(faults) > 0 {
		return Usage(errors.Join(faults...))
	}
	return nil
}

func variable(text string) string {
	return strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(text))
}
