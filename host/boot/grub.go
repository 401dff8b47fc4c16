package boot

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/cmdline"
)

// A grub is GRUB with its menu in grub.cfg. A changed menu alone would be lost with the next kernel's package, and
// changed settings alone would not reach the next boot.
type grub struct {
	Args     []string `json:"args"`
	Config   string   `json:"config"`
	Program  string   `json:"program"`
	Settings string   `json:"settings"`
	DropIn   bool     `json:"drop_in"` // Settings is our own file
	restoredState
}

const (
	grubDropIn   = "/etc/default/grub.d/rackless.cfg"
	grubSettings = "/etc/default/grub"
	// No machine boots from /run, and a reboot clears it.
	grubScratch = "/run/rackless-grub.cfg"
)

type grubState struct {
	Settings change.State `json:"settings"`
	Config   change.State `json:"config"`
	Saved    string       `json:"saved,omitempty"` // saved_entry in GRUB's environment
}

func (g *grub) Kind() string    { return "kernel-args-grub" }
func (g *grub) Subject() string { return subject(g.Config, g.Args) }
func (g *grub) where() string   { return "by GRUB: " + g.Settings + ", and " + g.Config + " made again" }

func (g *grub) Read(ctx context.Context, s *change.System) (change.State, error) {
	state, err := change.Encode(g.read(ctx, s))
	return g.restoredState.read(state), err
}

func (g *grub) read(ctx context.Context, s *change.System) (st grubState, err error) {
	var err1, err2 error
	st.Settings, err1 = (&change.File{Path: g.Settings}).Read(ctx, s)
	st.Config, err2 = (&change.File{Path: g.Config}).Read(ctx, s)
	// GRUB itself writes to grubenv.
	env, err3 := s.ValueOr(path.Dir(g.Config)+"/grubenv", "")
	st.Saved = savedEntry(env)
	return st, errors.Join(err1, err2, err3)
}

// Done wants the arguments in the default entry.
func (g *grub) Done(state change.State) bool {
	st, err := change.Decode[grubState](state)
	if err != nil {
		return false
	}
	// Otherwise the next update-grub would change the arguments.
	if text, ok := fileText(st.Settings); g.DropIn && ok && text != g.dropIn() {
		return false
	}
	m, err := st.menu()
	if err != nil {
		return false
	}
	e := m.ours(st.Saved)
	return e != nil && cmdline.Has(e.line, g.Args)
}

func (st *grubState) menu() (*menu, error) {
	text, ok := fileText(st.Config)
	if !ok {
		return nil, errors.New("there is no such file")
	}
	return parseMenu(text)
}

// MadeBy is the first line of the file in /etc/default/grub.d.
const MadeBy = "Kernel arguments of a rackless plan, made by rackless prepare; rackless rollback undoes them."

func (g *grub) dropIn() string {
	return "# " + MadeBy + "\n" +
		cmdline.GRUBSnippet(g.Args)
}

func (g *grub) settings(now string) (string, error) {
	if g.DropIn {
		return g.dropIn(), nil
	}
	text, err := editGrubDefaults(now, g.Args)
	if err != nil {
		return "", fmt.Errorf("%s: %w: add %q to %s there, run %s -o %s, and prepare again", g.Settings, err,
			strings.Join(g.Args, " "), grubAlways, g.Program, g.Config)
	}
	return text, nil
}

// guard checks every entry, recovery entries too: the kernel silently cuts a line that is too long, and the lost part
// may name the root file system.
func (g *grub) guard(ctx context.Context, s *change.System) error {
	st, err := g.read(ctx, s)
	if err != nil {
		return err
	}
	m, err := st.menu()
	if err != nil {
		return fmt.Errorf("%s: %w: make it again with %s -o %s", g.Config, err, g.Program, g.Config)
	}
	if m.ours(st.Saved) == nil {
		return fmt.Errorf("%s has no entry that starts Linux: make it again with %s -o %s, or see which boot loader "+
			"this machine has", g.Config, g.Program, g.Config)
	}
	for _, e := range leaves(m.entries) {
		if e.kernel != "" {
			if err := e.fits(cmdline.Edit(e.line, g.Args)); err != nil {
				return err
			}
		}
	}
	now, _ := fileText(st.Settings)
	if _, err := g.settings(now); err != nil {
		return err
	}
	return canWrite(s, path.Dir(g.Settings), path.Dir(g.Config), path.Dir(grubScratch))
}

