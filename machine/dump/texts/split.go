package texts

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
)

var (
	// prompt matches a command line after a terminal prompt: "$ lscpu", "[root@node1 ~]# lscpu", or "+ lscpu" from a
	// script that traces its commands.
	prompt = lazyregexp.New(`^(?:\(\S+\) ?)?(?:\[?[\w.-]+@[\w.-]+[^$#%>]{0,60}[$#%>]|[$#%❯>]|\++)[ \t]+(\S.*)$`)
	// title matches a heading above a text: "=== lscpu ===", "## numactl -H", "==> lscpu.txt <==".
	title = lazyregexp.New("^(?:[=#*~-]{2,}>?|#)[ \\t]*[`\"]?([^=#*~`\"<]+?)(?:\\.(?:txt|log|out))?[`\"]?[ " +
		"\\t]*:?[=#*~<-]*$")
	// bare matches a line with only a command line, which scripts write above its output, or a sentence that ends with
	// one in backticks.
	bare = lazyregexp.New("^(?:[^`]{0,80} `|`)?(?:sudo )?((?:/\\S*/)?(?:lscpu|numactl|rocm-smi|amd-smi|" +
		"ibv_devinfo|ibv_devices|ibstat|ibstatus|ibdev2netdev|rdma|show_gids|ip|ethtool|" +
		"mlnx_qos|mlxconfig|mstconfig|mst|virsh|qm|cat|lshw|" +
		"dmidecode|lsmod|lstopo|hwloc-ls|mlxlink|lspci|nvidia-smi)(?: [\\w=./:-]+)*(?: ?\\|[^`]*)?)[`]?[:.]?$")
	// other matches commands about a machine whose output is not of any kind. A heading with such a command ends the
	// text above.
	other = Command(`(?:lshw|dmidecode|lsmod|lstopo|lstopo-no-graphics|hwloc-ls|mlxlink|ethtool -\w|` +
		`virsh .*(?:capabilities|nodedev-\w+))`)
)

// commandIn returns the command line in a line, or "". sure means that the line is a command line, whatever the
// command.
func commandIn(line string) (command string, sure bool) {
	command, sure = commandLine(line)
	// A word ends at a pipe, also without a space before it.
	if strings.Contains(command, "|") {
		command = strings.Join(strings.Fields(strings.ReplaceAll(command, "|", " | ")), " ")
	}
	return command, sure
}

func commandLine(line string) (command string, sure bool) {
	if line == "" || len(line) > 300 || line[0] == ' ' || line[0] == '\t' {
		return "", false
	}
	if strings.ContainsAny(line[:min(len(line), 100)], "$#%>+❯") {
		if m := prompt().FindStringSubmatch(line); m != nil {
			return strings.TrimSpace(m[1]), strings.ContainsRune(line, '@') || line[0] == '$'
		}
	}
	if strings.IndexByte("=#*~-", line[0]) >= 0 {
		if m := title().FindStringSubmatch(line); m != nil {
			return strings.TrimSpace(m[1]), false
		}
		return "", false
	}
	if m := bare().FindStringSubmatch(line); m != nil && len(line) < 100 {
		return m[1], false
	}
	return "", false
}

// maxTexts bounds the texts of one file; tries bounds the failed attempts to decode JSON.
const (
	maxTexts = 4096
	tries    = 8
)

type splitter struct {
	kinds []*Kind
	heads [256][]*Kind // by the first byte of a head
	any   []*Kind      // kinds with an empty head
	file  string
	text  []byte
	pos   int // offset of the current line
	out   []Text
	start int  // offset of the last text, while it is open
	open  bool // the last text takes further lines
	// xmlEnd is the end of the last XML element. fragments means that further elements may continue its text.
	xmlEnd    int
	fragments bool
	tries     int
}

