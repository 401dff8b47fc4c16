package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// Texts beside the files of a machine, such as logs and findings, may have names in any place. So every word is
// replaced, except ordinary ones and those of public texts.

// prose is the vocabulary for texts beside the files of a machine.
type prose struct {
	public map[string]bool // words of public texts, in lower case
	names  map[string]bool // words that are replaced although they may be public, in lower case
	keys   map[string]bool // keys of JSON documents, which are kept even if a name is the same
}

// inProse returns an anonymizer with the same key, for texts.
func (a *anonymizer) inProse(o BundleOptions, names []string) *anonymizer {
	p := &prose{public: map[string]bool{}, names: map[string]bool{}, keys: map[string]bool{}}
	for _, key := range o.Keys {
		p.keys[key] = true
	}
	for _, text := range slices.Concat(o.Public, o.Keys) {
		for _, w := range wordShape().FindAllString(text, -1) {
			p.public[strings.ToLower(w)] = true
		}
	}
	for _, name := range names {
		for _, w := range wordShape().FindAllString(name, -1) {
			p.names[strings.ToLower(w)] = true
		}
	}
	out := *a
	out.prose = p
	return &out
}

var (
	// timeShape matches times and dates, which identify nothing.
	timeShape = lazyregexp.New(`\b[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?` +
		`(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?\b|\b[0-9]{8}T[0-9]{6}Z\b`)
	// dottedMAC matches a MAC address as switches print it.
	dottedMAC = lazyregexp.New(`\b[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\b`)
	// longNumber matches numbers that may be serial numbers, of accounts or of machines.
	longNumber = lazyregexp.New(`^[0-9]{7,}$`)
	// amount matches a number with a unit.
	amount = lazyregexp.New(`^[0-9]{1,6}(?:ns|us|ms|s|m|h|d|[kKMGT]i?[bB]?|[MG]?Hz|[GM]T|bit|x)$`)
)

// proseLine replaces the identities in a line of text.
func (a *anonymizer) proseLine(line string) string {
	return eachMatch(timeShape(), line, func(s string) string { return s }, func(s string) string {
		return eachMatch(dottedMAC(), s, a.nameOf, a.nameLine)
	})
}

// eachMatch applies inside to the matches of a pattern and outside to the text between them.
func eachMatch(re *regexp.Regexp, s string, inside, outside func(string) string) string {
	var out strings.Builder
	last := 0
	for _, at := range re.FindAllStringIndex(s, -1) {
		out.WriteString(outside(s[last:at[0]]))
		out.WriteString(inside(s[at[0]:at[1]]))
		last = at[1]
	}
	out.WriteString(outside(s[last:]))
	return out.String()
}

// proseWord replaces a word of a text, unless it is ordinary or public. A host that is called "gpu" keeps that word,
// because it names nothing and is everywhere.
func (a *anonymizer) proseWord(w string) string {
	lower := strings.ToLower(w)
	ordinary := isOrdinary(lower)
	switch {
	case longNumber().MatchString(w):
		return a.nameOf(w)
	case plainWord().MatchString(w), ordinary:
		return w
	case a.isHost(w):
		return "host"
	case a.prose.named(lower):
		return a.nameOf(w)
	case a.keep[w], a.prose.knows(lower), amount().MatchString(w):
		return w
	}
	return a.nameOf(w)
}

// named reports whether a word, or one of its parts, is a name.
func (p *prose) named(w string) bool {
	for part := range strings.SplitSeq(w, "_") {
		if p.names[part] || p.names[strings.TrimRight(part, "0123456789")] {
			return true
		}
	}
	return p.names[w]
}

// knows reports whether a word, or all of its parts, are public or ordinary, possibly with digits appended.
func (p *prose) knows(w string) bool {
	if p.public[w] {
		return true
	}
	first, rest, several := strings.Cut(w, "_")
	if several {
		return p.knowsPart(first) && (rest == "" || p.knows(rest))
	}
	return p.knowsPart(w)
}

func (p *prose) knowsPart(w string) bool {
	base := strings.TrimRight(w, "0123456789")
	return base == "" && len(w) < 7 || base != "" && (p.public[base] || isOrdinary(base)) && len(w)-len(base) < 4
}

// proseText replaces the identities in a text or, if isJSON is set, in all strings and keys of JSON documents, which
// are then one a line.
func (a *anonymizer) proseText(b []byte, isJSON bool) ([]byte, error) {
	if !isJSON {
		return []byte(eachLine(strings.ToValidUTF8(string(b), "?"), a.proseLine)), nil
	}
	var out bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	for {
		err := a.value(d, &out)
		if errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		out.WriteByte('\n')
	}
}

// value copies the next value of a JSON document. The order of keys stays, unlike in a map.
func (a *anonymizer) value(d *json.Decoder, out *bytes.Buffer) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	opening, ok := token.(json.Delim)
	if !ok {
		return a.scalar(token, out)
	}
	fmt.Fprint(out, opening)
	for first := true; d.More(); first = false {
		if !first {
			out.WriteByte(',')
		}
		if opening == '{' {
			key, err := d.Token()
			if text, ok := key.(string); ok && a.prose.keys[text] {
				fmt.Fprintf(out, "%q", text)
			} else if err == nil {
				err = a.scalar(key, out)
			}
			if err != nil {
				return cut(err)
			}
			out.WriteByte(':')
		}
		if err := a.value(d, out); err != nil {
			return cut(err)
		}
	}
	closing, err := d.Token()
	if err != nil {
		return cut(err)
	}
	fmt.Fprint(out, closing)
	return nil
}

// cut returns an error that does not count as the end of the input.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (a *anonymizer) scalar(token json.Token, out *bytes.Buffer) error {
	if s, ok := token.(string); ok {
		token = eachLine(s, a.proseLine)
	}
	text, err := json.Marshal(token)
	out.Write(text)
	return err
}
