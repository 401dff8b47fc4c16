package inspect

import "strings"

// A kernelArg is one word of the kernel's command line.
type kernelArg struct {
	name  string // as it is written
	value string // without quotes; empty of a word without "="
}

// key returns the name as the kernel compares it: "-" and "_" are the same.
func (a kernelArg) key() string { return strings.ReplaceAll(a.name, "-", "_") }

// parseCmdline splits a command line as the kernel does: at white space outside of double quotes.
// Quotes around a value, or around a whole word, are dropped. What follows "--" is for init.
//
// Source: next_arg in lib/cmdline.c; Documentation/admin-guide/kernel-parameters.rst.
func parseCmdline(s string) []kernelArg {
	var args []kernelArg
	for s = strings.TrimLeft(s, cmdlineSpace); s != ""; s = strings.TrimLeft(s, cmdlineSpace) {
		end, quoted := len(s), false
		for i := range len(s) {
			if s[i] == '"' {
				quoted = !quoted
			} else if !quoted && strings.IndexByte(cmdlineSpace, s[i]) >= 0 {
				end = i
				break
			}
		}
		word := s[:end]
		s = s[end:]
		if word == "--" {
			break
		}
		if strings.HasPrefix(word, `"`) {
			word = strings.TrimSuffix(word[1:], `"`)
		}
		name, value, _ := strings.Cut(word, "=")
		if strings.HasPrefix(value, `"`) {
			value = strings.TrimSuffix(value[1:], `"`)
		}
		if name == "" {
			continue
		}
		args = append(args, kernelArg{name, value})
	}
	return args
}

const cmdlineSpace = " \t\n\v\f\r"
