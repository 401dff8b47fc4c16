//go:build ignore

// Gen makes ids.txt from a pci.ids file, without subsystems and programming interfaces, which are half of the list.
//
//	go run gen.go -out ids.txt /usr/share/misc/pci.ids
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
)

const header = `# PCI vendors, devices and classes. Made by gen.go from pci.ids. Do not edit.
# Version: %s
# Source: pci.ids of the PCI ID Project, https://pci-ids.ucw.cz/
# Licence: pci.ids may be distributed under the GNU General Public License (version 2 or higher) or
# the 3-clause BSD License. It is taken here under the 3-clause BSD License, whose text is in the file
# LICENSE beside this one.
`

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	out := flag.String("out", "ids.txt", "file to `write`")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("want one argument: a pci.ids file")
	}
	text, err := os.ReadFile(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	version, lines, err := convert(string(text))
	if err != nil {
		log.Fatalf("%s: %v", flag.Arg(0), err)
	}
	all := fmt.Sprintf(header, version) + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(*out, []byte(all), 0o644); err != nil {
		log.Fatal(err)
	}
}

func convert(text string) (version string, lines []string, err error) {
	var parent string // key above indented lines; empty to skip these
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		switch {
		case strings.HasPrefix(line, "#"):
			if v, ok := strings.CutPrefix(line, "#\tVersion: "); ok {
				version = v
			}
			continue
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, "\t\t"):
			continue
		}
		prefix, digits, rest := "", 4, line
		switch {
		case strings.HasPrefix(line, "\t"):
			if parent == "" {
				return "", nil, fmt.Errorf("line %d: indented below nothing", n)
			}
			prefix, rest = parent, line[1:]
			if parent[0] == 'C' {
				digits = 2
			}
		case strings.HasPrefix(line, "C "):
			prefix, digits, rest = "C", 2, line[2:]
		}
		id, name, ok := strings.Cut(rest, "  ")
		if !ok || len(id) != digits || strings.Trim(id, "0123456789abcdef") != "" {
			return "", nil, fmt.Errorf("line %d: %q: want %d hexadecimal digits, two spaces and a name", n, line,
				digits)
		}
		key := prefix + id
		if !strings.HasPrefix(line, "\t") {
			parent = key
		}
		lines = append(lines, key+" "+strings.TrimSpace(name))
	}
	if version == "" {
		return "", nil, fmt.Errorf("no version in its header")
	}
	slices.Sort(lines)
	return version, lines, nil
}
