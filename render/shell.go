package render

import (
	"bytes"
	"embed"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rackless/rackless/internal/words"
)

// The functions of scripts are files of their own, so that they can be read, checked and tried as
// scripts. What a plan adds is data: assignments of quoted values before them. Nothing of a lab, a
// plan or a host becomes code.
//
//go:embed shell/*.sh
var shellFiles embed.FS

// shellPart returns one of the files; the names are constants, and the tests go through all of them.
func shellPart(name string) string {
	data, err := shellFiles.ReadFile("shell/" + name + ".sh")
	if err != nil {
		panic(err)
	}
	return string(data)
}

// A shellVar is an assignment at the top of a script.
type shellVar struct {
	name, value string
	why         string // comment lines before it
}

// shellScript puts a script together: what made it, what it does, its data, and the parts of shell/ that are named.
func shellScript(made, what string, vars []shellVar, parts ...string) []byte {
	var b bytes.Buffer
	b.WriteString("#!/bin/sh\n")
	b.WriteString(comment("# ", made))
	b.WriteString(comment("# ", what))
	b.WriteByte('\n')
	for _, v := range vars {
		if v.why != "" {
			b.WriteString(comment("# ", v.why))
		}
		fmt.Fprintf(&b, "%s=%s\n", v.name, words.Quote(v.value))
	}
	b.WriteByte('\n')
	for _, p := range parts {
		b.WriteString(shellPart(p))
	}
	return b.Bytes()
}

// shellWord is words.Quote for what people read: without quotes where none are needed.
func shellWord(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@+-"
	if s != "" && s[0] != '-' && s[0] != '=' && strings.Trim(s, plain) == "" {
		return s
	}
	return words.Quote(s)
}

// oneLine makes text from outside harmless where a line break would end a comment or a value:
// control characters and separators become spaces.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Cf) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// commentWidth is where comments are wrapped.
const commentWidth = 110

// comment returns text as lines that begin with prefix. Words longer than a line stay whole.
func comment(prefix, text string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(text, "\n") {
		line := strings.TrimRight(prefix, " ")
		for _, word := range strings.Fields(oneLine(part)) {
			switch {
			case line == strings.TrimRight(prefix, " "):
				line = prefix + word
			case len(line)+1+len(word) > commentWidth:
				b.WriteString(line + "\n")
				line = prefix + word
			default:
				line += " " + word
			}
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// safeName returns s as a part of file names and of names of systemd units: letters, digits,
// hyphens and underscores stay, any other byte becomes _ and two hexadecimal digits. Names of labs
// stay as they are.
func safeName(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', i > 0 && (c == '-' || c == '_'):
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return words.Either(b.Len() == 0, "_", b.String())
}
