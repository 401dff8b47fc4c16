package importer

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/dump/paste"
)

// A Source is a file or a directory to import.
type Source struct {
	FS    fs.FS
	Path  string // in FS; "." is the whole FS
	Name  string // as given by the user, for messages
	Base  string // base name; names the study, and the level if nothing else does
	Level string // level of everything in it; "" if directories name the levels
}

type file struct {
	source int
	name   string // for messages
	rel    string // path below the source; the file's name if the source is a file
	data   []byte
	size   int    // size of the file; data is less if it is one of several runs
	sum    string // SHA-256 of the whole file, hexadecimal
	above  int    // lines of the file before data, if data is one of several runs
}

// dir returns the directories between the source and the file.
func (f *file) dir() []string {
	d := path.Dir(f.rel)
	if d == "." {
		return nil
	}
	return strings.Split(d, "/")
}

// fail returns an error at a line of data, or without a line if line is 0.
func (f *file) fail(line int, format string, args ...any) error {
	if line > 0 {
		line += f.above
	}
	return &Error{File: f.name, Line: line, What: fmt.Sprintf(format, args...)}
}

func (f *file) origin(level string) Origin { return Origin{File: f.name, SHA256: f.sum, Level: level} }

// readAll reads all files of the sources, in natural order within a source. It skips names that begin with a dot.
func readAll(sources []Source) ([]*file, error) {
	var all []*file
	for i, src := range sources {
		var rels []string
		err := fs.WalkDir(src.FS, src.Path, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case p != src.Path && strings.HasPrefix(d.Name(), "."):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			// Fail early if a home directory is given by mistake.
			case d.IsDir() && strings.Count(p, "/") >= maxDepth:
				return &Error{File: path.Join(src.Name, p),
					What: fmt.Sprintf("deeper than %d directories: give the directory that holds the results",
						maxDepth)}
			case d.IsDir():
				return nil
			case !d.Type().IsRegular():
				// links may lead anywhere, and pipes never end
				return nil
			case len(all)+len(rels) >= maxFiles:
				return &Error{File: src.Name, What: fmt.Sprintf("more than %d files: give the directory that holds "+
					"the results", maxFiles)}
			}
			rels = append(rels, p)
			return nil
		})
		if err != nil {
			return nil, named(src, err)
		}
		// The order decides which file is the first repeat. It is numeric, so run2 comes before run10.
		slices.SortFunc(rels, natural)
		for _, p := range rels {
			f := &file{source: i, rel: p, name: path.Join(src.Name, p)}
			if p == src.Path {
				f.rel, f.name = path.Base(p), src.Name
			}
			if f.data, err = read(src.FS, p); err != nil {
				return nil, named(src, err)
			}
			sum := sha256.Sum256(f.data)
			if !bytes.HasPrefix(bytes.TrimSpace(f.data), []byte("{")) {
				f.data = endLast(paste.Clean(f.data))
			}
			f.size = len(f.data)
			f.sum = hex.EncodeToString(sum[:])
			all = append(all, f)
		}
		if len(rels) == 0 {
			what := "there is no file in it"
			if info, err := fs.Stat(src.FS, src.Path); err == nil && !info.IsDir() {
				what = "neither a file nor a directory: write what it gives into a file"
			}
			return nil, &Error{File: src.Name, What: what}
		}
	}
	return all, nil
}

// endLast adds the newline that editors and web pages omit at the end, if the last row is complete: it has as many
// fields as the row above, and as many decimals in the last field.
func endLast(text []byte) []byte {
	end := bytes.LastIndexByte(text, '\n')
	if end < 0 || end == len(text)-1 {
		return text
	}
	above := bytes.Fields(text[bytes.LastIndexByte(text[:end], '\n')+1 : end])
	last := bytes.Fields(text[end:])
	if len(last) < 2 || len(last) != len(above) {
		return text
	}
	_, decimals, found := bytes.Cut(last[len(last)-1], []byte("."))
	_, before, _ := bytes.Cut(above[len(above)-1], []byte("."))
	if !found || len(decimals) == 0 || len(decimals) != len(before) {
		return text
	}
	return append(slices.Clip(text), '\n')
}

// named replaces the path in an error of the file system by the name that the user gave.
func named(src Source, err error) error {
	if _, own := errors.AsType[*Error](err); own {
		return err
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return &Error{File: path.Join(src.Name, p.Path), What: p.Err.Error()}
	}
	return &Error{File: src.Name, What: err.Error()}
}

