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
	Path  string // in FS; "." is all of it
	Name  string // as the user wrote it, for messages
	Base  string // its own name: that of the study, and of the level where nothing else names one
	Level string // of everything in it; "" where directories name the levels
}

// A file is a file of a source, read.
type file struct {
	source int
	name   string // for messages
	rel    string // below the source; the name of the file where the source is one
	data   []byte
	size   int    // bytes in the file: data is less where it is a run of several
	sum    string // SHA-256 of all that the file holds, hexadecimal
	above  int    // lines of the file above data, where data is a run of several
}

// dir returns the directories between the source and the file.
func (f *file) dir() []string {
	d := path.Dir(f.rel)
	if d == "." {
		return nil
	}
	return strings.Split(d, "/")
}

// fail is an error at a line of data; 0 is none.
func (f *file) fail(line int, format string, args ...any) error {
	if line > 0 {
		line += f.above
	}
	return &Error{File: f.name, Line: line, What: fmt.Sprintf(format, args...)}
}

// origin says where a figure of the file stands.
func (f *file) origin(level string) Origin { return Origin{File: f.name, SHA256: f.sum, Level: level} }

// readAll reads all files of the sources, those of a source in natural order. Names that begin with
// a dot are left out, as directory listings do.
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
			// Whoever gives a home directory by mistake gets an answer at once, and not after all of it was read.
			case d.IsDir() && strings.Count(p, "/") >= maxDepth:
				return &Error{File: path.Join(src.Name, p),
					What: fmt.Sprintf("deeper than %d directories: give the directory that holds the results",
						maxDepth)}
			case d.IsDir():
				return nil
			case !d.Type().IsRegular():
				// Links may lead anywhere, and pipes never end.
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
		// The order decides which file is the first repeat: run2 comes before run10, as people number them.
		slices.SortFunc(rels, natural)
		for _, p := range rels {
			f := &file{source: i, rel: p, name: path.Join(src.Name, p)}
			if p == src.Path { // the source is this file
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

// endLast ends the last line, which editors and web pages leave open, where its row is whole: it has as many fields as
// the one above it, and as many decimals in the last of them. A figure that was cut off has fewer.
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

// named gives an error of the file system the name that the user knows.
func named(src Source, err error) error {
	if _, own := errors.AsType[*Error](err); own {
		return err
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return &Error{File: path.Join(src.Name, p.Path), What: p.Err.Error()}
	}
	return &Error{File: src.Name, What: err.Error()}
}

// read bounds what it takes: what is imported comes from strangers, and a file that never ends would take all memory.
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

// detect finds the format by the contents of the files. Files that no format knows do not speak
// against one that others have: a log of a tool that gave up may hold nothing that tells it. Logs
// of several tools are read together.
func detect(files []*file) (string, error) {
	if isVCPUBenchmarks(files) {
		return VCPUBenchmarks, nil
	}
	// A directory tells the suite by its file names alone, so it is asked first: each of the files by itself would be
	// taken for a log of another tool.
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
		return "", &Error{File: files[0].name, Unknown: true, What: "of no known format; " + readFormats}
	}
	return found, nil
}

// readFormats says what is read, for those whose results are not.
const readFormats = "read are logs of perftest, nccl-tests (RCCL's too), OSU, iperf3 and nvbandwidth, a directory of " +
	"vcpu-benchmarks, and samples.jsonl of rackless"

// Tool returns the format of results that a text is in, which is the name of the tool that printed it; "" for none.
func Tool(text []byte) string {
	if len(text) > MaxFileSize {
		return ""
	}
	return sniff(text)
}

// sniff tells a single file's format; "" where it cannot.
func sniff(data []byte) string {
	trimmed := bytes.TrimSpace(data)
	// Several objects of JSON may lie in one array; what the first one is decides.
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
		return lists.Find(logFormats, func(l logFormat) bool { return l.json != nil && l.json.Match(trimmed) }).name
	}
	for _, l := range logFormats {
		if l.head != nil && l.head.Match(data) {
			return l.name
		}
	}
	// A command line or remarks may stand above a tool's JSON.
	for _, at := range objectLine.FindAllIndex(data, maxObjects) {
		for _, l := range logFormats {
			if l.json != nil && l.json.Match(data[at[1]-1:]) {
				return l.name
			}
		}
	}
	return lists.Find(logFormats, func(l logFormat) bool { return l.gaveUp != nil && l.gaveUp.Match(data) }).name
}

// isVCPUBenchmarks looks for a directory with the results of the suite's first three tests, or of
// two of them: the suite can leave tests out.
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

// slug makes a study's name of any name.
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

// natural compares names as people number them: run2 comes before run10.
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
			// Compared as texts, the longer one first being the larger number: no length overflows.
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
