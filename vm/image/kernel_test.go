package image

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

func bzImage(payload []byte) []byte {
	const sectors, offset = 3, 100
	b := make([]byte, (sectors+1)*512+offset)
	le := binary.LittleEndian
	b[setupSectsAt] = sectors
	copy(b[headerMagicAt:], "HdrS")
	le.PutUint16(b[versionAt:], 0x20f)
	le.PutUint32(b[payloadOffsetAt:], offset)
	le.PutUint32(b[payloadLengthAt:], uint32(len(payload)))
	return append(append(b, payload...), "the rest of the decompressor"...)
}

func withSize(compressed []byte, size int) []byte {
	return binary.LittleEndian.AppendUint32(compressed, uint32(size))
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstded(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(b, nil)
}

func xzed(t testing.TB, b []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("xz", append([]string{"--stdout"}, args...)...)
	cmd.Stdin = bytes.NewReader(b)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("xz: %v (make test installs xz-utils)", err)
	}
	return out
}

func TestExtractVmlinux(t *testing.T) {
	kernel := append(elfFile(t, "", nil, ""), bytes.Repeat([]byte("code and data "), 5000)...)
	odd := bzImage(gzipped(t, kernel))
	change := func(at int, v ...byte) []byte {
		b := bytes.Clone(odd)
		copy(b[at:], v)
		return b
	}
	old := append(bytes.Repeat([]byte{0}, 512), bzImage(gzipped(t, kernel))...)[512:]
	for name, tt := range map[string]struct {
		image []byte
		want  string
	}{
		"gzip": {bzImage(gzipped(t, kernel)), ""},
		"zstd": {bzImage(withSize(zstded(t, kernel), len(kernel))), ""},
		"xz":   {bzImage(withSize(xzed(t, kernel, "--check=crc32"), len(kernel))), ""},
		"xz, filtered for x86": {bzImage(withSize(xzed(t, kernel, "--check=crc32", "--x86", "--lzma2=dict=32MiB"),
			len(kernel))), ""},
		"not compressed":        {bzImage(kernel), ""},
		"nothing":               {nil, "not an x86 bzImage"},
		"an ELF kernel":         {kernel, "not an x86 bzImage: no HdrS at 0x202"},
		"cut in the header":     {old[:0x240], "not an x86 bzImage"},
		"cut in the payload":    {old[:len(old)-100], "does not fit in"},
		"an old protocol":       {change(versionAt, 0x07, 0x02), "boot protocol 0x207 is older than 0x208"},
		"a payload of no bytes": {change(payloadLengthAt, 0, 0, 0, 0), "does not fit in"},
		"a payload at the end of the address space": {change(payloadOffsetAt, 0xff, 0xff, 0xff, 0xff),
			"does not fit in"},
		"a length that wraps": {change(payloadLengthAt, 0xff, 0xff, 0xff, 0xff),
			"does not fit in"},
		"lz4": {bzImage([]byte("\x02\x21\x4c\x18 and so on")),
			"decompress: data that starts with 02 21 4c 18 20 61 is not gzip, xz or zstd"},
		"damaged gzip": {change(len(odd)-200, 'x', 'x', 'x', 'x'), "decompress: "},
		"damaged xz":   {bzImage([]byte("\xfd7zXZ\x00 and so on")), "decompress: "},
		"damaged zstd": {bzImage([]byte("\x28\xb5\x2f\xfd and so on")), "decompress: "},
		"something else inside": {bzImage(gzipped(t, []byte("no kernel at all"))),
			"what was inside is not an ELF kernel"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := extractVmlinux(tt.image)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil || !bytes.Equal(got, kernel) {
				t.Errorf("got %d bytes, %v, want the %d that went in", len(got), err, len(kernel))
			}
		})
	}
	t.Run("setup_sects of 0 means 4", func(t *testing.T) {
		b := change(setupSectsAt, 0)
		b = append(b[:1024:1024], append(make([]byte, 512), b[1024:]...)...)
		binary.LittleEndian.PutUint32(b[payloadOffsetAt:], 100)
		if got, err := extractVmlinux(b); err != nil || !bytes.Equal(got, kernel) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	})
}

func FuzzExtractVmlinux(f *testing.F) {
	kernel := elfFile(f, "", nil, "")
	f.Add(bzImage(kernel))
	f.Add(bzImage(gzipped(f, kernel)))
	f.Add(bzImage(withSize(zstded(f, kernel), len(kernel))))
	f.Add(bzImage(withSize(xzed(f, kernel), len(kernel))))
	f.Add([]byte("HdrS"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := extractVmlinux(b)
		if err == nil && !bytes.HasPrefix(got, []byte("\x7fELF")) {
			t.Errorf("% x is taken for a kernel", got[:min(len(got), 16)])
		}
	})
}

