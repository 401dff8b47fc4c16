// Package words formats numbers, lists and names for people.
package words

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Count prints "1 node", "2 nodes", "3 studies", "4 boxes".
func Count[N int | int64](n N, what string) string {
	stem, y := strings.CutSuffix(what, "y")
	switch {
	case n == 1:
	case y && !strings.HasSuffix(stem, "a"): // except "days"
		what = stem + "ies"
	case strings.HasSuffix(what, "x"), strings.HasSuffix(what, "ss"), strings.HasSuffix(what, "ch"):
		what += "es"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// List joins words: "a", "a and b", "a, b and c".
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Names is like List, but after most names it only counts the rest.
func Names(names []string, most int) string {
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return List(names)
}

// Or joins words as a choice: "a, b or c".
func Or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// OneLine replaces each run of white space by one space.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Quote returns s as one word of a POSIX shell (POSIX.1-2017, XCU 2.2.2). NUL is dropped, because no word can contain
// it.
func Quote(s string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "\x00", "").Replace(s) + "'"
}

// ShellWord is like [Quote] for people: it omits quotes that are not needed.
func ShellWord(s string) string {
	if s != "" && s[0] != '-' && s[0] != '=' && strings.Trim(s, plainWords) == "" {
		return s
	}
	return Quote(s)
}

const plainWords = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@%+-"

// CommandLine formats a command for pasting into a shell.
func CommandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = w
		if w == "" || strings.Trim(w, plainWords) != "" {
			words[i] = Quote(w)
		}
	}
	return strings.Join(words, " ")
}

// Bytes prints three digits and a binary unit: "1.50 KiB".
func Bytes[T int | int64 | uint64](n T) string {
	return scaled(float64(n), 1024, "B", "KiB", "MiB", "GiB", "TiB", "PiB")
}

// Size prints the largest binary unit, with one decimal under 100: "62.5 GiB".
func Size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, at := float64(n), 0
	for v >= 1024 && at < len(units)-1 {
		v, at = v/1024, at+1
	}
	decimals := 0
	if v < 100 {
		decimals = 1
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', decimals, 64), ".0") + " " + units[at]
}

// Exact prints bytes in the largest binary unit that divides them: "24268 MiB", "1500 bytes".
func Exact[T int64 | uint64](n T) string { return ExactIn(n, "bytes", "KiB", "MiB", "GiB", "TiB") }

// ExactIn is like Exact with other units, each 1024 times the one before.
func ExactIn[T int64 | uint64](n T, units ...string) string {
	at := 0
	for n != 0 && n%1024 == 0 && at < len(units)-1 {
		n, at = n/1024, at+1
	}
	return fmt.Sprintf("%d %s", n, units[at])
}

// Few joins at most limit words and counts the rest, because a machine may have 500 interrupts.
func Few[T any](list []T, limit int, sep string) string {
	if len(list) <= limit {
		return Join(list, sep)
	}
	return fmt.Sprintf("%s%sand %d more", Join(list[:limit], sep), sep, len(list)-limit)
}

// Join joins values as fmt prints them, with a separator.
func Join[T any](list []T, sep string) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, sep)
}

// Rate prints bits a second with three digits and a decimal unit: "1.23 Gb/s".
func Rate(bitsPerSecond float64) string {
	return scaled(bitsPerSecond, 1000, "b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s")
}

// scaled prints no decimals in the first unit.
func scaled(v, step float64, units ...string) string {
	at := 0
	for at < len(units)-1 && v >= 999.5 { // 999.5 would round to four digits
		v, at = v/step, at+1
	}
	decimals := 2
	switch {
	case at == 0 || v >= 99.95:
		decimals = 0
	case v >= 9.995:
		decimals = 1
	}
	return fmt.Sprintf("%.*f %s", decimals, v, units[at])
}

