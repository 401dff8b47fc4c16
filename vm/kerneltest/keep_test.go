package kerneltest

import (
	"debug/elf"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"
)

func TestWhatIsKept(t *testing.T) {
	image := []cpio.Record{
		cpio.Directory("bin", 0o755),
		cpio.StaticFile("bin/busybox", "a program", 0o755),
		cpio.StaticFile("bin/dash", "a program", 0o755),
		cpio.Symlink("bin/sh", "/bin/dash"),
		cpio.Symlink("bin/ash", "busybox"),
		cpio.Symlink("bin/lost", "/bin/nothing"),
		cpio.CharDev("dev/console", 0o600, 5, 1),
		cpio.StaticFile("lib/modules/igb.ko", "a module", 0o644),
	}
	always := []string{"bin", "dev/console"}
	for _, tt := range []struct {
		name     string
		patterns []string
		want     []string
		err      string
	}{
		{name: "nothing but directories and devices"},
		{name: "a file", patterns: []string{"bin/busybox"}, want: []string{"bin/busybox"}},
		{name: "a link and what it leads to", patterns: []string{"bin/sh"}, want: []string{"bin/dash", "bin/sh"}},
		{name: "a link relative to its directory", patterns: []string{"bin/ash"},
			want: []string{"bin/ash", "bin/busybox"}},
		{name: "all that match", patterns: []string{"bin/[bd]*", "lib/modules/*.ko"},
			want: []string{"bin/busybox", "bin/dash", "lib/modules/igb.ko"}},
		{name: "a program that the image lacks", patterns: []string{"bin/ip"}, err: "no file matches bin/ip"},
		{name: "a link to nothing", patterns: []string{"bin/lost"}, err: "no file bin/nothing"},
		{name: "a pattern that is none", patterns: []string{"[bin"}, err: "syntax error in pattern"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			records, err := keep(image, tt.patterns)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, r := range records {
				got[r.Name] = true
			}
			want := slices.Sorted(slices.Values(append(tt.want, always...)))
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
				t.Errorf("kept %q, want %q", names, want)
			}
		})
	}
}

func TestTheLibrariesOfAProgramAreKept(t *testing.T) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(strings.NewReader(string(shell)))
	if err != nil {
		t.Fatal(err)
	}
	needed, err := f.ImportedLibraries()
	if err != nil || len(needed) == 0 {
		t.Fatalf("libraries of the shell: %q, %v", needed, err)
	}
	image := []cpio.Record{cpio.StaticFile("bin/sh", string(shell), 0o755), cpio.StaticFile("lib/none.so", "", 0o644)}
	if _, err := keep(image, []string{"bin/sh"}); err == nil || !strings.Contains(err.Error(),
		"no library "+needed[0]+", which bin/sh needs") {
		t.Errorf("without its libraries: %v", err)
	}
	for _, library := range needed {
		image = append(image, cpio.StaticFile("lib/"+library, "", 0o644))
	}
	kept, err := keep(image, []string{"bin/sh"})
	if err != nil || len(kept) != 1+len(needed) {
		t.Errorf("kept %v, %v; want the shell and %q", kept, err, needed)
	}
}
