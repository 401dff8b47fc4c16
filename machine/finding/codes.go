package finding

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/message"
)

//go:embed codes.md
var codePage string

// Kinds of error codes. A number has another meaning in each.
const (
	CompletionStatus   = "status"            // of a work completion: enum ibv_wc_status
	CompletionSyndrome = "syndrome"          // of mlx5's completion with error
	VendorError        = "vendor error"      // beside a completion status
	CommandStatus      = "command status"    // of mlx5's firmware command
	CallError          = "errno"             // of a libibverbs call
	AsyncEvent         = "async event"       // of a device
	Corrected          = "AER correctable"   // of PCI Express
	Uncorrected        = "AER uncorrectable" // of PCI Express
	Xid                = "Xid"               // of NVIDIA's driver
	HealthSyndrome     = "health syndrome"   // of an mlx5 card that failed
	HealthSensor       = "fatal sensor"      // by which mlx5 found the card dead
	MCIAStatus         = "MCIA status"       // of a read from a module
	CMRejection        = "CM rejection"      // of a connection of librdmacm
	HWRMError          = "HWRM error"        // of a Broadcom card's command
	EFAStatus          = "EFA status"        // of a completion of EFA
	DMARReason         = "DMAR fault reason" // of the Intel IOMMU
)

// A Code is an error code of RDMA programs, drivers or cards, with its explanation.
type Code struct {
	Kind    string `json:"kind"` // such as CompletionStatus
	Number  int    `json:"number"`
	Digits  string `json:"digits"`            // Number in its usual form, such as 12 or 0x51
	Name    string `json:"name"`              // the constant, such as IBV_WC_RETRY_EXC_ERR
	Short   string `json:"short"`             // such as "transport retry counter exceeded"
	Also    string `json:"also,omitempty"`    // other texts for it, separated by " / "
	Meaning string `json:"meaning"`           // in sentences
	LookAt  string `json:"look_at,omitempty"` // the place to look for the cause, if any
	Source  string `json:"source"`            // same for the whole kind
}

// codes parses the page: a section per kind, with its source and a table.
var codes = sync.OnceValue(func() (all []Code) {
	var kind, source string
	for line := range strings.Lines(codePage) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			kind, source = title, ""
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) == 1 {
			source = strings.TrimSpace(source + " " + line)
			continue
		}
		// The head of the table is not a number.
		if n, err := strconv.ParseInt(cells[0], 0, 32); err == nil && len(cells) == 5 {
			short, also, _ := strings.Cut(cells[2], " / ")
			all = append(all, Code{Kind: kind, Number: int(n), Digits: cells[0], Name: cells[1], Short: short,
				Also: also, Meaning: cells[3], LookAt: cells[4], Source: source})
		}
	}
	return all
})

// FindCode returns the code of a kind and number.
func FindCode(kind string, number int) (Code, bool) {
	return lists.Lookup(codes(), func(c Code) bool { return c.Kind == kind && c.Number == number })
}

// Parts of the forms: the text between a word and its number, and the number.
const (
	codeIs     = `(?:[ _](?:code|number|value))?["']?[ \t=:#(\[]*(?:is )?`
	codeNumber = `(0x[0-9a-f]+|[0-9]+)\b`
)

