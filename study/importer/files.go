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
	Name  string // as the user gave it
	Base  string // names the study, and the level if nothing else does
	Level string // of everything in it; "" if directories name levels
}

type file struct {
	source int
	name   string // for messages
	rel    string // path below the source, or the file's name
	data   []byte
	size   int    // of the whole file
	sum    string // SHA-256 of the whole file
	above  int    // lines before data, if one of several runs

	excerpt bool // Options.Excerpt
}

func (f *file) dir() []string {
	d := path.Dir(f.rel)
	if d == "." {
		return nil
	}
	return strings.Split(d, "/")
}

// fail returns an error at a line of data; 0 is no line.
func (f *file) fail(line int, format string, args ...any) error {
	if line > 0 {
		line += f.above
	}
	return &Error{File: f.name, Line: line, What: fmt.Sprintf(format, args...)}
}

func (f *file) origin(level string) Origin { return Origin{File: f.name, SHA256: f.sum, Level: level} }

// readAll reads in natural order within a source, without names that begin with a dot.
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
			// A home directory is a mistake.
			case d.IsDir() && strings.Count(p, "/") >= maxDepth:
				return &Error{File: path.Join(src.Name, p),
					What: fmt.Sprintf("deeper than %d directories: give the directory that holds the results",
						maxDepth)}
			case d.IsDir():
				return nil
			case !d.Type().IsRegular():
				// links may lead anywhere, pipes never end
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
		// The order decides which file is the first repeat.
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

// endLast adds the newline that editors and web pages omit, if the last row is complete: as many fields as the row
// above, and as many decimals in the last.
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

// named gives an error the user's name of the path.
func named(src Source, err error) error {
	if _, own := errors.AsType[*Error](err); own {
		return err
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return &Error{File: path.Join(src.Name, p.Path), What: p.Err.Error()}
	}
	return &Error{File: src.Name, What: err.Error()}
}

// read reads at most MaxFileSize bytes: imported files are not trusted.
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

// detect finds the format, or Logs for several tools. Unrecognized files may be logs of a tool that gave up.
func detect(files []*file) (string, error) {
	if isVCPUBenchmarks(files) {
		return VCPUBenchmarks, nil
	}
	// Each single file of the suite looks like another tool's log.
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

const readFormats = "read are logs of perftest, nccl-tests (RCCL's too), OSU, iperf3 and nvbandwidth, a directory of " +
	"vcpu-benchmarks, and samples.jsonl of rackless"

// Tool returns the name of the tool that printed a text, or "".
func Tool(text []byte) string {
	if len(text) > MaxFileSize {
		return ""
	}
	return sniff(text)
}

func sniff(data []byte) string {
	trimmed := bytes.TrimSpace(data)
	// JSON objects may be in an array; the first decides.
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
	// Text may precede a tool's JSON.
	for _, at := range objectLine().FindAllIndex(data, maxObjects) {
		for _, l := range logFormats {
			if l.json != nil && l.json().Match(data[at[1]-1:]) {
				return l.name
			}
		}
	}
	return lists.Find(logFormats, func(l logFormat) bool { return l.gaveUp != nil && l.gaveUp().Match(data) }).name
}

// isVCPUBenchmarks asks for two of the suite's tests: it can leave tests out.
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

// natural puts run2 before run10.
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
			// As text, no length overflows.
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