func (e *menuEntry) fits(line string) error {
	if err := fits("BOOT_IMAGE=" + e.kernel + " " + line); err != nil {
		return fmt.Errorf("entry %v: %w", e, err)
	}
	return nil
}

// Do restores the settings if the new grub.cfg is not good.
func (g *grub) Do(ctx context.Context, s *change.System) error {
	st, err := g.read(ctx, s)
	if err != nil {
		return err
	}
	now, _ := fileText(st.Settings)
	text, err := g.settings(now)
	if err != nil {
		return err
	}
	if g.DropIn {
		err = (&change.File{Path: g.Settings, Data: []byte(text), Mode: 0o644}).Do(ctx, s)
	} else {
		err = put(s, g.Settings, text)
	}
	if err != nil {
		return err
	}
	if err := g.generate(ctx, s, &st, g.Args); err != nil {
		return errors.Join(err, (&change.File{Path: g.Settings}).Restore(ctx, s, st.Settings), g.tidy(s))
	}
	return s.Checkpoint(filepath.Dir(g.Config))
}

func (g *grub) generate(ctx context.Context, s *change.System, old *grubState, args []string) error {
	if _, err := s.Program(ctx, g.Program, "-o", grubScratch); err != nil {
		return err
	}
	text, err := s.ReadFile(grubScratch)
	if err != nil {
		return err
	}
	if err := judge(s, old, string(text), args); err != nil {
		return fmt.Errorf("%s was left as it is, because what %s has made in its place is not good: %w", g.Config,
			g.Program, err)
	}
	if err := put(s, g.Config, string(text)); err != nil {
		return err
	}
	return g.tidy(s)
}

// tidy removes FILE.new too, which stays if grub-mkconfig is interrupted.
func (g *grub) tidy(s *change.System) error {
	return errors.Join(s.Remove(grubScratch), s.Remove(grubScratch+".new"))
}

// judge refuses fewer entries, a kernel that does not exist, and a command line without args.
func judge(s *change.System, old *grubState, text string, args []string) error {
	m, err := parseMenu(text)
	if err != nil {
		return err
	}
	var before *menu
	if before, err = old.menu(); err != nil {
		return fmt.Errorf("the old one cannot be read to compare it: %w", err)
	}
	have, had := leaves(m.entries), leaves(before.entries)
	if len(have) < len(had) {
		return fmt.Errorf("it has %d entries, and the old one %d: without %s; remove these first if that is right",
			len(have), len(had), missing(had, have))
	}
	e := m.ours(old.Saved)
	if e == nil {
		return errors.New("no entry starts Linux")
	}
	was := before.ours(old.Saved)
	for _, file := range append([]string{e.kernel}, e.initrd...) {
		// If the old menu names it too, our view of GRUB's paths is wrong.
		if !bootFile(s, file) && (was == nil || file != was.kernel && !slices.Contains(was.initrd, file)) {
			return fmt.Errorf("entry %v starts %s, which is not there", e, file)
		}
	}
	if was != nil && len(was.initrd) > 0 && len(e.initrd) == 0 {
		return fmt.Errorf("entry %v has no initrd, and %v had %s", e, was, strings.Join(was.initrd, " "))
	}
	for _, e := range have {
		if err := e.fits(e.line); e.kernel != "" && err != nil {
			return err
		}
	}
	if len(args) > 0 && !cmdline.Has(e.line, args) {
		return fmt.Errorf("entry %v does not have the arguments alone, but: %s", e, e.line)
	}
	return nil
}

func missing(had, have []*menuEntry) string {
	var names []string
	for _, e := range had {
		if !slices.ContainsFunc(have, func(h *menuEntry) bool { return h.title == e.title && h.id == e.id }) {
			names = append(names, e.String())
		}
	}
	if names == nil {
		return "one that is there twice"
	}
	return strings.Join(names, ", ")
}

