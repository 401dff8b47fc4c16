package qapi

import (
	"bytes"
	"io"
	"testing"
)

// Errors quote only a little of a line.
func FuzzParseLine(f *testing.F) {
	for _, s := range []string{
		"", " \t", "\xff", "\xff{\"return\": 4503599627370495}", `{"QMP": {"version": {}, "capabilities": ["oob"]}}`,
		`{"return": null}`, `{"return": {"pid": 12}}`, `{"error": {"class": "GenericError", "desc": "x"}}`,
		`{"error": {}}`,
		`{"timestamp": {"seconds": 1}, "event": "STOP", "data": {}}`, `{"event": 3}`, `{"ret`, "[]", "null",
		"\x00\xff\xff{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, ok, err := parseLine(line)
		if err != nil && (ok || len(err.Error()) > 1000 || m.Return != nil) {
			t.Errorf("ok %v with an error of %d bytes", ok, len(err.Error()))
		}
		if !ok && err == nil && len(bytes.TrimSpace(line[bytes.LastIndexByte(line, 0xff)+1:])) > 0 {
			t.Errorf("%q was taken for nothing", line)
		}
	})
}

// Nonsense gets one answer per line, and never stops the Mux.
func FuzzMuxServe(f *testing.F) {
	f.Add([]byte(`{"execute": "guest-ping"}` + "\n"))
	f.Add([]byte(`{"execute": 3}` + "\n{}\nnull\n[]\n\n\xff"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		m := &Mux{Agent: "/nonexistent/socket"}
		var answers bytes.Buffer
		if err := m.Serve(t.Context(), struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(sent), &answers}); err != nil {
			t.Error(err)
		}
		if got, want := bytes.Count(answers.Bytes(), []byte("\n")),
			len(bytes.Split(bytes.TrimSuffix(sent, []byte("\n")), []byte("\n"))); len(sent) > 0 && got != want {
			t.Errorf("%d answers to %d lines", got, want)
		}
		for line := range bytes.Lines(answers.Bytes()) {
			if m, ok, err := parseLine(line); err != nil || !ok || m.Error == nil {
				t.Errorf("to %q: answer %q", sent, line)
			}
		}
	})
}
