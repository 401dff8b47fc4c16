package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func elfFile(t testing.TB, interp string, needed []string, modinfo string) []byte {
	t.Helper()
	const headerSize, progSize, sectionSize = 64, 56, 64
	strtab := "\x00.modinfo\x00.dynstr\x00.dynamic\x00"
	name := func(s string) uint32 { return uint32(strings.Index(strtab, "\x00"+s+"\x00") + 1) }
	var dyn []elf.Dyn64
	for _, n := range needed {
		dyn = append(dyn, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(strtab))})
		strtab += n + "\x00"
	}
	dyn = append(dyn, elf.Dyn64{Tag: int64(elf.DT_NULL)})

	var body bytes.Buffer
	at := func() uint64 { return uint64(headerSize + progSize + body.Len()) }
	put := func(v any) {
		if err := binary.Write(&body, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	interpAt := at()
	body.WriteString(interp + "\x00")
	strAt := at()
	body.WriteString(strtab)
	dynAt := at()
	put(dyn)
	modAt := at()
	body.WriteString(modinfo)
	sectionsAt := at()
	put([]elf.Section64{
		{},
		{Name: name(".dynstr"), Type: uint32(elf.SHT_STRTAB), Off: strAt, Size: uint64(len(strtab))},
		{Name: name(".dynamic"), Type: uint32(elf.SHT_DYNAMIC), Off: dynAt, Size: uint64(16 * len(dyn)), Link: 1,
			Entsize: 16},
		{Name: name(".modinfo"), Type: uint32(elf.SHT_PROGBITS), Off: modAt, Size: uint64(len(modinfo))},
	})
	prog := elf.Prog64{Type: uint32(elf.PT_NULL)}
	if interp != "" {
		prog = elf.Prog64{Type: uint32(elf.PT_INTERP), Off: interpAt, Filesz: uint64(len(interp) + 1)}
	}
	header := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: headerSize, Shoff: sectionsAt,
		Ehsize: headerSize, Phentsize: progSize, Phnum: 1, Shentsize: sectionSize, Shnum: 4, Shstrndx: 1,
	}
	copy(header.Ident[:], "\x7fELF\x02\x01\x01")
	var out bytes.Buffer
	for _, v := range []any{header, prog} {
		if err := binary.Write(&out, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return append(out.Bytes(), body.Bytes()...)
}

func writeTree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = errors.Join(err, os.Symlink(target, path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(content), 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

const loader = "/lib64/ld-linux-x86-64.so.2"

func TestClosure(t *testing.T) {
	bin := func(needed ...string) string { return string(elfFile(t, loader, needed, "")) }
	lib := func(needed ...string) string { return string(elfFile(t, "", needed, "")) }
	const gnu = "usr/lib/x86_64-linux-gnu/"
	for name, tt := range map[string]struct {
		files    map[string]string
		programs []string
		want     []string
		wantErr  string
	}{
		"libraries of libraries, each once": {
			files: map[string]string{
				"usr/bin/a": bin("libx.so.1", "libc.so.6"), "lib64/ld-linux-x86-64.so.2": lib(),
				gnu + "libx.so.1": "-> libx.so.1.2", gnu + "libx.so.1.2": lib("liby.so", "libc.so.6"),
				gnu + "liby.so": lib("libx.so.1"), gnu + "libc.so.6": lib("ld-linux-x86-64.so.2"),
			},
			programs: []string{"usr/bin/a"},
			want: []string{"usr/bin/a", "lib64/ld-linux-x86-64.so.2", gnu + "libx.so.1", gnu + "liby.so",
				gnu + "libc.so.6"},
		},
		"a loader behind a link keeps its absolute name": {
			files: map[string]string{
				"usr/bin/a": bin(), "lib64": "-> usr/lib64", "usr/lib64/ld-linux-x86-64.so.2": "-> /usr/lib/ld.so",
				"usr/lib/ld.so": lib(),
			},
			programs: []string{"usr/bin/a"},
			want:     []string{"usr/bin/a", "usr/lib/ld.so", "lib64/ld-linux-x86-64.so.2"},
		},
		"packages that leave the links from /lib64 into /usr to another": {
			files: map[string]string{
				"usr/bin/a": bin(), gnu + "ld-linux-x86-64.so.2": lib(),
				"usr/lib64/ld-linux-x86-64.so.2": "-> ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
			},
			programs: []string{"usr/bin/a"},
			want:     []string{"usr/bin/a", gnu + "ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2"},
		},
		"scripts and static programs need nothing": {
			files:    map[string]string{"bin/s": "#!/bin/sh\n", "bin/static": lib(), "bin/empty": ""},
			programs: []string{"bin/s", "bin/static", "bin/empty"},
			want:     []string{"bin/s", "bin/static", "bin/empty"},
		},
		"a library that is nowhere is named, with who needs it": {
			files:    map[string]string{"usr/bin/a": lib("libx.so.1"), gnu + "libx.so.1": lib("libgone.so.3")},
			programs: []string{"usr/bin/a"},
			wantErr:  gnu + "libx.so.1 needs libgone.so.3, which no package in the build root provides",
		},
		"a loader that is nowhere": {
			files: map[string]string{"usr/bin/a": bin()}, programs: []string{"usr/bin/a"},
			wantErr: "usr/bin/a: its loader " + loader,
		},
		"a program that is not there": {
			files: map[string]string{}, programs: []string{"usr/bin/a"}, wantErr: "usr/bin/a (asked for): ",
		},
		"a file that is cut short": {
			files: map[string]string{"usr/bin/a": bin("libc.so.6")[:200]}, programs: []string{"usr/bin/a"},
			want: []string{"usr/bin/a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			writeTree(t, root, tt.files)
			if err := mergeUsr(root); err != nil {
				t.Fatal(err)
			}
			got, err := closure(root, tt.programs)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("got %v, want %q", err, tt.wantErr)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A build root is a foreign system, whose links must not lead to this machine's files.
func TestResolveInStaysInTheRoot(t *testing.T) {
	outside := t.TempDir()
	writeTree(t, outside, map[string]string{"secret": "x"})
	root := t.TempDir()
	writeTree(t, root, map[string]string{
		"usr/bin/real": "x", "usr/bin/rel": "-> real", "usr/bin/up": "-> ../../usr/bin/real", "abs": "-> /usr/bin/real",
		"bin":   "-> usr/bin",
		"chain": "-> /bin/rel", "out": "-> " + outside + "/secret", "climb": "-> ../../../../../../../.." + outside +
			"/secret",
		"loop": "-> loop", "ping": "-> pong", "pong": "-> /ping", "dangling": "-> nowhere", "self": "-> .",
	})
	for path, want := range map[string]string{
		"/usr/bin/real": "usr/bin/real", "usr/bin/real": "usr/bin/real", "/usr/bin/rel": "usr/bin/real",
		"/usr/bin/up": "usr/bin/real",
		"/abs":        "usr/bin/real", "/bin/real": "usr/bin/real", "/chain": "usr/bin/real",
		"/../../abs":     "usr/bin/real",
		"/self/self/abs": "usr/bin/real",
	} {
		if got, err := resolveIn(root, path); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]string{
		"/loop": "too many symbolic links in /loop", "/ping": "too many symbolic links",
		"/loop/x":   "too many symbolic links",
		"/dangling": "no such file", "/out": "no such file", "/climb": "no such file",
		"/usr/bin/real/x": "not a directory",
	} {
		if got, err := resolveIn(root, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestFindProgram(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{"usr/sbin/x": "x", "bin/x": "x", "bin/y": "-> /usr/sbin/x",
		"usr/bin/z": "-> /etc/passwd", "bin/d/f": "x"})
	for name, want := range map[string]string{"x": "usr/sbin/x", "y": "bin/y"} {
		if got, err := findProgram(root, name); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"z", "d", "gone"} {
		if got, err := findProgram(root, name); err == nil || err.Error() != "program "+name+
			" is in none of the packages" {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func FuzzModuleInfo(f *testing.F) {
	f.Add(elfFile(f, "", nil, "depends=a,b\x00vermagic=6.1\x00"))
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for k := range moduleInfo(b) {
			if strings.Contains(k, "=") {
				t.Errorf("key %q", k)
			}
		}
	})
}
