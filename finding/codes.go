package finding

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed codes.md
var codePage string

// The kinds of error codes. The same number means something else in each.
const (
	CompletionStatus   = "status"            // of a work completion: enum ibv_wc_status
	CompletionSyndrome = "syndrome"          // of a completion with error, of mlx5
	VendorError        = "vendor error"      // beside a status
	CommandStatus      = "command status"    // of a firmware command, of mlx5
	CallError          = "errno"             // of a call of libibverbs
	AsyncEvent         = "async event"       // of a device
	Corrected          = "AER correctable"   // of PCI Express
	Uncorrected        = "AER uncorrectable" // of PCI Express
	Xid                = "Xid"               // of NVIDIA's driver
)

// A Code is an error code that RDMA programs, drivers or cards print, with what is known of it.
type Code struct {
	Kind    string `json:"kind"` // CompletionStatus and so on
	Number  int    `json:"number"`
	Digits  string `json:"digits"`            // Number as it is usually printed, such as 12 or 0x51
	Name    string `json:"name"`              // the constant, such as IBV_WC_RETRY_EXC_ERR
	Short   string `json:"short"`             // a few words, such as "transport retry counter exceeded"
	Also    string `json:"also,omitempty"`    // other words for it, with " / " between them
	Meaning string `json:"meaning"`           // sentences
	LookAt  string `json:"look_at,omitempty"` // where the cause is found; "" where there is nothing to look at
	Source  string `json:"source"`            // of the whole kind
}

// codes reads the page: a section a kind, with its source and a table.
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
		// The table's head is no number.
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
	for _, c := range codes() {
		if c.Kind == kind && c.Number == number {
			return c, true
		}
	}
	return Code{}, false
}

// printed are the forms in which programs print codes. A bare syndrome is the card's own with the kernel and the
// vendor's with perftest; their numbers do not meet.
var printed = []struct {
	form  *regexp.Regexp
	kinds []string
}{
	{regexp.MustCompile(`\bXid\b[ :]*(?:\([^)]*\)[ :]*)?([0-9]+)\b`), []string{Xid}},
	{regexp.MustCompile(`(?i)\bstatus [a-z ]+\((0x[0-9a-f]+)\)`), []string{CommandStatus}},
	{regexp.MustCompile(`(?i)\berrno[ =:#]*([0-9]+)\b`), []string{CallError}},
	{regexp.MustCompile(`(?i)(?:\b|\b[a-z]+_)(?:status|error)[ =:#]*([0-9]+)\b`), []string{CompletionStatus}},
	{regexp.MustCompile(`(?i)\b(?:vendor[ _](?:err(?:or|_synd)?|syndrome?)|vend)[ =:#]*(0x[0-9a-f]+|[0-9]+)\b`),
		[]string{VendorError}},
	{regexp.MustCompile(`(?i)(?:^|[^r _]\s+|\()synd(?:rome?)?[ =:#]*(0x[0-9a-f]+|[0-9]+)\b`),
		[]string{CompletionSyndrome, VendorError}},
}

var (
	// ofCall matches a call of libibverbs, whose errors are numbers of errno.
	ofCall = regexp.MustCompile(`\bibv_(?:[a-oq-z]|post)[a-z_]+|\b(?:rdma|mlx5dv|efadv)_[a-z_]+|` +
		`(?i:(?:modify|create|allocate|register|alloc)[a-z ]* (?:QP|MR|CQ|PD)\b)`)
	callNumber = regexp.MustCompile(`\(([0-9]+)\)|\[([0-9]+)\]|\b(?:error|status|with|rc|ret)[ =:]+(-?[0-9]+)\b`)
	// aerFlag matches an error as the kernel ("[12] Timeout") and lspci ("CESta: Timeout+") write it.
	aerFlag = regexp.MustCompile(`\[ *[0-9]+\] *(\w+)|\b(\w+)\+`)
	aerText = regexp.MustCompile(`\bAER\b|PCIe Bus Error|\b[CU]ESta:|^ *(?:\S.*: +)?\[ *[0-9]+\]`)
	// uncorrected matches a line whose flags are of uncorrectable errors.
	uncorrected = regexp.MustCompile(`UESta:|severity=Uncorrect|(?i:uncorrect)`)
)

// Codes returns the codes that a text names: one as a person types it ("status 12", "IBV_WC_RETRY_EXC_ERR"), or all
// of a line that a program printed.
func Codes(text string) (found []Code) {
	add := func(kind string, number string) {
		n, err := strconv.ParseInt(strings.TrimPrefix(number, "-"), 0, 32)
		if c, ok := FindCode(kind, int(n)); ok && err == nil && !slices.Contains(found, c) {
			found = append(found, c)
		}
	}
	call := ofCall.MatchString(text)
	if call {
		for _, m := range callNumber.FindAllStringSubmatch(text, -1) {
			add(CallError, m[1]+m[2]+m[3])
		}
	}
	for _, p := range printed {
		for _, m := range p.form.FindAllStringSubmatch(text, -1) {
			for _, kind := range p.kinds {
				if !call || kind != CompletionStatus {
					add(kind, m[1])
				}
			}
		}
	}
	if aerText.MatchString(text) {
		for _, m := range aerFlag.FindAllStringSubmatch(text, -1) {
			for _, c := range codes() {
				if (c.Kind == Corrected && !uncorrected.MatchString(text) || c.Kind == Uncorrected) &&
					c.calls(m[1]+m[2]) {
					add(c.Kind, c.Digits)
				}
			}
		}
	}
	if len(found) > 0 {
		return found
	}
	// The words alone: of several that a line has, the longest.
	longest := 0
	for _, c := range codes() {
		n := c.named(text, call)
		if n > longest {
			longest, found = n, nil
		}
		if n > 0 && n == longest && (len(found) == 0 || found[0].Kind == c.Kind) {
			found = append(found, c)
		}
	}
	return found
}

// words are the words for a code.
func (c Code) words() []string {
	return append(strings.Split(c.Also, " / "), c.Short, c.Name)
}

func (c Code) calls(name string) bool {
	return slices.ContainsFunc(c.words(), func(w string) bool { return strings.EqualFold(w, name) })
}

// named returns how long the words are by which a text names the code; 0 where it does not. Few words may mean
// something else in a longer text, unless that is of the code's own kind.
func (c Code) named(text string, call bool) int {
	lower, longest := strings.ToLower(text), 0
	for _, w := range c.words() {
		at := strings.Index(lower, strings.ToLower(w))
		own := c.Kind == CallError && call || strings.Count(w, " ") >= 2 && c.Kind != CallError ||
			strings.Contains(w, "_") || (c.Kind == Corrected || c.Kind == Uncorrected) && aerText.MatchString(text) &&
			strings.Contains(w, " ") || c.Kind == AsyncEvent && strings.Contains(lower, "event")
		if w != "" && (len(w) == len(text) && at == 0 || own && at >= 0 && isWord(lower, at, len(w))) {
			longest = max(longest, len(w))
		}
	}
	return longest
}

// isWord reports whether no letter stands beside the n bytes at at.
func isWord(text string, at, n int) bool {
	letter := func(i int) bool {
		return i >= 0 && i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] == '_')
	}
	return !letter(at-1) && !letter(at+n)
}

// Text is the code with its explanation, for a terminal.
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
