package smi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/topology"
)

// A header names the columns of a matrix.
type header struct {
	names  []string
	cols   []int // where the name of each starts; nil where the header does not stand on one line
	titles []title
	line   int
	lost   int // how many rows are cut off at the top, where the header is too
}

// A title is a column behind the paths.
type title struct {
	kind titleKind
	col  int
}

type titleKind uint8

const (
	cpuAffinity titleKind = iota
	numaAffinity
	gpuNUMAID
)

// titleWords are the titles as words. Older versions of nvidia-smi have only the first, or the first two.
var titleWords = [...][]string{
	cpuAffinity:  {"CPU", "Affinity"},
	numaAffinity: {"NUMA", "Affinity"},
	gpuNUMAID:    {"GPU", "NUMA", "ID"},
}

var (
	gpuName = lazyregexp.New(`^GPU[0-9]{1,4}$`)
	// A NIC is "NIC0", or in the older layout the name of its RDMA device: mlx5_0, mlx5_bond_0, bnxt_re0, rocep13s0f0.
	nicName = lazyregexp.New(`^(?:NIC[0-9]{1,4}|[a-z][a-z0-9_]{0,30}[0-9][a-z0-9_]{0,16})$`)
	// runTogether matches a word of a header that is several: "NIC6NIC7", "NIC11CPU", "AffinityGPU".
	runTogether = lazyregexp.New(`^(?:GPU[0-9]+|NIC[0-9]+|mlx[0-9]_(?:bond_)?[0-9]+|CPU|NUMA|Affinity|GPU|ID)+$`)
	headerWord  = lazyregexp.New(`GPU[0-9]+|NIC[0-9]+|mlx[0-9]_(?:bond_)?[0-9]+|CPU|NUMA|Affinity|GPU|ID`)
)

func isGPU(s string) bool { return gpuName.MatchString(s) }

// gpuIndex returns the number of a GPU's name, nil for a NIC.
func gpuIndex(name string) *int {
	if !isGPU(name) {
		return nil
	}
	n, _ := strconv.Atoi(name[len("GPU"):])
	return &n
}

func isTitleWord(s string) bool {
	switch s {
	case "CPU", "NUMA", "Affinity", "GPU", "ID":
		return true
	}
	return false
}

// headerAt reads the header that starts at token i: names of devices, then titles. It is one only
// if the first row follows, which starts with the first name again: that tells it from prose about
// GPUs.
func headerAt(tokens []token, i int) (h header, next int, ok bool) {
	oneLine := true
	h.line = tokens[i].line
	seen := map[string]bool{}
	var words []token // title words
	add := func(t token) bool {
		switch {
		case isTitleWord(t.text):
			words = append(words, t)
		case len(words) > 0 || seen[t.text] || len(h.names) == maxDevices:
			return false
		case isGPU(t.text), len(h.names) > 0 && nicName.MatchString(t.text):
			seen[t.text] = true
			h.names = append(h.names, t.text)
			h.cols = append(h.cols, t.col)
		default:
			return false
		}
		return true
	}
	for next = i; next < len(tokens); next++ {
		t := tokens[next]
		if len(h.names) > 0 && t.text == h.names[0] {
			break // the first row
		}
		// A header is broken by terminals, but an empty line ends it.
		if next > i && t.line > tokens[next-1].line+1 {
			return h, next, false
		}
		oneLine = oneLine && t.line == h.line
		// A terminal may have broken a word in two: "NIC1", "0" or "NUMA Aff", "inity".
		if next+1 < len(tokens) && tokens[next+1].glued {
			if rest := tokens[next+1].text; !(isHeaderWord(t.text) && isHeaderWord(rest)) && isHeaderWord(t.text+rest) {
				t.text += rest
				next++
			}
		}
		parts := splitHeader(t)
		for _, p := range parts {
			if !add(p) {
				// A title that is cut off ends the header, where the line ends.
				if len(words) > 0 && next+1 < len(tokens) && tokens[next+1].line > t.line && isTitlePrefix(p.text) {
					continue
				}
				return h, next, false
			}
		}
	}
	if next == len(tokens) || len(h.names) == 0 || !isGPU(h.names[0]) {
		return h, next, false
	}
	if !oneLine {
		h.cols = nil
	}
	h.titles, ok = titles(words)
	return h, next, ok
}

func isHeaderWord(s string) bool { return isTitleWord(s) || isGPU(s) || nicName.MatchString(s) }

func isTitlePrefix(s string) bool {
	return slices.ContainsFunc([]string{"Affinity", "NUMA", "ID"},
		func(word string) bool { return s != "" && strings.HasPrefix(word, s) })
}

// splitHeader splits a word that is several run together. The columns of the parts are not known;
// they get that of the whole.
func splitHeader(t token) []token {
	if !runTogether.MatchString(t.text) {
		return []token{t}
	}
	return lists.Map(headerWord.FindAllString(t.text, -1),
		func(w string) token { return token{text: w, line: t.line, col: t.col} })
}

// titles puts title words together, in the order of the kinds, each at most once. The last title may be cut off.
func titles(words []token) (out []title, ok bool) {
	for kind := range titleWords {
		n := 0
		for n < len(titleWords[kind]) && n < len(words) && words[n].text == titleWords[kind][n] {
			n++
		}
		if n == len(titleWords[kind]) || n > 0 && n == len(words) {
			out = append(out, title{titleKind(kind), words[0].col})
			words = words[n:]
		}
	}
	return out, len(words) == 0
}

// headerFromRows makes up for a lost header: the rows name the columns. It holds for two rows or
// more, of which the first has the X of its own column. Columns before that X are those of rows that are lost as well:
// nvidia-smi counts GPUs from 0, and NICs behind them.
func headerFromRows(tokens []token, i int) (h header, ok bool) {
	h.line = tokens[i].line
	labels, _ := readLabels(tokens[i+1:rowEnd(tokens, i+1, looksLikeDevice)], maxDevices)
	h.lost = slices.IndexFunc(labels, func(l label) bool { return l.Class == topology.PathSelf })
	if h.lost < 0 {
		return h, false
	}
	if h.names, ok = namesBefore(tokens[i].text, h.lost); !ok {
		return h, false
	}
	for at := i; at+1 < len(tokens) && looksLikeDevice(tokens[at].text) && len(h.names) < maxDevices; {
		if _, isPath := splitLabels(tokens[at+1].text); !isPath || slices.Contains(h.names, tokens[at].text) {
			break
		}
		h.names = append(h.names, tokens[at].text)
		at = rowEnd(tokens, at+1, looksLikeDevice)
	}
	return h, len(h.names) > h.lost+1 && (h.lost == 0 || len(h.names) == len(labels))
}

// namesBefore returns the names of the n columns before that of a device; ok is false where its name does not tell
// them.
func namesBefore(device string, n int) (names []string, ok bool) {
	gpus, nics := n, 0
	if number, isNIC := strings.CutPrefix(device, "NIC"); isNIC {
		nics, _ = strconv.Atoi(number)
		if gpus -= nics; gpus < 1 {
			return nil, false
		}
	} else if k := gpuIndex(device); n > 0 && (k == nil || *k != n) {
		return nil, false
	}
	for i := range gpus {
		names = append(names, fmt.Sprintf("GPU%d", i))
	}
	for i := range nics {
		names = append(names, fmt.Sprintf("NIC%d", i))
	}
	return names, true
}

func looksLikeDevice(s string) bool { return isGPU(s) || nicName.MatchString(s) }