// printed lists the forms in which programs print codes. Text matched by one form is hidden from the later ones, so
// that a vendor's syndrome does not count as the card's own. A bare syndrome is the card's own (from the kernel) or
// the vendor's (from perftest); their numbers do not overlap.
var printed = []struct {
	form  func() *regexp.Regexp
	base  int      // base of numbers without 0x; 0 means 10
	kinds []string // kinds of the form's groups, or several kinds for its only group
}{
	{lazyregexp.New(`(?i)\bXids?\b(?: errors?| codes?| number)?[ :=#]*(?:\([^)]*\)[ :]*)?` + codeNumber), 0,
		[]string{Xid}},
	{lazyregexp.New(`(?i)\bstatus [a-z ]+\((0x[0-9a-f]+)\)(?:,? syndrome ?\(0x[0-9a-f]+\))?`), 0,
		[]string{CommandStatus}},
	// Storage drivers in the kernel print it in hexadecimal without 0x, after the status in parentheses.
	{lazyregexp.New(`(?i)\(([0-9]+)\) vend_err ([0-9a-f]{1,2})\b`), 16,
		[]string{CompletionStatus, VendorError}},
	{lazyregexp.New(`(?i)\b(?:flushed|error|exceeded|aborted) \(([0-9]+)/` + codeNumber), 0,
		[]string{CompletionStatus, VendorError}},
	// In libfabric, "err" is libfabric's own number, and the provider's number is the status.
	{lazyregexp.New(`(?i)\berr: [0-9]+, prov_err(?:no)?: ?[^(\n]*\(([0-9]+)\)`), 0, []string{CompletionStatus}},
	{lazyregexp.New(`(?i)(?:^|[^a-z])vend(?:or)?(?:[ _.-]*(?:err(?:or)?|synd(?:r(?:ome?)?)?))*` + codeIs +
		codeNumber), 0, []string{VendorError}},
	{lazyregexp.New(`(?i)(?:^|[^\w])synd(?:r(?:ome?)?)?` + codeIs + codeNumber), 0,
		[]string{CompletionSyndrome, VendorError}},
	// Completions with error as dumped by the kernel and libmlx5. The last byte marks them as such.
	{lazyregexp.New(`(?i)\b0*30:? (?:[0-9a-f]{2} ){6}([0-9a-f]{2}) ([0-9a-f]{2}) (?:[0-9a-f]{2} ` +
		`){7}[de][0-9a-f]\b`),
		16, []string{VendorError, CompletionSyndrome}},
	{lazyregexp.New(`(?i)\b[0-9a-f]{8} [0-9a-f]{4}([0-9a-f]{2})([0-9a-f]{2}) [0-9a-f]{8} ` +
		`[0-9a-f]{6}[de][0-9a-f]\b`),
		16, []string{VendorError, CompletionSyndrome}},
	{lazyregexp.New(`(?i)\berrno` + codeIs + codeNumber), 0, []string{CallError}},
	{lazyregexp.New(`(?i)(?:^|[^a-z])(?:err(?:or)?|ret(?:urned)?|rc|status|result)[ =:(]*-([0-9]+)\b`), 0,
		[]string{CallError}},
	{lazyregexp.New(`(?i)(?:^|[^a-z]|wc)(?:status|error|err)` + codeIs + codeNumber), 0,
		[]string{CompletionStatus}},
}

var (
	// ofCall matches a libibverbs call, whose errors are errno values.
	ofCall = lazyregexp.New(`\bibv_(?:[a-oq-vx-z]|post)[a-z_]+|\b(?:rdma|mlx5dv|efadv)_[a-z_]+|` +
		`(?i:(?:modify|create|allocate|register|alloc)[a-z ]* (?:QP|MR|CQ|PD)\b)|(?i:register\w*memory)`)
	callNumber = lazyregexp.New(`\(([0-9]+)\)|\[([0-9]+)\]|` +
		`(?:\b(?:error|status|with|rc|ret)[ =:]+|[:=] ?-)([0-9]+)\b`)
	// aerFlag matches an error in the form of the kernel ("[12] Timeout") or lspci ("CESta: Timeout+").
	aerFlag = lazyregexp.New(`\[ *[0-9]+\] *(\w+)|\b(\w+)\+`)
	aerText = lazyregexp.New(`\bAER\b|PCIe Bus Error|\b[CU]ESta:|^ *(?:\S.*: +)?\[ *[0-9]+\]`)
	// uncorrected matches a line with flags of uncorrectable errors.
	uncorrected = lazyregexp.New(`UESta:|severity=Uncorrect|(?i:uncorrect)`)
)

func (f *found) number(kind, digits string, base int) bool {
	if base == 0 && !strings.HasPrefix(strings.ToLower(digits), "0x") {
		base = 10
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(digits, "-"), base, 32)
	c, ok := FindCode(kind, int(n))
	if ok && err == nil && !slices.Contains(*f, c) {
		*f = append(*f, c)
	}
	return ok && err == nil
}

func (f *found) has(kind string) bool {
	return slices.ContainsFunc(*f, func(c Code) bool { return c.Kind == kind })
}

type found []Code

