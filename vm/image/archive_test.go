package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

func made(t testing.TB) (cache string, images []*Image) {
	t.Helper()
	cache = t.TempDir()
	node := nodeRecipe("sid", "amd64", "linux-image-amd64", "")
	for _, img := range []*Image{
		{Name: Node.name, Key: node.Key(), Recipe: node, Kernel: "vmlinux", Initramfs: "initramfs.cpio"},
		{Name: QEMU.name, Key: qemuRecipe("amd64", "amd64").Key(), Recipe: qemuRecipe("amd64", "amd64"),
			Others: []string{"qemu-system-x86_64", "libc.so.6"}},
	} {
		e := at(cache, img.Key)
		err := e.make(t.Context(), Options{}, img, func(_ context.Context, _ Options, _, out string, img *Image) error {
			var errs []error
			for _, name := range img.files() {
				errs = append(errs, os.WriteFile(filepath.Join(out, name), []byte("the bytes of "+name), 0o644))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, img)
	}
	return cache, images
}

func TestImagesAreCarriedToAnotherCache(t *testing.T) {
	t.Parallel()
	_, images := made(t)
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	var plain, signed bytes.Buffer
	digest, err := Export(t.Context(), &plain, runtime.GOARCH, images, nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Export(t.Context(), &signed, runtime.GOARCH, images, private); err != nil || again != digest {
		t.Errorf("signed: %s, %v; want %s", again, err, digest)
	}
	other, _, _ := ed25519.GenerateKey(nil)
	for _, tt := range []struct {
		name  string
		from  *bytes.Buffer
		trust Trust
		want  string // expected error
	}{
		{"by the digest", &plain, Trust{Digest: digest}, ""},
		{"by the key", &signed, Trust{Key: public}, ""},
		{"by both", &signed, Trust{Key: public, Digest: digest}, ""},
		{"by nothing", &signed, Trust{}, "nothing says whether to believe the archive"},
		{"by another digest", &signed, Trust{Digest: "sha256:00", Key: public}, "its digest is " + digest},
		{"by another key", &signed, Trust{Key: other}, "its signature is not by this key"},
		{"by a key, and it is not signed", &plain, Trust{Key: public}, "it is not signed"},
	} {
		cache := filepath.Join(t.TempDir(), "new")
		o := Options{Cache: cache}
		got, err := Import(limited(t), bytes.NewReader(tt.from.Bytes()), o, tt.trust)
		if tt.want != "" {
			if left, _ := os.ReadDir(cache); err == nil || !strings.Contains(err.Error(), tt.want) || len(left) > 0 {
				t.Errorf("%s: %v, and there is %v", tt.name, err, left)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for i, img := range got {
			want := *images[i]
			want.Dir, want.Imported = img.Dir, true
			if diff := cmp.Diff(&want, img); diff != "" {
				t.Errorf("%s: %s", tt.name, diff)
			}
		}
		found, err := Node.Ensure(limited(t), o)
		if err != nil || found.Key != images[0].Key {
			t.Errorf("%s: Ensure: %v, %v", tt.name, found, err)
		}
		if _, err := QEMU.Find(limited(t), o); err != nil {
			t.Errorf("%s: QEMU: %v", tt.name, err)
		}
		info, err := os.Stat(filepath.Join(got[1].Dir, "qemu-system-x86_64"))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: the loader: %v, %v", tt.name, info, err)
		}
		if _, err := Import(limited(t), bytes.NewReader(tt.from.Bytes()), o, tt.trust); err != nil {
			t.Errorf("%s: once more: %v", tt.name, err)
		}
		if again, err := Export(t.Context(), io.Discard, runtime.GOARCH, got, nil); err != nil || again != digest {
			t.Errorf("%s: exported again: %s, %v; want %s", tt.name, again, err, digest)
		}
	}
}

// Recipes of another rackless do not serve. An image built here serves only for its own release.
func TestWhichImagesServe(t *testing.T) {
	t.Parallel()
	r := nodeRecipe("bookworm", "amd64", "linux-image-amd64", "")
	other := nodeRecipe("sid", "amd64", "linux-image-amd64", "")
	old := other
	old.FilesDigest = "00"
	for _, tt := range []struct {
		img  Image
		want bool
	}{{Image{Recipe: r}, true}, {Image{Recipe: other}, false}, {Image{Recipe: other, Imported: true}, true},
		{Image{Recipe: old, Imported: true}, false}} {
		if tt.img.serves(r) != tt.want {
			t.Errorf("%+v: want %v", tt.img, tt.want)
		}
	}
}

type tarEntry struct {
	name string
	text string
	kind byte
}

func blob(text string) tarEntry { return tarEntry{name: blobDir + hexOf(text), text: text} }

func hexOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func tarOf(t testing.TB, entries ...tarEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Size: int64(len(e.text)), Typeflag: tar.TypeReg, Mode: 0o644}
		if e.kind != 0 {
			h.Typeflag, h.Linkname = e.kind, "/etc/passwd"
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(e.text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func indexOf(t testing.TB, change func(*archiveIndex)) tarEntry {
	t.Helper()
	r := nodeRecipe("sid", "amd64", "linux-image-amd64", "")
	x := archiveIndex{1, runtime.GOARCH, []*Image{{
		Name: Node.name, Key: r.Key(), Recipe: r, Kernel: "k", Initramfs: "i",
		Sums: []sum{{"k", 6, hexOf("kernel")}, {"i", 4, hexOf("root")}}}}}
	if change != nil {
		change(&x)
	}
	b, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return tarEntry{name: indexName, text: string(b)}
}

func believe(_, _ []byte) error { return nil }

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	good := []tarEntry{indexOf(t, nil), blob("kernel"), blob("root")}
	file := func(change func(*sum)) tarEntry {
		return indexOf(t, func(x *archiveIndex) { change(&x.Images[0].Sums[0]) })
	}
	image := func(change func(*Image)) tarEntry {
		return indexOf(t, func(x *archiveIndex) { change(x.Images[0]) })
	}
	for name, tt := range map[string]struct {
		entries []tarEntry
		cut     int // bytes at the end
		want    string
	}{
		"good":               {good, 0, ""},
		"nothing":            {nil, 0, "not an archive of images"},
		"another tar file":   {[]tarEntry{{name: "etc/passwd", text: "x"}}, 0, "not an archive of images"},
		"an index as a link": {[]tarEntry{{name: indexName, kind: tar.TypeSymlink}}, 0, "not an archive of images"},
		"an index without end": {[]tarEntry{{name: indexName, text: strings.Repeat(" ", maxIndex+1)}}, 0,
			"not an archive of images"},
		"a long signature": {[]tarEntry{good[0], {name: signatureName, text: strings.Repeat("x", 65)}}, 0,
			"not an archive of images"},
		"no JSON":   {[]tarEntry{{name: indexName, text: "{"}}, 0, "index.json: "},
		"no images": {[]tarEntry{indexOf(t, func(x *archiveIndex) { x.Images = nil })}, 0, "has 0 images"},
		"a null image": {[]tarEntry{indexOf(t, func(x *archiveIndex) { x.Images[0] = nil })}, 0,
			"another version"},
		"another CPU":          {[]tarEntry{indexOf(t, func(x *archiveIndex) { x.Arch = "vax" })}, 0, "images for vax"},
		"another format":       {[]tarEntry{indexOf(t, func(x *archiveIndex) { x.Format = 2 })}, 0, "in format 2"},
		"a key that is a path": {[]tarEntry{image(func(i *Image) { i.Key = "../../x" })}, 0, "another version"},
		"another kind": {[]tarEntry{image(func(i *Image) { i.Name = "host" })}, 0,
			"a kind that is not exchanged"},
		"a path": {[]tarEntry{file(func(s *sum) { s.Name = "../k" })}, 0,
			"\"../k\" of 6 bytes, which is not taken"},
		"an absolute path":   {[]tarEntry{file(func(s *sum) { s.Name = "/k" })}, 0, "which is not taken"},
		"a hidden file":      {[]tarEntry{file(func(s *sum) { s.Name = ".k" })}, 0, "which is not taken"},
		"the manifest":       {[]tarEntry{file(func(s *sum) { s.Name = manifestName })}, 0, "which is not taken"},
		"a file twice":       {[]tarEntry{file(func(s *sum) { s.Name = "i" })}, 0, "which is not taken"},
		"a size below 0":     {[]tarEntry{file(func(s *sum) { s.Size = -1 })}, 0, "which is not taken"},
		"a size without end": {[]tarEntry{file(func(s *sum) { s.Size = 1 << 60 })}, 0, "which is not taken"},
		"no digest":          {[]tarEntry{file(func(s *sum) { s.SHA256 = "../x" })}, 0, "which is not taken"},
		"a file too many": {[]tarEntry{image(func(i *Image) { i.Sums = append(i.Sums, sum{"x", 0, hexOf("")}) })}, 0,
			`has the files ["i" "k" "x"], and needs ["i" "k"]`},
		"a kernel that is a path": {[]tarEntry{image(func(i *Image) { i.Kernel = "../../k" })}, 0, "and needs"},
		"other bytes": {[]tarEntry{good[0], {name: good[1].name, text: "kernal"}, good[2]}, 0,
			"k is not what the index says: the archive is damaged: get it again"},
		"another length": {[]tarEntry{good[0], {name: good[1].name, text: "kernel "}, good[2]}, 0,
			"of 7 bytes where k is to be"},
		"another order": {[]tarEntry{good[0], good[2], good[1]}, 0, "where k is to be"},
		"a link": {[]tarEntry{good[0], {name: good[1].name, kind: tar.TypeLink}, good[2]}, 0,
			"where k is to be"},
		"a device": {[]tarEntry{good[0], {name: good[1].name, kind: tar.TypeChar}, good[2]}, 0,
			"where k is to be"},
		"a file less": {good[:2], 0, "the archive ends before i: it was cut off"},
		"cut off":     {good, 1600, "unexpected EOF: the archive is damaged: get it again"},
	} {
		cache := t.TempDir()
		b := tarOf(t, tt.entries...)
		_, err := importTar(t.Context(), tar.NewReader(bytes.NewReader(b[:len(b)-tt.cut])), Options{Cache: cache},
			believe)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
		left, _ := filepath.Glob(filepath.Join(cache, "*"))
		hidden, _ := filepath.Glob(filepath.Join(cache, ".*"))
		for _, l := range append(left, hidden...) {
			if !strings.HasSuffix(l, ".lock") {
				t.Errorf("%s: left %s", name, l)
			}
		}
	}
	_, err := importTar(t.Context(), tar.NewReader(bytes.NewReader(tarOf(t, append(good, blob("more"))...))),
		Options{Cache: t.TempDir()}, believe)
	if err == nil || !strings.Contains(err.Error(), "which is not in its index") {
		t.Errorf("a file more: %v", err)
	}
}

// A killed import leaves nothing that looks like an image.
func TestAnImportThatEndsEarly(t *testing.T) {
	t.Parallel()
	_, images := made(t)
	var b bytes.Buffer
	digest, err := Export(t.Context(), &b, runtime.GOARCH, images, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Cache: t.TempDir()}
	half := at(o.Cache, images[0].Key).workDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(half, "out"), 0o700),
		os.WriteFile(filepath.Join(half, "out", "vmlinux"), []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Node.Find(t.Context(), o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half an image is found: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if _, err := Import(ctx, &b, o, Trust{Digest: digest}); err == nil ||
		!strings.Contains(err.Error(), "interrupted") {
		t.Errorf("after the end: %v", err)
	}
	if left, err := os.ReadDir(o.Cache); err != nil || len(left) > 1 { // only its lock
		t.Errorf("left: %v, %v", left, err)
	}
}

func FuzzImport(f *testing.F) {
	f.Add(tarOf(f, indexOf(f, nil), blob("kernel"), blob("root")))
	f.Add(tarOf(f, indexOf(f, func(x *archiveIndex) { x.Images[0].Sums[0].Name = "../../x" }), blob("kernel")))
	z, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(z.EncodeAll(tarOf(f, indexOf(f, nil), blob("kernel"), blob("root")), nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		above := t.TempDir()
		o := Options{Cache: filepath.Join(above, "cache")}
		if err := os.Mkdir(o.Cache, 0o755); err != nil {
			t.Fatal(err)
		}
		images, err := importTar(t.Context(), tar.NewReader(bytes.NewReader(b)), o, believe)
		for _, img := range images {
			if err := img.check(t.Context()); err != nil {
				t.Errorf("what was imported is %v", err)
			}
		}
		if _, packed := Import(t.Context(), bytes.NewReader(b), o, Trust{Digest: "sha256:"}); packed == nil {
			t.Errorf("believed; unpacked it is %v", err)
		}
		if all, _ := os.ReadDir(above); len(all) != 1 {
			t.Errorf("beside the cache there is %v", all)
		}
	})
}

func TestKeysAreThoseOfOpenSSL(t *testing.T) {
	t.Parallel()
	// Made by openssl genpkey -algorithm ed25519, and openssl pkey -pubout.
	const private = "-----BEGIN PRIVATE KEY-----\n" +
		"MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n" +
		"-----END PRIVATE KEY-----\n"
	const public = "-----BEGIN PUBLIC KEY-----\n" +
		"MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n" +
		"-----END PUBLIC KEY-----\n"
	key, err := ParsePrivateKey([]byte(private))
	if err != nil {
		t.Fatal(err)
	}
	pub, err := ParsePublicKey([]byte(public))
	if err != nil || !pub.Equal(key.Public()) {
		t.Errorf("%v, %v", pub, err)
	}
	x25519 := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: func() []byte {
		der, _ := hex.DecodeString("302e020100300506032b656e04220420" + strings.Repeat("11", 32))
		if _, err := x509.ParsePKCS8PrivateKey(der); err != nil {
			t.Fatal(err)
		}
		return der
	}()})
	for name, text := range map[string]string{"nothing": "", "the other key": public,
		"another algorithm": string(x25519),
		"damaged":           strings.Replace(private, "MC4C", "MC4D", 1)} {
		if _, err := ParsePrivateKey([]byte(text)); err == nil {
			t.Errorf("%s is a private key", name)
		}
	}
	if _, err := ParsePublicKey([]byte(private)); err == nil || fmt.Sprint(err) != "want a PEM file with a PUBLIC KEY" {
		t.Errorf("a private key as a public one: %v", err)
	}
}
