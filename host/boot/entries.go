package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/cmdline"
)

// An entries is a boot loader that reads one file per entry (The Boot Loader Specification, type 1): systemd-boot, and
// GRUB on Fedora and RHEL. The op edits the files itself: grubby reorders words, in some versions takes iommu=pt for a
// part of intel_iommu=pt, and cannot distinguish huge pages of two sizes; kernel-install rebuilds every initrd.
//
// If /etc/kernel/cmdline is missing, entries of later kernels copy the command line of the running kernel, so they have
// our arguments even after a rollback until the next reboot.
type entries struct {
	Args []string `json:"args"`
	Dirs []string `json:"dirs"`
	Env  string   `json:"env,omitempty"`
	// Grubby is the path of grubby, or "".
	Grubby string `json:"grubby,omitempty"`
	restoredState
}

const kernelCmdline = "/etc/kernel/cmdline"

type entriesState struct {
	Files map[string]change.State `json:"files"`
}

func (o *entries) Kind() string    { return "kernel-args-entries" }
func (o *entries) Subject() string { return subject(strings.Join(o.Dirs, " "), o.Args) }
func (o *entries) where() string   { return "in the boot entries of " + strings.Join(o.Dirs, " and ") }

func (o *entries) Read(ctx context.Context, s *change.System) (change.State, error) {
	state, err := change.Encode(o.read(ctx, s))
	return o.restoredState.read(state), err
}

// read includes GRUB's environment only if an entry refers to it, because GRUB itself writes there at each boot.
func (o *entries) read(ctx context.Context, s *change.System) (entriesState, error) {
	st := entriesState{Files: map[string]change.State{}}
	add := func(path string) (err error) {
		st.Files[path], err = (&change.File{Path: path}).Read(ctx, s)
		return err
	}
	env := false
	for _, dir := range o.Dirs {
		files, err := listEntries(s, dir)
		if err != nil {
			return st, err
		}
		for _, file := range files {
			if err := add(file); err != nil {
				return st, err
			}
			text, _ := fileText(st.Files[file])
			env = env || strings.Contains(parseOptions(entryForm, text).line(), kernelopts)
		}
	}
	if env && o.Env != "" {
		if err := add(o.Env); err != nil {
			return st, err
		}
	}
	return st, add(kernelCmdline)
}

func listEntries(s *change.System, dir string) ([]string, error) {
	files, err := os.ReadDir(s.Path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	machine, err := s.ValueOr("/etc/machine-id", "")
	if err != nil {
		return nil, err
	}
	var list []string
	for _, f := range files {
		file := dir + "/" + f.Name()
		if path.Ext(file) != ".conf" || !f.Type().IsRegular() {
			continue
		}
		text, err := s.ReadFile(file)
		if err != nil {
			return nil, err
		}
		// An entry of another system on the same disk names that system's machine-id.
		id := entryValue(string(text), "machine-id")
		if other := id != "" && id != strings.TrimSpace(machine); !other && entryValue(string(text), "linux") != "" {
			list = append(list, file)
		}
	}
	return list, nil
}

type entryLine struct{ file, line string }

// lines expands variables.
func (o *entries) lines(st *entriesState) ([]entryLine, error) {
	var lines []entryLine
	for _, file := range slices.Sorted(maps.Keys(st.Files)) {
		if file == o.Env || file == kernelCmdline {
			continue
		}
		text, _ := fileText(st.Files[file])
		line := parseOptions(entryForm, text).line()
		if strings.Contains(line, kernelopts) {
			env, _ := fileText(st.Files[o.Env])
			vars := parseOptions(envForm, env)
			if len(vars.pieces) != 1 {
				return nil, fmt.Errorf("%s: %s is used, and is not set in GRUB's environment: grubby "+
					"--update-kernel=ALL --args=%q, and prepare again", file, kernelopts, strings.Join(o.Args, " "))
			}
			line = strings.ReplaceAll(line, kernelopts, vars.pieces[0])
		}
		lines = append(lines, entryLine{file, line})
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("no entry in %s starts Linux", strings.Join(o.Dirs, " or "))
	}
	return lines, nil
}

func (o *entries) now(ctx context.Context, s *change.System) (entriesState, []entryLine, error) {
	st, err := o.read(ctx, s)
	if err != nil {
		return st, nil, err
	}
	lines, err := o.lines(&st)
	return st, lines, err
}

// Done wants the arguments in every entry, because older kernels in the boot menu should start the same host, and in
// /etc/kernel/cmdline, if that exists, because later entries are made from it.
func (o *entries) Done(state change.State) bool {
	st, err := change.Decode[entriesState](state)
	if err != nil {
		return false
	}
	lines, err := o.lines(&st)
	if err != nil {
		return false
	}
	if slices.ContainsFunc(lines, func(l entryLine) bool { return !cmdline.Has(l.line, o.Args) }) {
		return false
	}
	text, ok := fileText(st.Files[kernelCmdline])
	return !ok || cmdline.Has(parseOptions(cmdlineForm, text).line(), o.Args)
}

// guard tries every edit before the first write, because entries with and without the arguments must not mix.
func (o *entries) guard(ctx context.Context, s *change.System) error {
	st, lines, err := o.now(ctx, s)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if err := fits(cmdline.Edit(l.line, o.Args)); err != nil {
			return fmt.Errorf("%s: %w", l.file, err)
		}
	}
	dirs := slices.Clone(o.Dirs)
	for file, state := range st.Files {
		text, ok := fileText(state)
		if !ok {
			continue
		}
		if _, err := editOptions(formOf(file), text, o.Args); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		dirs = append(dirs, path.Dir(file))
	}
	return canWrite(s, lists.Distinct(dirs)...)
}

