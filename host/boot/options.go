package boot

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/cmdline"
)

type optionsFile struct {
	form   optionsForm
	around []string
	pieces []string
}

type optionsForm int

const (
	entryForm   optionsForm = iota // loader/entries/*.conf: lines "options ..."
	cmdlineForm                    // /etc/kernel/cmdline: lines that are not comments
	envForm                        // GRUB's environment block: the variable kernelopts
)

func formOf(file string) optionsForm {
	switch path.Base(file) {
	case "cmdline":
		return cmdlineForm
	case "grubenv":
		return envForm
	}
	return entryForm
}

var optionPieces = map[optionsForm]func() *regexp.Regexp{
	// Key, white space, value: The Boot Loader Specification, "Type #1 Boot Loader Entry Keys".
	entryForm:   lazyregexp.New(`(?m)^[ \t]*options[ \t]+(.*)$`),
	cmdlineForm: lazyregexp.New(`(?m)^([ \t]*[^#\s].*)$`),
	envForm:     lazyregexp.New(`(?m)^kernelopts=(.*)$`),
}

// parseOptions accepts every text.
func parseOptions(form optionsForm, text string) *optionsFile {
	f := &optionsFile{form: form}
	from := 0
	for _, m := range optionPieces[form]().FindAllStringSubmatchIndex(text, -1) {
		f.around = append(f.around, text[from:m[2]])
		f.pieces = append(f.pieces, text[m[2]:m[3]])
		from = m[3]
	}
	f.around = append(f.around, text[from:])
	return f
}

func entryValue(text, key string) string {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == key {
			return strings.Join(fields[1:], " ")
		}
	}
	return ""
}

func (f *optionsFile) text() string {
	var b strings.Builder
	for i, around := range f.around {
		b.WriteString(around)
		if i < len(f.pieces) {
			b.WriteString(f.pieces[i])
		}
	}
	return b.String()
}

func (f *optionsFile) line() string { return strings.Join(f.pieces, " ") }

func (f *optionsFile) with(pieces []string) (string, error) {
	g := &optionsFile{form: f.form, around: f.around, pieces: pieces}
	old := f.text()
	if slices.Equal(f.pieces, pieces) {
		return old, nil
	}
	if len(f.pieces) == 0 {
		switch f.form {
		case envForm:
			return "", errors.New("kernelopts is not set in GRUB's environment")
		case entryForm:
			g.around = []string{lineEnded(old) + "options ", "\n"}
		default:
			g.around = []string{lineEnded(old), "\n"}
		}
	}
	if f.form == envForm {
		return padEnv(g.text(), len(old))
	}
	return g.text(), nil
}

func lineEnded(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// padEnv pads to the original size: GRUB overwrites the block in place and never extends it.
func padEnv(text string, size int) (string, error) {
	text = strings.TrimRight(text, "#")
	if len(text) > size {
		return "", fmt.Errorf("GRUB's environment block has %d bytes, and would need %d: take something off the "+
			"command line first", size, len(text))
	}
	return text + strings.Repeat("#", size-len(text)), nil
}

func (f *optionsFile) some() []string {
	if len(f.pieces) == 0 {
		return []string{""}
	}
	return f.pieces
}

// kernelopts is the word in an entry's options that GRUB replaces with a variable (RHEL 8).
const kernelopts = "$kernelopts"

// editOptions removes copies from an entry with $kernelopts, which gets args from GRUB's environment.
func editOptions(form optionsForm, text string, args []string) (string, error) {
	f := parseOptions(form, text)
	pieces := f.some()
	if strings.Contains(f.line(), kernelopts) {
		pieces = slices.Clone(pieces)
		for i := range pieces {
			pieces[i] = cmdline.Strip(pieces[i], args)
		}
		return f.with(pieces)
	}
	edited := cmdline.EditLines(pieces, len(pieces)-1, args)
	if line := strings.Join(edited, " "); !cmdline.Has(line, args) {
		return "", fmt.Errorf("a quote in the command line does not end where it should: %s", line)
	}
	if slices.Equal(edited, pieces) {
		return text, nil
	}
	return f.with(edited)
}

// undoOptions removes args from now. before is the file, or a similar one, from before. It keeps white space and order
// if now is exactly the edited before.
func undoOptions(form optionsForm, now, before string, args []string) (string, error) {
	if edited, err := editOptions(form, before, args); err == nil && edited == now {
		return before, nil
	}
	f, was := parseOptions(form, now), parseOptions(form, before)
	pieces, old := f.some(), was.some()
	if len(pieces) != len(old) {
		// Lines were added or removed.
		old = []string{was.line()}
		for len(old) < len(pieces) {
			old = append([]string{""}, old...)
		}
		old = old[len(old)-len(pieces):]
	}
	if undone := cmdline.UndoLines(pieces, old, len(pieces)-1, args); !slices.Equal(undone, pieces) {
		return f.with(undone)
	}
	return now, nil
}