// read reads at most MaxFileSize bytes: imported files are not trusted, and an endless one would take all memory.
func read(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err == nil && len(data) > MaxFileSize {
		err = &fs.PathError{Op: "read", Path: name,
			Err: fmt.Errorf("larger than %d MiB, which no result is", MaxFileSize>>20)}
	}
	return data, err
}

// detect determines the format from the contents of the files, or Logs for logs of several tools. It ignores
// unrecognized files, which may be logs of a tool that gave up.
func detect(files []*file) (string, error) {
	if isVCPUBenchmarks(files) {
		return VCPUBenchmarks, nil
	}
	// The suite is checked first, by its file names, because each single file looks like a log of another tool.
	found := ""
	for _, f := range files {
		switch got := sniff(f.data); {
		case got == "", got == found:
		case found == "":
			found = got
		default:
			found = Logs
		}
	}
	if found == "" {
		what := "of no known format; "
		if is := stranger(files[0].data); is != "" {
			what = is + "; "
		}
		return "", &Error{File: files[0].name, Unknown: true, What: what + readFormats}
	}
	return found, nil
}

// readFormats lists the supported formats in the error for unknown results.
const readFormats = "read are logs of perftest, nccl-tests (RCCL's too), OSU, iperf3 and nvbandwidth, a directory of " +
	"vcpu-benchmarks, and samples.jsonl of rackless"

// Tool returns the format of a text, which is the name of the tool that printed it, or "" if it is unknown.
func Tool(text []byte) string {
	if len(text) > MaxFileSize {
		return ""
	}
	return sniff(text)
}

// sniff returns the format of a single file, or "" if it is unknown.
func sniff(data []byte) string {
	trimmed := bytes.TrimSpace(data)
	// Several JSON objects may be in an array; the first one decides.
	if rest, ok := bytes.CutPrefix(trimmed, []byte("[")); ok {
		trimmed = bytes.TrimSpace(rest)
	}
	if bytes.HasPrefix(trimmed, []byte("{")) {
		line, _, _ := bytes.Cut(trimmed, []byte("\n"))
		var head struct {
			Run  *string `json:"run"`
			Test *string `json:"test"`
		}
		if json.Unmarshal(line, &head) == nil && head.Run != nil && head.Test != nil {
			return Rackless
		}
		return lists.Find(logFormats, func(l logFormat) bool { return l.json != nil && l.json().Match(trimmed) }).name
	}
	for _, l := range logFormats {
		if l.head != nil && l.head().Match(data) {
			return l.name
		}
	}
	// A command line or remarks may precede a tool's JSON.
	for _, at := range objectLine().FindAllIndex(data, maxObjects) {
		for _, l := range logFormats {
			if l.json != nil && l.json().Match(data[at[1]-1:]) {
				return l.name
			}
		}
	}
	return lists.Find(logFormats, func(l logFormat) bool { return l.gaveUp != nil && l.gaveUp().Match(data) }).name
}

// isVCPUBenchmarks reports whether a directory contains results of at least two of the suite's tests: the suite can
// leave tests out.
func isVCPUBenchmarks(files []*file) bool {
	have := map[string]int{}
	for _, f := range files {
		if _, ok := vcpuTests[path.Base(f.rel)]; ok || path.Base(f.rel) == vcpuTopology {
			key := fmt.Sprint(f.source, " ", path.Dir(f.rel))
			if have[key]++; have[key] == 2 {
				return true
			}
		}
	}
	return false
}

// slug derives a valid study name from any name.
func slug(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, s)
	s = strings.Trim(s, "-")
	return strings.Trim(s[:min(len(s), 40)], "-")
}

// natural compares names with numbers by value: run2 comes before run10.
func natural(a, b string) int {
	digits := func(s string) int {
		i := 0
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i
	}
	x, y := a, b
	for x != "" && y != "" {
		if i, j := digits(x), digits(y); i > 0 && j > 0 {
			// Numbers are compared as text, with the longer one being larger, so that no length overflows.
			m, n := strings.TrimLeft(x[:i], "0"), strings.TrimLeft(y[:j], "0")
			if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
				return c
			}
			x, y = x[i:], y[j:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}