// bootFile allows for GRUB's paths, which begin at the file system of /boot or of /, and on Btrfs with the name of a
// subvolume.
func bootFile(s *change.System, file string) bool {
	if strings.HasPrefix(file, "(") { // (hd0,gpt2)/vmlinuz
		_, file, _ = strings.Cut(file, ")")
	}
	for file = path.Clean("/" + file); file != "/"; {
		if s.Exists(file) || s.Exists("/boot"+file) {
			return true
		}
		_, rest, ok := strings.Cut(file[1:], "/")
		if !ok {
			return false
		}
		file = "/" + rest
	}
	return false
}

// Shell implements [change.Manual].
func (g *grub) Shell() []string {
	lines := []string{fmt.Sprintf("# In %s, add to %s, in place of other values of the same:", g.Settings, grubAlways),
		"#   " + strings.Join(g.Args, " ")}
	if g.DropIn {
		lines = (&change.File{Path: g.Settings, Data: []byte(g.dropIn()), Mode: 0o644}).Shell()
	}
	return append(lines, g.Program+" -o "+g.Config)
}

// Restore restores grub.cfg byte for byte if only our arguments differ; else it keeps new kernels and settings.
func (g *grub) Restore(ctx context.Context, s *change.System, before change.State) error {
	was, err := change.Decode[grubState](before)
	if err != nil {
		return err
	}
	now, err := g.read(ctx, s)
	if err != nil {
		return err
	}
	if err := g.restoreSettings(ctx, s, &now, &was); err != nil {
		return err
	}
	if err := g.restoreConfig(ctx, s, &now, &was); err != nil {
		return errors.Join(err, g.tidy(s))
	}
	if err := errors.Join(g.tidy(s), s.Checkpoint(filepath.Dir(g.Config))); err != nil {
		return err
	}
	state, err := change.Encode(g.read(ctx, s))
	g.recordRestored(state, before)
	return err
}

// Merge implements [change.Merger].
func (g *grub) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	was, err1 := change.Decode[grubState](u.Before)
	now, err2 := change.Decode[grubState](u.Now)
	if err := errors.Join(err1, err2); err != nil {
		return "", nil, err
	}
	nowText, _ := fileText(now.Settings)
	wasText, _ := fileText(was.Settings)
	if g.DropIn {
		if !g.edited(&now, &was) {
			return u.Before, nil, nil
		}
		have, set := settingLines(nowText), settingLines(g.dropIn())
		without := func(lines, others []string) string {
			return fmt.Sprintf("%q", lists.Filter(lines, func(l string) bool { return !slices.Contains(others, l) }))
		}
		return u.Before, []change.Changed{{What: g.Settings, Found: without(have, set), Set: without(set, have)}}, nil
	}
	n, err1 := parseGrubDefaults(nowText)
	w, err2 := parseGrubDefaults(wasText)
	if err1 != nil || err2 != nil {
		return u.Before, nil, nil // Restore reports the error
	}
	return u.Before, otherValues(g.Settings, n.values[:], w.values[:], g.Args), nil
}

func (g *grub) edited(now, was *grubState) bool {
	text, isFile := fileText(now.Settings)
	return g.DropIn && isFile && now.Settings != was.Settings &&
		!slices.Equal(settingLines(text), settingLines(g.dropIn()))
}

// settingLines drops comments, which differ between versions of rackless.
func settingLines(text string) []string {
	return lists.Filter(strings.Split(text, "\n"), func(line string) bool {
		line = strings.TrimSpace(line)
		return line != "" && !strings.HasPrefix(line, "#")
	})
}

// restoreSettings leaves an edited drop-in alone. From an edited /etc/default/grub it removes only our words.
func (g *grub) restoreSettings(ctx context.Context, s *change.System, now, was *grubState) error {
	file := &change.File{Path: g.Settings}
	nowText, isFile := fileText(now.Settings)
	wasText, wasFile := fileText(was.Settings)
	if g.edited(now, was) {
		return nil
	}
	if g.DropIn || !isFile || !wasFile {
		return file.Restore(ctx, s, was.Settings)
	}
	text, err := undoGrubDefaults(nowText, wasText, g.Args)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w: take %q off %s there, run %s -o %s, and run rackless rollback again", g.Settings,
			err, strings.Join(g.Args, " "), grubAlways, g.Program, g.Config)
	case text == wasText:
		return file.Restore(ctx, s, was.Settings)
	}
	return put(s, g.Settings, text)
}

