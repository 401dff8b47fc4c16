package inspect

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

var machineFiles = map[string]string{
	"sys/devices/system/cpu/online": "0-1\n",
	"proc/cpuinfo":                  "processor\t: 0\n\nprocessor\t: 1\n",
	"proc/meminfo":                  "MemTotal: 1024 kB\n",
}

func tarball(t testing.TB, prefix string, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Backward(lists.Keys(files)) {
		data := files[name]
		if err := w.WriteHeader(&tar.Header{Name: prefix + name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func put(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for name, data := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	someHwloc = "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n" +
		"<object type=\"Machine\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" " +
		"complete_nodeset=\"0x1\">" +
		"<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" " +
		"complete_nodeset=\"0x1\" local_memory=\"1024\"/>" +
		"<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" " +
		"complete_nodeset=\"0x1\"/></object>\n</topology>\n"
	someNCCL = "<system version=\"1\">\n  <cpu numaid=\"0\" affinity=\"ffffffff\" arch=\"x86_64\" " +
		"vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\"/>\n</system>\n"
	someMatrix = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-7\t0\nGPU1\tPHB\t X \t0-7\t0\n"
	someText   = "# fixture\nPath: box/proc/cpuinfo\nLines: 1\nprocessor\t: 0\nMode: 644\n"
)

func TestOpenKnowsByContent(t *testing.T) {
	t.Parallel()
	dir := put(t, t.TempDir(), machineFiles)
	put(t, filepath.Join(dir, "around", "inner"), machineFiles)
	put(t, dir, map[string]string{
		"a.png": string(tarball(t, "", machineFiles)), "b.xml": string(tarball(t, "box/", machineFiles)),
		"c.tar": someHwloc, "d": someNCCL, "e.zst": someMatrix, "f.gz": someText,
		"lspci": "00:00.0 Host bridge [0600]: Intel Corporation 440FX [8086:1237] (rev 02)\n\n00:01.0 ISA bridge " +
			"[0601]: Intel Corporation 82371SB [8086:7000]\n",
		"long.txt":   strings.Repeat("log line\n", 20_000) + someMatrix,
		"prose.txt":  "This is my machine:\n\n$ cat box.xml\n" + someHwloc + "$ exit\n",
		"page.html":  "<pre><code>" + html.EscapeString(someNCCL) + "</code></pre>\n",
		"prompt.log": "root@node1:~# cat $NCCL_TOPO_DUMP_FILE\n" + someNCCL + "root@node1:~#\n",
	})
	for _, test := range []struct{ path, format, kind string }{
		{".", "directory", topology.SourceTree},
		{"around", "directory", topology.SourceTree},
		{"a.png", "archive", topology.SourceTree},
		{"b.xml", "archive", topology.SourceTree},
		{"c.tar", "hwloc XML", topology.SourceHwloc},
		{"d", "NCCL topology XML", topology.SourceNCCL},
		{"e.zst", "nvidia-smi topo -m", topology.SourceTopo},
		{"f.gz", "text archive", topology.SourceTree},
		{"lspci", "lspci", topology.SourceLspci},
		{"long.txt", "nvidia-smi topo -m", topology.SourceTopo},
		{"prose.txt", "hwloc XML", topology.SourceHwloc},
		{"page.html", "NCCL topology XML", topology.SourceNCCL},
		{"prompt.log", "NCCL topology XML", topology.SourceNCCL},
	} {
		t.Run(test.path, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, test.path)
			o, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			if o.Format != test.format || o.Name != path {
				t.Errorf("got %q called %q, want %q called %q", o.Format, o.Name, test.format, path)
			}
			h, err := o.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if p := h.Provenance; p.Kind != test.kind || p.ThisSystem {
				t.Errorf("provenance %+v, want kind %q", p, test.kind)
			}
			if _, err := ReadFile(t.Context(), path); err != nil {
				t.Errorf("ReadFile: %v", err)
			}
		})
	}
}

func TestOpenOfPartsWithoutTheirPath(t *testing.T) {
	t.Parallel()
	system := map[string]string{"cpu/online": "0-1\n", "node/node0/cpulist": "0-1\n"}
	for _, cpu := range []string{"0", "1"} {
		dir := "cpu/cpu" + cpu + "/topology/"
		system[dir+"thread_siblings_list"], system[dir+"core_id"] = cpu+"\n", cpu+"\n"
	}
	sys := map[string]string{"class/net/lo/mtu": "65536\n"}
	for name, data := range system {
		sys["devices/system/"+name] = data
	}
	one := tarball(t, "a/", system)
	two := slices.Concat(one[:len(one)-1024], tarball(t, "b/", system))
	dir := put(t, t.TempDir(), map[string]string{"system.tar": string(tarball(t, "", system)),
		"in-one.tar": string(tarball(t, "host/system/", system)), "sys.tar": string(tarball(t, "", sys)),
		"two.tar": string(two)})
	for _, name := range []string{"system.tar", "in-one.tar", "sys.tar", "two.tar/a"} {
		h, err := ReadFile(t.Context(), filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		} else if len(h.Cores) != 2 || len(h.NUMANodes) != 1 {
			t.Errorf("%s: %d cores and %d nodes, want 2 and 1", name, len(h.Cores), len(h.NUMANodes))
		}
	}
	var many *ManyError
	if _, err := Open(filepath.Join(dir, "two.tar")); !errors.As(err, &many) || len(many.Dirs) != 2 {
		t.Errorf("two.tar: %v, want two machines", err)
	}
	put(t, filepath.Join(dir, "copy"), system)
	if _, err := List(filepath.Join(dir, "copy")); err == nil || !strings.Contains(err.Error(), "tar -c") {
		t.Errorf("a directory: %v, want the command that makes an archive", err)
	}
}

func TestOpenOfSeveralMachines(t *testing.T) {
	t.Parallel()
	one, two := tarball(t, "m/desktop/", machineFiles), tarball(t, "m/server/", machineFiles)
	archive := append(one[:len(one)-1024:len(one)-1024], two...)
	dir := put(t, t.TempDir(), map[string]string{"dumps.tar": string(archive), "x/readme": ""})
	file := filepath.Join(dir, "dumps.tar")
	_, err := Open(file)
	var many *ManyError
	if !errors.As(err, &many) {
		t.Fatalf("got %v, want a ManyError", err)
	}
	if want := fmt.Sprintf("%s holds 2 machines: name one, such as %q", file, file+"/m/desktop"); err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	for _, path := range many.Dirs {
		h, err := ReadFile(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if h.Provenance.Name != path {
			t.Errorf("called %q, want %q", h.Provenance.Name, path)
		}
	}
	for path, want := range map[string]error{file + "/m/none": fs.ErrNotExist,
		filepath.Join(dir, "x", "none"): fs.ErrNotExist} {
		if _, err := Open(path); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
	put(t, filepath.Join(dir, "one"), machineFiles)
	put(t, filepath.Join(dir, "two"), machineFiles)
	if _, err := Open(dir); !errors.As(err, &many) || len(many.Dirs) != 2 {
		t.Errorf("got %v, want an error that names two directories", err)
	}
	if _, err := Open(filepath.Join(dir, "x")); !errors.As(err, &many) || !strings.Contains(err.Error(),
		"is a directory with dumps") {
		t.Errorf("got %v, want an error about a directory without a machine", err)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	dir := put(t, t.TempDir(), map[string]string{
		"empty": "", "text": "Dear all,\nhere it is\n", "noise": "\x00\x01\x02\x03",
		"cut.tar":     string(tarball(t, "", machineFiles)[:700]),
		"nothing.tar": string(tarball(t, "dev/", machineFiles)[1536:]), "schema.tar": "", "json.tar": "",
		"output.tar": "",
		"bad.ttar":   "Path: a\nLines: 9\n",
		"dmesg":      "[ 1234.567890] usb 1-1: new device\n[ 1234.667890] usb 1-1: gone\n",
		"dmesg-T":    "[Sat Nov 28 01:59:37 2026] usb 1-1: new device\n",
		"journal":    "Nov 28 01:59:37 node1 kernel: usb 1-1: new device\n",
		"nodedev":    "<device>\n<capability type='pci'>\n<domain>0</domain>\n</capability>\n</device>\n",
		"virsh":      "<capabilities>\n<host>\n<topology>\n<cells num='1'/>\n</topology>\n</host>\n</capabilities>\n",
	})
	with := func(name, info string) {
		files := map[string]string{snapshotFile: info}
		for k, v := range machineFiles {
			files[k] = v
		}
		put(t, dir, map[string]string{name: string(tarball(t, "", files))})
	}
	with("schema.tar", `{"schema":"rackless/snapshot/v9"}`)
	with("json.tar", `{"schema":`)
	with("output.tar",
		`{"schema":"rackless/snapshot/v1","commands":[{"argv":["virsh","list"],"output":"rackless/commands/000"}]}`)
	for _, test := range []struct{ path, err string }{
		{"none", "no such file or directory"},
		{"none/at/all", "no such file or directory"},
		{"empty", "empty: not a machine in a form that rackless knows: it is empty; rackless inspect reads a " +
			"snapshot, an archive of /sys and /proc"},
		{"text", `text: not a machine in a form that rackless knows: it starts with "Dear all,"; ` +
			"rackless inspect reads a snapshot"},
		{"text/inside", `text: it is not an archive, so there is no "inside" in it`},
		{"noise", `noise: not a machine in a form that rackless knows: it starts with "\x00\x01\x02\x03"`},
		{"cut.tar", `cut.tar: archive, byte 0, at "sys/devices/system/cpu/online": the archive is cut off`},
		{"bad.ttar", `bad.ttar: line 2: "a" has 0 lines, not 9: the text is cut off`},
		{"schema.tar",
			`schema.tar: rackless/snapshot.json: schema "rackless/snapshot/v9": want "rackless/snapshot/v1"`},
		{"json.tar", `json.tar: rackless/snapshot.json: unexpected end of JSON input`},
		{"output.tar", `output.tar: rackless/snapshot.json: output of "virsh list": `},
		{"dmesg", "dmesg: not a machine in a form that rackless knows: it is a kernel log (dmesg) with none of the " +
			"lines"},
		{"dmesg-T", "it is a kernel log (dmesg) with none of the lines"},
		{"journal", "it is a kernel log (dmesg) with none of the lines"},
		{"nodedev", `it starts with "<device>"; rackless inspect reads`},
		{"virsh", `it starts with "<capabilities>"; rackless inspect reads`},
	} {
		t.Run(test.path, func(t *testing.T) {
			t.Parallel()
			_, err := ReadFile(t.Context(), filepath.Join(dir, test.path))
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
	if _, err := Open(filepath.Join(dir, "text")); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v, want %v", err, ErrUnknown)
	}
	if _, err := Open(os.DevNull); err == nil || !strings.Contains(err.Error(), "neither a file nor a directory") {
		t.Errorf("a device: %v", err)
	}
	if _, err := ReadStream(t.Context(), strings.NewReader(""), "standard input"); err == nil ||
		!strings.HasPrefix(err.Error(), "standard input: ") {
		t.Errorf("an empty stream: %v", err)
	}
	if _, err := ReadRoot(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a root that is not there: %v", err)
	}
	if _, err := ReadRoot(t.Context(), dir); !errors.Is(err, ErrNoMachine) {
		t.Errorf("a root that is none: %v", err)
	}
	if h, err := ReadRoot(t.Context(), put(t, t.TempDir(), machineFiles)); err != nil ||
		h.Provenance.Kind != topology.SourceTree {
		t.Errorf("a root: %v, %v", h, err)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	machine := string(tarball(t, "", machineFiles))
	dir := t.TempDir()
	put(t, filepath.Join(dir, "many", "tree"), machineFiles)
	put(t, filepath.Join(dir, "many"), map[string]string{
		"b.tar.zst": "broken", "a": machine, "matrix.txt": someMatrix, "README": "words", "empty": "",
		"sub/deeper.tar": machine,
	})
	put(t, filepath.Join(dir, "around", "box"), machineFiles)
	put(t, filepath.Join(dir, "machine"), machineFiles)
	put(t, filepath.Join(dir, "nothing"), map[string]string{"README": "words"})
	put(t, dir, map[string]string{"file.tar": machine})
	for _, test := range []struct {
		path string
		want []string
		err  string
	}{
		{"many", []string{"many/a", "many/b.tar.zst", "many/matrix.txt", "many/tree"}, ""},
		{"around", nil, ""},
		{"machine", nil, ""},
		{"file.tar", nil, ""},
		{"none", nil, ""},
		{"nothing", nil, "neither /sys and /proc of a machine nor a dump of one in it"},
	} {
		got, err := List(filepath.Join(dir, test.path))
		var want []string
		for _, w := range test.want {
			want = append(want, filepath.Join(dir, w))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.path, diff)
		}
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got %v, want %q", test.path, err, test.err)
		}
	}
}

func TestCommandsOfThisMachine(t *testing.T) {
	t.Parallel()
	run := Live().Run
	if out, err := run(t.Context(), "sh", "-c", "echo $LC_ALL; echo complaint >&2"); string(out) != "C\n" ||
		err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	if out, err := run(t.Context(), "sh", "-c", "echo complaint >&2; exit 3"); string(out) != "complaint\n" ||
		err == nil || err.Error() != "exit status 3" {
		t.Errorf("got %q, %v; want what it complained of and its status", out, err)
	}
	for _, name := range []string{"rackless-has-no-such-program", "/nowhere/program"} {
		if _, err := run(t.Context(), name); err != fs.ErrNotExist {
			t.Errorf("%s: got %v, want %v", name, err, fs.ErrNotExist)
		}
	}
	if _, err := run(t.Context(), "sh", "-c", "head -c 17000000 /dev/zero"); err == nil ||
		err.Error() != "it printed more than 16 MiB" {
		t.Errorf("a long output: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := run(ctx, "sleep", "60"); err == nil || time.Since(start) > time.Minute {
		t.Errorf("a command that hangs: %v after %v", err, time.Since(start))
	}
}

func TestCommandsAreRecorded(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	defer close(hangs)
	r := &commandRecorder{run: func(_ context.Context, argv ...string) ([]byte, error) {
		switch argv[0] {
		case "good":
			return []byte("out " + argv[1]), nil
		case "bad":
			return []byte("why"), errors.New("exit status 1")
		case "hangs":
			<-hangs
		}
		return nil, fs.ErrNotExist
	}}
	ask := func(run func(context.Context, ...string) ([]byte, error)) []string {
		var got []string
		for _, argv := range [][]string{{"good", "1"}, {"good", "2"}, {"bad"}, {"hangs"}, {"none"}} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errHangs)
			if argv[0] != "hangs" {
				ctx = t.Context()
			}
			out, err := run(ctx, argv...)
			cancel()
			got = append(got, fmt.Sprintf("%q %v %v %v", out, err, errors.Is(err, errHangs),
				errors.Is(err, fs.ErrNotExist)))
		}
		return got
	}
	want := []string{
		`"out 1" <nil> false false`, `"out 2" <nil> false false`, `"why" exit status 1 false false`,
		`"" ` + errHangs.Error() + ` true false`, `"" file does not exist false true`,
	}
	if diff := cmp.Diff(want, ask(r.Run)); diff != "" {
		t.Errorf("recorder (-want +got):\n%s", diff)
	}
	s := snapshot{commands: r.commands()}
	var b bytes.Buffer
	s.entries = []tree.Entry{{Name: "proc/cpuinfo", Data: []byte("processor : 0\n")}}
	if err := s.write(&b, SnapshotOptions{}); err != nil {
		t.Fatal(err)
	}
	o, err := openStream(&b, "snapshot", "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, ask(o.Source.Run)); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	if _, err := o.Source.Run(t.Context(), "never", "asked"); err != fs.ErrNotExist {
		t.Errorf("a command that was not run: %v", err)
	}
}

func TestUnpackedSnapshotIsASnapshot(t *testing.T) {
	t.Parallel()
	b := snapshotOf(t, identified(t), SnapshotOptions{Tool: "rackless test"})
	dir := t.TempDir()
	archive := tar.NewReader(strings.NewReader(unpacked(t, b)))
	for {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			mode := fs.FileMode(h.Mode & 0o777)
			if h.Mode&0o1000 != 0 {
				mode |= fs.ModeSticky
			}
			err = errors.Join(os.Mkdir(file, 0o755), os.Chmod(file, mode))
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, file)
		default:
			data, readErr := io.ReadAll(archive)
			err = errors.Join(readErr, os.WriteFile(file, data, fs.FileMode(h.Mode)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	o, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if o.Format != "snapshot" {
		t.Errorf("it is a %s", o.Format)
	}
	got, err := o.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(hostJSON(t, reread(t, b)), hostJSON(t, got)); diff != "" {
		t.Errorf("host (-packed +unpacked):\n%s", diff)
	}
	if got.Provenance.Tool != "rackless test" {
		t.Errorf("tool %q", got.Provenance.Tool)
	}
	want := topology.Unread{Path: "/sys/devices/system/cpu/smt/control", Why: "permission denied"}
	if !slices.Contains(got.Unread, want) {
		t.Errorf("unread: %v; want %v among them", got.Unread, want)
	}
}
