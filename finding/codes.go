package finding

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

//go:embed codes.md
var codePage string

// The kinds of error codes of RDMA. The same number means something else in each.
const (
	CompletionStatus   = "status"         // of a work completion: enum ibv_wc_status
	CompletionSyndrome = "syndrome"       // of a completion with error, of mlx5
	VendorError        = "vendor error"   // beside a status
	CommandStatus      = "command status" // of a firmware command, of mlx5
)

// A Code is an error code that RDMA programs, drivers or cards print, with what is known of it.
type Code struct {
	Kind    string // CompletionStatus, CompletionSyndrome, VendorError or CommandStatus
	Number  int
	Digits  string // Number as it is usually printed, such as 12 or 0x51
	Name    string // the constant, such as IBV_WC_RETRY_EXC_ERR
	Short   string // a few words, such as "transport retry counter exceeded"
	Meaning string // sentences
	LookAt  string // where the cause is found; "" where there is nothing to look at
	Source  string // of the whole kind
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
			all = append(all, Code{Kind: kind, Number: int(n), Digits: cells[0], Name: cells[1], Short: cells[2],
				Meaning: cells[3], LookAt: cells[4], Source: source})
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
	{regexp.MustCompile(`(?i)\bstatus [a-z ]+\((0x[0-9a-f]+)\)`), []string{CommandStatus}},
	{regexp.MustCompile(`(?i)\b(?:status|error)[ =:#]*([0-9]+)\b`), []string{CompletionStatus}},
	{regexp.MustCompile(`(?i)\bvendor[ _](?:err(?:or|_synd)?|syndrome?)[ =:#]*(0x[0-9a-f]+|[0-9]+)\b`),
		[]string{VendorError}},
	{regexp.MustCompile(`(?i)(?:^|[^r _]\s+)syndrome?[ =:#]*(0x[0-9a-f]+|[0-9]+)\b`), []string{CompletionSyndrome,
		VendorError}},
}

// Codes returns the codes that a text names: one as a person types it ("status 12", "IBV_WC_RETRY_EXC_ERR"), or all
// of a line that a program printed.
func Codes(text string) (found []Code) {
	for _, p := range printed {
		for _, m := range p.form.FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseInt(m[1], 0, 32)
			if err != nil {
				continue
			}
			for _, kind := range p.kinds {
				if c, ok := FindCode(kind, int(n)); ok {
					found = append(found, c)
				}
			}
		}
	}
	for _, c := range codes() {
		if len(found) == 0 && (strings.EqualFold(text, c.Name) || strings.EqualFold(text, c.Short)) {
			return []Code{c}
		}
	}
	return found
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
