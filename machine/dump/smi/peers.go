package smi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
)

var (
	// peerMode matches the command if it asks for reads or writes.
	peerRow  = lazyregexp.New(`(?m)^[ \t]*(GPU\d+)((?:[ \t]+(?:X|OK|CNS|GNS|TNS|NS|DR|U))+)[ \t]*\r?$`)
	peerMode = lazyregexp.New(`-p2p[ =]+[rw]+\b`)
)

// peerCodes are the codes of pairs without access.
var peerCodes = map[string]string{"CNS": "chipset not supported", "GNS": "GPU not supported",
	"TNS": "topology not supported", "NS": "not supported", "DR": "disabled by regkey"}

// unreachable returns the first pair of GPUs without access to each other, or "".
func unreachable(text string) string {
	rows := peerRow().FindAllStringSubmatch(ansi().ReplaceAllString(text, ""), -1)
	for _, row := range rows {
		cells := strings.Fields(row[2])
		at := slices.IndexFunc(cells, func(c string) bool { return peerCodes[c] != "" })
		if at < 0 || at >= len(rows) || !slices.Contains(cells, "X") {
			continue
		}
		out := fmt.Sprintf("it says %s (%s) of %s and %s", cells[at], peerCodes[cells[at]], row[1], rows[at][1])
		if peerMode().MatchString(text) {
			out += ": they have no peer-to-peer"
		}
		return out
	}
	return ""
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
