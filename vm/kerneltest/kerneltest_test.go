package kerneltest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"
)

func TestWhatTheProgramPrintedIsBetweenBeginAndEnd(t *testing.T) {
	for _, tt := range []struct {
		name, console, want string
		ended               bool
	}{
		{"all of it", "SeaBIOS\r\n\x1b[2JBEGIN\r\none\r\n\r\ntwo\r\nEND\r\nlater\r\n", "one\n\ntwo\n", true},
		{"END before BEGIN", "END\r\nBEGIN\r\none\r\n", "", true},
		{"no END", "BEGIN\r\none\r\nTHE END\r\n", "one\nTHE END\n", false},
		{"nothing", "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, all, ended := between(t, strings.NewReader(tt.console))
			read := strings.ReplaceAll(tt.console, "\r", "")
			if text != tt.want || ended != tt.ended || !strings.HasPrefix(read, all) {
				t.Errorf("got %q of %q, ended %v", text, all, ended)
			}
		})
	}
}

func TestFilesAreAddedBehindThoseOfTheImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "initrd")
	if err := os.WriteFile(path, []byte("an archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &Machine{Initrd: path}
	m.Add(t, cpio.StaticFile("first", "1", 0o755), cpio.StaticFile("second", "2", 0o644))
	b, err := os.ReadFile(m.Initrd)
	if err != nil {
		t.Fatal(err)
	}
	added, ok := bytes.CutPrefix(b, []byte("an archive"))
	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(added)))
	if !ok || err != nil || len(records) != 2 || records[0].Name != "first" || records[1].Name != "second" {
		t.Errorf("got %q, %v", b, err)
	}
}
