package remote

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/userfile"
)

// maxHosts bounds a list: a range that was meant otherwise would start as many programs.
const maxHosts = 4096

// hostRange is a range in a name, as Slurm and clush write it: node[01-16,20].
var hostRange = regexp.MustCompile(`^([^][]*)\[([0-9,-]+)\]([^][]*)$`)

// hostName is what a host may be called: a name or an address with a user and what ~/.ssh/config makes of it, or a URI
// of ssh. It does not begin with a dash, which ssh would take for an option.
var hostName = regexp.MustCompile(
	`^(?:ssh://(?:[\w.+-]+@)?(?:\[[0-9a-fA-F:.%]+\]|\w[\w.-]*)(?::\d+)?|\w[\w.@+:-]*)$`)

// Hosts reads a list of hosts: one or more a line, separated by spaces or commas, with ranges (node[01-16]). "#" begins
// a comment. A host that stands there twice counts once. file is for messages.
func Hosts(file, text string) ([]string, error) {
	var all []string
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range fields(line) {
			hosts, err := expand(word)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
			}
			if all = append(all, hosts...); len(all) > maxHosts {
				return nil, fmt.Errorf("%s:%d: more than %d hosts", file, i+1, maxHosts)
			}
		}
	}
	seen := map[string]bool{}
	all = slices.DeleteFunc(all, func(h string) bool {
		twice := seen[h]
		seen[h] = true
		return twice
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no hosts: want names, one a line", file)
	}
	return all, nil
}

// fields splits a line at spaces and commas that stand in no range.
func fields(line string) []string {
	depth := 0
	return strings.FieldsFunc(line, func(r rune) bool {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			return depth <= 0
		}
		return r == ' ' || r == '\t' || r == '\r'
	})
}

// expand returns the hosts that a word stands for.
func expand(word string) ([]string, error) {
	m := hostRange.FindStringSubmatch(word)
	if m == nil {
		if !hostName.MatchString(word) {
			return nil, fmt.Errorf("%q is no host: want a name, user@name or ssh://user@name:port", word)
		}
		return []string{word}, nil
	}
	var all []string
	for part := range strings.SplitSeq(m[2], ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err := strconv.Atoi(from)
		high, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || high < low || high-low >= maxHosts {
			return nil, fmt.Errorf("%q: %q is no range", word, part)
		}
		for n := low; n <= high; n++ {
			hosts, err := expand(fmt.Sprintf("%s%0*d%s", m[1], len(from), n, m[3]))
			if err != nil {
				return nil, err
			}
			all = append(all, hosts...)
		}
	}
	return all, nil
}

// Inventory returns the hosts of some arguments of a flag: files with lists, or hosts that begin with ssh://.
func Inventory(flag string, args []string) ([]string, error) {
	var text strings.Builder
	for _, a := range args {
		if strings.HasPrefix(a, "ssh://") {
			fmt.Fprintln(&text, a)
			continue
		}
		list, err := userfile.Read(a, userfile.Text)
		if err == nil {
			_, err = Hosts(a, string(list)) // for messages with this file's lines
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		text.Write(append(list, '\n'))
	}
	return Hosts(flag, text.String())
}
