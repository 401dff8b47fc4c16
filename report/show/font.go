package show

import (
	"math"
	"strings"
)

// A picture says its own size, so it must know how wide its texts are, in whatever font the reader
// has. The tables are the advance widths of DejaVu Sans, in thousandths of the font size, for the
// letters from space to tilde. It is the widest of the usual fonts without serifs: what fits in it
// fits in the others.
var (
	regularWidths = [95]uint16{318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337,
		636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531,
		1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787,
		603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500,
		500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612,
		635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838}
	boldWidths = [95]uint16{348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365,
		696, 696, 696, 696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 580,
		1000, 774, 762, 734, 830, 683, 683, 821, 837, 372, 372, 775, 637, 995, 837, 850,
		733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725, 457, 365, 457, 838, 500,
		500, 675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665, 343, 1042, 712, 687,
		716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838}
)

// A Font is a size in pixels and a weight.
type Font struct {
	Size int
	Bold bool
}

// Width is how wide the text may become, in pixels, rounded up.
func (f Font) Width(s string) int {
	sum := 0.0
	for _, r := range s {
		sum += f.advance(r)
	}
	return int(math.Ceil(sum))
}

// advance is the width of a letter. Of scripts without a table the widest letter is assumed: those
// of East Asia are as wide as high, emoji a little wider.
func (f Font) advance(r rune) float64 {
	size := float64(f.Size) / 1000
	switch {
	case r >= ' ' && r <= '~' && f.Bold:
		return float64(boldWidths[r-' ']) * size
	case r >= ' ' && r <= '~':
		return float64(regularWidths[r-' ']) * size
	case r == '·':
		return 400 * size
	case r < 0x530: // Latin, Greek, Cyrillic, and some of what stands between them
		return 1250 * size
	}
	return 1400 * size
}

// Fit shortens text to so many pixels.
func (f Font) Fit(s string, pixels int) string {
	if f.Width(s) <= pixels {
		return s
	}
	sum := f.advance('…')
	for i, r := range s {
		if sum += f.advance(r); sum > float64(pixels) {
			return strings.TrimRight(s[:i], " ·,") + "…"
		}
	}
	return s
}

// Lines breaks text at spaces, and words that are longer than a line wherever they have to be: a
// name is worth nothing when it is cut.
func (f Font) Lines(s string, room int) []string {
	var out []string
	line := ""
	for _, w := range strings.Fields(s) {
		if next := strings.TrimSpace(line + " " + w); f.Width(next) <= room {
			line = next
			continue
		}
		if f.Width(w) > room && line != "" { // starts on this line: a word alone before it would look lost
			line += " "
		} else if line != "" {
			out = append(out, line)
			line = ""
		}
		for line += w; f.Width(line) > room; {
			n := f.fitting(line, room)
			out = append(out, strings.TrimSpace(line[:n]))
			line = line[n:]
		}
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}

// fitting is how many bytes of the text stand on a line, at least one letter's: up to a sign that
// parts words in names, if there is one late enough.
func (f Font) fitting(s string, room int) int {
	sum, last := 0.0, 0
	for i, r := range s {
		if sum += f.advance(r); sum > float64(room) && i > 0 {
			if last > i/2 {
				return last
			}
			return i
		}
		if strings.ContainsRune(" -_/.,:=+", r) {
			last = i + 1
		}
	}
	return len(s)
}