func (o *entries) Do(ctx context.Context, s *change.System) error {
	st, err := o.read(ctx, s)
	if err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(st.Files)) {
		text, ok := fileText(st.Files[file])
		if !ok {
			continue // /etc/kernel/cmdline is missing
		}
		edited, err := editOptions(formOf(file), text, o.Args)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		// An interrupted rollback may have left a replacement file.
		if err := put(s, file, edited); err != nil {
			return err
		}
	}
	return o.witness(ctx, s)
}

// Shell implements [change.Manual].
func (o *entries) Shell() []string {
	args := strings.Join(o.Args, " ")
	lines := []string{"# Other values of the same arguments have to go from these lines first."}
	for _, dir := range o.Dirs {
		lines = append(lines, fmt.Sprintf("sed -i '/^options[[:space:]]/ s|$| %s|' %s/*.conf", args,
			words.ShellWord(dir)))
	}
	return append(lines, fmt.Sprintf("[ ! -e %s ] || sed -i '/^[^#]/ s|$| %s|' %[1]s", kernelCmdline, args))
}

var grubbyArgs = lazyregexp.New(`(?m)^args="(.*)"$`)

func (o *entries) witness(ctx context.Context, s *change.System) error {
	if o.Grubby == "" {
		return nil
	}
	st, lines, err := o.now(ctx, s)
	if err != nil {
		return err
	}
	out, err := s.Query(ctx, o.Grubby, "--info=ALL")
	if err != nil {
		return err
	}
	env, _ := fileText(st.Files[o.Env])
	variable := parseOptions(envForm, env).line()
	seen := lists.Count(grubbyArgs().FindAllStringSubmatch(string(out), -1),
		func(m []string) bool { return cmdline.Has(strings.ReplaceAll(m[1], kernelopts, variable), o.Args) })
	if seen < len(lines) {
		return fmt.Errorf("%d entries in %s have the arguments, and %s --info=ALL shows them in %d: does this "+
			"machine start from elsewhere?", len(lines), strings.Join(o.Dirs, " and "), o.Grubby, seen)
	}
	return nil
}

// bootCount matches name+3-0.conf (systemd-bless-boot.service). The counter is removed after a successful boot.
var bootCount = lazyregexp.New(`\+[0-9]+(-[0-9]+)?\.conf$`)

// Restore gives entries of kernels installed since the values of the earlier entries.
func (o *entries) Restore(ctx context.Context, s *change.System, before change.State) error {
	was, err := change.Decode[entriesState](before)
	if err != nil {
		return err
	}
	now, err := o.read(ctx, s)
	if err != nil {
		return err
	}
	byName := map[string]string{}
	for file := range was.Files {
		byName[bootCount().ReplaceAllString(file, ".conf")] = file
	}
	for _, file := range slices.Sorted(maps.Keys(now.Files)) {
		text, ok := fileText(now.Files[file])
		if !ok {
			continue
		}
		old, known := byName[bootCount().ReplaceAllString(file, ".conf")]
		oldText, hadText := fileText(was.Files[old])
		if !known || !hadText {
			old, oldText = "", o.pattern(&was)
		}
		undone, err := undoOptions(formOf(file), text, oldText, o.Args)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if file == old && undone == oldText {
			err = (&change.File{Path: file}).Restore(ctx, s, was.Files[file])
		} else if undone != text {
			err = put(s, file, undone)
		}
		if err != nil {
			return err
		}
	}
	// A removed file may have left a replacement behind that was cut off.
	for _, file := range slices.Sorted(maps.Keys(was.Files)) {
		if !s.Exists(file) {
			if err := s.Remove(file); err != nil {
				return err
			}
		}
	}
	state, err := change.Encode(o.read(ctx, s))
	o.recordRestored(state, before)
	return err
}