// Split finds texts of the given kinds in a file, which may be one text or several with command lines or headings
// between them. It skips all other text.
//
// A command line or heading names the kind of the text below it. Without one, the beginning of a line determines the
// kind. Such a text takes all lines until the next text begins. XML and JSON are taken as whole values, so that no
// line within them begins another text.
func Split(text []byte, file string, kinds []*Kind) []Text {
	s := &splitter{kinds: kinds, file: file, text: text}
	for _, k := range kinds {
		for _, head := range k.Heads {
			if head == "" {
				s.any = append(s.any, k)
			} else if list := s.heads[head[0]]; len(list) == 0 || list[len(list)-1] != k {
				s.heads[head[0]] = append(list, k)
			}
		}
	}
	n := 0
	for s.pos < len(text) && len(s.out) < maxTexts {
		line, _, _ := bytes.Cut(text[s.pos:], []byte("\n"))
		used := s.line(string(line), n, text[s.pos:])
		n += bytes.Count(text[s.pos:s.pos+used], []byte("\n"))
		s.pos += used
	}
	s.end()
	// A false beginning of a text becomes part of the text around it.
	belongs := make([]int, len(s.out))
	for i := range s.out {
		if belongs[i] = i; s.out[i].within > 0 && !s.out[i].enough() {
			belongs[i] = belongs[s.out[i].within-1]
			s.out[belongs[i]].Text += s.out[i].Text
			s.out[i].Text = ""
		}
	}
	return slices.DeleteFunc(s.out, func(t Text) bool { return strings.TrimSpace(t.Text) == "" || !t.enough() })
}

// enough reports whether a text without a command line has enough lines of its kind. Otherwise prose and logs would
// match kinds with ordinary words, such as counters or configuration keys.
func (t *Text) enough() bool {
	if t.Kind.Least == 0 || t.named {
		return true
	}
	n, lines := 0, 0
	for line := range strings.Lines(t.Text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case t.Kind.Sure != nil && t.Kind.Sure().MatchString(line):
			return true
		case t.Kind.Form().MatchString(line):
			n++
		}
		lines++
	}
	return n >= t.Kind.Least || n > 1 && n == lines
}

// line processes the line at the beginning of rest, line n of the file from 0, and returns the number of bytes it
// used.
func (s *splitter) line(line string, n int, rest []byte) int {
	whole := min(len(line)+1, len(rest))
	if command, sure := commandIn(line); command != "" {
		for _, k := range s.kinds {
			if k.Command == nil {
				continue
			}
			if m := k.Command().FindStringSubmatch(command); m != nil {
				s.begin(k, n+1, append(m, "")[1], s.pos+whole)
				s.out[len(s.out)-1].named = true
				return whole
			}
		}
		// The output of an unknown command belongs to no text.
		if sure || other().MatchString(command) {
			s.end()
			return whole
		}
	}
	trimmed := strings.TrimLeft(line, " \t")
	if strings.HasPrefix(trimmed, "<") {
		if used := s.xml(trimmed, n, rest, len(line)-len(trimmed)); used > 0 {
			return used
		}
	} else if strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		if used := s.json(n, rest); used > 0 {
			return used
		}
	}
	// Both a command line and the first line of its output can begin a text: right below a command line, the first
	// line continues the text.
	if k := s.head(strings.TrimRight(trimmed, " \t\r")); k != nil {
		if last := s.last(); last == nil || last.Kind != k || k.First().MatchString(strings.TrimSpace(line)) &&
			!s.blank() {
			s.begin(k, n, "", s.pos)
		}
	}
	return whole
}

// blank reports whether the last text is still empty.
func (s *splitter) blank() bool { return len(bytes.TrimSpace(s.text[min(s.start, s.pos):s.pos])) == 0 }

func (s *splitter) end() {
	if last := s.last(); last != nil {
		last.Text = string(s.text[min(s.start, s.pos):s.pos])
	}
	s.open = false
}

// last returns the open text, or nil.
func (s *splitter) last() *Text {
	if !s.open || len(s.out) == 0 {
		return nil
	}
	return &s.out[len(s.out)-1]
}

// begin begins a text at line n, at the offset start.
func (s *splitter) begin(k *Kind, n int, subject string, start int) {
	within := 0
	if s.last() != nil {
		within = len(s.out)
	}
	s.end()
	s.out = append(s.out, Text{Kind: k, File: s.file, Line: n + 1, Subject: subject, within: within})
	s.open, s.start = true, start
}

func (s *splitter) whole(k *Kind, n int, subject, text string) {
	s.begin(k, n, subject, s.pos)
	last := &s.out[len(s.out)-1]
	last.Text, last.named, s.open = text, true, false
}

