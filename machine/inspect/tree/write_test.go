package tree

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

const rule = "# ttar - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - -\n"

type textWriter struct {
	*bufio.Writer
	from fs.FS
}

// writeText writes the form of ParseText: sorted, and the same bytes for the same tree.
func writeText(w io.Writer, from fs.FS) error {
	t := &textWriter{bufio.NewWriter(w), from}
	entries, err := fs.ReadDir(from, ".")
	if err != nil {
		return err
	}
	if err := t.entries(".", entries); err != nil {
		return err
	}
	return t.Flush()
}

func (t *textWriter) entries(dir string, entries []fs.DirEntry) error {
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		target := ""
		if e.Type() == fs.ModeSymlink {
			var err error
			if target, err = fs.ReadLink(t.from, name); err != nil {
				return err
			}
		}
		if strings.ContainsAny(name, "\n\r") || strings.TrimSpace(name) != name || strings.ContainsAny(target, "\n\r") {
			return fmt.Errorf("write %.200q as text: its name or target has a line break in it", name)
		}
		switch {
		case e.IsDir():
			below, err := fs.ReadDir(t.from, name)
			fmt.Fprintf(t, "Directory: %s\n", name)
			t.error(err)
			fmt.Fprintf(t, "Mode: 755\n%s", rule)
			if err := t.entries(name, below); err != nil {
				return err
			}
		case target != "":
			fmt.Fprintf(t, "Path: %s\nSymlinkTo: %s\n%s", name, target, rule)
		default:
			data, err := fs.ReadFile(t.from, name)
			fmt.Fprintf(t, "Path: %s\n", name)
			if err == nil {
				t.content(string(data))
			}
			t.error(err)
			fmt.Fprintf(t, "Mode: 644\n%s", rule)
		}
	}
	return nil
}

func (t *textWriter) error(err error) {
	if err != nil {
		fmt.Fprintf(t, "Error: %s\n", ErrorName(err))
	}
}

var escaper = strings.NewReplacer("NULLBYTE", `\NULLBYTE`, "EOF", `\EOF`, "\x00", "NULLBYTE")

// content quotes a file if a backslash would escape a special word.
func (t *textWriter) content(data string) {
	if strings.Contains(data, "\\\x00") || strings.HasSuffix(data, `\`) {
		fmt.Fprintf(t, "Quoted: %s\n", strconv.Quote(data))
		return
	}
	lines := escaper.Replace(data)
	if lines != "" && !strings.HasSuffix(lines, "\n") {
		lines += "EOF\n"
	}
	fmt.Fprintf(t, "Lines: %d\n%s", strings.Count(lines, "\n"), lines)
}
