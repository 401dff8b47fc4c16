package show

import (
	"math"
	"strings"
)

// Widths from space to tilde, in thousandths of the font size. A picture states its own size, so widths must hold for
// any font: DejaVu Sans is the widest of the usual sans-serif fonts.
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

// Width returns the maximum width in pixels, rounded up.
func (f Font) Width(s string) int {
	sum := 0.0
	for _, r := range s {
		sum += f.advance(r)
	}
	return int(math.Ceil(sum))
}

// advance assumes the widest for scripts without a table: East Asian characters are as wide as high, emoji a little
// wider.
func (f Font) advance(r rune) float64 {
	size := float64(f.Size) / 1000
	switch {
	case r >= ' ' && r <= '~' && f.Bold:
		return float64(boldWidths[r-' ']) * size
	case r >= ' ' && r <= '~':
		return float64(regularWidths[r-' ']) * size
	case r == '·':
		return 400 * size
	case r < 0x530: // Latin, Greek, Cyrillic, and scripts between
		return 1250 * size
	}
	return 1400 * size
}

// Fit shortens text to at most pixels.
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

// Lines breaks text at spaces, and words longer than a line. It never shortens: a shortened name is useless.
func (f Font) Lines(s string, room int) []string {
	var out []string
	line := ""
	for _, w := range strings.Fields(s) {
		if next := strings.TrimSpace(line + " " + w); f.Width(next) <= room {
			line = next
			continue
		}
		if f.Width(w) > room && line != "" { // no short word is alone on a line
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

// fitting returns the bytes of at least one character. It prefers to end after "-" or "/" in the second half.
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
