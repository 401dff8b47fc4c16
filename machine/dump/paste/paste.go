// Package paste restores a tool's output from copied text.
package paste

import (
	"bytes"
	"encoding/binary"
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// spaces replaces special characters of web pages, editors and terminals.
var spaces = strings.NewReplacer("\u00a0", " ", "\u2007", " ", "\u202f", " ", "\u3000", " ", "\u200b", "", "\u2060",
	"", "\ufeff", "", "\r\n", "\n", "\u2018", "'", "\u2019", "'", "\u201c", `"`, "\u201d", `"`, "\u2010", "-",
	"\u2011", "-", "\u2012", "-", "\u2013", "-", "\u2014", "--", "\u2212", "-")

// Escape matches a terminal's escape sequence, also as logs write it.
const Escape = `(?:\x1b|\^\[|\\033|\\e|\\x1[bB]|\\u001[bB])(?:\[[0-9;?]*[@-~]|` +
	`[()][A-B0-2]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?)`

var escape = lazyregexp.New(Escape)

// A mark is a prefix of lines, added by a launcher or logger. It must occur on the given share of non-blank lines,
// because a launcher's own lines lack it.
type mark struct {
	form  func() *regexp.Regexp
	share float64
	own   func() *regexp.Regexp // a tool's own line with such a prefix; may be nil
	// within matches the mark inside a line, between the two groups that stay, if a tool prints a line in pieces. It
	// may be nil.
	within func() *regexp.Regexp
}

const (
	clock = `\d\d:\d\d:\d\d(?:[.,]\d+)?`
	date  = `\d{4}-\d\d-\d\d[T ]` + clock + `(?:Z|[+-]\d\d:?\d\d)?`
	// tagged is the mark of mpirun --tag-output.
	tagged = `\[[\w.@-]*\d+,\d+\]<std(?:out|err)>:`
)

var marks = []mark{
	// mpirun --tag-output, with --timestamp-output before it.
	{lazyregexp.New(`^(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d ` + clock + ` (?:[A-Z]+ )?\d{4})?` + tagged), 0.5, nil,
		lazyregexp.New(`(.)` + tagged + `()`)},
	// mpiexec -prepend-rank.
	{lazyregexp.New(`(?m)^\[\d{1,5}\](?: |$)`), 0.9, bracketed, lazyregexp.New(`(\S)\[\d{1,5}\]( +-?[\d.])`)},
	// torchrun --tee, and newer ones.
	{lazyregexp.New(`^\[(?:default\d+\]:|rank\d+\]:? )`), 0.5, nil, nil},
	// docker compose logs.
	{lazyregexp.New(`^[A-Za-z][\w.-]* +\| `), 0.9, nil, nil},
	// kubectl logs --prefix.
	{lazyregexp.New(`^\[pod/[^\]\s]+\] `), 0.9, nil, nil},
	// dmesg -T of lines that a script has logged.
	{lazyregexp.New(`^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d ` + clock + ` \d{4}\] `), 0.9, nil, nil},
	// rsyslog and journalctl -o short-iso.
	{lazyregexp.New(`^` + date + ` [\w.-]+ [\w./-]+(?:\[\d+\])?: `), 0.9, nil, nil},
	// Files of containerd, and logs of GitLab.
	{lazyregexp.New(`^` + date + ` (?:std(?:out|err) [FP] ?|\d\d[OE][ +])`), 0.9, nil, nil},
	// kubectl logs --timestamps, docker logs -t, ts, the logs of CI, and Python's logging with its level.
	{lazyregexp.New(`^\[?` + date + `\]?` +
		`(?:(?: - [\w.]+)? (?:- |\[)?(?:DEBUG|INFO|WARNING|ERROR)(?: -|\]|:)?)? `), 0.9, nil, nil},
	// ts with only a time.
	{lazyregexp.New(`^\[?` + clock + `\]? `), 0.9, nil, nil},
	// journalctl and syslog.
	{lazyregexp.New(`^[A-Z][a-z]{2} [ \d]\d ` + clock + ` [\w.-]+ [\w./-]+(?:\[\d+\])?: `), 0.9, nil, nil},
	// ts.
	{lazyregexp.New(`^[A-Z][a-z]{2} [ \d]\d ` + clock + ` `), 0.9, nil, nil},
	// srun --label.
	{lazyregexp.New(`^ *\d+: `), 0.8, numbered, nil},
}

// numbered matches tools that begin their own lines with a number, as srun does.
var numbered = lazyregexp.New(`(?m)^ *\d+: [\w.@-]+: (?:node_type |<)|^\W*VCPU: CPU Affinity|^\W*node distances:`)

// bracketed matches tools that begin their own lines with a number in brackets.
var bracketed = lazyregexp.New(`(?m)^\[ *ID\] |^\[ *\d+\] +(?:local |(?:RxErr|BadTLP|BadDLLP|Rollover|Timeout|` +
	`NonFatalErr|` +
	`DLP|SDES|TLP|FCP|CmpltTO|CmpltAbrt|UnxCmplt|RxOF|MalfTLP|ECRC|UnsupReq|ACSViol)\b)`)

// same matches a prefix that may be common to all lines: quotes, indentation, a node (pdsh) or a file (grep).
var same = lazyregexp.New(`^(?:[ \t]*(?:> ?)+)?[ \t]*(?:[A-Za-z][\w.-]*: |[\w./-]+\.(?:txt|log|out):)?`)

// own matches a prefix that is output: the group in a list of IOMMU groups, and the names that drivers and programs
// begin their messages with.
var own = lazyregexp.New(`^[ \t>]*(?:Group|NVRM|DMAR|AMD-Vi|EDAC|mce|watchdog|amdgpu|nvidia[\w-]*|vfio[\w-]*|` +
	`mlx[45]_\w+|bnxt_\w+|qemu[\w-]*|libvirtd?|slurm\w+): $`)

var lead = lazyregexp.New(`^(?:[ \t]*(?:> ?)+)?[ \t]*`)

// fence matches a line that has only a mark around the output.
var fence = lazyregexp.New("(?mi)^[ \t>]*(?:`{3,}[\\w+-]*|~{3,}\\w*|" +
	"(?:</?(?:pre|code|details|summary)\\b[^>\\n]*>(?:[^<\\n]*</summary>)?)+|" +
	"\\[/?(?:code|quote|spoiler|pre)\\b[^\\]\\n]*\\])[ \\t]*$")

var tag = lazyregexp.New(`(?mi)^[ \t]*(?:<(?:pre|code)\b[^>\n]*>)+|(?:</(?:pre|code)>)+[ \t]*$`)

var entities = []string{"&lt;", "&gt;", "&quot;", "&#39;", "&#x27;", "&#34;", "&amp;"}

// maxMarks bounds the prefixes to remove: a quoted log of a launcher below a logger has three.
const maxMarks = 4

// Clean restores a tool's output from text copied from a terminal, a mail, a web page or a launcher's log. Line numbers
// do not change.
func Clean(text []byte) []byte {
	text = utf8(text)
	if bytes.ContainsAny(text, "\x1b\\^") {
		text = escape().ReplaceAll(text, nil)
	}
	if bytes.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII || r == '\r' }) {
		text = []byte(spaces.Replace(string(text)))
	}
	if bytes.IndexByte(text, '\r') >= 0 {
		text = overwritten(text)
	}
	if bytes.ContainsAny(text, "`~<[") {
		text = tag().ReplaceAll(fence().ReplaceAll(text, nil), nil)
	}
	// XML uses these entities itself.
	if bytes.IndexByte(text, '<') < 0 && slices.ContainsFunc(entities, func(e string) bool {
		return bytes.Contains(text, []byte(e))
	}) {
		text = []byte(html.UnescapeString(string(text)))
	}
	for range maxMarks {
		before := len(text)
		text = withoutMark(withoutSame(text))
		if len(text) == before {
			break
		}
	}
	return text
}

