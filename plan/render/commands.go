package render

import (
	"fmt"
	"strings"
)

// A Step is one change of the host, with its commands.
type Step struct {
	What, Why, Risk string
	Boot            bool // at the next boot
	Commands        []string
}

func (v *view) commands() []Artifact {
	if len(v.in.Steps) == 0 {
		return nil
	}
	var before, after []Step
	for _, s := range v.in.Steps {
		if s.Boot {
			before = append(before, s)
		} else {
			after = append(after, s)
		}
	}
	var b strings.Builder
	b.WriteString(v.header("The commands that prepare the host, for root, step by step: README.md says what to " +
		"check. They are made to be read and typed, with no guest of the lab running. Files below /etc stay until " +
		"they are removed. Everything else ends with the next boot: type the steps of the last part again then. " +
		"rackless prepare makes the same changes, refuses those that would do harm, continues at each boot, and " +
		"rackless rollback undoes them."))
	writePart(&b, "Kernel arguments: one of these, by the boot loader of the machine. They take effect at the next "+
		"boot.", v.in.Kernel)
	writePart(&b, "Firmware of NICs: it takes effect at the next reset of the card, which a boot brings.", before)
	writePart(&b, "At each boot.", after)
	return []Artifact{text("commands.txt", b.String())}
}

func writePart(b *strings.Builder, title string, steps []Step) {
	if len(steps) == 0 {
		return
	}
	b.WriteString("\n" + comment("# === ", title))
	for i, s := range steps {
		b.WriteString("\n" + comment(fmt.Sprintf("# %d. ", i+1), s.What))
		if s.Why != "" {
			b.WriteString(comment("#    ", "Why: "+s.Why))
		}
		if s.Risk != "" {
			b.WriteString(comment("#    ", "Risk: "+s.Risk))
		}
		b.WriteString(strings.Join(s.Commands, "\n") + "\n")
	}
}

func (v *view) setsFirmware() bool {
	for _, s := range v.in.Steps {
		if s.Boot {
			return true
		}
	}
	return false
}