// Merge implements [change.Merger].
func (o *entries) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	var texts [2][]string
	for i, state := range []change.State{u.Now, u.Before} {
		st, err := change.Decode[entriesState](state)
		if err != nil {
			return "", nil, err
		}
		for _, file := range slices.Sorted(maps.Keys(st.Files)) {
			if text, ok := fileText(st.Files[file]); ok {
				texts[i] = append(texts[i], parseOptions(formOf(file), text).line())
			}
		}
	}
	return u.Before, otherValues("the boot entries", texts[0], texts[1], o.Args), nil
}

func (o *entries) pattern(was *entriesState) string {
	if text, ok := fileText(was.Files[kernelCmdline]); ok {
		return "options " + parseOptions(cmdlineForm, text).line() + "\n"
	}
	lines, err := o.lines(was)
	if err != nil {
		return ""
	}
	return "options " + lines[len(lines)-1].line + "\n"
}

// An rpmOSTree is a system whose kernel arguments belong to its deployments (Fedora CoreOS, Silverblue).
type rpmOSTree struct {
	Args    []string `json:"args"`
	Program string   `json:"program"`
	restoredState
}

func (o *rpmOSTree) Kind() string    { return "kernel-args-rpm-ostree" }
func (o *rpmOSTree) Subject() string { return subject("rpm-ostree", o.Args) }
func (o *rpmOSTree) where() string   { return "by rpm-ostree, in a new deployment" }

func (o *rpmOSTree) Read(ctx context.Context, s *change.System) (change.State, error) {
	line, err := o.line(ctx, s)
	return o.restoredState.read(change.State(line)), err
}

func (o *rpmOSTree) line(ctx context.Context, s *change.System) (string, error) {
	out, err := s.Query(ctx, o.Program, "kargs")
	if err != nil {
		return "", err
	}
	// It differs in each deployment.
	words := lists.Filter(strings.Fields(string(out)),
		func(word string) bool { return !strings.HasPrefix(word, "ostree=") })
	return strings.Join(words, " "), nil
}

func (o *rpmOSTree) Done(state change.State) bool { return cmdline.Has(string(state), o.Args) }

func (o *rpmOSTree) guard(ctx context.Context, s *change.System) error {
	line, err := o.line(ctx, s)
	if err != nil {
		return err
	}
	return fits(cmdline.Edit(line, o.Args))
}

func (o *rpmOSTree) Do(ctx context.Context, s *change.System) error {
	line, err := o.line(ctx, s)
	if err != nil {
		return err
	}
	return o.lead(ctx, s, line, cmdline.Edit(line, o.Args))
}

// Merge implements [change.Merger].
func (o *rpmOSTree) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	return u.Before, otherValues("the deployment", []string{string(u.Now)}, []string{string(u.Before)}, o.Args), nil
}

// Shell implements [change.Manual].
func (o *rpmOSTree) Shell() []string {
	line := o.Program + " kargs"
	for _, arg := range o.Args {
		line += " --append-if-missing=" + words.ShellWord(arg)
	}
	return []string{o.Program + " kargs   # other values of the same arguments have to go: kargs --delete=", line}
}

// Restore keeps arguments that others have added.
func (o *rpmOSTree) Restore(ctx context.Context, s *change.System, before change.State) error {
	line, err := o.line(ctx, s)
	if err != nil {
		return err
	}
	undone := cmdline.UndoLines([]string{line}, []string{string(before)}, 0, o.Args)
	if err := o.lead(ctx, s, line, undone[0]); err != nil {
		return err
	}
	after, err := o.line(ctx, s)
	o.recordRestored(change.State(after), before)
	return err
}

func (o *rpmOSTree) lead(ctx context.Context, s *change.System, from, to string) error {
	options := kargsOptions(strings.Fields(from), strings.Fields(to))
	if len(options) == 0 {
		return nil
	}
	if _, err := s.Program(ctx, append([]string{o.Program, "kargs"}, options...)...); err != nil {
		return err
	}
	line, err := o.line(ctx, s)
	if err == nil && line != strings.Join(strings.Fields(to), " ") {
		return fmt.Errorf("%s kargs was to lead to %q, and led to %q", o.Program, to, line)
	}
	return err
}

// kargsOptions: rpm-ostree first deletes, of two equal words the first, then appends (kernel_arg_transaction_execute in
// its daemon), so everything after the first difference is deleted and appended again.
func kargsOptions(from, to []string) []string {
	same := 0
	for same < len(from) && same < len(to) && from[same] == to[same] {
		same++
	}
	// rpm-ostree deletes the first match, so a deleted word must not occur in the part that stays.
	for moved := true; moved; {
		moved = false
		for _, word := range from[same:] {
			if at := slices.Index(from[:same], word); at >= 0 {
				same, moved = at, true
				break
			}
		}
	}
	options := lists.Map(from[same:], func(word string) string { return "--delete=" + word })
	options = append(options, lists.Map(to[same:], func(word string) string { return "--append=" + word })...)
	return options
}
