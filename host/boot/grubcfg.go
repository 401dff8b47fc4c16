package boot

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
)

// A menu comes from a grub.cfg without running it: all branches of an if count, and the first of contradicting ones
// wins.
type menu struct {
	entries  []*menuEntry
	defaults []string
	bls      bool // the command blscfg
}

type menuEntry struct {
	title, id string
	kernel    string
	line      string
	initrd    []string
	submenu   bool
	sub       []*menuEntry
}

func (e *menuEntry) String() string {
	if e.id == "" {
		return strconv.Quote(e.title)
	}
	return fmt.Sprintf("%q (%s)", e.title, e.id)
}

func leaves(entries []*menuEntry) []*menuEntry {
	var all []*menuEntry
	for _, e := range entries {
		if e.submenu {
			all = append(all, leaves(e.sub)...)
		} else {
			all = append(all, e)
		}
	}
	return all
}

type scriptToken struct {
	text string
	word bool
}

var scriptPiece = lazyregexp.New(
	`(?s)^(?:([ \t\r]+)|([\n;])|\\(.?)|'([^']*)'|"((?:[^"\\]|\\.)*)"|([^ \t\r\n;\\'"]+))`)

// scriptEscape is for double quotes, in which a backslash before other characters is literal.
var scriptEscape = lazyregexp.New(`\\([\\"$\n])`)

// scriptTokens splits as in info grub, "Shell-like scripting".
func scriptTokens(text string) ([]scriptToken, error) {
	var tokens []scriptToken
	word, inWord, quoted := "", false, false // then a brace is not a separator
	end := func() {
		if inWord {
			tokens = append(tokens, scriptToken{word, quoted || word != "{" && word != "}"})
		}
		word, inWord, quoted = "", false, false
	}
	for at := 0; at < len(text); {
		if text[at] == '#' && !inWord {
			comment, _, _ := strings.Cut(text[at:], "\n")
			at += len(comment)
			continue
		}
		m := scriptPiece().FindStringSubmatch(text[at:])
		if m == nil {
			return nil, fmt.Errorf("line %d: a quote that never ends", 1+strings.Count(text[:at], "\n"))
		}
		space, separator, escaped, single, double, plain := m[1], m[2], m[3], m[4], m[5], m[6]
		switch at += len(m[0]); {
		case space != "":
			end()
		case separator != "":
			end()
			tokens = append(tokens, scriptToken{"\n", false})
		case m[0] == "\\\n" || m[0] == "\\":
		default:
			word += escaped + single + scriptEscape().ReplaceAllString(double, "$1") + plain
			inWord, quoted = true, quoted || plain == ""
		}
	}
	end()
	return append(tokens, scriptToken{"\n", false}), nil
}

// parseMenu has nil on its stack for the body of a function.
func parseMenu(text string) (*menu, error) {
	tokens, err := scriptTokens(text)
	if err != nil {
		return nil, err
	}
	m := &menu{}
	root := &menuEntry{submenu: true}
	open := []*menuEntry{root}
	var words []string
	for _, t := range tokens {
		if t.word {
			words = append(words, t.text)
			continue
		}
		switch t.text {
		case "{":
			open = append(open, newEntry(words, open[len(open)-1]))
		case "}":
			m.command(words, open[len(open)-1])
			if len(open) == 1 {
				return nil, errors.New(`a "}" without its "{"`)
			}
			open = open[:len(open)-1]
		default:
			m.command(words, open[len(open)-1])
		}
		words = nil
	}
	if len(open) > 1 {
		return nil, errors.New(`a "{" without its "}"`)
	}
	m.entries = root.sub
	return m, nil
}

func newEntry(words []string, around *menuEntry) *menuEntry {
	if len(words) == 0 || words[0] != "menuentry" && words[0] != "submenu" {
		return nil
	}
	e := &menuEntry{submenu: words[0] == "submenu"}
	titled := false
	for i := 1; i < len(words); i++ {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch w := words[i]; {
		// The variable expands to --id, or to nothing in versions without that option.
		case w == "--id" || w == "$menuentry_id_option" || w == "${menuentry_id_option}":
			e.id = next
			i++
		case strings.HasPrefix(w, "--id="):
			e.id = strings.TrimPrefix(w, "--id=")
		case w == "--class" || w == "--users" || w == "--hotkey" || w == "--source":
			i++
		case strings.HasPrefix(w, "--") || titled:
		default:
			e.title, titled = w, true
		}
	}
	if around != nil && around.submenu {
		around.sub = append(around.sub, e)
	}
	return e
}

func (m *menu) command(words []string, in *menuEntry) {
	if len(words) == 0 {
		return
	}
	switch words[0] {
	case "set":
		for _, w := range words[1:] {
			if value, ok := strings.CutPrefix(w, "default="); ok {
				m.defaults = append(m.defaults, value)
			}
		}
	case "blscfg":
		m.bls = true
	case "linux", "linux16", "linuxefi":
		// The first branch of an if wins.
		if in != nil && !in.submenu && in.kernel == "" && len(words) > 1 {
			in.kernel = words[1]
			args := slices.Clone(words[2:])
			for i, a := range args {
				if strings.ContainsAny(a, " \t\n") {
					args[i] = `"` + a + `"`
				}
			}
			in.line = strings.Join(args, " ")
		}
	case "initrd", "initrd16", "initrdefi":
		if in != nil && !in.submenu && in.initrd == nil {
			in.initrd = slices.Clone(words[1:])
		}
	}
}

// defaultEntry does as GRUB: a default that names no entry means the first entry, and a submenu means its first entry.
func (m *menu) defaultEntry(saved string) *menuEntry {
	want := "0"
	for _, d := range m.defaults {
		switch d {
		case "${next_entry}", "$next_entry": // for one boot, set by grub-reboot
		case "${saved_entry}", "$saved_entry":
			want = saved
		default:
			want = d
		}
	}
	entries := m.entries
	var found *menuEntry
	for part := range strings.SplitSeq(want, ">") {
		found = choose(entries, part)
		if found == nil {
			break
		}
		entries = found.sub
	}
	if found == nil && len(m.entries) > 0 {
		found = m.entries[0]
	}
	for found != nil && found.submenu {
		if len(found.sub) == 0 {
			return nil
		}
		found = found.sub[0]
	}
	return found
}

func choose(entries []*menuEntry, name string) *menuEntry {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(entries) {
		return entries[n]
	}
	return lists.Find(entries, func(e *menuEntry) bool { return name != "" && (e.id == name || e.title == name) })
}

// ours falls back to the first entry that starts Linux, or nil.
func (m *menu) ours(saved string) *menuEntry {
	if e := m.defaultEntry(saved); e != nil && e.kernel != "" {
		return e
	}
	return lists.Find(leaves(m.entries), func(e *menuEntry) bool { return e.kernel != "" })
}

func savedEntry(env string) string {
	for line := range strings.SplitSeq(env, "\n") {
		if value, ok := strings.CutPrefix(line, "saved_entry="); ok {
			return value
		}
	}
	return ""
}
