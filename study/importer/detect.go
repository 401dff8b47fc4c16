package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
)

// detect finds the format by the contents of the files. Files that no format knows do not speak
// against one that others have: a log of a tool that gave up may hold nothing that tells it. Logs
// of several tools are read together.
func detect(files []*file) (string, error) {
	if isVCPUBenchmarks(files) {
		return VCPUBenchmarks, nil
	}
	// A directory tells the suite by its file names alone, so it is asked first: each of the files by itself would be
	// taken for a log of another tool.
	var found string
	var by *file
	for _, f := range files {
		got := sniff(f.data)
		switch {
		case got == "":
		case found == "":
			found, by = got, f
		case got == found || found == Logs && isLog(got):
		case isLog(got) && isLog(found):
			found = Logs
		default:
			return "", fmt.Errorf("%s is of format %s, and %s of format %s: import them apart", by.name, sniff(by.data),
				f.name, got)
		}
	}
	if found == "" {
		return "", &Error{File: files[0].name,
			What: fmt.Sprintf("of no known format; if it is one of %s, say which with --format",
				strings.Join(Formats()[1:], ", "))}
	}
	return found, nil
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
			Node *string `json:"node"`
			Run  *string `json:"run"`
			Test *string `json:"test"`
		}
		// Python writes NaN, which is no JSON.
		err := json.Unmarshal(strictJSON(line), &head)
		var wrongType *json.UnmarshalTypeError
		switch {
		case err != nil && !errors.As(err, &wrongType):
		case head.Run != nil && head.Test != nil:
			return Rackless
		case head.Node != nil:
			return SuperBench
		}
		for _, l := range logFormats {
			if l.json != nil && l.json.Match(trimmed) {
				return l.name
			}
		}
		return ""
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
	for _, l := range logFormats {
		if l.gaveUp != nil && l.gaveUp.Match(data) {
			return l.name
		}
	}
	return ""
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
