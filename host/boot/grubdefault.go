package boot

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/cmdline"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/words"
)

// The assignments in /etc/default/grub that make the kernel's command line. Entries get the first
// and the second, those for recovery the first alone.
const (
	grubAlways  = "GRUB_CMDLINE_LINUX"
	grubDefault = "GRUB_CMDLINE_LINUX_DEFAULT"
)

var grubAssignment = lazyregexp.New(`(?m)^([ \t]*(?:export[ \t]+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?))(\+?=)(.*)$`)

// A value is one that can be changed without being a shell: text in quotes or without, in which
// nothing is expanded or escaped.
var grubValue = lazyregexp.New(`^("[^"\\$` + "`" + `]*"|'[^']*'|[A-Za-z0-9=,:./_+@%-]*)([ \t]*(?:[ \t]#.*)?\r?)$`)

// A grubDefaults is /etc/default/grub: the text around the two values, and the values.
type grubDefaults struct {
	text   string
	values [2]string // of GRUB_CMDLINE_LINUX and of GRUB_CMDLINE_LINUX_DEFAULT
	at     [2][2]int // where the values are in text, quotes included; nowhere is [-1, -1]
}

func parseGrubDefaults(text string) (*grubDefaults, error) {
	d := &grubDefaults{text: text, at: [2][2]int{{-1, -1}, {-1, -1}}}
	for _, m := range grubAssignment.FindAllStringSubmatchIndex(text, -1) {
		name, operator, rest := text[m[4]:m[5]], text[m[6]:m[7]], text[m[8]:m[9]]
		line := 1 + strings.Count(text[:m[0]], "\n")
		value := grubValue.FindStringSubmatchIndex(rest)
		if operator != "=" || value == nil {
			return nil, fmt.Errorf("line %d: %s is set in a way that only a shell can read", line, name)
		}
		i := words.Either(name == grubDefault, 1, 0)
		// The last one counts.
		d.at[i] = [2]int{m[8] + value[2], m[8] + value[3]}
		d.values[i] = rest[value[2]:value[3]]
		if q := d.values[i]; q != "" && (q[0] == '"' || q[0] == '\'') {
			d.values[i] = q[1 : len(q)-1]
		}
	}
	return d, nil
}

// with returns the text with other values; those that are the same are not touched.
func (d *grubDefaults) with(values [2]string) (string, error) {
	text := d.text
	// From the end, so that places stay right.
	order := words.Either(d.at[0][0] > d.at[1][0], [2]int{0, 1}, [2]int{1, 0})
	for _, i := range order {
		at := d.at[i]
		if values[i] == d.values[i] {
			continue
		}
		if at[0] < 0 {
			name := [2]string{grubAlways, grubDefault}[i]
			text += words.If(text != "" && !strings.HasSuffix(text, "\n"), "\n")
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

// editGrubDefaults puts args into /etc/default/grub.
func editGrubDefaults(text string, args []string) (string, error) {
	d, err := parseGrubDefaults(text)
	if err != nil {
		return "", err
	}
	return d.with([2]string(cmdline.EditLines(d.values[:], 0, args)))
}

// undoGrubDefaults takes args out of now, of which before is what it was before they were put in.
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