// Codes returns the codes in a text: a single one as a person types it ("status 12", "IBV_WC_RETRY_EXC_ERR"), or all
// in the output of a program. Lines that can only have codes of one table are looked up in that one alone.
func Codes(text string) []Code {
	var f found
	text = f.ownLines(text)
	call := ofCall().MatchString(text)
	if call {
		for _, m := range callNumber().FindAllStringSubmatch(text, -1) {
			f.number(CallError, m[1]+m[2]+m[3], 10)
		}
	}
	f.printed(text, call)
	if aerText().MatchString(text) {
		for _, m := range aerFlag().FindAllStringSubmatch(text, -1) {
			for _, c := range codes() {
				if (c.Kind == Corrected && !uncorrected().MatchString(text) || c.Kind == Uncorrected) &&
					c.calls(m[1]+m[2]) {
					f.number(c.Kind, c.Digits, 0)
				}
			}
		}
	}
	// The text may name a status in words, beside a vendor's number.
	if text != "" && (len(f) == 0 || !call && !f.has(CompletionStatus) && !f.has(CompletionSyndrome) &&
		f.has(VendorError)) {
		f.words(text, call)
	}
	if call {
		for i := range f {
			if f[i].Kind == CallError {
				f[i].Meaning = meaningOfCall(f[i].Meaning, text)
			}
		}
	}
	kinds := []string{CompletionStatus, CompletionSyndrome, VendorError}
	slices.SortStableFunc(f, func(a, b Code) int {
		return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind))
	})
	return f
}

type family struct {
	call string
	text func() *regexp.Regexp
}

// families has the calls of which the meaning of an errno differs, as texts name them.
var families = []family{
	{"ibv_modify_qp", lazyregexp.New(`(?i)modify[_a-z ]*qp`)},
	{"ibv_reg_mr", lazyregexp.New(`(?i)reg_(?:dmabuf_)?mr|regist\w*[ _]?memory|(?:regist|allocat|creat)[a-z]* mr\b`)},
	{"ibv_create_qp", lazyregexp.New(`(?i)create[_a-z ]*[qc]q\b`)},
	{"rdma_resolve_addr", lazyregexp.New(`(?i)rdma_(?:resolve|connect)`)},
}

// ofCalls matches the beginning of the sentences about some calls: "Of ibv_modify_qp on RoCE: ".
var ofCalls = lazyregexp.New(`Of [a-z][^:.]*: `)

// meaningOfCall leaves out sentences about other calls than the one in the text.
func meaningOfCall(meaning, text string) string {
	starts := ofCalls().FindAllStringIndex(meaning, -1)
	if len(starts) == 0 {
		return meaning
	}
	named := map[string]bool{}
	for _, f := range families {
		if f.text().MatchString(text) {
			named[f.call] = true
		}
	}
	kept, others := meaning[:starts[0][0]], ""
	for i, at := range starts {
		end := len(meaning)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		about := meaning[at[0]:at[1]]
		switch {
		case strings.HasPrefix(about, "Of other calls"):
			others = meaning[at[0]:end]
		case slices.ContainsFunc(families, func(f family) bool {
			return named[f.call] && strings.Contains(about, f.call)
		}):
			kept += meaning[at[0]:end]
		}
	}
	if kept == meaning[:starts[0][0]] {
		kept += others
	}
	if kept = strings.TrimSpace(kept); kept == "" {
		return meaning
	}
	return kept
}

func (f *found) printed(text string, call bool) {
	for _, p := range printed {
		for _, m := range p.form().FindAllStringSubmatch(text, -1) {
			for i, kind := range p.kinds {
				digits, base := m[min(i+1, len(m)-1)], p.base
				if kind == CompletionStatus {
					base = 0
				}
				if call && kind == CompletionStatus || f.number(kind, digits, base) || kind != CompletionSyndrome {
					continue
				}
				// A person may omit the 0x.
				if _, vendor := FindCode(VendorError, decimal(digits)); !vendor {
					f.number(kind, strings.TrimPrefix(digits, "0x"), 16)
				}
			}
		}
		text = p.form().ReplaceAllString(text, " ; ")
	}
}

// decimal parses decimal digits, or returns -1.
func decimal(digits string) int {
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return -1
	}
	return int(n)
}

// words adds the code that a text names in words. If there are several, the longest match wins.
func (f *found) words(text string, call bool) {
	longest := 0
	var best []Code
	for _, c := range codes() {
		n := c.named(text, call)
		if n > longest {
			longest, best = n, nil
		}
		if n > 0 && n == longest && (len(best) == 0 || best[0].Kind == c.Kind) {
			best = append(best, c)
		}
	}
	*f = append(*f, best...)
}

func (c Code) words() []string {
	words := append(strings.Split(c.Also, " / "), c.Short, c.Name)
	// The kernel's constants begin with IB_WC, and people omit the prefix.
	if bare, ok := strings.CutPrefix(c.Name, "IBV_WC_"); ok {
		words = append(words, "IB_WC_"+bare, "WC_"+bare, bare)
	}
	return words
}

func (c Code) calls(name string) bool {
	return slices.ContainsFunc(c.words(), func(w string) bool { return strings.EqualFold(w, name) })
}