// head returns the kind of text that a line begins, or nil. It skips the kind of the open text, if that has no First.
func (s *splitter) head(line string) *Kind {
	if line == "" {
		return nil
	}
	last := s.last()
	for _, list := range [][]*Kind{s.heads[line[0]], s.any} {
		for _, k := range list {
			if last != nil && last.Kind == k && k.First == nil {
				continue
			}
			if k.Also != nil && k.Also(line) {
				return k
			}
			if in := func(hint string) bool { return strings.Contains(line, hint) }; k.Hints != nil &&
				!slices.ContainsFunc(k.Hints, in) {
				continue
			}
			if slices.ContainsFunc(k.Heads, func(h string) bool { return strings.HasPrefix(line, h) }) &&
				(k.Form == nil || k.Form().MatchString(line)) {
				return k
			}
		}
	}
	return nil
}

// otherRoots are roots of XML of no kind, with elements that have the names of other kinds' elements.
var otherRoots = []string{"capabilities", "device", "domainCapabilities"}

// xml takes an XML element of a kind, up to its end.
func (s *splitter) xml(line string, n int, rest []byte, indent int) int {
	name := strings.TrimLeft(line, "<")
	name = name[:len(name)-len(strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyzC_"))]
	if slices.Contains(otherRoots, name) {
		s.end()
		if end := bytes.Index(rest, []byte("</"+name+">")); end >= 0 {
			return end + len("</"+name+">")
		}
		return len(rest)
	}
	for _, k := range s.kinds {
		last := s.out[max(0, len(s.out)-1):]
		// Elements without a root form one text if there is only white space between them.
		goesOn := len(last) > 0 && last[0].Kind == k && s.fragments &&
			len(bytes.TrimSpace(s.text[s.xmlEnd:s.pos])) == 0 &&
			(slices.Contains(k.Fragments, name) || slices.Contains(k.More, name))
		fragment := slices.Contains(k.Fragments, name)
		if name == "" || k.Element != name && !fragment && !goesOn {
			continue
		}
		// A root is never empty: this is an element of the same name, such as a guest's topology.
		if tag, _, _ := strings.Cut(line, ">"); k.Element == name && strings.HasSuffix(tag, "/") {
			continue
		}
		end := bytes.Index(rest, []byte("</"+name+">"))
		if end < 0 && k.Element != name {
			// The element may be empty. The length of "</name>" is added below, which must lead to the end of "/>".
			// If "/>" is missing too, end stays negative.
			end = bytes.Index(rest, []byte("/>")) - len(name) - 1
		}
		if end < 0 {
			end = len(rest) // cut off; the reader reports that
		} else {
			end += len("</" + name + ">")
		}
		end = min(end, len(rest))
		if goesOn {
			last[0].Text += string(s.text[s.xmlEnd:s.pos]) + string(rest[indent:end])
		} else {
			subject := ""
			if last := s.last(); last != nil && last.Kind == k && s.blank() {
				subject = last.Subject
			}
			s.whole(k, n, subject, string(rest[indent:end]))
		}
		s.xmlEnd, s.fragments = s.pos+end, k.Element != name
		return end
	}
	return 0
}

// json takes a JSON value. It also takes values of no kind, so that no text is looked for within them.
func (s *splitter) json(n int, rest []byte) int {
	// Each attempt may read up to maxText bytes: a file with a brace on every line would take quadratic time.
	if s.tries == tries {
		return 0
	}
	d := json.NewDecoder(bytes.NewReader(rest[:min(len(rest), maxText)]))
	var value json.RawMessage
	if d.Decode(&value) != nil {
		s.tries++
		return 0
	}
	object := map[string]json.RawMessage{}
	if json.Unmarshal(value, &object) != nil {
		var list []map[string]json.RawMessage
		if json.Unmarshal(value, &list) != nil || len(list) == 0 {
			s.tries++
			return 0
		}
		// The first element of a list determines the kind.
		object = list[0]
	}
	for _, k := range s.kinds {
		if _, ok := object[k.Key]; ok && k.Key != "" {
			s.whole(k, n, "", string(value))
			break
		}
	}
	return int(d.InputOffset())
}