func (g *grub) restoreConfig(ctx context.Context, s *change.System, now, was *grubState) error {
	nowText, isFile := fileText(now.Config)
	wasText, _ := fileText(was.Config)
	if !isFile || !g.edited(now, was) && stripMenu(nowText, g.Args) == stripMenu(wasText, g.Args) {
		return (&change.File{Path: g.Config}).Restore(ctx, s, was.Config)
	}
	return g.generate(ctx, s, now, nil)
}

func stripMenu(text string, args []string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[0], "linux") {
			lines[i] = strings.Join(strings.Fields(cmdline.Strip(line, args)), " ")
		}
	}
	return strings.Join(lines, "\n")
}

// Normal entries get both assignments, recovery entries only the first.
const (
	grubAlways  = "GRUB_CMDLINE_LINUX"
	grubDefault = "GRUB_CMDLINE_LINUX_DEFAULT"
)

var grubAssignment = lazyregexp.New(`(?m)^([ \t]*(?:export[ \t]+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?))(\+?=)(.*)$`)

var grubValue = lazyregexp.New(`^("[^"\\$` + "`" + `]*"|'[^']*'|[A-Za-z0-9=,:./_+@%-]*)([ \t]*(?:[ \t]#.*)?\r?)$`)

type grubDefaults struct {
	text   string
	values [2]string // of GRUB_CMDLINE_LINUX and of GRUB_CMDLINE_LINUX_DEFAULT
	at     [2][2]int // offsets of the values in text, quotes included; [-1, -1] if absent
}

func parseGrubDefaults(text string) (*grubDefaults, error) {
	d := &grubDefaults{text: text, at: [2][2]int{{-1, -1}, {-1, -1}}}
	for _, m := range grubAssignment().FindAllStringSubmatchIndex(text, -1) {
		name, operator, rest := text[m[4]:m[5]], text[m[6]:m[7]], text[m[8]:m[9]]
		line := 1 + strings.Count(text[:m[0]], "\n")
		value := grubValue().FindStringSubmatchIndex(rest)
		if operator != "=" || value == nil {
			return nil, fmt.Errorf("line %d: %s is set in a way that only a shell can read", line, name)
		}
		i := 0
		if name == grubDefault {
			i = 1
		}
		// The last assignment counts.
		d.at[i] = [2]int{m[8] + value[2], m[8] + value[3]}
		d.values[i] = rest[value[2]:value[3]]
		if q := d.values[i]; q != "" && (q[0] == '"' || q[0] == '\'') {
			d.values[i] = q[1 : len(q)-1]
		}
	}
	return d, nil
}

func (d *grubDefaults) with(values [2]string) (string, error) {
	text := d.text
	// From the end, so that offsets stay right.
	order := [2]int{1, 0}
	if d.at[0][0] > d.at[1][0] {
		order = [2]int{0, 1}
	}
	for _, i := range order {
		at := d.at[i]
		if values[i] == d.values[i] {
			continue
		}
		if at[0] < 0 {
			name := [2]string{grubAlways, grubDefault}[i]
			if text != "" && !strings.HasSuffix(text, "\n") {
				text += "\n"
			}
			text += name + `="` + values[i] + "\"\n"
			continue
		}
		quote := `"`
		if strings.HasPrefix(text[at[0]:], "'") || strings.ContainsAny(values[i], `"\$`+"`") {
			quote = "'"
		}
		if strings.Contains(values[i], quote) {
			return "", fmt.Errorf("%q cannot be quoted for a shell", values[i])
		}
		text = text[:at[0]] + quote + values[i] + quote + text[at[1]:]
	}
	return text, nil
}

func editGrubDefaults(text string, args []string) (string, error) {
	d, err := parseGrubDefaults(text)
	if err != nil {
		return "", err
	}
	return d.with([2]string(cmdline.EditLines(d.values[:], 0, args)))
}

func undoGrubDefaults(now, before string, args []string) (string, error) {
	if edited, err := editGrubDefaults(before, args); err == nil && edited == now {
		return before, nil
	}
	d, err := parseGrubDefaults(now)
	if err != nil {
		return "", err
	}
	b, err := parseGrubDefaults(before)
	if err != nil {
		return "", err
	}
	return d.with([2]string(cmdline.UndoLines(d.values[:], b.values[:], 0, args)))
}