func names(mods []module) []string {
	var out []string
	for _, m := range mods {
		if m.Optional {
			m.Name = "-" + m.Name
		}
		out = append(out, m.Name)
	}
	return out
}

func TestModulesAreLoadedAfterWhatTheyNeed(t *testing.T) {
	mod := func(depends string) string {
		return string(elfFile(t, "", nil, "license=GPL\x00depends="+depends+"\x00"))
	}
	tree := map[string]string{
		"modules.builtin":                         "kernel/drivers/virtio/virtio_pci.ko\n",
		"kernel/drivers/infiniband/rdma_rxe.ko":   mod("ib_core,udp-tunnel"),
		"kernel/drivers/infiniband/ib_core.ko.xz": string(xzed(t, []byte(mod("")))),
		"kernel/net/udp_tunnel.ko.zst":            string(zstded(t, []byte(mod("base")))),
		"kernel/net/base.ko.gz":                   string(gzipped(t, []byte(mod("")))),
		"kernel/crypto/crc32-pclmul.ko":           mod("base"),
		"kernel/lonely.ko":                        mod("gone"),
	}
	dep := `kernel/drivers/infiniband/rdma_rxe.ko: kernel/net/udp_tunnel.ko.zst kernel/net/base.ko.gz ` +
		`kernel/drivers/infiniband/ib_core.ko.xz
kernel/drivers/infiniband/ib_core.ko.xz:
kernel/net/udp_tunnel.ko.zst: kernel/net/base.ko.gz
kernel/net/base.ko.gz:
kernel/crypto/crc32-pclmul.ko: kernel/net/base.ko.gz
kernel/lonely.ko: kernel/gone.ko
`
	for _, how := range []string{"by modules.dep", "by their own records"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			writeTree(t, dir, tree)
			if how == "by modules.dep" {
				writeTree(t, dir, map[string]string{"modules.dep": dep})
			}
			set, err := readModules(dir)
			if err != nil {
				t.Fatal(err)
			}
			got, err := set.load([]string{"virtio_pci", "rdma_rxe"}, []string{"crc32_generic", "crc32-pclmul"})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"-base", "-crc32_pclmul", "ib_core", "udp_tunnel", "rdma_rxe"}
			if how != "by modules.dep" { // records leave the order open
				want[2], want[3] = want[3], want[2]
			}
			if diff := cmp.Diff(want, names(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, m := range got {
				if !bytes.HasPrefix(m.Data, []byte("\x7fELF")) {
					t.Errorf("%s is not decompressed", m.Name)
				}
			}
			if _, err := set.load([]string{"siw"}, nil); err == nil || !strings.HasSuffix(err.Error(),
				"has no module siw: take another kernel") {
				t.Errorf("a module that the kernel lacks: %v", err)
			}
			if _, err := set.load([]string{"lonely"}, nil); err == nil || !strings.Contains(err.Error(), "gone") {
				t.Errorf("a module that needs one that is not there: %v", err)
			}
		})
	}
}

func TestModuleTreesThatAreWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no modules.builtin": {map[string]string{"kernel/a.ko": "x"}, "modules.builtin: no such file"},
		"no modules":         {map[string]string{"modules.builtin": "", "kernel/README": "x"}, "no kernel modules"},
		"modules.dep is none": {map[string]string{"modules.builtin": "", "modules.dep": "hello\n"},
			`no colon in "hello"`},
		"damaged xz":   {map[string]string{"modules.builtin": "", "kernel/a.ko.xz": "hello"}, "a.ko.xz: "},
		"damaged zstd": {map[string]string{"modules.builtin": "", "kernel/a.ko.zst": "hello"}, "a.ko.zst: "},
		"damaged gzip": {map[string]string{"modules.builtin": "", "kernel/a.ko.gz": "hello"}, "a.ko.gz: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeTree(t, dir, tt.files)
			set, err := readModules(dir)
			if err == nil {
				_, err = set.load([]string{"a"}, nil)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestKernelOfThisMachine(t *testing.T) {
	found, err := filepath.Glob("/boot/vmlinuz-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Logf("%s: %v", path, err)
			continue
		}
		if _, err := extractVmlinux(b); err != nil && !strings.Contains(err.Error(), "are known") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