// Seconds prints a duration as "1.23 s".
func Seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// About prints "about 40 s", "about 3 min", "about 2.5 h".
func About(d time.Duration) string {
	switch {
	case d < 100*time.Second:
		return fmt.Sprintf("about %.0f s", max(1, d.Seconds()))
	case d < 100*time.Minute:
		return fmt.Sprintf("about %.0f min", d.Minutes())
	}
	return fmt.Sprintf("about %.1f h", d.Hours())
}

// Ago prints the time in its largest unit: "42s", "3m", "5h", "2d".
func Ago(d time.Duration) string { return largest(d, "s", "m", "h", "d") }

// Lasting is Ago for sentences: "42 s", "3 min", "5 h", "2 days".
func Lasting(d time.Duration) string { return largest(d, " s", " min", " h", " days") }

// largest uses the largest unit of which there are at least two. A negative duration comes from a clock that was set
// back.
func largest(d time.Duration, units ...string) string {
	n := int(max(0, d.Seconds()))
	for i, next := range []int{60, 60, 24} {
		if n < 2*next {
			return strconv.Itoa(n) + units[i]
		}
		n /= next
	}
	return strconv.Itoa(n) + units[3]
}

// Clip shortens a foreign text, with three dots for the cut. It reads no more of the text, which may have many MB.
func Clip(s string, most int) string {
	for i := range s {
		if most == 0 {
			return s[:i] + "..."
		}
		most--
	}
	return s
}

// maxPlain is in characters of foreign text.
const maxPlain = 80

// Plain quotes a foreign name that is not printable, so that it cannot control a terminal or forge a line.
func Plain(s string) string {
	s = Clip(s, maxPlain)
	odd := func(r rune) bool { return r == utf8.RuneError || r == '"' || !shown(r) || r == '\n' || r == '\t' }
	if s == "" || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}

// A Message is the output of another program: a summary line and the whole text.
type Message struct {
	Text  string // one line, in our words
	Whole string // empty if Text is complete
}

// In characters.
const (
	maxMessageLine = 160
	maxMessage     = 4000
)

// ownWords matches the name of another program before its message, or the source position of an assertion.
var ownWords = regexp.MustCompile(`\b(qemu-system-\w+|qemu-img|virsh|libvirtd?)(\[\d+\])?: |` +
	`[\w./-]+\.(c|h|cc|cpp):\d+|Assertion `)

// Fold splits a text into a Message: a reader wants the event, and a maintainer the whole text.
func Fold(text string) Message {
	text = strings.TrimSpace(Visible(text))
	if n := utf8.RuneCountInString(text); n > maxMessage {
		text = string([]rune(text)[:maxMessage]) + "… (" + Count(n-maxMessage, "more character") + ")"
	}
	line, _, _ := strings.Cut(text, "\n")
	if at := ownWords.FindStringIndex(line); at != nil {
		if line = strings.TrimRight(line[:at[0]], " :;,('`"); line == "" {
			line = "a program failed, and said why"
		}
	}
	if r := []rune(line); len(r) > maxMessageLine {
		line = strings.TrimRight(string(r[:maxMessageLine]), " ")
		if at := strings.LastIndexByte(line, ' '); at > len(line)/2 {
			line = line[:at]
		}
		line += "…"
	}
	if line == text {
		return Message{Text: text}
	}
	return Message{line, text}
}

// Printable escapes characters that could move a terminal's cursor, change colours, reverse the order of characters or
// hide some. A line break becomes a space.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, Visible(s))
}

// shown excludes characters without a shape, which would make two names look the same.
func shown(r rune) bool {
	if r < utf8.RuneSelf { // nearly all characters are ASCII
		return ' ' <= r && r <= '~' || r == '\n' || r == '\t'
	}
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Visible is like Printable but keeps line breaks and tabs.
func Visible(s string) string {
	// Nearly all texts are clean.
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !shown(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n") {
		switch {
		case shown(r):
			b.WriteRune(r)
		case unicode.IsPrint(r): // QuoteRune does not escape printable characters
			b.WriteString(`\u` + strconv.FormatInt(int64(r), 16))
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}
