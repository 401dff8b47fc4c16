package texts

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
)

var (
	// prompt matches "$ lscpu", "[root@node1 ~]# lscpu", or "+ lscpu" of a traced script.
	prompt = lazyregexp.New(`^(?:\(\S+\) ?)?(?:\[?[\w.-]+@[\w.-]+[^$#%>]{0,60}[$#%>]|[$#%❯>]|\++)[ \t]+(\S.*)$`)
	// title matches "=== lscpu ===", "## numactl -H", "==> lscpu.txt <==".
	title = lazyregexp.New("^(?:[=#*~-]{2,}>?|#)[ \\t]*[`\"]?([^=#*~`\"<]+?)(?:\\.(?:txt|log|out))?[`\"]?[ " +
		"\\t]*:?[=#*~<-]*$")
	// bare matches only a command line, or a sentence that ends with one in backticks.
	bare = lazyregexp.New("^(?:[^`]{0,80} `|`)?(?:sudo )?((?:/\\S*/)?(?:lscpu|numactl|rocm-smi|amd-smi|" +
		"ibv_devinfo|ibv_devices|ibstat|ibstatus|ibdev2netdev|rdma|show_gids|ip|ethtool|" +
		"mlnx_qos|mlxconfig|mstconfig|mst|virsh|qm|cat|lshw|" +
		"dmidecode|lsmod|lstopo|hwloc-ls|mlxlink|lspci|nvidia-smi)(?: [\\w=./:-]+)*(?: ?\\|[^`]*)?)[`]?[:.]?$")
	// other matches commands whose output is of no kind; they end the text above.
	other = Command(`(?:lshw|dmidecode|lsmod|lstopo|lstopo-no-graphics|hwloc-ls|mlxlink|ethtool -\w|` +
		`virsh .*(?:capabilities|nodedev-\w+))`)
)

// commandIn returns the command line in a line, or "". sure means that the line certainly is one.
func commandIn(line string) (command string, sure bool) {
	command, sure = commandLine(line)
	// A pipe may lack the space before it.
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

// tries bounds the failed attempts to decode JSON.
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
	start int // of the last text, while open
	open  bool
	// fragments means that further elements may continue the text.
	xmlEnd    int
	fragments bool
	tries     int
}

// Split finds texts of the given kinds in a file, and skips all other text.
//
// A command line or heading names the kind of the text below it; without one, the beginning of a line does. Such a text
// takes all lines until the next text begins. XML and JSON are taken as whole values, so that no line within them
// begins another text.
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
	// A false beginning becomes part of the text around it.
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

// enough reports whether a text has enough lines of its kind. Otherwise prose and logs would match kinds with ordinary
// words.
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

// line processes the line at the beginning of rest, line n from 0, and returns the number of bytes used.
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
		// An unknown command's output belongs to no text.
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
	// Right below a command line, the first line continues the text.
	if k := s.head(strings.TrimRight(trimmed, " \t\r")); k != nil {
		if last := s.last(); last == nil || last.Kind != k || k.First().MatchString(strings.TrimSpace(line)) &&
			!s.blank() {
			s.begin(k, n, "", s.pos)
		}
	}
	return whole
}

func (s *splitter) blank() bool { return len(bytes.TrimSpace(s.text[min(s.start, s.pos):s.pos])) == 0 }

func (s *splitter) end() {
	if last := s.last(); last != nil {
		last.Text = string(s.text[min(s.start, s.pos):s.pos])
	}
	s.open = false
}

func (s *splitter) last() *Text {
	if !s.open || len(s.out) == 0 {
		return nil
	}
	return &s.out[len(s.out)-1]
}

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

// head skips the kind of the open text, if that has no First.
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

// otherRoots are roots of no kind with elements named like other kinds' elements.
var otherRoots = []string{"capabilities", "device", "domainCapabilities"}

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
		// Elements without a root form one text if only white space is between them.
		goesOn := len(last) > 0 && last[0].Kind == k && s.fragments &&
			len(bytes.TrimSpace(s.text[s.xmlEnd:s.pos])) == 0 &&
			(slices.Contains(k.Fragments, name) || slices.Contains(k.More, name))
		fragment := slices.Contains(k.Fragments, name)
		if name == "" || k.Element != name && !fragment && !goesOn {
			continue
		}
		// A root is never empty: this is another element, such as a guest's topology.
		if tag, _, _ := strings.Cut(line, ">"); k.Element == name && strings.HasSuffix(tag, "/") {
			continue
		}
		end := bytes.Index(rest, []byte("</"+name+">"))
		if end < 0 && k.Element != name {
			// The length of "</name>" is added below. If "/>" is missing too, end stays negative.
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

// json also takes values of no kind, so that no text is found within them.
func (s *splitter) json(n int, rest []byte) int {
	// A file with a brace on every line would take quadratic time.
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