// named returns the length of the longest name or text of the code in text, or 0. A few words may have another
// meaning in a longer text, so they only count in a text about the code's kind.
func (c Code) named(text string, call bool) int {
	lower, longest := strings.ToLower(text), 0
	for _, w := range c.words() {
		at := strings.Index(lower, strings.ToLower(w))
		// ENOMEM is unambiguous in any text.
		own := c.Kind == CallError && (call || w == c.Name && strings.Contains(text, w)) ||
			strings.Count(w, " ") >= 2 && c.Kind != CallError ||
			strings.Contains(w, "_") || (c.Kind == Corrected || c.Kind == Uncorrected) && aerText().MatchString(text) &&
			strings.Contains(w, " ") || c.Kind == AsyncEvent && strings.Contains(lower, "event")
		if w != "" && (len(w) == len(text) && at == 0 || own && at >= 0 && isWord(lower, at, len(w))) {
			longest = max(longest, len(w))
		}
	}
	return longest
}

// isWord reports whether there is no letter next to the n bytes at at.
func isWord(text string, at, n int) bool {
	letter := func(i int) bool {
		return i >= 0 && i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] == '_')
	}
	return !letter(at-1) && !letter(at+n)
}

// Text returns the code with its explanation, for a terminal.
func (c Code) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s  %s\n%s\n", c.Kind, c.Digits, c.Short, c.Name)
	for _, section := range [][2]string{
		{"WHAT IT MEANS", c.Meaning},
		{"LOOK AT", c.LookAt},
		{"SOURCE", strings.ReplaceAll(c.Source, "`", "")},
	} {
		if section[1] != "" {
			fmt.Fprintf(&b, "\n%s\n\n%s", section[0], wrap(section[1]))
		}
	}
	return b.String()
}

// An Explanation is the JSON output of rackless explain.
type Explanation struct {
	Checks   []Check        `json:"checks"`
	Messages []message.Kind `json:"messages"` // of kernels and programs
	Codes    []Code         `json:"codes"`
}

// messageText returns a message with its explanation, for a terminal.
func messageText(k message.Kind) string {
	var b strings.Builder
	fmt.Fprintf(&b, "message  %s\n%s\n", k.Short, k.Name)
	found := ""
	if k.Check != "" {
		found = "rackless inspect finds it in a kernel log: rackless explain " + k.Check
	}
	for _, section := range [][2]string{
		{"WHAT IT MEANS", k.Meaning},
		{"LOOK AT", k.LookAt},
		{"INSPECT", found},
		{"SOURCE", strings.ReplaceAll(k.Source, "`", "")},
	} {
		if section[1] != "" {
			fmt.Fprintf(&b, "\n%s\n\n%s", section[0], wrap(section[1]))
		}
	}
	return b.String()
}

// Explain explains findings, by number or name, messages and error codes. Each word is one finding or code, or all
// words are one line of a log.
func Explain(words []string) (Explanation, string, error) {
	known := func(id string) bool {
		_, ok := Find(id)
		return ok || len(Codes(id)) > 0 || len(message.Explain(id)) > 0
	}
	// A line of a log may be unquoted.
	if all := strings.Join(words, " "); slices.ContainsFunc(words, func(id string) bool { return !known(id) }) &&
		known(all) {
		words = []string{all}
	}
	// Findings come first: RL numbers have digits, as codes do.
	out := Explanation{Checks: []Check{}, Messages: []message.Kind{}, Codes: []Code{}}
	var texts []string
	for _, id := range words {
		codes := Codes(id)
		if c, ok := Find(id); ok {
			out.Checks, texts = append(out.Checks, c), append(texts, c.Text())
			continue
		}
		// A message says more than the number in it.
		messages := message.Explain(id)
		out.Messages = append(out.Messages, messages...)
		texts = append(texts, lists.Map(messages, messageText)...)
		out.Codes = append(out.Codes, codes...)
		texts = append(texts, lists.Map(codes, Code.Text)...)
		if len(codes)+len(messages) == 0 {
			near := lists.Filter(Names(), func(name string) bool { return len(id) > 2 && strings.Contains(name, id) })
			if len(near) > 0 {
				return out, "", fmt.Errorf("%q is not a known finding or error code; did you mean %s?", id,
					strings.Join(near, " or "))
			}
			return out, "", fmt.Errorf("%q is not a known finding or error code; rackless explain lists "+
				"the findings, and codes are such as \"status 12\" or \"vendor err 81\"", id)
		}
	}
	return out, strings.Join(texts, "\n"), nil
}