// utf8 converts UTF-16 (of PowerShell and Notepad) to UTF-8. Without a byte order mark, zero bytes show it.
func utf8(text []byte) []byte {
	var order binary.ByteOrder = binary.LittleEndian
	switch head := text[:min(len(text), 512)]; {
	case bytes.HasPrefix(text, []byte("\xff\xfe")):
		text = text[2:]
	case bytes.HasPrefix(text, []byte("\xfe\xff")):
		order, text = binary.BigEndian, text[2:]
	case len(head) < 8 || bytes.Count(head, []byte{0})*5 < len(head)*2:
		return text
	case head[0] == 0:
		order = binary.BigEndian
	}
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = order.Uint16(text[2*i:])
	}
	// An XML text declares its encoding.
	return []byte(strings.Replace(string(utf16.Decode(units)), `encoding="UTF-16"`, `encoding="UTF-8"`, 1))
}

// overwritten returns the final state of overwritten lines. A text with only carriage returns is from an old Mac.
func overwritten(text []byte) []byte {
	if bytes.IndexByte(text, '\n') < 0 {
		return bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
	}
	return each(text, func(line []byte) []byte {
		end := len(bytes.TrimRight(line, "\r\n"))
		shown := line[bytes.LastIndexByte(line[:end], '\r')+1 : end]
		if bytes.HasSuffix(line, []byte("\n")) {
			return append(bytes.Clone(shown), '\n')
		}
		return shown
	})
}

func withoutSame(text []byte) []byte {
	var common []byte
	lines := 0
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if lines++; lines == 1 {
			common = same().Find(line)
		}
		common = common[:shared(common, line)]
		if len(common) == 0 {
			return text
		}
	}
	// "node1: " and "node12: " have "node1" in common.
	common = same().Find(common)
	// A key may occur twice; names of nodes have digits.
	if named := bytes.HasSuffix(common, []byte(": ")); own().Match(common) || named && (lines < 2 || lines == 2 &&
		!bytes.ContainsAny(common, "0123456789")) {
		common = lead().Find(common)
	}
	if len(common) == 0 {
		return text
	}
	return each(text, func(line []byte) []byte { return bytes.TrimPrefix(line, common) })
}

func shared(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func withoutMark(text []byte) []byte {
	for _, m := range marks {
		lines, marked := 0, 0
		if m.own != nil && m.own().Match(text) {
			continue
		}
		for line := range bytes.Lines(text) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			lines++
			if m.form().Match(line) {
				marked++
			}
		}
		if marked > 0 && float64(marked) >= m.share*float64(lines) {
			return each(text, func(line []byte) []byte {
				line = line[len(m.form().Find(line)):]
				if m.within != nil {
					line = m.within().ReplaceAll(line, []byte("$1$2"))
				}
				return line
			})
		}
	}
	return text
}

func each(text []byte, change func(line []byte) []byte) []byte {
	out := make([]byte, 0, len(text))
	for line := range bytes.Lines(text) {
		out = append(out, change(line)...)
	}
	return out
}
